//! The same random requests through nginx and through the gateway: what the upstream sees is the
//! same, and what nginx refuses is refused.
//!
//! ```text
//!   request --.--> nginx ----> upstream --.
//!             '--> gateway --> upstream --'--> equal, but for the fields of a proxy
//! ```

use std::fs;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::message::{Message, read_response};
use super::random::{Random, end_to_end};
use super::upstream::Upstream;
use super::{Client, Proxy, eventually};

const REQUESTS: u32 = 1_500;
const SEED: u64 = 0x5eed_0064;

/// Ways in which a request is malformed, and the change that makes it so.
const CHANGES: [(&str, &str, &str); 14] = [
    ("", "", ""),
    (
        "two hosts",
        "host: a.example\r\n",
        "host: a.example\r\nhost: b\r\n",
    ),
    ("no host", "host: a.example\r\n", ""),
    ("odd host", "host: a.example\r\n", "host: a/b\r\n"),
    ("a space before a colon", "host:", "host :"),
    (
        "a folded line",
        "host: a.example\r\n",
        "host: a.example\r\nx-a: 1\r\n 2\r\n",
    ),
    (
        "a bare CR",
        "host: a.example\r\n",
        "host: a.example\r\nx-a: 1\r2\r\n",
    ),
    (
        "a NUL",
        "host: a.example\r\n",
        "host: a.example\r\nx-a: 1\x002\r\n",
    ),
    (
        "a line without a colon",
        "host: a.example\r\n",
        "host: a.example\r\nx-a\r\n",
    ),
    (
        "another length",
        "content-length: ",
        "content-length: 7\r\ncontent-length: 9",
    ),
    ("no number", "content-length: ", "content-length: 0x"),
    (
        "another coding",
        "transfer-encoding: chunked",
        "transfer-encoding: gzip",
    ),
    (
        "two codings",
        "transfer-encoding: chunked",
        "transfer-encoding: chunked, chunked",
    ),
    ("another version", " HTTP/1.1\r\n", " HTTP/9.1\r\n"),
];

/// nginx, until the test ends.
struct Nginx(Child);

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.0.kill(); // it may have ended
        let _ = self.0.wait();
    }
}

/// Starts nginx in front of an upstream; `None`, after a visible line, if it is not installed.
#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
fn nginx(dir: &Path, upstream: SocketAddr) -> Option<(Nginx, SocketAddr)> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let at = dir.display();
    let config = format!(
        "daemon off; master_process off; pid {at}/pid; error_log {at}/error.log crit;\n\
         events {{ worker_connections 64; }}\n\
         http {{ access_log off; client_body_temp_path {at}/b; proxy_temp_path {at}/p;\n\
         fastcgi_temp_path {at}/f; uwsgi_temp_path {at}/u; scgi_temp_path {at}/s;\n\
         large_client_header_buffers 8 16k; underscores_in_headers on; ignore_invalid_headers off;\n\
         server {{ listen {address}; location / {{ proxy_pass http://{upstream};\n\
         proxy_http_version 1.1; proxy_request_buffering off;\n\
         proxy_set_header Host $http_host; proxy_set_header Connection \"\"; }} }} }}\n"
    );
    fs::write(dir.join("nginx.conf"), config).unwrap();
    let started = ["nginx", "/usr/sbin/nginx"].iter().find_map(|program| {
        let mut command = Command::new(program);
        command
            .arg("-p")
            .arg(dir)
            .arg("-c")
            .arg(dir.join("nginx.conf"));
        command
            .args(["-e", "stderr"])
            .stderr(Stdio::null())
            .spawn()
            .ok()
    });
    let Some(child) = started else {
        assert!(
            std::env::var_os("CI").is_none_or(|ci| ci != "true"),
            "nginx is not installed"
        );
        eprintln!("skipped: nginx is not installed");
        return None;
    };
    let nginx = Nginx(child);
    eventually("nginx listens", || TcpStream::connect(address).is_ok());
    Some((nginx, address))
}

/// Returns a request, and the way in which it is malformed.
fn request(random: &mut Random, number: u32) -> (Vec<u8>, &'static str) {
    let method = random.pick(&["GET", "POST", "PUT", "DELETE", "OPTIONS", "REPORT"]);
    let path = random.text(b"abcXYZ019-_~!$&'()*+,;=:@/", 30);
    let query = random.text(b"abc=&+/?19[]{}|^`", 20);
    let mut fields = random.fields();
    // nginx refuses two lines of it.
    let mut has_login = false;
    fields.retain(|(name, _)| name != "authorization" || !std::mem::replace(&mut has_login, true));
    let body = random.body();
    let mut head = format!("{method} /{number}/{path}?{query} HTTP/1.1\r\nhost: a.example\r\n");
    let bytes = random.write(&mut head, &fields, &body);
    let pick = CHANGES[random
        .below(CHANGES.len() * 2)
        .saturating_sub(CHANGES.len())];
    let (name, from, to) = pick;
    let at = bytes
        .windows(from.len().max(1))
        .position(|part| part == from.as_bytes());
    match at {
        Some(at) if !name.is_empty() => {
            let rest = &bytes[at + from.len()..];
            ([&bytes[..at], to.as_bytes(), rest].concat(), name)
        }
        _ => (bytes, ""),
    }
}

/// Returns the status that a client receives; 0 if the connection ends without any.
fn ask(proxy: SocketAddr, request: &[u8]) -> u16 {
    let mut client = Client::new(proxy);
    let mut writer = client.stream.get_ref().try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let _ = writer.write_all(request); // it may be refused before its end
        });
        let response = read_response(&mut client.stream, "GET");
        response.map_or(0, |response| response.status())
    })
}

/// Returns what the upstream saw of a request that passed.
fn seen(upstream: &Upstream, status: u16) -> Option<Message> {
    (status == 200).then(|| upstream.seen())
}

#[test]
fn nginx_and_the_gateway_send_the_same() {
    let home = tempfile::tempdir().unwrap();
    let (behind_nginx, behind_us) = (Upstream::hello(), Upstream::hello());
    let Some((_nginx, peer)) = nginx(home.path(), behind_nginx.address) else {
        return;
    };
    let proxy = Proxy::in_front_of(&behind_us);
    let mut random = Random::new(SEED);
    let (mut passed, mut refused) = (0, 0);
    for number in 0..REQUESTS {
        let (bytes, malformed) = request(&mut random, number);
        let context = || {
            let head = String::from_utf8_lossy(&bytes[..bytes.len().min(600)]).into_owned();
            format!("request {number}, {malformed:?}: {head}")
        };
        let [theirs, ours] = [peer, proxy.address()].map(|at| ask(at, &bytes));
        if theirs != 200 || !malformed.is_empty() {
            assert!(matches!(ours, 400..=499), "{theirs}, {ours}: {}", context());
            refused += 1;
        } else {
            assert_eq!(ours, 200, "{}", context());
            passed += 1;
        }
        let (theirs, ours) = (seen(&behind_nginx, theirs), seen(&behind_us, ours));
        if let (Some(theirs), Some(ours)) = (theirs, ours) {
            assert_eq!(ours.start, theirs.start, "{}", context());
            assert_eq!(ours.one("host"), theirs.one("host"), "{}", context());
            assert_eq!(end_to_end(&ours), end_to_end(&theirs), "{}", context());
            let is_same = ours.is_whole && ours.body == theirs.body;
            assert!(is_same, "{}", context());
        }
        assert!(behind_us.saw_nothing(), "{}", context());
    }
    assert!(passed > 500 && refused > 300, "{passed}, {refused}");
}
