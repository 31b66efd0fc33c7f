//! Obstacles: the environment of the process fails or hangs, and it goes on deciding.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::desk::Desk;
use crate::reviewed::assert_reviewed;

/// Maximum time for an answer or the end on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Token of admin calls.
const TOKEN: &str = "obstacles";

const POLICY: &str = r#"version = 1

[[limit]]
name   = "per-ip"
key    = ["ip"]
bucket = { size = 3, refill = "1/1h" }
"#;

/// A service with its doors.
struct Running {
    child: Child,
    http: String,
    admin: String,
}

impl Running {
    fn start(desk: &Desk, options: &[&str], stderr: impl Into<Stdio>) -> Self {
        let mut command = desk.command(&["run", "--json"]);
        command.args([
            "--listen",
            "http=127.0.0.1:0",
            "--listen",
            "admin=127.0.0.1:0",
        ]);
        command
            .env("RATEKEEPER_LOG", "trace")
            .env("RATEKEEPER_ADMIN_TOKEN", TOKEN);
        Self::of(command.args(options), stderr)
    }

    fn of(command: &mut Command, stderr: impl Into<Stdio>) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .expect("it starts");
        let stdout = child.stdout.take().expect("a pipe");
        let mut lines = BufReader::new(stdout).lines();
        let mut address = || {
            let line = lines
                .next()
                .expect("a line for each listener")
                .expect("text");
            let event: serde_json::Value = serde_json::from_str(&line).expect("JSON");
            event["address"].as_str().expect("an address").to_owned()
        };
        let (http, admin) = (address(), address());
        Self { child, http, admin }
    }

    fn check(&self) -> String {
        let body = r#"{"request": {"ip": "192.0.2.1"}}"#;
        self.ask(&self.http, "POST /v1/check", body)
    }

    fn admin(&self, request: &str) -> String {
        self.ask(&self.admin, request, "")
    }

    #[expect(clippy::unused_self, reason = "needs a running service")]
    fn ask(&self, door: &str, request: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(door).expect("the listener is open");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        let length = body.len();
        let head = format!(
            "{request} HTTP/1.1\r\nhost: {door}\r\nconnection: close\r\n\
             authorization: Bearer {TOKEN}"
        );
        let whole = format!("{head}\r\ncontent-length: {length}\r\n\r\n{body}");
        stream.write_all(whole.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer
    }

    fn metric(&self, name: &str) -> u64 {
        let answer = self.admin("GET /metrics");
        let value = answer.lines().find_map(|line| line.strip_prefix(name));
        let value = value.unwrap_or_else(|| panic!("no {name} in {answer}"));
        value.trim().parse().expect("a number")
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &id]).status();
        assert!(sent.expect("kill runs").success());
    }

    /// Returns the exit code after SIGTERM.
    fn end(mut self) -> Option<i32> {
        self.signal("TERM");
        for _ in 0..PATIENCE.as_millis() / 10 {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status.code();
            }
            pause();
        }
        panic!("it does not end");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[expect(clippy::disallowed_methods, reason = "a real process keeps real time")]
fn pause() {
    thread::sleep(Duration::from_millis(10));
}

/// Polls `ready`, and fails after a while.
fn await_that(what: &str, mut ready: impl FnMut() -> bool) {
    for _ in 0..PATIENCE.as_millis() / 10 {
        if ready() {
            return;
        }
        pause();
    }
    panic!("not seen: {what}");
}

/// Denials, reloads and checks all log; each connection of a caller is its own.
#[test]
fn a_log_that_cannot_be_written_costs_lines_only() {
    for format in ["json", "text"] {
        let desk = Desk::new().with("ratekeeper.toml", POLICY);
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
        let full = full.expect("Linux has it");
        let service = Running::start(&desk, &["--log-format", format], full);
        for _ in 0..3 {
            assert!(service.check().starts_with("HTTP/1.1 200 "));
        }
        for size in 4..8 {
            let text = POLICY.replace("size = 3", &format!("size = {size}"));
            std::fs::write(desk.path().join("ratekeeper.toml"), text).expect("written");
            let reloaded = service.admin("POST /v1/reload");
            assert!(reloaded.starts_with("HTTP/1.1 200 "), "{reloaded}");
            assert!(service.check().starts_with("HTTP/1.1 200 "));
            assert!(service.check().starts_with("HTTP/1.1 429 "));
        }
        // The watching thread is alive: it reads the next text by itself.
        let text = POLICY.replace("size = 3", "size = 100");
        std::fs::write(desk.path().join("ratekeeper.toml"), text).expect("written");
        await_that("the reload by the file", || {
            service.check().starts_with("HTTP/1.1 200 ")
        });
        assert!(service.metric("ratekeeper_log_lines_dropped_total") > 0);
        assert_eq!(service.metric("ratekeeper_task_failures_total"), 0);
        assert_eq!(service.end(), Some(0));
    }
}

#[test]
fn a_log_without_a_reader_costs_lines_only() {
    // Lines about denials are few, so long ones fill the log sooner.
    let parts = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let keys = parts.map(|name| format!("\"attr:{name}\"")).join(", ");
    let policy = POLICY.replace("\"ip\"", &keys);
    let policy = policy.replace("[[limit]]", "reveal_keys = \"raw\"\n[[limit]]");
    let desk = Desk::new().with("ratekeeper.toml", &policy);
    let service = Running::start(&desk, &[], Stdio::piped());
    let mut stream = TcpStream::connect(&service.http).expect("the listener is open");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    // The first refusal of each client has a line.
    let whole = |client: usize| {
        let value = format!("{client:05}{}", "\\u0001".repeat(120));
        let attributes = parts
            .map(|name| format!("\"{name}\": \"{value}\""))
            .join(", ");
        let body = format!("{{\"attributes\": {{{attributes}}}}}");
        let head = "POST /v1/check HTTP/1.1\r\nhost: a\r\ncontent-length: ";
        format!("{head}{}\r\n\r\n{body}", body.len())
    };
    let mut asked = 0;
    // A read with a time-out may be interrupted, and is then made again.
    let read = |mut stream: &TcpStream| loop {
        match stream.read(&mut [0; 1 << 14]) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            read => return read.expect("an answer"),
        }
    };
    await_that("a full log", || {
        for _ in 0..200 {
            let mut stream = &stream;
            let whole = whole(asked / 4); // three pass, the fourth is refused
            stream.write_all(whole.as_bytes()).expect("it reads");
            assert!(read(stream) > 0);
            asked += 1;
        }
        service.metric("ratekeeper_log_lines_dropped_total") > 0
    });
    stream.write_all(whole(0).as_bytes()).expect("it reads");
    assert!(read(&stream) > 0);
    assert_eq!(
        service.end(),
        Some(0),
        "a full log does not keep the service from ending"
    );
}

#[test]
fn a_policy_that_becomes_a_fifo_is_refused_at_once() {
    let desk = Desk::new().with("ratekeeper.toml", POLICY);
    let service = Running::start(&desk, &[], Stdio::null());
    let policy = desk.path().join("ratekeeper.toml");
    std::fs::remove_file(&policy).expect("removed");
    mkfifo(&policy);
    let refused = service.admin("POST /v1/reload");
    assert!(refused.contains("a FIFO, not a regular file"), "{refused}");
    assert!(service.check().starts_with("HTTP/1.1 200 "));
    std::fs::remove_file(&policy).expect("removed");
    std::fs::write(&policy, POLICY.replace("size = 3", "size = 1")).expect("written");
    await_that("the file that came back", || {
        service.admin("GET /v1/policy").contains(r#""version":2"#)
    });
    std::fs::remove_file(&policy).expect("removed");
    mkfifo(&policy);
    assert_eq!(service.end(), Some(0));
}

fn mkfifo(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status();
    assert!(made.expect("mkfifo runs").success());
}

#[test]
fn the_service_does_not_start_with_a_fifo() {
    let policy = Desk::new();
    mkfifo(&policy.path().join("ratekeeper.toml"));
    let shown = policy.terminal(&[&["run"]]);
    let envoy = Desk::new();
    mkfifo(&envoy.path().join("envoy.yaml"));
    let shown = shown + &envoy.terminal(&[&["run", "--envoy-config", "envoy.yaml"]]);
    assert_reviewed!(shown);
}

#[test]
fn signals_without_a_meaning_do_nothing() {
    let desk = Desk::new().with("ratekeeper.toml", POLICY);
    let service = Running::start(&desk, &[], Stdio::null());
    service.signal("USR1");
    service.signal("USR2");
    assert!(service.check().starts_with("HTTP/1.1 200 "));
    assert_eq!(service.end(), Some(0));
}

/// A service of another version may answer in other types.
#[test]
fn an_answer_that_cannot_be_read_is_no_empty_table() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let server = format!("http://{}", listener.local_addr().expect("it is bound"));
    let answers = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a call");
        let _ = stream.read(&mut [0; 4_096]).expect("its head");
        let body = r#"{"limits":5}"#;
        let length = body.len();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close");
        write!(stream, "{head}\r\n\r\n{body}").expect("it is read");
    });
    let output = Desk::new().run(&["top", "--once", "--server", &server]);
    answers.join().expect("it does not panic");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    let expected = "the answer of GET /v1/top cannot be read: invalid type: integer `5`";
    assert!(said.contains(expected), "{said}");
}
