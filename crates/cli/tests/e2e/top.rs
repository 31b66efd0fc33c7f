//! Who is refused, through the real service: the table, the screen in a terminal, and the log.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::clock;
use crate::harness::process::find;
use crate::harness::redis::Redis;
use crate::harness::service::Service;
use crate::harness::visitor::Visitor;

const POLICY: &str = r#"
version = 1
reveal_keys = "REVEAL"

[listen]
admin_writes = "open"

[[limit]]
name  = "login"
key   = ["attr:user"]
missing_key = "skip"
bucket = { size = 2, refill = "1/1h" }
ban   = { after = 100, within = "24h", for = "1h" }

[[limit]]
name  = "signup"
mode  = "shadow"
key   = ["attr:visitor"]
missing_key = "skip"
bucket = { size = 2, refill = "1/1h" }
"#;

fn policy(dir: &Path, reveal: &str) -> PathBuf {
    let path = dir.join("policy.toml");
    std::fs::write(&path, POLICY.replace("REVEAL", reveal)).expect("the directory is writable");
    path
}

fn start(dir: &Path, reveal: &str, options: &[&str]) -> Service {
    std::fs::create_dir_all(dir).expect("the directory is writable");
    Service::start_with(dir, &policy(dir, reveal), options)
}

/// Asks `times` for a user, or for a visitor.
fn ask(to: SocketAddr, (attribute, value): (&str, &str), times: usize) {
    let body = json!({ "attributes": { (attribute): value } }).to_string();
    for _ in 0..times {
        Visitor::at(2).post_json(to, "/v1/check", &body);
    }
}

fn url(service: &Service) -> String {
    format!("http://{}", service.admin())
}

/// Runs `ratekeeper top ..`; returns its exit code, stdout and stderr.
fn top(arguments: &[&str]) -> (Option<i32>, String, String) {
    let ran = Command::new(env!("CARGO_BIN_EXE_ratekeeper"))
        .arg("top")
        .args(arguments)
        .env("NO_COLOR", "1")
        .output()
        .expect("the command runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (ran.status.code(), text(ran.stdout), text(ran.stderr))
}

#[test]
fn the_table_names_the_abuser() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let service = start(dir.path(), "raw", &[]);
    ask(service.http(), ("user", "mallory"), 34);
    ask(service.http(), ("user", "ada"), 1);
    for visitor in 0..20 {
        ask(service.http(), ("visitor", &visitor.to_string()), 3);
    }
    let server = url(&service);
    let once = ["--server", &server, "--once"];

    let (code, printed, talk) = top(&once);
    assert_eq!((code, &*talk), (Some(0), ""));
    let line = |starts: &str| {
        let line = printed.lines().find(|line| line.starts_with(starts));
        let words = line
            .unwrap_or_else(|| panic!("{starts}: {printed}"))
            .split_whitespace();
        words.map(str::to_owned).collect::<Vec<_>>()
    };
    let login = line("login ");
    assert_eq!((&*login[1], &*login[3]), ("enforce", "32"), "{printed}");
    assert!(printed.contains("1 (one key)"), "{printed}");
    assert_eq!(line("signup ")[1], "shadow");
    // The number is an estimate with a seed of the process: of 20 keys, two share a register in one
    // run of six, and then count as one.
    let signup = line("signup ");
    let keys: u32 = signup[8].parse().expect("a number of keys");
    assert!((17..=20).contains(&keys), "{printed}");
    assert_eq!(signup[9..], ["(many", "keys)"], "{printed}");
    assert_eq!(
        line("attr:user=mallory")[1..4],
        ["34", "32", "+-0"],
        "{printed}"
    );
    assert!(printed.lines().all(|line| line.len() <= 80), "{printed}");

    let (code, printed, _) = top(&[&once[..], &["--json", "login", "--by", "requests"]].concat());
    assert_eq!(code, Some(0));
    let board: Value = serde_json::from_str(&printed).expect("one document");
    assert_eq!(board["keys"][0]["requests"]["count"], 34);
    assert_eq!(board["keys"][1]["key"][0], "attr:user=ada");

    let (code, _, why) = top(&["--server", "http://127.0.0.1:1", "--once"]);
    assert_eq!(code, Some(2));
    assert!(why.contains("nothing listens"), "{why}");
    let (code, _, why) = top(&["--server", &server, "--once", "logon"]);
    assert_eq!(code, Some(2));
    assert!(why.contains("did you mean"), "{why}");
    let (code, _, why) = top(&["--server", &server]);
    assert_eq!(code, Some(2));
    assert!(
        why.contains("not a terminal") && why.contains("--once"),
        "{why}"
    );
}

#[test]
fn the_log_has_the_first_denial_of_a_key_and_no_line_of_a_client() {
    for (format, reveal) in [("json", "raw"), ("text", "raw"), ("json", "hash")] {
        let dir = tempfile::tempdir().expect("a directory of its own");
        let service = start(dir.path(), reveal, &["--log-format", format]);
        let evil = "x\n{\"event\":\"forged\"}\r\u{1b}[2J\u{2028}";
        ask(service.http(), ("user", evil), 2 + 10);
        ask(service.http(), ("visitor", "v"), 3);
        let shadow = || {
            service
                .process
                .log()
                .contains("shadow_denied")
                .then_some(())
        };
        clock::poll("the last line", Duration::from_secs(10), shadow).expect("it is logged");
        let log = service.process.log();
        assert!(!log.contains('\u{1b}') && !log.contains('\r'), "{log}");
        assert!(
            !log.lines()
                .any(|line| line.starts_with('{') && line.contains("\"event\":\"forged\"")),
            "{log}"
        );
        assert_eq!(log.contains("forged"), reveal == "raw", "{log}");
        if format == "text" {
            continue;
        }
        let lines = log
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap_or_else(|_| panic!("{line}")));
        let (denied, shadow): (Vec<_>, Vec<_>) = lines
            .filter(|line| {
                line["event"]
                    .as_str()
                    .is_some_and(|event| event.contains("denied"))
            })
            .partition(|line| line["event"] == "decision.denied");
        let counts: Vec<_> = denied
            .iter()
            .map(|line| (&line["count"], &line["suppressed"]))
            .collect();
        let expected =
            [(1, 0), (2, 0), (4, 1), (8, 3)].map(|(count, left)| (json!(count), json!(left)));
        assert_eq!(counts.len(), 4, "{log}");
        for ((count, left), expected) in counts.iter().zip(&expected) {
            assert_eq!((*count, *left), (&expected.0, &expected.1), "{log}");
        }
        assert_eq!(denied[0]["limit"], "login");
        assert_eq!(denied[0]["mode"], "enforce");
        assert_eq!(shadow[0]["event"], "decision.shadow_denied");
        let key = denied[0]["key"].as_str().expect("a key");
        assert_eq!(key == format!("attr:user={evil}"), reveal == "raw", "{key}");
        assert_eq!(key.starts_with("attr:user=~"), reveal == "hash", "{key}");
    }
}

#[test]
fn a_policy_may_turn_the_lines_off() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let path = policy(dir.path(), "raw");
    let text = std::fs::read_to_string(&path).expect("it was written");
    std::fs::write(
        &path,
        text.replace("version = 1", "version = 1\nlog_denials = false"),
    )
    .expect("the directory is writable");
    let mut service = Service::start_with(dir.path(), &path, &[]);
    ask(service.http(), ("user", "mallory"), 9);
    let (_, printed, _) = top(&["--server", &url(&service), "--once"]);
    assert!(printed.contains("attr:user=mallory"), "{printed}");
    service.process.signal("TERM");
    service.process.end().expect("it writes its last lines");
    let log = service.process.log();
    assert!(log.contains("stopped") && !log.contains("denied"), "{log}");
}

#[test]
fn keys_of_a_shared_store_are_listed() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let Some(redis) = Redis::start(dir.path()) else {
        return;
    };
    let store = format!(
        "\n[store.redis]\nurl = \"{}\"\ndeadline = \"5s\"\n",
        redis.url()
    );
    let nodes = ["a", "b"].map(|name| {
        let dir = dir.path().join(name);
        std::fs::create_dir_all(&dir).expect("the directory is writable");
        let path = policy(&dir, "raw");
        let text = std::fs::read_to_string(&path).expect("it was written");
        std::fs::write(&path, text + &store).expect("the directory is writable");
        Service::start_with(&dir, &path, &[])
    });
    for node in &nodes {
        ask(node.http(), ("user", "mallory"), 5);
    }
    let denied = nodes.each_ref().map(|node| {
        let (_, printed, _) = top(&["--server", &url(node), "--once", "--json"]);
        let board: Value = serde_json::from_str(&printed).expect("one document");
        let first = &board["keys"][0];
        assert_eq!(first["requests"]["count"], 5, "{printed}");
        first["denied"]["count"].as_u64().expect("a count")
    });
    assert_eq!(denied, [3, 5], "two permits for both");
}

/// A terminal of a size, with a command in it; ended when dropped.
struct Terminal {
    tmux: PathBuf,
    socket: PathBuf,
}

impl Terminal {
    fn open(tmux: &Path, socket: PathBuf, (width, height): (u16, u16), command: &str) -> Self {
        let terminal = Self {
            tmux: tmux.into(),
            socket,
        };
        let size = ["-x", &width.to_string(), "-y", &height.to_string()].map(str::to_owned);
        let size = size.each_ref().map(String::as_str);
        terminal.call(
            &[
                &["-f", "/dev/null", "new-session", "-d"],
                &size[..],
                &[command],
            ]
            .concat(),
        );
        terminal
    }

    fn call(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(&self.tmux);
        let ran = command
            .arg("-S")
            .arg(&self.socket)
            .args(arguments)
            .env_remove("TMUX");
        let ran = ran.output().expect("tmux runs");
        assert!(
            ran.status.success(),
            "{}",
            String::from_utf8_lossy(&ran.stderr)
        );
        String::from_utf8(ran.stdout).expect("text")
    }

    fn press(&self, key: &str) {
        self.call(&["send-keys", key]);
    }

    fn screen(&self) -> String {
        self.call(&["capture-pane", "-p"])
    }

    /// Waits until the screen shows all of `wanted`; returns it.
    fn shows(&self, wanted: &[&str]) -> String {
        let shown = || {
            let screen = self.screen();
            wanted
                .iter()
                .all(|text| screen.contains(text))
                .then_some(screen)
        };
        let shown = clock::poll("such a screen", Duration::from_secs(20), shown);
        shown.unwrap_or_else(|why| panic!("{why}: {wanted:?} in\n{}", self.screen()))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let mut command = Command::new(&self.tmux);
        let _ = command
            .arg("-S")
            .arg(&self.socket)
            .arg("kill-server")
            .output(); // it may have ended
    }
}

/// Ends the traffic when dropped, also by a panic, so that the test ends.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn the_screen_follows_traffic_at_both_sizes() {
    let Some(tmux) = find("tmux") else { return };
    let dir = tempfile::tempdir().expect("a directory of its own");
    let service = start(dir.path(), "raw", &[]);
    let to = service.http();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                ask(to, ("user", "mallory"), 3);
                ask(to, ("visitor", "eve"), 1);
                ask(to, ("user", "ada"), 1);
                clock::wait(Duration::from_millis(20));
            }
        });
        let _end = End(&is_over);
        for (name, size) in [("small", (80, 24)), ("large", (200, 60))] {
            drive(&tmux, dir.path().join(name), size, &service);
        }
    });
}

fn drive(tmux: &Path, socket: PathBuf, size: (u16, u16), service: &Service) {
    let program = env!("CARGO_BIN_EXE_ratekeeper");
    let command = format!("{program} top --server {}; sleep 60", url(service));
    let terminal = Terminal::open(tmux, socket, size, &command);
    let screen = terminal.shows(&[
        "login",
        "signup",
        "attr:user=mallory",
        "KEY OF login (",
        "SPENT",
        "100 %",
    ]);
    assert_eq!(screen.lines().count(), usize::from(size.1), "{screen}");
    assert_eq!(screen.contains("KEYS REFUSED"), size.0 > 120, "{screen}");
    let columns = |line: &str| {
        line.find("TREND (60 s)")
            .map(|at| at + "TREND (60 s)".len())
    };
    let trend = screen.lines().find_map(columns).expect("a trend");
    assert!(trend <= 80, "{screen}");
    // Rates are those between two polls.
    terminal.shows(&["#", "policy v1 ", "memory up"]);
    terminal.press("Down");
    terminal.shows(&["KEY OF signup", "attr:visitor=eve"]);
    terminal.press("Up");
    terminal.shows(&["KEY OF login", "attr:user=mallory"]);
    terminal.press("q");
    let ended = || (!terminal.screen().contains("[q]uit")).then_some(());
    clock::poll("end of the screen", Duration::from_secs(10), ended).expect("q ends it");
}

#[test]
fn a_key_is_reset_by_a_verb() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let service = start(dir.path(), "hash", &[]);
    ask(service.http(), ("user", "a;b=*"), 9);
    let reset = |arguments: &[&str]| {
        let ran = Command::new(env!("CARGO_BIN_EXE_ratekeeper"))
            .arg("reset")
            .args(arguments)
            .args(["--server", &url(&service)])
            .env("NO_COLOR", "1")
            .output()
            .expect("the command runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        (ran.status.code(), text(ran.stdout), text(ran.stderr))
    };
    let (code, printed, _) = reset(&["login", "a;b=*"]);
    assert_eq!((code, &*printed), (Some(0), "attr:user=a;b=*: reset\n"));
    let key = Visitor::at(1).get(service.admin(), "/v1/keys/login?key=a%3Bb%3D%2A");
    assert_eq!(key.status, 404, "nothing is counted for it: {}", key.body);
    let (code, printed, _) = reset(&["login", "a;b=*", "--json"]);
    let answer: Value = serde_json::from_str(&printed).expect("one document");
    assert_eq!((code, &answer["was_counted"]), (Some(1), &json!(false)));
    let (code, _, why) = reset(&["logon", "a"]);
    assert_eq!(code, Some(2));
    assert!(why.contains("did you mean"), "{why}");
    let (code, _, why) = reset(&["login"]);
    assert_eq!(code, Some(2), "{why}");
}
