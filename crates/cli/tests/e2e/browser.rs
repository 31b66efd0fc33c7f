//! A real browser that shows a page of another site: it changes nothing, and reads nothing.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use crate::harness::clock;
use crate::harness::process::{Process, find};
use crate::harness::service::Service;
use crate::harness::visitor::Visitor;

const POLICY: &str = r#"
version = 1

[listen]
admin_writes = "open"

[[limit]]
name   = "login"
key    = ["ip"]
bucket = { size = 5, refill = "5/1h" }
"#;

const LOGIN: &str = r#"{"request":{"ip":"192.0.2.1"}}"#;

/// Enough for a browser on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns a page with a script: every way to call, at every address, then the readable results.
fn page(http: SocketAddr, admin: SocketAddr) -> String {
    let (http, admin) = (http.port(), admin.port());
    format!(
        r#"<!doctype html><body><script>
const body = '{LOGIN}';
const hosts = ["127.0.0.1", "localhost", "rebind.example"];
const posts = [[{admin}, "/v1/reset"], [{admin}, "/v1/refund"], [{admin}, "/v1/reload"],
  [{http}, "/v1/reset"], [{http}, "/v1/refund"], [{http}, "/v1/check"], [{http}, "/v1/acquire"]];
const reads = [[{admin}, "/v1/keys?limit=login"], [{admin}, "/v1/policy"], [{admin}, "/metrics"]];
(async () => {{
  const seen = [];
  for (const host of hosts) {{
    for (const [port, path] of posts) {{
      try {{ await fetch(`http://${{host}}:${{port}}${{path}}`, {{method: "POST", mode: "no-cors", body}}); }}
      catch (error) {{}}
    }}
    for (const [port, path] of reads) {{
      try {{
        const answer = await fetch(`http://${{host}}:${{port}}${{path}}`);
        if (answer.ok) seen.push(path + " " + (await answer.text()).slice(0, 80));
      }} catch (error) {{}}
    }}
  }}
  for (const [port, path] of posts) {{
    const frame = document.createElement("iframe");
    frame.name = "f" + port + path;
    document.body.append(frame);
    const form = document.createElement("form");
    form.method = "POST"; form.enctype = "text/plain"; form.target = frame.name;
    form.action = `http://127.0.0.1:${{port}}${{path}}`;
    const input = document.createElement("input");
    input.name = body.slice(0, -1) + ',"attributes":{{"a":"'; input.value = '"}}}}';
    form.append(input); document.body.append(form); form.submit();
  }}
  await new Promise(done => setTimeout(done, 2000));
  await fetch("/done", {{method: "POST", body: JSON.stringify(seen)}});
}})();
</script>"#
    )
}

/// Serves the page, and keeps its report.
fn serve(listener: TcpListener, page: String, report: &Arc<Mutex<Option<String>>>) {
    let report = Arc::clone(report);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (page, report) = (page.clone(), Arc::clone(&report));
            thread::spawn(move || answer(stream, &page, &report));
        }
    });
}

fn answer(mut stream: TcpStream, page: &str, report: &Mutex<Option<String>>) {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = stream.read(&mut buffer) {
        bytes.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let head = head.to_ascii_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.and_then(|text| text.parse().ok()).unwrap_or(0);
        if body.len() < length {
            continue;
        }
        let content = if head.starts_with("post /done") {
            *report.lock().unwrap_or_else(PoisonError::into_inner) = Some(body.to_owned());
            ""
        } else {
            page
        };
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{content}",
            content.len()
        );
        // A browser may close the connection early.
        let _ = stream.write_all(answer.as_bytes());
        return;
    }
}

fn attack(from: &str) {
    let Some(program) = find("chromium") else {
        return;
    };
    let dir = TempDir::new().expect("the system has a temporary directory");
    let policy = dir.path().join("policy.toml");
    std::fs::write(&policy, POLICY).expect("the test's directory is writable");
    let service = Service::start(dir.path(), &policy);
    let local = Visitor::at(1);
    for _ in 0..2 {
        local.post_json(service.http(), "/v1/check", LOGIN);
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let site = listener
        .local_addr()
        .expect("a bound socket has an address");
    let report = Arc::new(Mutex::new(None));
    serve(listener, page(service.http(), service.admin()), &report);
    let _browser = Process::start(
        "chromium",
        Command::new(program)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
            ])
            .args([
                "--disable-background-networking",
                "--disable-component-update",
            ])
            .args(["--disable-sync", "--disable-dev-shm-usage"])
            .arg("--host-resolver-rules=MAP rebind.example 127.0.0.1")
            .arg(format!(
                "--user-data-dir={}",
                dir.path().join("profile").display()
            ))
            .env("TMPDIR", dir.path())
            .arg("--remote-debugging-port=0")
            .arg(format!("http://{from}:{}/", site.port())),
        dir.path().join("browser.out"),
        dir.path().join("browser.log"),
    );
    let seen = clock::poll("report of the page", PATIENCE, || {
        report
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    });
    let seen = seen.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(seen, "[]", "the page must read nothing");
    let left = local.post_json(service.http(), "/v1/peek", LOGIN);
    let left: serde_json::Value = serde_json::from_str(&left.body).expect("JSON");
    assert_eq!(
        left["limits"][0]["remaining"], 3,
        "nothing was spent or reset"
    );
    let reloads = "ratekeeper_config_reload_total{result=\"applied\"}";
    assert!(service.metric(reloads) == 0.0);
    // The same calls from a program instead of a page succeed, so the test could have seen them.
    local.post_json(service.admin(), "/v1/reset", LOGIN);
    let left = local.post_json(service.http(), "/v1/peek", LOGIN);
    let left: serde_json::Value = serde_json::from_str(&left.body).expect("JSON");
    assert_eq!(left["limits"][0]["remaining"], 5);
}

#[test]
fn a_page_of_another_site_changes_and_reads_nothing() {
    attack("localhost");
}

#[test]
fn a_page_with_a_rebound_name_changes_and_reads_nothing() {
    attack("rebind.example");
}
