//! The gateway as its guide shows it: a real nginx as the application, curl as the client.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::harness::clock;
use crate::harness::free_address;
use crate::harness::process::{self, Process};

const GUIDE: &str = include_str!("../../../../docs/guide/gateway.md");
const START_WITHIN: Duration = Duration::from_secs(20);
/// Size of the file that is downloaded.
const FILE_BYTES: usize = 1 << 20;

fn ratekeeper(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ratekeeper"));
    command.args(arguments).current_dir(dir);
    command
}

/// Starts the gateway by `arguments` at a free port.
pub(crate) fn gateway(dir: &Path, arguments: &[&str]) -> (Process, SocketAddr) {
    let all = [
        arguments,
        &[
            "--json",
            "--listen",
            "proxy=127.0.0.1:0",
            "--listen",
            "admin=127.0.0.1:0",
        ],
    ];
    let mut process = Process::start(
        "ratekeeper",
        &mut ratekeeper(dir, &all.concat()),
        dir.join("ratekeeper.out"),
        dir.join("ratekeeper.log"),
    );
    let address = clock::poll("the proxy listener", START_WITHIN, || {
        assert!(process.ended().is_none(), "ratekeeper ended at its start");
        let output = process.output();
        let events = output.lines();
        let events = events.filter_map(|line| serde_json::from_str(line).ok());
        let mut proxy = events.filter(|event: &serde_json::Value| event["listener"] == "proxy");
        proxy.next()?["address"].as_str()?.parse().ok()
    });
    (process, address.unwrap_or_else(|error| panic!("{error}")))
}

/// Starts nginx as an application in `dir/app`, with these lines of its server.
pub(crate) fn application(dir: &Path, program: &Path, server: &str) -> (Process, SocketAddr) {
    let address = free_address();
    let dir = dir.join("app");
    fs::create_dir_all(&dir).expect("the test's directory is writable");
    let at = dir.display();
    let config = format!(
        "daemon off; master_process off; pid {at}/pid; error_log {at}/error.log;\n\
         events {{}}\n\
         http {{ access_log off; client_body_temp_path {at}/b; proxy_temp_path {at}/p;\n\
         fastcgi_temp_path {at}/f; uwsgi_temp_path {at}/u; scgi_temp_path {at}/s;\n\
         server {{ listen {address}; root {at}/files;\n{server}\n}} }}\n"
    );
    let path = dir.join("nginx.conf");
    fs::write(&path, config).expect("the test's directory is writable");
    let mut command = Command::new(program);
    command.arg("-p").arg(&dir).arg("-c").arg(&path);
    let process = Process::start("nginx", &mut command, dir.join("out"), dir.join("log"));
    let listens = clock::poll("nginx", START_WITHIN, || TcpStream::connect(address).ok());
    listens.unwrap_or_else(|error| panic!("{error}"));
    (process, address)
}

/// Starts nginx with a file, and a location that returns what it received.
fn files(dir: &Path, program: &Path) -> (Process, SocketAddr) {
    let files = dir.join("app/files");
    fs::create_dir_all(&files).expect("the test's directory is writable");
    let byte = |index: usize| u8::try_from(index * 31 % 251).expect("below 251");
    let bytes: Vec<u8> = (0..FILE_BYTES).map(byte).collect();
    fs::write(files.join("data.bin"), bytes).expect("the test's directory is writable");
    let echo = "location /echo { default_type text/plain;
        return 200 \"$request_method $request_uri $http_host $http_x_forwarded_for $http_via\"; }";
    application(dir, program, echo)
}

/// Returns the output of curl.
fn curl(arguments: &[&str]) -> Vec<u8> {
    let mut command = Command::new("curl");
    let output = command
        .args(["-sS", "--max-time", "20"])
        .args(arguments)
        .output();
    let output = output.expect("curl runs");
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}

pub(crate) fn text(arguments: &[&str]) -> String {
    String::from_utf8(curl(arguments)).expect("the output is text")
}

#[test]
fn the_first_steps_lead_to_a_gateway_in_front_of_nginx() {
    let (Some(nginx), Some(_)) = (process::find("nginx"), process::find("curl")) else {
        return;
    };
    let dir = tempfile::TempDir::new().expect("the system has a temporary directory");
    let (_nginx, application) = files(dir.path(), &nginx);
    assert!(GUIDE.contains("ratekeeper init --upstream http://127.0.0.1:3000"));
    let upstream = format!("http://{application}");
    let written = ratekeeper(dir.path(), &["init", "--upstream", &upstream]).status();
    assert!(written.expect("the command runs").success());
    let path = dir.path().join("ratekeeper.toml");
    let policy = fs::read_to_string(&path).expect("it was written");
    assert!(
        policy.contains(&format!("upstream = \"{upstream}\"")),
        "{policy}"
    );
    fs::write(&path, policy.replace("\"shadow\"", "\"enforce\"")).expect("it is writable");
    let (_service, proxy) = gateway(dir.path(), &["run"]);

    let echo = format!("http://{proxy}/echo?a=%20b");
    let expected = format!("GET /echo?a=%20b {proxy} 127.0.0.1 1.1 ratekeeper");
    assert_eq!(text(&[&echo]), expected);
    let by_http2 = text(&["--http2-prior-knowledge", &echo]);
    assert_eq!(
        by_http2,
        expected.replace("1.1 ratekeeper", "2.0 ratekeeper")
    );

    let file = format!("http://{proxy}/data.bin");
    let whole = fs::read(dir.path().join("app/files/data.bin")).expect("it was written");
    assert!(curl(&[&file]) == whole);
    assert!(curl(&["--http2-prior-knowledge", &file]) == whole);
    assert!(curl(&["-r", "100-199", &file]) == whole[100..200]);
    let head = text(&["-I", &file]).to_lowercase();
    assert!(
        head.contains(&format!("content-length: {FILE_BYTES}")),
        "{head}"
    );
    let etag = head.lines().find_map(|line| line.strip_prefix("etag: "));
    let etag = format!("If-None-Match: {}", etag.expect("nginx sends one"));
    let status = ["-o", "/dev/null", "-w", "%{http_code}"];
    assert_eq!(text(&[&status[..], &["-H", &etag, &file]].concat()), "304");
    let missing = format!("http://{proxy}/missing");
    assert_eq!(text(&[&status[..], &[&missing]].concat()), "404");

    // The limit `login` of the starter: 5 attempts a minute.
    let login = format!("http://{proxy}/login");
    let attempt = [&status[..], &["-d", "user=ann", &login]].concat();
    let attempts: Vec<String> = (0..8).map(|_| text(&attempt)).collect();
    assert!(
        attempts[..5].iter().all(|status| status == "404"),
        "{attempts:?}"
    );
    assert!(
        attempts[5..].iter().any(|status| status == "429"),
        "{attempts:?}"
    );
}

#[test]
fn the_policy_of_the_guide_is_right() {
    let dir = tempfile::TempDir::new().expect("the system has a temporary directory");
    let block = GUIDE
        .split("```toml\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next());
    let path = dir.path().join("ratekeeper.toml");
    fs::write(&path, block.expect("the guide has a policy")).expect("it is writable");
    let checked = ratekeeper(dir.path(), &["validate", "--deny-warnings"]).output();
    let checked = checked.expect("the command runs");
    assert!(
        checked.status.success(),
        "{}",
        String::from_utf8_lossy(&checked.stderr)
    );
}
