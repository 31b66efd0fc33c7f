//! Desk: an empty directory in which the command is run, and the output on the terminal.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// A separate directory for each test, so that no path is volatile.
pub(crate) struct Desk {
    directory: TempDir,
}

/// One limit of each kind, with findings for the verbs to report.
pub(crate) const POLICY: &str = r#"version  = 1
timezone = "Europe/Oslo"

[[limit]]
name   = "per-ip"
key    = ["ip"]
bucket = { size = 20, refill = "20/1s" }

[[limit]]
name  = "signup"
match = { method = "POST", path = "/signup" }
key   = ["ip"]
limit = "20/day"
mode  = "shadow"

[[limit]]
name        = "per-user"
match       = { path = "/api/**", header.x-plan = ["free", "trial"] }
key         = ["attr:user_id"]
limit       = "100/1m"
missing_key = "deny"

[[exempt]]
limits = ["per-ip"]
match  = { path = "/health" }
reason = "uptime probes"
"#;

/// A limit that is off, to be added to a policy: it causes a warning only.
pub(crate) const OFF: &str = r#"
[[limit]]
name  = "old"
key   = ["all"]
limit = "1/1s"
mode  = "off"
"#;

impl Desk {
    pub(crate) fn new() -> Self {
        Self {
            directory: tempfile::tempdir().expect("a temporary directory"),
        }
    }

    /// Adds a file to the desk.
    pub(crate) fn with(self, name: &str, content: impl AsRef<[u8]>) -> Self {
        std::fs::write(self.path().join(name), content).expect("the file is written");
        self
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the command, ready to run here: no terminal, and nothing inherited from the
    /// environment of the test.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ratekeeper"));
        command
            .args(arguments)
            .current_dir(self.path())
            .env_clear()
            .env("TZ", "UTC")
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments)
            .output()
            .expect("the command starts")
    }

    /// Runs each list of arguments, and returns the terminal.
    pub(crate) fn terminal(&self, runs: &[&[&str]]) -> String {
        runs.iter()
            .map(|arguments| show(arguments, &self.run(arguments)))
            .collect()
    }
}

/// Returns the text on the terminal afterwards; stderr is marked with `! `.
pub(crate) fn show(arguments: &[&str], output: &Output) -> String {
    let quoted = arguments.iter().map(|argument| {
        if argument.contains([' ', '*']) || argument.is_empty() {
            format!("'{argument}'")
        } else {
            (*argument).to_owned()
        }
    });
    let mut shown = format!("$ ratekeeper {}\n", quoted.collect::<Vec<_>>().join(" "));
    shown.push_str(&String::from_utf8_lossy(&output.stdout));
    for line in String::from_utf8_lossy(&output.stderr).lines() {
        shown.push_str(format!("! {line}").trim_end());
        shown.push('\n');
    }
    let code = output
        .status
        .code()
        .map_or("killed".into(), |code| code.to_string());
    shown + &format!("[exit {code}]\n\n")
}
