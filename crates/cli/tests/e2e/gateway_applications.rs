//! What the guide compares with other proxies, in front of applications in gunicorn and uvicorn.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::gateway::gateway;
use crate::harness::application::{Application, Framework};
use crate::harness::clock;
use crate::harness::process::Process;
use crate::harness::visitor::{Caller, Visitor};

const PATIENCE: Duration = Duration::from_secs(30);
const OPEN: &str = "[[limit]]\nname = \"all\"\nkey = [\"ip\"]\nlimit = \"1000000/1h\"\n";

fn dir() -> tempfile::TempDir {
    tempfile::tempdir().expect("the system has a temporary directory")
}

fn gunicorn(dir: &Path) -> Option<Application> {
    application(dir, Framework::Gunicorn)
}

fn uvicorn(dir: &Path) -> Option<Application> {
    application(dir, Framework::Uvicorn)
}

/// Starts an application in a directory of its own.
fn application(dir: &Path, framework: Framework) -> Option<Application> {
    let source = match framework {
        Framework::Gunicorn => include_str!("gateway_applications/wsgi.py"),
        _ => include_str!("gateway_applications/asgi.py"),
    };
    let home = dir.join(format!("{framework:?}"));
    fs::create_dir(&home).expect("the test's directory is writable");
    Application::start(framework, source, &home)
}

/// Writes a policy of these upstreams, with these lines of the listener.
fn write(dir: &Path, upstreams: &[SocketAddr], listener: &str, rest: &str) {
    let urls: Vec<_> = upstreams.iter().map(|at| format!("http://{at}")).collect();
    let policy = format!("version = 1\n[listen.proxy]\nupstream = {urls:?}\n{listener}\n{rest}\n");
    fs::write(dir.join("ratekeeper.toml"), policy).expect("it is writable");
}

fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let found = clock::poll(what, PATIENCE, || is_so().then_some(()));
    found.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn the_access_log_names_gunicorn_its_status_and_its_time() {
    let dir = dir();
    let Some(app) = gunicorn(dir.path()) else {
        return;
    };
    let limit = OPEN.replace("1000000", "2");
    let log = "access_log = { to = \"access.log\" }";
    write(dir.path(), &[app.address()], log, &limit);
    let (_service, proxy) = gateway(dir.path(), &["run"]);
    for (target, status) in [("/", 200), ("/login", 401), ("/", 429)] {
        assert_eq!(Visitor::at(2).post(proxy, target).status, status);
    }
    let lines = || {
        let text = fs::read_to_string(dir.path().join("access.log")).unwrap_or_default();
        let lines = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"));
        lines.collect::<Vec<Value>>()
    };
    eventually("three lines", || lines().len() == 3);
    let lines = lines();
    let (sent, refused) = (&lines[..2], &lines[2]);
    for (line, status) in sent.iter().zip([200, 401]) {
        assert_eq!(line["status"], status, "{line}");
        assert_eq!(line["upstream"], app.address().to_string(), "{line}");
        assert!(line["upstream_ms"].is_number(), "{line}");
    }
    assert_eq!(
        (&refused["status"], &refused["limit"]),
        (&429.into(), &"all".into())
    );
    assert!(refused["upstream"].is_null(), "{refused}");
}

#[test]
fn a_reload_moves_kept_connections_from_gunicorn_to_uvicorn_and_loses_no_request() {
    let dir = dir();
    let (Some(old), Some(new)) = (gunicorn(dir.path()), uvicorn(dir.path())) else {
        return;
    };
    write(dir.path(), &[old.address()], "", OPEN);
    let (service, proxy) = gateway(dir.path(), &["run"]);
    let (ask, stop) = ([("/", String::new())], AtomicBool::new(false));
    let counts = [(); 4].map(|()| AtomicUsize::new(0));
    thread::scope(|scope| {
        let callers: Vec<_> = counts
            .iter()
            .map(|count| {
                let (ask, stop) = (&ask, &stop);
                scope.spawn(move || {
                    let (mut caller, mut last) = (Caller::connect(proxy), String::new());
                    while !stop.load(Ordering::Relaxed) {
                        let answer = caller.post_all(ask).remove(0);
                        assert_eq!(answer.status, 200, "{}", answer.body);
                        last = answer.body;
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    last
                })
            })
            .collect();
        let body = || Visitor::at(3).get(proxy, "/").body;
        assert_eq!(body(), "gunicorn");
        write(dir.path(), &[new.address()], "", OPEN);
        service.signal("HUP");
        eventually("uvicorn", || body() == "uvicorn");
        let load = || counts.each_ref().map(|count| count.load(Ordering::Relaxed));
        let before = load();
        // The first answer may be to a request from before.
        eventually("two answers to each caller", || {
            load()
                .iter()
                .zip(before)
                .all(|(now, before)| *now >= before + 2)
        });
        stop.store(true, Ordering::Relaxed);
        for caller in callers {
            assert_eq!(caller.join().expect("no request is lost"), "uvicorn");
        }
    });
}

#[test]
fn an_application_that_hangs_is_left_out_and_used_again() {
    let dir = dir();
    let (Some(other), Some(app)) = (gunicorn(dir.path()), uvicorn(dir.path())) else {
        return;
    };
    let upstreams = [other.address(), app.address()];
    write(dir.path(), &upstreams, "response_timeout = \"500ms\"", OPEN);
    let (service, proxy) = gateway(dir.path(), &["run"]);
    app.process.signal("STOP");
    let post = || Visitor::at(2).post(proxy, "/").status;
    eventually("it is left out", || {
        post();
        service.log().contains("upstream down: ")
    });
    for _ in 0..10 {
        assert_eq!(post(), 200);
    }
    app.process.signal("CONT");
    // It is left out for 10 s, and then tried by one request.
    eventually("it is used again", || {
        post();
        service.log().contains("upstream up: ")
    });
    let seen = [(); 2].map(|()| Visitor::at(2).post(proxy, "/").body);
    assert_ne!(seen[0], seen[1], "both are used");
    // It is left out as well if it answers 503, and the other does not.
    let status = || Visitor::at(2).post(proxy, "/down").status;
    eventually("it is left out again", || {
        status();
        service.log().matches("upstream down: ").count() == 2
    });
    assert_eq!([status(), status()], [200; 2]);
}

#[test]
fn a_page_of_ones_own_shows_that_the_application_is_down() {
    let dir = dir();
    let Some(mut app) = uvicorn(dir.path()) else {
        return;
    };
    fs::write(dir.path().join("502.html"), "<h1>Back soon</h1>").expect("it is writable");
    let page = "error_pages = { 502 = \"502.html\" }";
    write(dir.path(), &[app.address()], page, OPEN);
    let (_service, proxy) = gateway(dir.path(), &["run"]);
    let browser = Visitor::at(2).with("accept", "text/html,*/*;q=0.8");
    assert_eq!(browser.get(proxy, "/").body, "uvicorn");
    app.process.crash();
    let shown = browser.get(proxy, "/");
    assert_eq!((shown.status, &*shown.body), (502, "<h1>Back soon</h1>"));
    let problem = Visitor::at(2).get(proxy, "/");
    assert!(problem.body.contains("RK0524"), "{}", problem.body);
}

/// Returns the port of the listener for operators.
pub(crate) fn admin(service: &Process) -> u16 {
    let output = service.output();
    let mut events = output
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    let admin = events.find(|event: &Value| event["listener"] == "admin");
    let address = admin.expect("it is open")["address"].to_string();
    let address: SocketAddr = address.trim_matches('"').parse().expect("an address");
    address.port()
}

#[test]
fn a_client_that_is_banned_by_hand_does_not_reach_gunicorn() {
    let dir = dir();
    let Some(app) = gunicorn(dir.path()) else {
        return;
    };
    write(
        dir.path(),
        &[app.address()],
        "",
        &format!("[listen]\nadmin_writes = \"open\"\n{OPEN}"),
    );
    let (service, proxy) = gateway(dir.path(), &["run"]);
    let statuses = || [2, 3].map(|last| Visitor::at(last).get(proxy, "/").status);
    assert_eq!(statuses(), [200, 200]);
    let server = format!("http://localhost:{}", admin(&service));
    let ran = Command::new(env!("CARGO_BIN_EXE_ratekeeper"))
        .args([
            "bans",
            "add",
            "all",
            "127.0.0.2",
            "--for",
            "1h",
            "--server",
            &server,
        ])
        .output()
        .expect("the command runs");
    assert!(
        ran.status.success(),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    assert_eq!(statuses(), [429, 200]);
}

#[test]
fn limits_count_what_gunicorn_and_uvicorn_answer() {
    let dir = dir();
    let (Some(logins), Some(tokens)) = (gunicorn(dir.path()), uvicorn(dir.path())) else {
        return;
    };
    let listener = format!(
        "[[listen.proxy.route]]\nname = \"tokens\"\nmatch = {{ path = \"/tokens\" }}\n\
         upstream = \"http://{}\"\n",
        tokens.address()
    );
    let limits = r#"
[[limit]]
name  = "failed-logins"
match = { path = "/login" }
key   = ["ip"]
limit = "2/1h"
count = { status = 401 }

[[limit]]
name   = "tokens"
match  = { path = "/tokens" }
key    = ["ip"]
bucket = { size = 100, refill = "1/1h" }
cost   = { reserve = 30, settle = "response.json:/usage/total_tokens" }
"#;
    write(dir.path(), &[logins.address()], &listener, limits);
    let (_service, proxy) = gateway(dir.path(), &["run"]);
    let login = |password| Visitor::at(2).ask_with(proxy, ("POST", "/login"), password);
    let words = ["wrong", "right", "right", "wrong", "right"];
    assert_eq!(
        words.map(|word| login(word).status),
        [401, 200, 200, 401, 429]
    );
    // 100 - 40 - 40 leaves 20, which is less than the 30 that are reserved.
    let used = [(); 3].map(|()| Visitor::at(2).get(proxy, "/tokens").status);
    assert_eq!(used, [200, 200, 429]);
}
