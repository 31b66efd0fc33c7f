//! Clients that speak TLS: by the names of certificates, and while these are replaced.

use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use tempfile::TempDir;

use super::authority::Authority;
use super::message::{Message, read_response};
use super::upstream::{Next, Upstream};
use super::{OPEN, PATIENCE, Proxy, eventually, write};

const GET: &str = "GET / HTTP/1.1\r\nhost: a.example\r\n\r\n";
const SITE: &str = "tls = { certificate = \"site.pem\", key = \"site.key\" }\n";

type Stream = BufReader<StreamOwned<ClientConnection, TcpStream>>;

/// Connects and shakes hands, asking for a certificate of `name`.
fn connect(proxy: &Proxy, authority: &Authority, name: &str) -> std::io::Result<Stream> {
    let tcp = TcpStream::connect(proxy.address()).unwrap();
    shake_hands(tcp, authority, name)
}

fn shake_hands(mut tcp: TcpStream, authority: &Authority, name: &str) -> std::io::Result<Stream> {
    tcp.set_read_timeout(Some(PATIENCE)).unwrap();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let config = authority.client(&["http/1.1"]);
    let mut session = ClientConnection::new(config, name).unwrap();
    session.complete_io(&mut tcp)?;
    Ok(BufReader::new(StreamOwned::new(session, tcp)))
}

fn ask(stream: &mut Stream, request: &str) -> Message {
    stream.get_mut().write_all(request.as_bytes()).unwrap();
    read_response(stream, "GET").expect("no response")
}

/// Starts a proxy with a certificate for `a.example`.
fn with_site(authority: &Authority, upstream: &Upstream, policy: &str) -> Proxy {
    let directory = tempfile::tempdir().unwrap();
    authority.write(directory.path(), "site", &["a.example"]);
    let upstream = format!("http://{}", upstream.address);
    Proxy::start_in(directory, &[upstream], SITE, policy)
}

#[test]
fn a_balancer_states_its_client_before_tls() {
    let authority = Authority::new();
    let directory = tempfile::tempdir().unwrap();
    authority.write(directory.path(), "site", &["a.example"]);
    let upstream = Upstream::hello();
    let urls = [format!("http://{}", upstream.address)];
    let listener = format!("{SITE}proxy_protocol = true\n");
    let trust = format!("[client_ip]\ntrusted_proxies = [\"127.0.0.1\"]\n{OPEN}");
    let proxy = Proxy::start_in(directory, &urls, &listener, &trust);
    let mut tcp = TcpStream::connect(proxy.address()).unwrap();
    tcp.write_all(b"PROXY TCP4 192.0.2.1 203.0.113.7 56324 443\r\n")
        .unwrap();
    let mut stream = shake_hands(tcp, &authority, "a.example").unwrap();
    let forged = GET.replace("\r\n\r\n", "\r\nx-forwarded-for: 192.0.2.9\r\n\r\n");
    assert_eq!(ask(&mut stream, &forged).text(), "hello");
    assert_eq!(upstream.seen().one("x-forwarded-for"), Some("192.0.2.1"));
    assert!(connect(&proxy, &authority, "a.example").is_err());
    let closed = "ratekeeper_request_faults_total{kind=\"proxy_header\"}";
    assert_eq!(proxy.metric(closed), 1);
}

#[test]
fn the_certificate_is_chosen_by_its_own_names() {
    let authority = Authority::new();
    let directory: TempDir = tempfile::tempdir().unwrap();
    authority.write(directory.path(), "site", &["a.example"]);
    authority.write(directory.path(), "shop", &["*.shop.example", "b.example"]);
    let upstream = Upstream::hello();
    let urls = [format!("http://{}", upstream.address)];
    let tls = "tls = [{ certificate = \"site.pem\", key = \"site.key\" },\n\
        { certificate = \"shop.pem\", key = \"shop.key\" }]\n";
    let proxy = Proxy::start_in(directory, &urls, tls, OPEN);
    for name in ["a.example", "b.example", "www.shop.example"] {
        let mut stream = connect(&proxy, &authority, name).unwrap();
        assert_eq!(ask(&mut stream, GET).text(), "hello", "{name}");
        assert_eq!(ask(&mut stream, GET).text(), "hello", "{name}");
        for _ in 0..2 {
            let seen = upstream.seen();
            assert_eq!(seen.one("x-forwarded-proto"), Some("https"));
            assert!(seen.one("forwarded").unwrap().ends_with(";proto=https"));
        }
    }
    // Other names are shown the first certificate, which is not theirs.
    let error = connect(&proxy, &authority, "c.example").unwrap_err();
    assert!(error.to_string().contains("not valid for name"), "{error}");
    assert!(
        proxy.metric(
            "ratekeeper_certificate_expiry_timestamp_seconds{listener=\"proxy\",certificate=\"2\"}"
        ) > 0
    );
}

#[test]
fn a_reload_adds_certificates_and_refuses_unreadable_ones() {
    let authority = Authority::new();
    let upstream = Upstream::hello();
    let proxy = with_site(&authority, &upstream, OPEN);
    let both = "tls = [{ certificate = \"site.pem\", key = \"site.key\" },\n\
        { certificate = \"shop.pem\", key = \"shop.key\" }]\n";
    let urls = [format!("http://{}", upstream.address)];
    write(&proxy.directory, &urls, both, OPEN);
    let refused = proxy.try_reload();
    assert!(refused.text().contains("shop."), "{}", refused.text());
    connect(&proxy, &authority, "b.example").unwrap_err();
    authority.write(proxy.directory.path(), "shop", &["b.example"]);
    proxy.reload();
    for name in ["a.example", "b.example"] {
        let mut stream = connect(&proxy, &authority, name).unwrap();
        assert_eq!(ask(&mut stream, GET).text(), "hello", "{name}");
    }
}

/// TLS of a listener without it waits for a restart, which must not find bad certificates.
#[test]
fn unreadable_certificates_of_a_listener_without_tls_are_refused() {
    let upstream = Upstream::hello();
    let proxy = Proxy::start(&[upstream.address], "", OPEN);
    let urls = [format!("http://{}", upstream.address)];
    write(&proxy.directory, &urls, SITE, OPEN);
    let refused = proxy.try_reload();
    assert!(refused.text().contains("site."), "{}", refused.text());
    Authority::new().write(proxy.directory.path(), "site", &["a.example"]);
    proxy.reload();
    assert_eq!(proxy.client().get("/").text(), "hello", "until the restart");
}

#[test]
fn new_certificates_lose_no_request_and_invalid_ones_are_not_used() {
    let (old, new) = (Authority::new(), Authority::new());
    let upstream = Upstream::hello();
    let proxy = with_site(&old, &upstream, OPEN);
    let reloads = |result: &str| {
        proxy.metric(&format!(
            "ratekeeper_certificate_reloads_total{{listener=\"proxy\",result=\"{result}\"}}"
        ))
    };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asks = scope.spawn(|| {
            let mut first = connect(&proxy, &old, "a.example").unwrap();
            while !done.load(Ordering::Relaxed) {
                assert_eq!(ask(&mut first, GET).status(), 200);
                let next = connect(&proxy, &old, "a.example");
                let next = next.or_else(|_| connect(&proxy, &new, "a.example"));
                assert_eq!(ask(&mut next.unwrap(), GET).status(), 200);
            }
        });
        let directory = proxy.directory.path();
        std::fs::write(directory.join("site.pem"), "nonsense").unwrap();
        eventually("the invalid certificate is refused", || {
            reloads("rejected") == 1
        });
        assert!(connect(&proxy, &old, "a.example").is_ok());
        new.write(directory, "site", &["a.example"]);
        eventually("the new certificate is used", || {
            connect(&proxy, &new, "a.example").is_ok()
        });
        assert!(connect(&proxy, &old, "a.example").is_err());
        done.store(true, Ordering::Relaxed);
        asks.join().unwrap();
    });
    assert_eq!(reloads("applied"), 1);
}

#[test]
fn a_failed_handshake_ends_the_connection_at_once() {
    let authority = Authority::new();
    let upstream = Upstream::hello();
    let proxy = with_site(&authority, &upstream, OPEN);
    let mut plain = TcpStream::connect(proxy.address()).unwrap();
    plain.set_read_timeout(Some(PATIENCE)).unwrap();
    plain.write_all(GET.as_bytes()).unwrap();
    let mut read = Vec::new();
    let _ = plain.read_to_end(&mut read); // an alert, or a reset
    assert!(!read.starts_with(b"HTTP"));
    eventually("the failure is counted", || {
        proxy.metric("ratekeeper_tls_handshake_failures_total{listener=\"proxy\"}") == 1
    });
    assert!(upstream.saw_nothing());
    let mut stream = connect(&proxy, &authority, "a.example").unwrap();
    assert_eq!(ask(&mut stream, GET).status(), 200);
}

/// The end of TLS is a message, after which the client may keep its connection open.
#[test]
fn a_client_that_ends_tls_gives_its_permit_back() {
    let authority = Authority::new();
    let wait = Arc::new(AtomicBool::new(true));
    let waits = Arc::clone(&wait);
    let upstream = Upstream::new(move |visit| {
        if waits.swap(false, Ordering::SeqCst) {
            return Next::Request; // the first has no response
        }
        let response = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        visit.stream.write_all(response.as_bytes()).unwrap();
        Next::Request
    });
    let policy = "[[limit]]\nname = \"one\"\nkey = [\"all\"]\n\
        concurrency = { max = 1, lease = \"1s\" }\n"; // renewed while the client is there
    let proxy = with_site(&authority, &upstream, policy);
    let mut first = connect(&proxy, &authority, "a.example").unwrap();
    first.get_mut().write_all(GET.as_bytes()).unwrap();
    upstream.seen();
    let mut second = connect(&proxy, &authority, "a.example").unwrap();
    assert_eq!(ask(&mut second, GET).status(), 429);
    first.get_mut().conn.send_close_notify();
    first.get_mut().flush().unwrap();
    eventually("the permit comes back", || {
        ask(&mut second, GET).status() == 200
    });
}

#[test]
fn invalid_files_are_reported_at_the_start() {
    let authority = Authority::new();
    for (text, expected) in [
        (
            "nonsense",
            "`tls` of [listen.proxy]: `site.pem`: no certificate in PEM",
        ),
        (
            "",
            "`tls` of [listen.proxy]: `site.pem`: no certificate in PEM",
        ),
    ] {
        let directory = tempfile::tempdir().unwrap();
        authority.write(directory.path(), "site", &["a.example"]);
        std::fs::write(directory.path().join("site.pem"), text).unwrap();
        let urls = ["http://127.0.0.1:1".to_owned()];
        let error = Proxy::try_start(&directory, &urls, SITE, OPEN).unwrap_err();
        let home = format!("{}/", directory.path().display());
        assert_eq!(error.to_string().replace(&home, ""), expected);
    }
    let directory = tempfile::tempdir().unwrap();
    let urls = ["https://localhost:1".to_owned()];
    let missing = "upstream_tls = { ca = \"missing.pem\" }\n";
    let error = Proxy::try_start(&directory, &urls, missing, OPEN).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("`upstream_tls` of [listen.proxy]: `"),
        "{error}"
    );
}
