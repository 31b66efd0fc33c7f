//! The edges of the gateway with real software: Node and nginx at Unix sockets, `HAProxy` in front
//! of it, and curl with a body that is too large.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::gateway::{application, gateway, text};
use crate::harness::clock;
use crate::harness::free_address;
use crate::harness::process::{self, Process};

const PATIENCE: Duration = Duration::from_secs(20);
const OPEN: &str = "[[limit]]\nname = \"all\"\nkey = [\"ip\"]\nlimit = \"1000000/1h\"\n";
/// An application at the path of its argument, which returns a few fields and the length of a body.
const NODE: &str = r"
require('http').createServer((request, response) => {
    let length = 0;
    request.on('data', (part) => { length += part.length; });
    request.on('end', () => response.end(`node ${request.headers.host} ${length}`));
}).listen(process.argv[2]);
";

fn dir() -> tempfile::TempDir {
    tempfile::tempdir().expect("the system has a temporary directory")
}

/// Starts the gateway with these lines of its listener.
fn start(dir: &Path, listener: &str, rest: &str) -> (Process, SocketAddr) {
    let policy = format!("version = 1\n[listen.proxy]\n{listener}\n{rest}\n{OPEN}");
    fs::write(dir.join("ratekeeper.toml"), policy).expect("it is writable");
    gateway(dir, &["run"])
}

fn node(node: &Path, dir: &Path, socket: &Path) -> Process {
    let script = dir.join("app.js");
    fs::write(&script, NODE).expect("it is writable");
    let mut command = Command::new(node);
    command.arg(script).arg(socket);
    let process = Process::start("node", &mut command, dir.join("out"), dir.join("log"));
    let listens = clock::poll("node", PATIENCE, || socket.exists().then_some(()));
    listens.unwrap_or_else(|error| panic!("{error}"));
    process
}

#[test]
fn applications_at_unix_sockets_are_served_left_out_and_used_again() {
    let (Some(nginx), Some(program), Some(_)) = (
        process::find("nginx"),
        process::find("node"),
        process::find("curl"),
    ) else {
        return;
    };
    let dir = dir();
    let [first, second] = ["node.sock", "nginx.sock"].map(|name| dir.path().join(name));
    let mut app = node(&program, dir.path(), &first);
    let server = format!(
        "listen unix:{};\nlocation / {{ return 200 \"nginx $http_host 0\"; }}",
        second.display()
    );
    let (_nginx, _) = application(dir.path(), &nginx, &server);
    let listener = format!(
        "upstream = [\"unix:{}\", \"unix:{}\"]",
        first.display(),
        second.display()
    );
    let (service, proxy) = start(dir.path(), &listener, "");
    let url = format!("http://{proxy}/");
    let mut seen = [text(&[&url]), text(&[&url])];
    seen.sort();
    assert_eq!(
        seen,
        [format!("nginx {proxy} 0"), format!("node {proxy} 0")]
    );
    let own =
        text(&["--http1.0", "-H", "Host:", &url]) + &text(&["--http1.0", "-H", "Host:", &url]);
    assert!(
        own.contains("node localhost 0") && own.contains("nginx localhost 0"),
        "{own}"
    );
    app.crash();
    for _ in 0..4 {
        assert_eq!(text(&[&url]), format!("nginx {proxy} 0"));
    }
    service.log_with("upstream down: ");
    let _ = fs::remove_file(&first);
    let _again = node(&program, dir.path(), &first);
    // Left out for 10 s, then tried by one request.
    let back = clock::poll("node is used again", PATIENCE, || {
        text(&[&url]).starts_with("node").then_some(())
    });
    back.unwrap_or_else(|error| panic!("{error}"));
    service.log_with("upstream up: ");
}

#[test]
fn node_receives_no_body_above_the_maximum() {
    let (Some(program), Some(_)) = (process::find("node"), process::find("curl")) else {
        return;
    };
    let dir = dir();
    let socket = dir.path().join("node.sock");
    let _app = node(&program, dir.path(), &socket);
    let listener = format!(
        "upstream = \"unix:{0}\"\nmax_body = \"64KiB\"\n[[listen.proxy.route]]\nname = \"files\"\n\
         match = {{ path = \"/files/**\" }}\nupstream = \"unix:{0}\"\nmax_body = \"1MiB\"",
        socket.display()
    );
    let (_service, proxy) = start(dir.path(), &listener, "");
    let body = dir.path().join("body");
    for (path, size, expected) in [
        ("", 64 << 10, "200"),
        ("", (64 << 10) + 1, "413"),
        ("files/a", 1 << 20, "200"),
        ("files/a", (1 << 20) + 1, "413"),
    ] {
        let url = format!("http://{proxy}/{path}");
        fs::write(&body, vec![b'x'; size]).expect("it is writable");
        let data = format!("@{}", body.display());
        for form in [&["--http1.1"][..], &["-H", "Transfer-Encoding: chunked"]] {
            let fixed = [
                "-o",
                "/dev/null",
                "-w",
                "%{http_code}",
                "--data-binary",
                &data,
                &url,
            ];
            let status = text(&[form, &fixed[..]].concat());
            assert_eq!(status, expected, "{size} {form:?}");
        }
    }
}

#[test]
fn haproxy_announces_its_clients_by_the_proxy_protocol() {
    let (Some(nginx), Some(haproxy), Some(_)) = (
        process::find("nginx"),
        process::find("haproxy"),
        process::find("curl"),
    ) else {
        return;
    };
    let dir = dir();
    let echo = "location / { return 200 \"$http_x_forwarded_for\"; }";
    let (_nginx, application) = application(dir.path(), &nginx, echo);
    let listener = format!("upstream = \"http://{application}\"\nproxy_protocol = true");
    let trust = "[client_ip]\ntrusted_proxies = [\"127.0.0.1\"]";
    let (_service, proxy) = start(dir.path(), &listener, trust);
    for version in ["send-proxy-v2", "send-proxy"] {
        let front = free_address();
        let config = format!(
            "global\n    noreuseport\ndefaults\n    mode tcp\n    timeout connect 5s\n    \
             timeout client 5s\n    timeout server 5s\nlisten front\n    bind {front}\n    \
             server gateway {proxy} {version}\n"
        );
        let path = dir.path().join("haproxy.cfg");
        fs::write(&path, config).expect("it is writable");
        let mut command = Command::new(&haproxy);
        command.arg("-db").arg("-f").arg(&path);
        let (out, log) = (dir.path().join("h.out"), dir.path().join("h.log"));
        let _haproxy = Process::start("haproxy", &mut command, out, log);
        let listens = clock::poll("haproxy", PATIENCE, || TcpStream::connect(front).ok());
        listens.unwrap_or_else(|error| panic!("{error}"));
        // 127.0.0.9 is not trusted, so a field of its own adds nothing.
        let forged = [
            "--interface",
            "127.0.0.9",
            "-H",
            "X-Forwarded-For: 192.0.2.1",
        ];
        let seen = text(&[&forged[..], &[&format!("http://{front}/")]].concat());
        assert_eq!(seen, "127.0.0.9", "{version}");
    }
    // Without a header, and from a peer that is not trusted, the connection is closed.
    let url = format!("http://{proxy}/");
    for arguments in [&[][..], &["--haproxy-protocol", "--interface", "127.0.0.9"]] {
        let mut command = Command::new("curl");
        let output = command
            .args(["-sS", "--max-time", "20"])
            .args(arguments)
            .arg(&url)
            .output();
        let output = output.expect("curl runs");
        assert!(!output.status.success(), "{arguments:?}");
    }
    let by_curl = text(&["--haproxy-protocol", &url]);
    assert_eq!(by_curl, "127.0.0.1");
}
