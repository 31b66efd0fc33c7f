//! Alerts of a running service, in virtual time, and a receiver of their messages.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ratekeeper_core::Nanos;
use ratekeeper_server::{AlertChange, AlertEnd, AlertNotice, Event, Service, StartError};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use serde_json::Value;

use super::{Fixture, NEW_YEAR, PATIENCE};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

const LIMIT: &str = r#"
[[limit]]
name  = "per-user"
key   = ["attr:user"]
missing_key = "skip"
limit = "10/10s"
alert = { above = "80%", for = "2s" }
"#;

/// Returns the policy with the file of a secret, which is written to `directory`, for `SECRET`.
pub(crate) fn with_secret(policy: &str, directory: &Path) -> String {
    let path = directory.join("secret");
    std::fs::write(&path, SECRET).unwrap();
    policy.replace("SECRET", &path.display().to_string())
}

/// A message as it arrived.
struct Received {
    head: String,
    body: String,
}

impl Received {
    fn field(&self, name: &str) -> &str {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines
            .find(|(field, _)| field.eq_ignore_ascii_case(name))
            .unwrap()
            .1
    }

    /// Checks the signature, and returns the body.
    fn verified(&self) -> Value {
        let secret = STANDARD
            .decode(SECRET.trim_start_matches("whsec_"))
            .unwrap();
        let (id, at) = (self.field("webhook-id"), self.field("webhook-timestamp"));
        let signed = format!("{id}.{at}.{}", self.body);
        let signature = self.field("webhook-signature").strip_prefix("v1,").unwrap();
        let signature = STANDARD.decode(signature).unwrap();
        let key = hmac::Key::new(hmac::HMAC_SHA256, &secret);
        hmac::verify(&key, signed.as_bytes(), &signature).unwrap();
        serde_json::from_str(&self.body).unwrap()
    }
}

/// Reads one request.
fn read(stream: &mut impl Read) -> Option<Received> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let mut received = Received {
        head,
        body: String::new(),
    };
    let length: u64 = received.field("content-length").parse().unwrap();
    reader
        .take(length)
        .read_to_string(&mut received.body)
        .ok()?;
    Some(received)
}

/// Answers one request for each of `statuses`; `tls` encrypts.
fn receiver(
    listener: TcpListener,
    statuses: &'static [&'static str],
    tls: Option<Arc<rustls::ServerConfig>>,
) -> Receiver<Received> {
    let (sender, received) = channel();
    thread::spawn(move || {
        for status in statuses {
            let (mut stream, _) = listener.accept().unwrap();
            let answer =
                format!("HTTP/1.1 {status}\r\nlocation: /other\r\ncontent-length: 0\r\n\r\n");
            let message = if let Some(tls) = &tls {
                let connection = rustls::ServerConnection::new(Arc::clone(tls)).unwrap();
                let mut stream = rustls::StreamOwned::new(connection, stream);
                let message = read(&mut stream);
                let _ = stream.write_all(answer.as_bytes()); // a client without trust is gone
                message
            } else {
                let message = read(&mut stream);
                stream.write_all(answer.as_bytes()).unwrap();
                message
            };
            if let Some(message) = message {
                let _ = sender.send(message); // the test may be over
            }
        }
    });
    received
}

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn service(directory: &Path, webhook: &str) -> Fixture {
    let alerts = format!(
        "version = 1\n[alerts]\nreveal_keys = true\nwebhook = {{ {webhook}, secret = \"file:SECRET\" }}\n{LIMIT}"
    );
    Fixture::new(&with_secret(&alerts, directory))
}

fn ask(fixture: &Fixture, cost: u32) -> u16 {
    let body = format!(r#"{{"attributes": {{"user": "ada"}}, "cost": {cost}}}"#);
    fixture.http().post("/v1/check", &body).status
}

fn notice(fixture: &Fixture) -> AlertNotice {
    fixture.await_event(|event| match event {
        Event::Alert(notice) => Some(notice),
        _ => None,
    })
}

/// Keeps the key above for longer than `for`.
fn start(fixture: &Fixture) -> AlertNotice {
    assert_eq!(ask(fixture, 10), 200);
    for _ in 0..2 {
        fixture.clock.advance(Nanos::SECOND);
        assert_eq!(ask(fixture, 1), 200);
    }
    notice(fixture)
}

#[test]
fn a_receiver_that_fails_twice_gets_the_start_and_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let (listener, address) = listener();
    let statuses = &["503 Busy", "302 Found", "204 No Content", "200 OK"];
    let received = receiver(listener, statuses, None);
    let url = format!("url = \"http://{address}/hooks?a=b\"");
    let fixture = service(directory.path(), &url);
    let started = start(&fixture);
    assert_eq!(started.change, AlertChange::Started);
    assert_eq!(started.key, Some(vec!["attr:user=ada".to_owned()]));

    let listed = fixture.admin().get("/v1/alerts").json();
    assert_eq!(listed["alerts"][0]["id"], *started.id);
    assert_eq!(listed["alerts"][0]["usage_percent"], 100);
    assert_eq!(listed["more"], 0);

    let attempts: Vec<_> = (0..3)
        .map(|_| received.recv_timeout(PATIENCE).unwrap())
        .collect();
    for attempt in &attempts {
        assert!(
            attempt.head.starts_with("POST /hooks?a=b HTTP/1.1\r\n"),
            "{}",
            attempt.head
        );
        assert_eq!(attempt.field("host"), address.to_string());
        assert_eq!(
            attempt.field("webhook-id"),
            format!("alert_{}_started", started.id)
        );
        let at: u64 = attempt.field("webhook-timestamp").parse().unwrap();
        assert_eq!(at, NEW_YEAR / 1_000_000_000 + 2);
        let body = attempt.verified();
        assert_eq!(body["type"], "alert.started");
        assert_eq!(body["version"], 1);
        assert_eq!(body["timestamp"], "2026-01-01T00:00:02Z");
        let data = &body["data"];
        assert_eq!(data["limit"], "per-user");
        assert_eq!(data["key"][0], "attr:user=ada");
        assert_eq!(data["since"], "2026-01-01T00:00:00Z");
        assert_eq!(
            (&data["above_percent"], &data["for_ms"]),
            (&80.into(), &2000.into())
        );
    }

    fixture.clock.advance(Nanos::from_secs(60));
    let ended = notice(&fixture);
    assert_eq!(
        (ended.change, ended.id),
        (AlertChange::Ended(AlertEnd::Fell), started.id)
    );
    let body = received.recv_timeout(PATIENCE).unwrap().verified();
    assert_eq!(
        (&body["type"], &body["data"]["reason"]),
        (&"alert.ended".into(), &"fell".into())
    );
    let scraped = fixture.admin().get("/metrics").body;
    for line in [
        "ratekeeper_alerts_active{limit=\"per-user\"} 0",
        "ratekeeper_alerts_total{limit=\"per-user\"} 1",
    ] {
        assert!(scraped.contains(line), "{line}\n{scraped}");
    }
    fixture.service.shutdown();
}

#[test]
fn https_is_trusted_by_its_authority_only() {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let own = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let own = own.signed_by(&key, &issuer).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![own.der().clone()],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    let config = Arc::new(config);
    let other = CertifiedIssuer::self_signed(
        {
            let mut params = CertificateParams::default();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params
        },
        KeyPair::generate().unwrap(),
    )
    .unwrap();
    for (authority, arrives) in [(issuer.pem(), true), (other.pem(), false)] {
        let directory = tempfile::tempdir().unwrap();
        let ca = directory.path().join("ca.pem");
        std::fs::write(&ca, authority).unwrap();
        let (listener, address) = listener();
        let received = receiver(listener, &["200 OK"], Some(Arc::clone(&config)));
        let url = format!("url = \"https://{address}/\", ca = \"{}\"", ca.display());
        let fixture = service(directory.path(), &url);
        start(&fixture);
        let message = received.recv_timeout(PATIENCE);
        assert_eq!(message.is_ok(), arrives);
        if let Ok(message) = message {
            assert_eq!(message.verified()["type"], "alert.started");
        }
        fixture.service.shutdown();
    }
}

#[test]
fn a_stop_and_a_reload_end_alerts() {
    let directory = tempfile::tempdir().unwrap();
    for why in [AlertEnd::Removed, AlertEnd::Stopped] {
        let (listener, address) = listener();
        let received = receiver(listener, &["200 OK", "200 OK"], None);
        let fixture = service(directory.path(), &format!("url = \"http://{address}\""));
        start(&fixture);
        if why == AlertEnd::Removed {
            let path = fixture.path("ratekeeper.toml");
            let text = std::fs::read_to_string(&path).unwrap();
            std::fs::write(path, text.replace("alert =", "# alert =")).unwrap();
            assert_eq!(fixture.admin().post("/v1/reload", "").status, 200);
            assert_eq!(notice(&fixture).change, AlertChange::Ended(why));
        }
        fixture.service.shutdown();
        received.recv_timeout(PATIENCE).unwrap();
        let ended = received.recv_timeout(PATIENCE).unwrap().verified();
        assert_eq!(ended["data"]["reason"], format!("{why:?}").to_lowercase());
    }
}

#[test]
fn keys_are_hidden_unless_the_policy_reveals_them() {
    let fixture = Fixture::new(&format!("version = 1\n{LIMIT}"));
    let started = start(&fixture);
    assert_eq!(started.key, None);
    assert!(!started.to_string().contains("=ada"), "{started}");
    // The admin listener shows keys in any case.
    let listed = fixture.admin().get("/v1/alerts").body;
    assert!(listed.contains("attr:user=ada"), "{listed}");
}

#[test]
fn a_service_does_not_start_without_its_secret_or_certificates() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("p.toml");
    let secret = directory.path().join("short");
    std::fs::write(&secret, "whsec_c2hvcnQ=\n").unwrap();
    std::fs::write(directory.path().join("good"), SECRET).unwrap();
    for (webhook, expected) in [
        (
            format!(
                "url = \"http://h/\", secret = \"file:{}\"",
                secret.display()
            ),
            "24 to 64 bytes in base64",
        ),
        (
            "url = \"http://h/\", secret = \"env:RATEKEEPER_TEST_IS_NOT_SET\"".to_owned(),
            "cannot read `webhook.secret` from the environment variable",
        ),
        (
            // Relative to the policy, as `ca` is: the secret is found.
            "url = \"https://h/\", ca = \"none.pem\", secret = \"file:good\"".to_owned(),
            "`webhook.ca`",
        ),
    ] {
        let text = format!("version = 1\n[alerts]\nwebhook = {{ {webhook} }}\n{LIMIT}");
        std::fs::write(&path, text).unwrap();
        let config = ratekeeper_server::Config::new(&path);
        let config = config
            .listen("http=127.0.0.1:0")
            .unwrap()
            .listen("admin=off")
            .unwrap();
        match Service::start(&config) {
            Err(StartError::Alerts(why)) => assert!(why.contains(expected), "{why}"),
            other => panic!("{webhook}: {other:?}"),
        }
    }
}
