//! Promtool: Prometheus's own judgement of scrapes, and of the rules that ship.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(crate) fn monitoring(file: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/monitoring");
    folder.join(file).canonicalize().expect("it ships")
}

/// Runs `promtool` with `input`; returns its words and its success, `None` if it is not installed.
#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
fn promtool(arguments: &[&str], input: &str) -> Option<(String, bool)> {
    let started = Command::new("promtool")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = started else {
        assert!(
            std::env::var_os("CI").is_none(),
            "promtool is not installed"
        );
        eprintln!("skipped: promtool is not installed");
        return None;
    };
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(input.as_bytes()).expect("it reads");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    let words = [output.stdout, output.stderr].concat();
    let words = String::from_utf8_lossy(&words).into_owned();
    Some((words, output.status.success()))
}

pub(crate) fn prove(arguments: &[&str], input: &str) {
    if let Some((words, success)) = promtool(arguments, input) {
        assert!(success, "promtool {arguments:?}: {words}\n{input}");
    }
}
