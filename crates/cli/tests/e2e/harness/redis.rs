//! Redis and Valkey servers of a test's own, on free loopback ports; ended by their pid.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::clock;
use super::ports::free_port;
use super::process::{Process, carried, find};

const START_WITHIN: Duration = Duration::from_secs(20);

/// Product and version of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Make {
    /// Installed by the system (Debian).
    Redis,
    /// Installed by `cargo xtask test`.
    Valkey91,
    Valkey81,
}

impl Make {
    /// Returns the program; `None` after printing one line if it is absent.
    pub(super) fn program(self) -> Option<PathBuf> {
        let directory = match self {
            Self::Redis => return find("redis-server"),
            Self::Valkey91 => "valkey-9.1",
            Self::Valkey81 => "valkey-8.1",
        };
        carried(&format!("target/{directory}/valkey-server"))
    }
}

pub(crate) struct Redis {
    process: Process,
    program: PathBuf,
    dir: PathBuf,
    port: u16,
    options: Vec<String>,
}

impl Redis {
    /// Starts a server that keeps nothing on disk; `None` if it is not installed.
    pub(crate) fn start(dir: &Path) -> Option<Self> {
        Self::start_with(dir, free_port(), &[])
    }

    /// Starts one at that port.
    pub(crate) fn start_at(dir: &Path, port: u16) -> Option<Self> {
        Self::start_with(dir, port, &[])
    }

    /// Starts one with further options.
    pub(crate) fn start_with(dir: &Path, port: u16, options: &[&str]) -> Option<Self> {
        Self::start_make(Make::Redis, dir, port, options)
    }

    /// Starts one of a make, with further options.
    pub(crate) fn start_make(make: Make, dir: &Path, port: u16, options: &[&str]) -> Option<Self> {
        let program = make.program()?;
        let dir = dir.join(format!("redis-{port}"));
        std::fs::create_dir_all(&dir).expect("the test's directory is writable");
        let options: Vec<String> = options.iter().map(|&option| option.into()).collect();
        let process = spawn(&program, &dir, port, &options);
        let server = Self {
            process,
            program,
            dir,
            port,
            options,
        };
        server.is_up();
        Some(server)
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Runs a command.
    pub(crate) fn run(&self, words: &[&str]) {
        let client = find("redis-cli").expect("it comes with the server");
        let mut command = Command::new(client);
        command.args(["-e", "-p", &self.port.to_string()]);
        let ran = command.args(words).output().expect("redis-cli runs");
        assert!(ran.status.success(), "{words:?}: {ran:?}");
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Returns the output of `redis-cli` for a command.
    pub(crate) fn query(&self, words: &[&str]) -> String {
        query(self.port, words)
    }

    pub(crate) fn signal(&self, signal: &str) {
        self.process.signal(signal);
    }

    pub(crate) fn crash(&mut self) {
        self.process.crash();
    }

    /// Starts it again at the same port, empty.
    pub(crate) fn restart(&mut self) {
        self.process = spawn(&self.program, &self.dir, self.port, &self.options);
        self.is_up();
    }

    fn is_up(&self) {
        let at = SocketAddr::from(([127, 0, 0, 1], self.port));
        let up = clock::poll("answering Redis", START_WITHIN, || {
            TcpStream::connect(at).ok()
        });
        up.unwrap_or_else(|error| panic!("{error}"));
    }
}

/// Returns the output of `redis-cli` for a command to the server at that port.
pub(super) fn query(port: u16, words: &[&str]) -> String {
    let client = find("redis-cli").expect("it comes with the server");
    let output = Command::new(client)
        .args(["-p", &port.to_string()])
        .args(words)
        .output()
        .expect("redis-cli runs");
    String::from_utf8_lossy(&output.stdout)
        .trim_end()
        .to_owned()
}

fn spawn(program: &Path, dir: &Path, port: u16, options: &[String]) -> Process {
    Process::start(
        "redis-server",
        Command::new(program)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no", "--dir"])
            .arg(dir)
            .args(options),
        dir.join("redis.out"),
        dir.join("redis.log"),
    )
}

/// Starts three primaries; `None` if Redis is not installed.
pub(crate) fn cluster(dir: &Path) -> Option<Vec<Redis>> {
    cluster_of(Make::Redis, dir)
}

/// Starts three primaries of a make.
pub(crate) fn cluster_of(make: Make, dir: &Path) -> Option<Vec<Redis>> {
    let client = find("redis-cli")?;
    let options = &["--cluster-enabled", "yes"];
    let node = |_| Redis::start_make(make, dir, free_port(), options);
    let nodes: Vec<Redis> = (0..3).map(node).collect::<Option<_>>()?;
    let addresses = nodes.iter().map(|node| format!("127.0.0.1:{}", node.port));
    let created = Command::new(&client)
        .args(["--cluster", "create"])
        .args(addresses)
        .arg("--cluster-yes")
        .output()
        .expect("redis-cli runs");
    assert!(created.status.success(), "{created:?}");
    for node in &nodes {
        let joined = clock::poll("node that knows the cluster", START_WITHIN, || {
            let info = Command::new(&client)
                .args(["-p", &node.port.to_string(), "cluster", "info"])
                .output()
                .expect("redis-cli runs");
            let info = String::from_utf8_lossy(&info.stdout).into_owned();
            let whole = "cluster_slots_ok:16384";
            (info.contains("cluster_state:ok") && info.contains(whole)).then_some(())
        });
        joined.unwrap_or_else(|error| panic!("{error}"));
    }
    Some(nodes)
}
