//! TLS: trusted servers, and admitted clients.

use std::path::{Path, PathBuf};

use ratekeeper_core::{Charge, Gcra, Key, Limit, Mode, Permits, Time};
use ratekeeper_store::conformance::limit;
use ratekeeper_store::{
    RedisConfig, RedisIdentity, RedisLogin, RedisSentinels, RedisServers, RedisStore, RedisTls,
    Store, StoreError,
};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair,
};
use tempfile::TempDir;

use crate::ports::free_port;
use crate::server::{Server, wait_a_little, with_tls};

/// A certificate authority.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // OpenSSL takes a certificate for self-signed if both its names are the default.
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, "authority");
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    fn pem(&self) -> Vec<u8> {
        self.0.pem().into_bytes()
    }

    fn sign(&self, name: &str) -> RedisIdentity {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        RedisIdentity {
            certificate: certificate.pem().into_bytes(),
            key: key.serialize_pem().into_bytes(),
        }
    }
}

fn write(directory: &TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = directory.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Returns the decision over TLS.
fn ask(port: u16, tls: RedisTls) -> Result<bool, String> {
    ask_of(RedisServers::One(format!("rediss://127.0.0.1:{port}")), tls)
}

fn ask_of(servers: RedisServers, tls: RedisTls) -> Result<bool, String> {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = store_of(servers, tls).map_err(|error| error.to_string())?;
    decide(&runtime, &store)
}

pub(crate) fn store_of(servers: RedisServers, tls: RedisTls) -> Result<RedisStore, StoreError> {
    RedisStore::new(RedisConfig {
        servers,
        tls,
        deadline: std::time::Duration::from_secs(2),
        ..RedisConfig::new("")
    })
}

pub(crate) fn decide(
    runtime: &tokio::runtime::Runtime,
    store: &RedisStore,
) -> Result<bool, String> {
    let limit = Limit {
        name: "daily".into(),
        ..limit(0, Gcra::token_bucket("1000/1d".parse().unwrap()).unwrap())
    };
    let charge = Charge {
        limit: &limit,
        key: Key::from_bytes(b"\x03ada"),
        cost: Permits::ONE,
        mode: Mode::Enforce,
    };
    let decided = runtime.block_on(store.decide(&[charge], Time::ZERO));
    decided
        .map(|decided| decided.admitted)
        .map_err(|error| error.to_string())
}

#[test]
fn servers_are_verified_by_ca_and_name_and_may_require_a_client_certificate() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let directory = tempfile::tempdir().unwrap();
    let server = authority.sign("redis.internal");
    let files = [
        write(&directory, "ca.pem", &authority.pem()),
        write(&directory, "server.pem", &server.certificate),
        write(&directory, "server.key", &server.key),
    ];
    let known = || RedisTls {
        ca: Some(authority.pem()),
        server_name: Some("redis.internal".into()),
        identity: None,
    };
    for program in with_tls() {
        for clients in ["no", "yes"] {
            let port = free_port();
            let (tls_port, options) = (port.to_string(), &files);
            let server = Server::start(
                &program,
                &[
                    "--tls-port",
                    &tls_port,
                    "--tls-ca-cert-file",
                    text(&options[0]),
                    "--tls-cert-file",
                    text(&options[1]),
                    "--tls-key-file",
                    text(&options[2]),
                    "--tls-auth-clients",
                    clients,
                ],
            );
            let none = ask(port, known());
            let ours = |authority: &Authority| RedisTls {
                identity: Some(authority.sign("ratekeeper")),
                ..known()
            };
            assert_eq!(ask(port, ours(&authority)), Ok(true));
            if clients == "no" {
                assert_eq!(none, Ok(true));
            } else {
                fails(
                    none,
                    "TLS refused by the server: received fatal alert: CertificateRequired",
                );
                let other = ask(port, ours(&stranger));
                fails(other, "TLS refused by the server: received fatal alert");
            }
            let wrong = |change: &dyn Fn(&mut RedisTls)| {
                let mut tls = ours(&authority);
                change(&mut tls);
                ask(port, tls)
            };
            fails(
                wrong(&|tls| tls.ca = Some(stranger.pem())),
                "TLS handshake: invalid peer certificate",
            );
            fails(
                wrong(&|tls| tls.server_name = Some("other.internal".into())),
                "not valid for name",
            );
            // The host it is reached at: an address that the certificate does not hold.
            fails(wrong(&|tls| tls.server_name = None), "not valid for name");
            // A server that speaks no TLS at all.
            fails(
                ask(server.port, ours(&authority)),
                "no TLS connection within",
            );
        }
    }
}

/// A server's certificate is renewed by another authority, and so are the trusted authorities and
/// our own certificate: no restart is needed, and bad files are not taken.
#[test]
fn certificates_are_renewed_while_the_store_is_in_use() {
    let (old, new) = (Authority::new(), Authority::new());
    let directory = tempfile::tempdir().unwrap();
    let files = |name: &str, authority: &Authority| {
        let server = authority.sign("redis.internal");
        [
            ("tls-ca-cert-file", "ca.pem", authority.pem()),
            ("tls-cert-file", "server.pem", server.certificate),
            ("tls-key-file", "server.key", server.key),
        ]
        .map(|(option, file, bytes)| (option, write(&directory, &format!("{name}-{file}"), &bytes)))
    };
    let tls = |authority: &Authority| RedisTls {
        ca: Some(authority.pem()),
        server_name: Some("redis.internal".into()),
        identity: Some(authority.sign("ratekeeper")),
    };
    for program in with_tls() {
        let port = free_port().to_string();
        let mut options = vec!["--tls-port".to_owned(), port.clone()];
        for (option, path) in &files("old", &old) {
            options.extend([format!("--{option}"), text(path).to_owned()]);
        }
        let options: Vec<_> = options.iter().map(String::as_str).collect();
        let server = Server::start(&program, &options);
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let servers = RedisServers::One(format!("rediss://127.0.0.1:{port}"));
        let store = store_of(servers, tls(&old)).unwrap();
        let decide = || decide(&runtime, &store);
        assert_eq!(decide(), Ok(true));

        let mut renew = redis::cmd("CONFIG");
        renew.arg("SET");
        for (option, path) in &files("new", &new) {
            renew.arg(*option).arg(text(path));
        }
        renew.exec(&mut server.connect()).unwrap();
        assert_eq!(decide(), Ok(true), "open connections stay in use");
        let cut = || {
            let mut kill = redis::cmd("CLIENT");
            kill.arg("KILL").arg("TYPE").arg("normal");
            kill.exec(&mut server.connect()).unwrap();
        };
        cut();
        until_fails(&decide, "TLS handshake: invalid peer certificate");

        let bad = RedisTls {
            ca: Some(b"x".to_vec()),
            ..tls(&new)
        };
        let refused = store.renew_tls(&bad).unwrap_err().to_string();
        assert!(refused.contains("`ca`: no certificate in PEM"), "{refused}");
        until_fails(&decide, "TLS handshake: invalid peer certificate");

        store.renew_tls(&tls(&new)).unwrap();
        assert!(
            until_ok(decide),
            "the next connection uses the new certificates"
        );
        store.renew_tls(&tls(&old)).unwrap();
        assert_eq!(decide(), Ok(true), "open connections stay in use");
        cut();
        until_fails(&decide, "TLS handshake: invalid peer certificate");
    }
}

/// Waits until that is the reason of a failure.
pub(crate) fn until_fails(ask: &impl Fn() -> Result<bool, String>, expected: &str) {
    for _ in 0..50 {
        if ask().is_err_and(|why| why.contains(expected)) {
            return;
        }
        wait_a_little();
    }
    panic!("{expected}: {:?}", ask());
}

/// A server that is a cluster of its own, and one that a sentinel names.
#[test]
fn clusters_and_sentinels_are_reached_by_tls() {
    let authority = Authority::new();
    let directory = tempfile::tempdir().unwrap();
    let own = authority.sign("redis.internal");
    let files = [
        (
            "tls-ca-cert-file",
            write(&directory, "ca.pem", &authority.pem()),
        ),
        (
            "tls-cert-file",
            write(&directory, "server.pem", &own.certificate),
        ),
        ("tls-key-file", write(&directory, "server.key", &own.key)),
    ];
    let tls = || RedisTls {
        ca: Some(authority.pem()),
        server_name: Some("redis.internal".into()),
        identity: Some(authority.sign("ratekeeper")),
    };
    for program in with_tls() {
        let start = |more: &[&str]| {
            let port = free_port().to_string();
            let mut options = vec!["--tls-port".to_owned(), port.clone()];
            for (name, path) in &files {
                options.extend([format!("--{name}"), text(path).to_owned()]);
            }
            options.extend(more.iter().map(|&option| option.to_owned()));
            let options: Vec<_> = options.iter().map(String::as_str).collect();
            (Server::start(&program, &options), port)
        };
        let (node, port) = start(&["--cluster-enabled", "yes", "--tls-cluster", "yes"]);
        let mut slots = redis::cmd("CLUSTER");
        slots.arg("ADDSLOTSRANGE").arg(0).arg(16_383);
        slots.exec(&mut node.connect()).unwrap();
        let cluster = || RedisServers::Cluster(vec![format!("rediss://127.0.0.1:{port}")]);
        assert!(until_ok(|| ask_of(cluster(), tls())));

        let (_primary, port) = start(&[]);
        let watcher = free_port();
        let mut lines = vec![
            format!("tls-port {watcher}"),
            "tls-replication yes".into(),
            format!("sentinel monitor mymaster 127.0.0.1 {port} 1"),
        ];
        for (name, path) in &files {
            lines.push(format!("{name} {}", text(path)));
        }
        let _sentinel = Server::sentinel(&program, &lines);
        let named = || {
            RedisServers::Sentinel(RedisSentinels {
                urls: vec![format!("rediss://127.0.0.1:{watcher}")],
                master: "mymaster".into(),
                login: RedisLogin::default(),
            })
        };
        assert!(until_ok(|| ask_of(named(), tls())));
        let no_identity = RedisTls::default();
        let without = ask_of(
            named(),
            RedisTls {
                ca: tls().ca,
                ..no_identity
            },
        );
        assert!(without.unwrap_err().contains("TLS handshake"));
    }
}

/// Waits until it is ready.
pub(crate) fn until_ok(ask: impl Fn() -> Result<bool, String>) -> bool {
    for _ in 0..50 {
        if let Ok(passed) = ask() {
            return passed;
        }
        wait_a_little();
    }
    panic!("{:?}", ask());
}

fn fails(answer: Result<bool, String>, expected: &str) {
    let why = answer.expect_err(expected);
    assert!(why.contains(expected), "{why}");
    assert!(why.contains("127.0.0.1:"), "{why}");
}

#[test]
fn invalid_certificates_are_refused_at_once() {
    let authority = Authority::new();
    let (mine, other) = (authority.sign("ratekeeper"), authority.sign("ratekeeper"));
    let check = |tls: RedisTls, expected: &str| {
        let config = RedisConfig {
            servers: RedisServers::Cluster(vec!["rediss://127.0.0.1:1".into()]),
            tls,
            ..RedisConfig::new("")
        };
        match RedisStore::new(config) {
            Err(StoreError::Misconfigured(why)) => assert!(why.contains(expected), "{why}"),
            _ => panic!("{expected}"),
        }
    };
    let good = || RedisTls {
        ca: Some(authority.pem()),
        identity: Some(mine.clone()),
        server_name: None,
    };
    let ca = RedisTls {
        ca: Some(b"x".to_vec()),
        ..good()
    };
    check(ca, "`ca`: no certificate in PEM");
    let no_certificate = RedisTls {
        identity: Some(RedisIdentity {
            certificate: mine.key.clone(),
            key: mine.key.clone(),
        }),
        ..good()
    };
    check(
        no_certificate,
        "`client_certificate`: no certificate in PEM",
    );
    let no_key = RedisTls {
        identity: Some(RedisIdentity {
            certificate: mine.certificate.clone(),
            key: mine.certificate.clone(),
        }),
        ..good()
    };
    check(no_key, "`client_key`: no private key in PEM");
    let others_key = RedisTls {
        identity: Some(RedisIdentity {
            certificate: mine.certificate.clone(),
            key: other.key,
        }),
        ..good()
    };
    check(others_key, "do not match");
    let name = RedisTls {
        server_name: Some("a b".into()),
        ..good()
    };
    check(name, "`server_name` `a b` is not a host name");
}
