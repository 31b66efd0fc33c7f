//! A program under test: its output in files, ended when the test ends, its output shown
//! when the test fails.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use super::{clock, say};

/// Maximum time for a program to end after it was asked to.
const END_WITHIN: Duration = Duration::from_secs(10);

/// Maximum time for a line of the log to be written.
const LOGGED_WITHIN: Duration = Duration::from_secs(20);

/// Maximum length of the log that is shown after a failure, in bytes.
const SHOWN_LOG: usize = 8 * 1024;

/// Returns an installed program, or `None` after printing one line. In CI it must be there.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/usr/local/sbin".into()]) // where Debian puts daemons
        .map(|dir| dir.join(name))
        .find(|program| program.is_file());
    or_skip(name, found)
}

/// Returns a program that `cargo xtask test` has put at this place of the repository, or `None`
/// after printing one line. In CI it must be there.
pub(crate) fn carried(place: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let program = Some(root.join(place)).filter(|program| program.is_file());
    or_skip(&format!("{place} (of `cargo xtask test`)"), program)
}

fn or_skip(name: &str, found: Option<PathBuf>) -> Option<PathBuf> {
    if found.is_none() {
        assert!(
            env::var_os("CI").is_none_or(|ci| ci != "true"),
            "{name} is not installed"
        );
        say(&format!("skipped: {name} is not installed"));
    }
    found
}

pub(crate) struct Process {
    name: &'static str,
    child: Child,
    out: PathBuf,
    log: PathBuf,
}

impl Process {
    /// Starts `command`; standard output goes to `out`, standard error to `log`.
    pub(crate) fn start(
        name: &'static str,
        command: &mut Command,
        out: PathBuf,
        log: PathBuf,
    ) -> Self {
        Self::start_with(name, command, Stdio::null(), out, log)
    }

    /// Starts `command` with a standard input.
    pub(crate) fn start_with(
        name: &'static str,
        command: &mut Command,
        input: Stdio,
        out: PathBuf,
        log: PathBuf,
    ) -> Self {
        let child = command
            .stdin(input)
            .stdout(File::create(&out).expect("the test's directory is writable"))
            .stderr(File::create(&log).expect("the test's directory is writable"))
            .spawn()
            .unwrap_or_else(|error| panic!("{name} does not start: {error}"));
        Self {
            name,
            child,
            out,
            log,
        }
    }

    /// Returns its standard output so far.
    pub(crate) fn output(&self) -> String {
        fs::read_to_string(&self.out).unwrap_or_default()
    }

    /// Returns its standard error so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until standard error contains `text`, and returns it.
    ///
    /// The service writes its log from a thread of its own: a line may be written after the answer
    /// to the request that caused it.
    pub(crate) fn log_with(&self, text: &str) -> String {
        let logged = clock::poll(text, LOGGED_WITHIN, || {
            Some(self.log()).filter(|log| log.contains(text))
        });
        logged.unwrap_or_else(|error| panic!("{error}; the log:\n{}", self.log()))
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns its exit status, if it has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }

    /// Sends a signal by its name without `SIG`.
    pub(crate) fn signal(&self, signal: &str) {
        let sent = Command::new("sh")
            .args([
                "-c",
                r#"kill -s "$0" "$1""#,
                signal,
                &self.child.id().to_string(),
            ])
            .status()
            .expect("a shell is there");
        assert!(
            sent.success(),
            "{} does not take SIG{signal}: it has ended",
            self.name
        );
    }

    /// Waits for the program to end.
    pub(crate) fn end(&mut self) -> Result<ExitStatus, String> {
        clock::poll(&format!("end of {}", self.name), END_WITHIN, || {
            self.ended()
        })
    }

    /// Kills it at once, as a crash would, if it has not ended.
    pub(crate) fn crash(&mut self) {
        self.child.kill().expect("a child can be killed");
        self.child.wait().expect("a child can be waited for");
    }

    fn show(&self) {
        for (stream, text) in [
            ("standard output", self.output()),
            ("standard error", self.log()),
        ] {
            let start = text.len().saturating_sub(SHOWN_LOG);
            let start = (start..=text.len())
                .find(|at| text.is_char_boundary(*at))
                .unwrap_or(0);
            say(&format!(
                "---- {}, {stream} ----\n{}",
                self.name,
                &text[start..]
            ));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if thread::panicking() {
            self.show();
        }
        if matches!(self.child.try_wait(), Ok(None)) {
            // These have children, and take them with them when they are asked.
            if ["nginx", "apache2"].contains(&self.name) {
                self.signal("TERM");
                let _ = self.end(); // or else it is killed
            }
            self.crash();
        }
    }
}
