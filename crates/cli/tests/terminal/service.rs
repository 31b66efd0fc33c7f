//! `run`, and the verbs that call a running service: a real process on a free port.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};

use crate::desk::{Desk, POLICY};
use crate::reviewed::assert_reviewed;

/// A service with the desk's policy.
struct Service {
    child: Child,
    stdout: BufReader<ChildStdout>,
    stderr: BufReader<ChildStderr>,
    http: String,
}

impl Service {
    fn start(desk: &Desk, options: &[&str]) -> Self {
        let doors = [
            "run",
            "--listen",
            "http=127.0.0.1:0",
            "--listen",
            "admin=127.0.0.1:0",
        ];
        let mut child = desk
            .command(&[&doors[..], options].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the service starts");
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let stderr = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut service = Self {
            child,
            stdout,
            stderr,
            http: String::new(),
        };
        let first = service.line();
        if first.is_empty() {
            let (_, log) = service.end();
            panic!("the service did not start: {log}");
        }
        let port = first
            .trim_end_matches("\"}")
            .rsplit(':')
            .next()
            .unwrap_or_default();
        service.http = format!("127.0.0.1:{port}");
        service
    }

    /// Returns the next line on stdout.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout
            .read_line(&mut line)
            .expect("the service writes");
        line.trim_end().to_owned()
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill")
            .args(["-s", name, &id])
            .status()
            .expect("kill runs");
        assert!(sent.success());
    }

    /// Reads the log until a line contains `text`.
    fn logged(&mut self, text: &str) {
        let mut line = String::new();
        while !line.contains(text) {
            line.clear();
            let read = self
                .stderr
                .read_line(&mut line)
                .expect("the service writes");
            assert_ne!(read, 0, "the service ended without logging `{text}`");
        }
    }

    /// Ends it, and returns the rest of its log.
    fn end(mut self) -> (ExitStatus, String) {
        self.signal("TERM");
        let mut log = String::new();
        self.stderr
            .read_to_string(&mut log)
            .expect("the service writes");
        (self.child.wait().expect("it ends"), log)
    }

    /// Returns the status and the body of `POST path`.
    fn post(&self, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.http).expect("the listener is open");
        let length = body.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {length}"
        );
        stream
            .write_all(format!("{head}\r\n\r\n{body}").as_bytes())
            .expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer
    }

    /// Replaces ports, which are volatile.
    fn steady(&self, text: &str) -> String {
        let port = self.http.rsplit(':').next().unwrap_or_default();
        text.replace(&format!(":{port}"), ":PORT")
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Strict enough that no test sees a refill, at any speed.
const HOURLY: &str = r#"version = 1

[[limit]]
name   = "per-ip"
key    = ["ip"]
bucket = { size = 3, refill = "1/1h" }

[[limit]]
name   = "login"
match  = { path = "/login" }
key    = ["ip"]
bucket = { size = 1, refill = "1/1h" }
mode   = "shadow"
"#;

#[test]
fn the_service_prints_its_addresses_serves_reloads_and_stops() {
    let desk = Desk::new().with("ratekeeper.toml", HOURLY);
    let mut service = Service::start(&desk, &[]);
    assert!(service.line().starts_with("listening admin 127.0.0.1:"));
    service.logged(&format!(
        "try: curl -i http://{}/v1/check",
        service.http.clone()
    ));
    let body = r#"{"request": {"ip": "192.0.2.1"}}"#;
    for _ in 0..3 {
        assert!(service.post("/v1/check", body).starts_with("HTTP/1.1 200 "));
    }
    assert!(service.post("/v1/check", body).starts_with("HTTP/1.1 429 "));

    // One more an hour at once: the three used permits stay used.
    let more = HOURLY.replace("size = 3", "size = 4");
    std::fs::write(desk.path().join("ratekeeper.toml"), more).expect("written");
    service.signal("HUP");
    service.logged("policy reloaded: version 1 -> 2");
    assert!(service.post("/v1/check", body).starts_with("HTTP/1.1 200 "));
    assert!(service.post("/v1/check", body).starts_with("HTTP/1.1 429 "));

    std::fs::write(desk.path().join("ratekeeper.toml"), "version = 1\nbroken").expect("written");
    service.signal("HUP");
    service.logged("still running version 2");
    assert!(service.post("/v1/check", body).starts_with("HTTP/1.1 429 "));

    let http = service.http.clone();
    let (status, log) = service.end();
    assert_eq!(status.code(), Some(0), "{log}");
    let last = log.lines().last().and_then(|line| line.split_once(' '));
    let is_dated = last.is_some_and(|(at, _)| at.parse::<jiff::Timestamp>().is_ok());
    assert!(
        is_dated && last.is_some_and(|(_, said)| said == "stopped"),
        "{log}"
    );
    assert!(TcpStream::connect(http).is_err(), "the listener is closed");
}

#[test]
fn shadow_refuses_no_request_after_a_reload() {
    let desk = Desk::new().with("ratekeeper.toml", HOURLY);
    let mut service = Service::start(&desk, &["--shadow"]);
    let body = r#"{"request": {"ip": "192.0.2.1"}}"#;
    let allowed = |service: &Service| {
        (0..5).all(|_| service.post("/v1/check", body).starts_with("HTTP/1.1 200 "))
    };
    assert!(allowed(&service));
    std::fs::write(
        desk.path().join("ratekeeper.toml"),
        HOURLY.replace("size = 3", "size = 2"),
    )
    .expect("written");
    service.signal("HUP");
    service.logged("policy reloaded");
    assert!(allowed(&service));
    assert!(
        service
            .post("/v1/check", body)
            .contains(r#""verdict":"deny""#)
    );
}

#[test]
fn addresses_are_json_for_programs() {
    let desk = Desk::new().with("ratekeeper.toml", HOURLY);
    let mut service = Service::start(&desk, &["--json", "--log-format", "json"]);
    let admin: serde_json::Value = serde_json::from_str(&service.line()).expect("JSON");
    assert_eq!(admin["event"], "listening");
    assert_eq!(admin["listener"], "admin");
    assert!(
        admin["address"]
            .as_str()
            .is_some_and(|at| at.starts_with("127.0.0.1:"))
    );
    // Also without words for people before it.
    let other = Service::start(&desk, &["--log-format", "json"]);
    for service in [service, other] {
        let (status, log) = service.end();
        assert_eq!(status.code(), Some(0));
        for line in log.lines() {
            let event: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
            assert!(event["event"].is_string(), "{line}");
        }
    }
}

/// Returns the arguments with that service added.
fn ask<'a>(arguments: &[&'a str], server: &'a str) -> Vec<&'a str> {
    [arguments, &["--server", server]].concat()
}

#[test]
fn check_and_peek_call_the_service() {
    let desk = Desk::new().with("ratekeeper.toml", HOURLY);
    let service = Service::start(&desk, &[]);
    let server = format!("http://{}", service.http);
    let runs = [
        ask(&["peek", "per-ip", "ip=192.0.2.1"], &server),
        ask(&["check", "per-ip", "ip=192.0.2.1", "--cost", "3"], &server),
        ask(&["check", "per-ip", "ip=192.0.2.2", "--cost", "4"], &server),
        ask(&["check", "login", "ip=192.0.2.2"], &server),
        ask(&["check", "login", "ip=192.0.2.2", "path=/login"], &server),
        ask(&["check", "per-pi", "ip=192.0.2.1"], &server),
        ask(&["peek", "per-ip", "ip=192.0.2.3", "--json"], &server),
    ];
    let runs: Vec<&[&str]> = runs.iter().map(Vec::as_slice).collect();
    assert_reviewed!(service.steady(&desk.terminal(&runs)));

    // The rest of the hour is volatile.
    let denied = desk.run(&ask(&["check", "per-ip", "ip=192.0.2.1"], &server));
    let shown = String::from_utf8_lossy(&denied.stdout);
    assert_eq!(denied.status.code(), Some(1));
    assert!(
        shown.starts_with("denied\n  per-ip  0 of 3 left, try again in "),
        "{shown}"
    );
}

const DESCRIPTORS: &str = r#"version = 1

[[limit]]
name   = "per-user"
match  = { domain = "edge" }
key    = ["descriptor:user"]
bucket = { size = 2, refill = "1/1h" }
"#;

#[test]
fn check_and_peek_accept_descriptors() {
    let desk = Desk::new().with("ratekeeper.toml", DESCRIPTORS);
    let service = Service::start(&desk, &[]);
    let server = format!("http://{}", service.http);
    let ada = ["--domain", "edge", "--descriptor", "user=ada"];
    let ask = |verb: &[&'static str], what: &[&'static str]| {
        [verb, what, &["--server", &server]]
            .concat()
            .into_iter()
            .map(str::to_owned)
            .collect()
    };
    let runs: [Vec<String>; 5] = [
        ask(&["peek", "per-user"], &ada),
        ask(&["check", "per-user", "--cost", "2"], &ada),
        ask(&["check", "per-user"], &["ip=192.0.2.1"]),
        ask(&["check", "per-user"], &["descriptor:user=ada"]),
        ask(&["check", "per-user", "ip=192.0.2.1"], &ada),
    ];
    let runs: Vec<Vec<&str>> = runs
        .iter()
        .map(|run| run.iter().map(String::as_str).collect())
        .collect();
    let runs: Vec<&[&str]> = runs.iter().map(Vec::as_slice).collect();
    assert_reviewed!(service.steady(&desk.terminal(&runs)));
}

#[test]
fn commands_reach_listeners_at_unix_sockets() {
    let desk = Desk::new().with("ratekeeper.toml", HOURLY);
    let [http, admin] = ["http", "admin"].map(|name| {
        let socket = desk.path().join(name);
        format!("unix:{}", socket.display())
    });
    let health = ask(&["health"], &admin);
    let missing = desk.run(&health);
    let shown = String::from_utf8_lossy(&missing.stderr);
    assert!(shown.contains("nothing listens at unix:/"), "{shown}");
    let [at_http, at_admin] = [format!("http={http}"), format!("admin={admin}")];
    let mut service = Service::start(&desk, &["--listen", &at_http, "--listen", &at_admin]);
    service.line();
    for (arguments, expected) in [
        (health, "ready\n"),
        (
            ask(&["check", "per-ip", "ip=192.0.2.1"], &http),
            "allowed\n  per-ip  2 of 3 left, full again in 1 h  [ip=192.0.2.1]\n",
        ),
    ] {
        let ran = desk.run(&arguments);
        let errors = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(String::from_utf8_lossy(&ran.stdout), expected, "{errors}");
    }
}

#[test]
fn the_service_does_not_start_with_a_mistake() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let at_taken = format!("http=127.0.0.1:{port}");
    let desk = Desk::new()
        .with("good.toml", POLICY)
        .with("broken.toml", "version = 1\n[[limit]]\n");
    let shown = desk.terminal(&[
        &["run", "broken.toml"],
        &["run", "good.toml", "--listen", "http"],
        &["run", "good.toml", "--listen", "htpp=127.0.0.1:0"],
        &[
            "run",
            "good.toml",
            "--listen",
            "http=off",
            "--listen",
            "admin=off",
        ],
        &[
            "run",
            "good.toml",
            "--listen",
            "admin=off",
            "--listen",
            &at_taken,
        ],
        &[
            "run",
            "good.toml",
            "--listen",
            "http=off",
            "--listen",
            "admin=0.0.0.0:0",
        ],
        &["run", "good.toml", "--memory", "64MB"],
        &["run", "good.toml", "--store", "mysql://db"],
        &["run", "good.toml", "--store", "redis://:secret@db:x"],
        &["run", "-"],
    ]);
    assert_reviewed!(shown.replace(&port, "PORT"));
}

#[test]
fn overrides_are_set_listed_and_removed() {
    let policy = HOURLY.replacen("version = 1\n", "version = 1\noverrides = \"o.csv\"\n", 1);
    let open = format!("{policy}\n[listen]\nadmin_writes = \"open\"\n");
    let desk = Desk::new()
        .with("ratekeeper.toml", open)
        .with("o.csv", "limit,key,set,until,reason\n");
    let mut service = Service::start(&desk, &[]);
    let admin = service.line();
    let admin = admin.rsplit(' ').next().unwrap_or_default();
    let overrides = |arguments: &[&str]| {
        let all = [&["overrides"], arguments, &["--server", admin]].concat();
        let ran = desk.run(&all);
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (ran.status.code(), text(ran.stdout), text(ran.stderr))
    };
    let line = "per-ip 192.0.2.9: blocked until 2036-12-31T00:00:00Z (contract 4711), line 2\n";
    let set = overrides(&[
        "set",
        "per-ip",
        "192.0.2.9",
        "blocked",
        "--until",
        "2036-12-31T00:00:00Z",
        "--reason",
        "contract 4711",
    ]);
    assert_eq!((set.0, &*set.1), (Some(0), line), "{}", set.2);
    let body = r#"{"request": {"ip": "192.0.2.9"}}"#;
    assert!(service.post("/v1/check", body).starts_with("HTTP/1.1 429 "));
    service.logged("override of limit per-ip set: blocked (line 2)");
    let listed = overrides(&["list"]);
    assert_eq!((listed.0, &*listed.1), (Some(0), line), "{}", listed.2);
    let wrong = overrides(&["set", "per-ip", "192.0.2.9", "nine"]);
    assert_eq!((wrong.0, &*wrong.1), (Some(2), ""));
    assert!(
        wrong.2.contains("o.csv:2:18: ") && wrong.2.contains("hint: "),
        "{}",
        wrong.2
    );
    let removed = overrides(&["remove", "per-ip", "192.0.2.9"]);
    assert_eq!(
        (removed.0, &*removed.1),
        (Some(0), "per-ip 192.0.2.9: removed from o.csv\n")
    );
    assert!(service.post("/v1/check", body).starts_with("HTTP/1.1 200 "));
    let again = overrides(&["remove", "per-ip", "192.0.2.9"]);
    assert_eq!(
        (again.0, &*again.1),
        (Some(1), "per-ip 192.0.2.9: not in o.csv\n")
    );
    assert_eq!(overrides(&["list", "per-ip"]).0, Some(1));
}
