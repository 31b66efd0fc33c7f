//! TLS between us and the store: the certificates that `run` and `doctor` trust, and their messages
//! otherwise. Uses the system's Redis, because the Valkeys that are carried here are built without
//! TLS.

use std::path::Path;
use std::process::Command;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair,
};

use crate::harness::ports::free_port;
use crate::harness::redis::Redis;
use crate::harness::service::Service;
use crate::store::admitted;

/// Name in the server's certificate.
const NAME: &str = "redis.internal";

const LIMIT: &str = r#"
[[limit]]
name = "five"
key = ["attr:run"]
match = { path = "/five" }
bucket = { size = 5, refill = "1/1h" }
on_store_error = "deny"
missing_key = "skip"
"#;

/// Writes an authority, and a certificate and key that it has signed: `OWNER.ca`, `OWNER.pem` and
/// `OWNER.key`.
fn authority(dir: &Path, owner: &str) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // OpenSSL takes a certificate for self-signed if both of its names are the default.
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, owner);
    let key = KeyPair::generate().expect("a key");
    let issuer = CertifiedIssuer::self_signed(params, key).expect("it signs itself");
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec![NAME.to_owned()]).expect("a name");
    let signed = params.signed_by(&key, &issuer).expect("it signs others");
    for (end, text) in [
        ("ca", issuer.pem()),
        ("pem", signed.pem()),
        ("key", key.serialize_pem()),
    ] {
        let path = dir.join(format!("{owner}.{end}"));
        std::fs::write(path, text).expect("the test's directory is writable");
    }
}

fn policy(dir: &Path, store: &str) -> std::path::PathBuf {
    let path = dir.join("ratekeeper.toml");
    let text = format!("version = 1\n[store.redis]\n{store}\ndeadline = \"2s\"\n{LIMIT}");
    std::fs::write(&path, text).expect("the test's directory is writable");
    path
}

#[test]
fn an_untrusted_connection_fails_with_a_hint() {
    let desk = tempfile::tempdir().expect("a directory of its own");
    let dir = desk.path();
    authority(dir, "ours");
    authority(dir, "theirs");
    let file = |name: &str| dir.join(name).display().to_string();
    let (port, tls_port) = (free_port(), free_port());
    let tls_word = tls_port.to_string();
    let (ca, pem, key) = (file("ours.ca"), file("ours.pem"), file("ours.key"));
    let options = [
        ["--tls-port", &tls_word],
        ["--tls-ca-cert-file", &ca],
        ["--tls-cert-file", &pem],
        ["--tls-key-file", &key],
        ["--tls-auth-clients", "yes"],
    ];
    let Some(redis) = Redis::start_with(dir, port, &options.concat()) else {
        return;
    };
    let encrypted = format!("url = \"rediss://127.0.0.1:{tls_port}\"\n");
    let us = "client_certificate = \"ours.pem\", client_key = \"ours.key\"";
    let good = format!("{encrypted}tls = {{ ca = \"ours.ca\", server_name = \"{NAME}\", {us} }}");
    let answers = format!("ok       reachable    127.0.0.1:{tls_port} answers");
    for (store, code, words, hint) in [
        (good.clone(), 0, &*answers, ""),
        (
            format!("{encrypted}tls = {{ ca = \"theirs.ca\", server_name = \"{NAME}\", {us} }}"),
            1,
            "TLS handshake",
            "hint: name the file of the authorities that sign",
        ),
        (
            format!("{encrypted}tls = {{ ca = \"ours.ca\", {us} }}"),
            1,
            "TLS handshake",
            "hint: the certificate is for another name",
        ),
        (
            format!("{encrypted}tls = {{ ca = \"ours.ca\", server_name = \"{NAME}\" }}"),
            1,
            "TLS refused by the server",
            "hint: the server requires a client certificate",
        ),
        (
            format!("url = \"rediss://127.0.0.1:{port}\"\ntls = {{ ca = \"ours.ca\" }}"),
            1,
            "no TLS connection within ", // it waits for the end of a line
            "hint: check that the server uses TLS at this port",
        ),
        (
            format!("url = \"redis://127.0.0.1:{tls_port}\""),
            1,
            "failure  reachable",
            "write rediss://",
        ),
    ] {
        policy(dir, &store);
        let mut doctor = Command::new(env!("CARGO_BIN_EXE_ratekeeper"));
        doctor.arg("doctor").current_dir(dir).env_clear();
        let output = doctor.output().expect("the command starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(code), "{store}: {text}");
        assert!(text.contains(words), "{store}: {words}: {text}");
        assert!(text.contains(hint), "{store}: {hint}: {text}");
    }

    let service = Service::start(dir, &policy(dir, &good));
    assert_eq!(admitted(service.http(), "/five", "ada", 8), 5);
    assert_eq!(redis.query(&["exists", "rk:{ada}:five"]), "1");
}
