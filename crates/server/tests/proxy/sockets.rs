//! Unix sockets, and the path that answers balancers.

use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use super::*;

fn connect(path: &std::path::Path) -> Client {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    Client {
        // Read and written by the same calls.
        stream: BufReader::new(TcpStream::from(OwnedFd::from(stream))),
    }
}

fn start(
    path: &std::path::Path,
    upstream: &Upstream,
    client_ip: &str,
) -> Result<Service, StartError> {
    let file = path.with_file_name("ratekeeper.toml");
    let text = format!(
        "version = 1\n{client_ip}\n[listen.proxy]\naddress = \"unix:{}\"\nupstream = \"http://{}\"\n\
         [[limit]]\nname = \"per-ip\"\nkey = [\"ip\"]\nlimit = \"1/1h\"\n",
        path.display(),
        upstream.address,
    );
    std::fs::write(&file, text).unwrap();
    let mut config = Config::new(&file);
    config.watch = false;
    let admin = format!("admin=unix:{}", path.with_extension("admin").display());
    Service::start(&config.listen(&admin).unwrap())
}

/// Two requests of two visitors, as a proxy of this machine sends them.
fn statuses(path: &std::path::Path) -> [u16; 2] {
    ["192.0.2.1", "192.0.2.2"].map(|visitor| {
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {visitor}\r\n\r\n");
        connect(path).ask(&head).status()
    })
}

#[test]
fn a_proxy_behind_a_unix_socket_is_trusted_by_name() {
    for (client_ip, expected) in [
        ("[client_ip]\ntrusted_proxies = [\"unix:\"]", [200, 200]),
        (
            "[client_ip]\ntrusted_proxies = [\"192.0.2.0/24\"]",
            [200, 429],
        ),
        ("", [200, 429]),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("proxy.sock");
        let upstream = Upstream::hello();
        let service = start(&path, &upstream, client_ip).unwrap();
        assert_eq!(statuses(&path), expected, "{client_ip}");
        let taken = start(&path, &upstream, client_ip);
        assert!(matches!(taken, Err(StartError::InUse { .. })), "{taken:?}");
        service.shutdown();
        let again = start(&path, &upstream, client_ip).unwrap(); // the file is left, and replaced
        assert_eq!(statuses(&path), expected, "{client_ip}");
        again.shutdown();
    }
}

#[test]
fn a_file_that_is_no_socket_is_never_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let upstream = Upstream::hello();
    let (file, link) = ["precious", "link"]
        .map(|it| directory.path().join(it))
        .into();
    std::fs::write(&file, "data").unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    for path in [&file, &link] {
        let refused = start(path, &upstream, "");
        assert!(refused.is_err(), "{refused:?}");
        assert_eq!(std::fs::read_to_string(path).unwrap(), "data");
    }
    assert!(link.is_symlink());
}

/// Its owner accepts nothing, and its queue has room for one.
#[test]
fn a_socket_of_an_owner_that_is_stopped_is_in_use() {
    use socket2::{Domain, SockAddr, Socket, Type};
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("proxy.sock");
    let owner = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
    owner.bind(&SockAddr::unix(&path).unwrap()).unwrap();
    owner.listen(0).unwrap();
    let _first = UnixStream::connect(&path).unwrap();
    let taken = start(&path, &Upstream::hello(), "");
    assert!(matches!(taken, Err(StartError::InUse { .. })), "{taken:?}");
}

#[test]
fn the_admin_listener_answers_at_a_unix_socket_without_a_token() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("proxy.sock");
    let service = start(&path, &Upstream::hello(), "").unwrap();
    let mut admin = connect(&path.with_extension("admin"));
    let page = admin.ask("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(
        (page.status(), page.one("location")),
        (302, Some("/dashboard"))
    );
    let policy = admin.ask("GET /v1/policy HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(policy.status(), 200, "{}", policy.text());
    service.shutdown();
}

#[test]
fn the_gateway_answers_its_health_path_itself() {
    let upstream = Upstream::hello();
    let proxy = Proxy::start(
        &[upstream.address],
        "",
        "[[limit]]\nname = \"a\"\nkey = [\"all\"]\nlimit = \"1/1h\"\n",
    );
    let mut client = proxy.client();
    for _ in 0..3 {
        let ready = client.ask("GET /.well-known/ratekeeper/ready HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!((ready.status(), ready.text()), (200, "ready\n"));
    }
    assert_eq!(
        client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").status(),
        200
    );
}
