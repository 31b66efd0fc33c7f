//! Server: a real server of our own, and its statistics.

use std::cell::RefCell;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use crate::ports::free_port;

use super::wire::{Reply, Wire};

/// Number of connections for load.
pub(super) const CONNECTIONS: usize = 16;

/// A running server; stopped when dropped.
pub(super) struct Server {
    child: Child,
    pub(super) port: u16,
    desk: RefCell<Wire>,
    /// Connections for load.
    pub(super) wires: RefCell<Vec<Wire>>,
    _directory: TempDir,
}

impl Server {
    /// Starts the program; `None` if it is not installed.
    pub(super) fn start(program: &str) -> Option<Self> {
        let directory = tempfile::tempdir().expect("a directory for the server");
        let port = free_port();
        let child = Command::new(program)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no", "--dir"])
            .arg(directory.path())
            .stdout(Stdio::null())
            .spawn()
            .ok()?;
        let desk = (0..500).find_map(|_| {
            let wire = Wire::connect(port).ok();
            if wire.is_none() {
                wait(Duration::from_millis(10));
            }
            wire
        });
        let desk = desk.expect("the server listens within 5 s");
        let wires = (0..CONNECTIONS).map(|_| Wire::connect(port).expect("it listens"));
        Some(Self {
            child,
            port,
            desk: RefCell::new(desk),
            wires: RefCell::new(wires.collect()),
            _directory: directory,
        })
    }

    /// Sends a command and returns the reply.
    pub(super) fn ask(&self, words: &[&[u8]]) -> Reply {
        self.desk.borrow_mut().ask(words)
    }

    /// Returns a field of `INFO`.
    pub(super) fn info(&self, section: &str, field: &str) -> Option<String> {
        let Reply::Text(text) = self.ask(&[b"INFO", section.as_bytes()]) else {
            return None;
        };
        let mut lines = text.lines();
        let value = lines.find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        value.map(|value| value.trim().to_owned())
    }

    /// Returns product and version, `redis 7.0.15`; a Valkey reports a version of Redis too.
    pub(super) fn version(&self) -> String {
        let products = [("valkey", "valkey_version"), ("redis", "redis_version")];
        let version = products.iter().find_map(|(product, field)| {
            let version = self.info("server", field)?;
            Some(format!("{product} {version}"))
        });
        version.unwrap_or_default()
    }

    /// Returns the processor time that the server has used so far, in microseconds.
    pub(super) fn cpu_micros(&self) -> f64 {
        let Reply::Text(text) = self.ask(&[b"INFO", b"cpu"]) else {
            return f64::NAN;
        };
        let seconds = |field: &str| {
            let mut lines = text.lines();
            let value = lines.find_map(|line| line.strip_prefix(field))?;
            value.trim().parse::<f64>().ok()
        };
        let (user, sys) = (seconds("used_cpu_user:"), seconds("used_cpu_sys:"));
        user.zip(sys)
            .map_or(f64::NAN, |(user, sys)| (user + sys) * 1e6)
    }

    /// Returns the number of calls of a command so far.
    pub(super) fn calls(&self, command: &str) -> u64 {
        let stats = self.info("commandstats", &format!("cmdstat_{command}"));
        let calls = stats.and_then(|stats| {
            let calls = stats.strip_prefix("calls=")?.split(',').next()?;
            calls.parse().ok()
        });
        calls.unwrap_or(0)
    }

    pub(super) fn used_memory(&self) -> usize {
        let used = self.info("memory", "used_memory");
        used.and_then(|used| used.parse().ok()).unwrap_or(0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[expect(clippy::disallowed_methods, reason = "a server takes time to start")]
fn wait(span: Duration) {
    thread::sleep(span);
}
