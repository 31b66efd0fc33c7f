//! The Autobahn suite for WebSocket, against a server and against the gateway in front of it: what
//! passes without the gateway passes with it.
//!
//! `cargo xtask test` brings the suite's cases with a runner (`kosoku`) and the server
//! (`websockets`) in `target/kosoku-0.1.0` (`PyPI`).

use std::fs;
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use crate::gateway::gateway;
use crate::harness::clock;
use crate::harness::free_address;
use crate::harness::process::{self, Process};

const PATIENCE: Duration = Duration::from_secs(120);
const OPEN: &str = "[[limit]]\nname = \"all\"\nkey = [\"all\"]\nlimit = \"1000000/1h\"\n";

#[test]
fn the_gateway_adds_no_failure_to_the_cases_of_autobahn() {
    let (Some(python), Some(library)) = (
        process::find("python3"),
        process::carried("target/kosoku-0.1.0/kosoku/__init__.py"),
    ) else {
        return;
    };
    let library = library.ancestors().nth(2).expect("the folder of packages");
    let home = tempfile::tempdir().expect("a directory of its own");
    let dir = home.path();
    let script = |name: &str, text: &str, arguments: &[String]| {
        let file = dir.join(name);
        fs::write(&file, text).expect("the test's directory is writable");
        let mut command = Command::new(&python);
        command.arg(file).args(arguments).env("PYTHONPATH", library);
        command
    };
    let at = free_address();
    let text = include_str!("gateway_websocket/echo.py");
    let mut command = script("echo.py", text, &[at.port().to_string()]);
    let (out, log) = (dir.join("echo.out"), dir.join("echo.log"));
    let _echo = Process::start("echo", &mut command, out, log);
    let listens = clock::poll("the server", PATIENCE, || TcpStream::connect(at).ok());
    listens.unwrap_or_else(|error| panic!("{error}"));
    let policy = format!("version = 1\n[listen.proxy]\nupstream = \"http://{at}\"\n{OPEN}");
    fs::write(dir.join("ratekeeper.toml"), policy).expect("it is writable");
    let (_service, proxy) = gateway(dir, &["run"]);

    let text = include_str!("gateway_websocket/fuzz.py");
    let mut command = script("fuzz.py", text, &[at.to_string(), proxy.to_string()]);
    let (out, log) = (dir.join("fuzz.out"), dir.join("fuzz.log"));
    let mut fuzz = Process::start("fuzz", &mut command, out, log);
    let ended = clock::poll("verdicts", PATIENCE, || fuzz.ended());
    let ended = ended.unwrap_or_else(|error| panic!("{error}"));
    assert!(ended.success(), "{}", fuzz.log());
    let output = fuzz.output();
    let passed = |line: &&str| line.split(' ').nth(1) == Some("True");
    let passed: Vec<_> = output.lines().filter(passed).collect();
    assert!(passed.len() >= 240, "{} cases: {output}", passed.len());
    let added: Vec<_> = passed
        .iter()
        .filter(|line| !line.ends_with(" True True"))
        .collect();
    assert!(added.is_empty(), "{added:?}");
}
