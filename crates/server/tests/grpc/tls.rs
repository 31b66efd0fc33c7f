//! TLS: certificates are asked for, shown, and changed under way.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use ratekeeper_server::{Config, Event, Service, StartError};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::client::{Client, SHOULD_RATE_LIMIT};
use super::ports::free_port;
use super::rls::{POLICY, user};
use super::{Fixture, PATIENCE, run};

/// A certificate authority.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    /// Returns a certificate for `localhost`, and its key.
    fn sign(&self) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    /// Connects, trusting this authority, with a certificate of its own or none.
    async fn connect(
        &self,
        fixture: &Fixture,
        own: Option<&(String, String)>,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        let root = CertificateDer::from_pem_slice(self.pem().as_bytes()).unwrap();
        roots.add(root).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match own {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        let stream = TcpStream::connect(fixture.grpc()).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await
    }
}

fn write(directory: &TempDir, (certificate, key): &(String, String)) {
    std::fs::write(directory.path().join("server.key"), key).unwrap();
    std::fs::write(directory.path().join("server.pem"), certificate).unwrap();
}

fn with_tls(fields: &str) -> String {
    format!("{POLICY}\n[envoy.tls]\ncertificate = \"server.pem\"\nkey = \"server.key\"\n{fields}\n")
}

async fn passes(client: &mut Client) {
    assert_eq!(client.call(SHOULD_RATE_LIMIT, &user("ada")).await.code, 0);
}

#[test]
fn new_certificates_are_presented_and_open_connections_stay() {
    let (old, new) = (Authority::new(), Authority::new());
    let directory = tempfile::tempdir().unwrap();
    write(&directory, &old.sign());
    let fixture = Fixture::in_directory(&with_tls(""), directory);
    run(async {
        let mut first = Client::over(old.connect(&fixture, None).await.unwrap()).await;
        passes(&mut first).await;
        assert!(
            new.connect(&fixture, None).await.is_err(),
            "the new authority has not signed the certificate yet"
        );

        write(&fixture.directory, &new.sign());
        fixture.await_event(|event| match event {
            Event::Notice(text) => text.contains("new certificates").then_some(()),
            _ => None,
        });
        let mut second = Client::over(new.connect(&fixture, None).await.unwrap()).await;
        passes(&mut second).await;
        passes(&mut first).await;

        std::fs::write(fixture.path("server.pem"), "nonsense").unwrap();
        fixture.await_event(|event| match event {
            Event::Notice(text) => text.contains("invalid new ones").then_some(()),
            _ => None,
        });
        let mut third = Client::over(new.connect(&fixture, None).await.unwrap()).await;
        passes(&mut third).await;
    });
}

#[test]
fn clients_without_a_valid_certificate_are_not_served() {
    let (server, clients) = (Authority::new(), Authority::new());
    let directory = tempfile::tempdir().unwrap();
    write(&directory, &server.sign());
    std::fs::write(directory.path().join("clients.pem"), clients.pem()).unwrap();
    let fixture = Fixture::in_directory(&with_tls("client_ca = \"clients.pem\""), directory);
    run(async {
        let known = clients.sign();
        let stream = server.connect(&fixture, Some(&known)).await.unwrap();
        passes(&mut Client::over(stream).await).await;

        let stranger = server.sign();
        for own in [None, Some(&stranger)] {
            // With TLS 1.3 the client's own handshake may be over before it is judged.
            let Ok(stream) = server.connect(&fixture, own).await else {
                continue;
            };
            let handshake = h2::client::handshake(stream).await;
            let Ok((_send, connection)) = handshake else {
                continue;
            };
            assert!(
                connection.await.is_err(),
                "a client without a valid certificate is refused"
            );
        }
    });
}

#[test]
fn invalid_certificates_are_reported_at_the_start() {
    let authority = Authority::new();
    let (certificate, key) = authority.sign();
    let other_key = authority.sign().1;
    for (certificate, key, expected) in [
        ("", &*key, "`server.pem`: no certificate in PEM"),
        (&*certificate, "", "`server.key`: no private key in PEM"),
        (
            &*certificate,
            &*other_key,
            "`server.pem`: keys may not be consistent: KeyMismatch",
        ),
    ] {
        let directory = tempfile::tempdir().unwrap();
        write(&directory, &(certificate.into(), key.into()));
        let path = directory.path().join("ratekeeper.toml");
        std::fs::write(&path, with_tls("")).unwrap();
        let config = Config::new(path).listen("http=off").unwrap();
        let config = config
            .listen("admin=off")
            .unwrap()
            .listen("grpc=127.0.0.1:0")
            .unwrap();
        let error = Service::start(&config).unwrap_err();
        assert!(matches!(error, StartError::Certificates(_)), "{error}");
        let shown = error
            .to_string()
            .replace(&format!("{}/", directory.path().display()), "");
        assert_eq!(shown, format!("[envoy.tls]: {expected}"));
    }
}

/// A server of the store, which speaks TLS; stopped when dropped.
struct Redis(Child);

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Redis {
    /// Starts a server with a certificate of this authority.
    fn start(authority: &Authority, directory: &TempDir) -> std::io::Result<(Self, u16)> {
        write(directory, &authority.sign());
        let port = free_port();
        let path = |name: &str| directory.path().join(name);
        let mut command = Command::new("redis-server");
        command
            .args(["--port", "0", "--bind", "127.0.0.1", "--save", ""])
            .args(["--tls-port", &port.to_string(), "--tls-auth-clients", "no"])
            .arg("--tls-cert-file")
            .arg(path("server.pem"))
            .arg("--tls-key-file")
            .arg(path("server.key"))
            .arg("--dir")
            .arg(directory.path())
            .stdout(Stdio::null());
        let server = Self(command.spawn()?);
        run(async {
            while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        Ok((server, port))
    }
}

/// The service trusts one authority, and another has signed for the store's server, until the
/// service's file is renewed.
#[test]
fn the_certificate_authorities_of_the_store_are_renewed() {
    let (old, new) = (Authority::new(), Authority::new());
    let of_server = tempfile::tempdir().unwrap();
    let (_redis, port) = match Redis::start(&new, &of_server) {
        Ok(started) => started,
        Err(why) => {
            assert!(std::env::var_os("CI").is_none(), "redis-server: {why}");
            println!("skipped: redis-server: {why}");
            return;
        }
    };
    let directory = tempfile::tempdir().unwrap();
    let ca = directory.path().join("store-ca.pem");
    std::fs::write(&ca, old.pem()).unwrap();
    let policy = directory.path().join("ratekeeper.toml");
    let store = format!(
        "[store.redis]\nurl = \"rediss://localhost:{port}\"\ntls = {{ ca = \"store-ca.pem\" }}\n\
         deadline = \"2s\"\n"
    );
    std::fs::write(&policy, format!("{POLICY}\n{store}")).unwrap();
    let (sink, events) = channel();
    let mut config = Config::new(policy);
    config.watch = false;
    let config = config.listen("http=127.0.0.1:0").unwrap();
    let config = config.listen("admin=off").unwrap();
    let config = config.on_event(move |event| {
        let _ = sink.send(event.clone()); // the test may be over
    });
    let _service = Service::start(&config).unwrap();
    let await_event = |what: &str, wanted: &dyn Fn(&Event) -> bool| {
        while !wanted(&events.recv_timeout(PATIENCE).expect(what)) {}
    };
    await_event(
        "store down",
        &|event| matches!(event, Event::StoreDown { error } if error.contains("invalid peer certificate")),
    );
    std::fs::write(&ca, "nonsense").unwrap();
    await_event(
        "bad certificates",
        &|event| matches!(event, Event::Notice(text) if text.contains("the new ones are invalid: `ca`")),
    );
    std::fs::write(&ca, new.pem()).unwrap();
    await_event(
        "new certificates",
        &|event| matches!(event, Event::Notice(text) if text.contains("use the new certificates")),
    );
    await_event("store back", &|event| {
        matches!(event, Event::StoreUp { .. })
    });
}
