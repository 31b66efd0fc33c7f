//! The access log: a line of JSON for each request, whatever became of it.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;

use serde_json::Value;

use super::upstream::{Next, Upstream};
use super::{OPEN, Proxy, eventually};

const LIMIT: &str = "[[limit]]\nname = \"few\"\nmatch = { path = \"/few\" }\nkey = [\"ip\"]\n\
                     limit = \"1/1h\"\n";

fn start(settings: &str) -> (Upstream, Proxy) {
    let upstream = Upstream::hello();
    let dead = "[[listen.proxy.route]]\nname = \"dead\"\nmatch = { path = \"/dead\" }\n\
                upstream = \"http://127.0.0.1:1\"\n";
    let proxy = Proxy::start(&[upstream.address], &format!("{settings}\n{dead}"), LIMIT);
    (upstream, proxy)
}

/// Returns the lines of a file, once it has that many.
fn lines(file: &Path, count: usize) -> Vec<Value> {
    let read = || fs::read_to_string(file).unwrap_or_default();
    eventually("lines of the log", || read().lines().count() >= count);
    let text = read();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line}")))
        .collect();
    assert_eq!(lines.len(), count, "{text}");
    lines
}

#[test]
fn each_request_has_a_line_that_says_what_became_of_it() {
    let (_upstream, proxy) = start("access_log = { to = \"access.log\" }");
    assert_eq!(proxy.client().get("/few?token=secret").status(), 200);
    assert_eq!(proxy.client().get("/few").status(), 429);
    assert_eq!(proxy.client().get("/dead").status(), 502);
    assert_eq!(proxy.client().get("/%22%0a%7b").status(), 200);
    assert_eq!(proxy.client().ask("GET / HTTP/1.1\r\n\r\n").status(), 400);
    let lines = lines(&proxy.directory.path().join("access.log"), 5);
    let of = |name: &str| lines.iter().map(|line| &line[name]).collect::<Vec<_>>();
    assert_eq!(of("status"), [200, 429, 502, 200, 400]);
    assert_eq!(of("path"), ["/few", "/few", "/dead", "/%22%0a%7b", "/"]);
    assert_eq!(of("client"), ["127.0.0.1"; 5]);
    for line in &lines {
        assert_eq!(line["method"], "GET");
        assert_eq!(line["query"], Value::Null, "it may hold secrets");
        let time = line["time"].as_str().unwrap();
        assert_eq!(time.len(), "2026-11-28T23:38:31.160372Z".len(), "{line}");
        assert!(line["request_id"].is_string(), "{line}");
        assert!(line["duration_ms"].as_f64().unwrap() > 0.0, "{line}");
        assert!(line["bytes"].as_u64().unwrap() > 0, "{line}");
    }
    assert_eq!(lines[1]["limit"], "few");
    assert!(
        lines[1]["key"].as_str().unwrap().starts_with("ip="),
        "{}",
        lines[1]
    );
    assert!(lines[0]["upstream"].is_string() && lines[0]["upstream_ms"].is_number());
    assert_eq!(lines[0]["limit"], Value::Null);
}

#[test]
fn a_file_that_was_moved_is_created_anew() {
    let (_upstream, proxy) = start("access_log = { to = \"access.log\" }");
    let file = proxy.directory.path().join("access.log");
    proxy.client().get("/");
    assert_eq!(lines(&file, 1).len(), 1);
    let moved = proxy.directory.path().join("access.log.1");
    fs::rename(&file, &moved).unwrap();
    proxy.client().get("/");
    assert_eq!(lines(&file, 1).len(), 1);
    assert_eq!(lines(&moved, 1).len(), 1);
}

#[test]
fn lines_and_fields_are_chosen() {
    let refused = "access_log = { to = \"a.log\", only = \"refused\", fields = [\"status\", \"path\", \"query\"] }";
    let (_upstream, proxy) = start(refused);
    for _ in 0..3 {
        proxy.client().get("/few?a=b");
    }
    proxy.client().get("/dead");
    let text: Vec<String> = lines(&proxy.directory.path().join("a.log"), 2)
        .iter()
        .map(Value::to_string)
        .collect();
    assert_eq!(text, [r#"{"path":"/few","query":"a=b","status":429}"#; 2]);

    let failed = "access_log = { to = \"a.log\", only = \"failed\", sample = \"50%\", fields = [\"status\"] }";
    let (_upstream, proxy) = start(failed);
    for _ in 0..3 {
        proxy.client().get("/few");
        proxy.client().get("/dead");
        proxy.client().get("/dead");
    }
    let half = lines(&proxy.directory.path().join("a.log"), 3);
    assert!(half.iter().all(|line| line["status"] == 502), "{half:?}");
}

/// The status of its response is 200, that of the failure is what operators look for.
#[test]
fn a_grpc_call_that_the_gateway_fails_is_logged_as_failed() {
    let (failed, long) = ("only = \"failed\", ", "x".repeat(1025));
    for (path, body, only, status) in [("/dead", "", failed, 502), ("/", &long, "", 413)] {
        let settings = format!("max_body = \"1KiB\"\naccess_log = {{ {only}to = \"a.log\" }}");
        let (_upstream, proxy) = start(&settings);
        let length = body.len();
        let call = proxy.client().ask(&format!(
            "POST {path} HTTP/1.1\r\nhost: a\r\ncontent-type: application/grpc\r\n\
             content-length: {length}\r\n\r\n{body}"
        ));
        assert_eq!(call.status(), 200);
        assert!(call.one("grpc-status").is_some());
        let file = proxy.directory.path().join("a.log");
        assert_eq!(lines(&file, 1)[0]["status"], status);
    }
}

/// Switches, hangs, or closes, by the path.
fn fails_by_path() -> Upstream {
    Upstream::new(|mut visit| {
        match visit.request.start.split(' ').nth(1) {
            Some("/chat") => {
                let head = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n\
                            upgrade: websocket\r\n\r\nhello";
                visit.stream.write_all(head.as_bytes()).unwrap();
                visit.until_closed();
            }
            Some("/hang") => visit.until_closed(),
            Some("/few") => {
                let head = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n";
                visit.stream.write_all(head).unwrap();
            }
            _ => {}
        }
        Next::Close
    })
}

#[test]
fn a_line_names_the_upstream_that_a_request_was_sent_to_and_the_bytes_of_the_client() {
    let upstream = fails_by_path();
    let listener = "access_log = { to = \"a.log\" }\nresponse_timeout = \"200ms\"";
    let proxy = Proxy::start(&[upstream.address], listener, LIMIT);
    let file = proxy.directory.path().join("a.log");
    let mut client = proxy.client();
    client
        .send("GET /chat HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n");
    assert_eq!(client.response().status(), 101);
    client.stream.read_exact(&mut [0; 5]).unwrap();
    drop(client);
    lines(&file, 1);
    for (line, path) in [(2, "/hang"), (3, "/close"), (4, "/few"), (5, "/few")] {
        let method = if path == "/few" { "HEAD" } else { "GET" };
        let request = format!("{method} {path} HTTP/1.1\r\nhost: a\r\n\r\n");
        proxy.client().ask(&request);
        lines(&file, line);
    }
    let lines = lines(&file, 5);
    let address = upstream.address.to_string();
    for (line, (status, bytes)) in lines.iter().zip([
        (101, Some(5)),
        (504, None),
        (502, None),
        (200, Some(0)),
        (429, Some(0)),
    ]) {
        assert_eq!(line["status"], status, "{line}");
        assert!(bytes.is_none_or(|bytes| line["bytes"] == bytes), "{line}");
        let is_sent = status != 429;
        assert_eq!(line["upstream"] == *address, is_sent, "{line}");
        assert_eq!(line["upstream_ms"].is_number(), is_sent, "{line}");
    }
}

#[test]
fn a_request_that_its_client_left_before_a_response_is_a_failure_and_names_the_upstream() {
    let upstream = fails_by_path();
    let held =
        "[[limit]]\nname = \"held\"\nkey = [\"all\"]\nconcurrency = { max = 9, lease = \"60s\" }\n";
    for policy in [OPEN, held] {
        let log = "access_log = { to = \"a.log\", only = \"failed\" }";
        let proxy = Proxy::start(&[upstream.address], log, policy);
        let mut client = proxy.client();
        client.send("GET /hang HTTP/1.1\r\nhost: a\r\n\r\n");
        upstream.seen();
        drop(client);
        let line = &lines(&proxy.directory.path().join("a.log"), 1)[0];
        assert_eq!(line["status"], Value::Null, "{line}");
        assert_eq!(line["upstream"], upstream.address.to_string(), "{line}");
        assert!(line["upstream_ms"].is_number(), "{line}");
    }
}
