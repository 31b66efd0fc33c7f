//! A primary, its replica, and three sentinels that watch them.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::clock;
use super::ports::free_port;
use super::process::Process;
use super::redis::{Make, Redis, query};

/// Name of the primary for sentinels.
pub(crate) const MASTER: &str = "mymaster";

const PATIENT_MS: &str = "60000";
const READY_WITHIN: Duration = Duration::from_secs(60);

/// Stopped when dropped.
pub(crate) struct Watched {
    /// The first is the primary at the start.
    pub(crate) servers: [Redis; 2],
    sentinels: Vec<(Process, u16)>,
}

impl Watched {
    /// Starts servers and sentinels; `None` if the servers are not installed.
    ///
    /// The sentinels are patient, so that they do not take a primary on a busy machine for dead.
    pub(crate) fn start(make: Make, dir: &Path) -> Option<Self> {
        let at_once = ["--repl-diskless-sync-delay", "0"];
        let primary = Redis::start_make(make, dir, free_port(), &at_once)?;
        let port = primary.port().to_string();
        let replica = ["--replicaof", "127.0.0.1", &port];
        let replica = Redis::start_make(make, dir, free_port(), &replica)?;
        let sentinels = (0..3).map(|_| sentinel(make, dir, &port));
        let watched = Self {
            servers: [primary, replica],
            sentinels: sentinels.collect::<Option<_>>()?,
        };
        watched.wait("sentinels and a replica", "num-other-sentinels", "2");
        watched.wait("a replica", "num-slaves", "1");
        Some(watched)
    }

    /// `127.0.0.1:26379,127.0.0.1:26380`
    pub(crate) fn addresses(&self) -> Vec<String> {
        let ports = self.sentinels.iter().map(|(_, port)| port);
        ports.map(|port| format!("127.0.0.1:{port}")).collect()
    }

    /// Kills the first server; the sentinels agree on the other after half a second of silence, and
    /// are patient again from then on.
    pub(crate) fn fail_over(&mut self) {
        let other = self.servers[1].port().to_string();
        self.set_patience("500");
        self.servers[0].crash();
        self.wait("the other primary", "port", &other);
        self.set_patience(PATIENT_MS);
    }

    fn set_patience(&self, millis: &str) {
        let option = "down-after-milliseconds";
        for (_, port) in &self.sentinels {
            query(*port, &["sentinel", "set", MASTER, option, millis]);
        }
    }

    /// Waits until the field `name` of the primary is `value` at every sentinel.
    fn wait(&self, what: &str, name: &str, value: &str) {
        for (_, port) in &self.sentinels {
            let ready = clock::poll(what, READY_WITHIN, || {
                let facts = query(*port, &["sentinel", "master", MASTER]);
                let mut lines = facts.lines().skip_while(|line| *line != name);
                (lines.nth(1) == Some(value)).then_some(())
            });
            ready.unwrap_or_else(|error| panic!("{error}"));
        }
    }
}

fn sentinel(make: Make, dir: &Path, primary: &str) -> Option<(Process, u16)> {
    let program = make.program()?;
    let port = free_port();
    let dir = dir.join(format!("sentinel-{port}"));
    fs::create_dir_all(&dir).expect("the test's directory is writable");
    let file = dir.join("sentinel.conf");
    let lines = format!(
        "port {port}\nbind 127.0.0.1\ndir {}\n\
         sentinel monitor {MASTER} 127.0.0.1 {primary} 2\n\
         sentinel down-after-milliseconds {MASTER} {PATIENT_MS}\n\
         sentinel failover-timeout {MASTER} 3000\n",
        dir.display()
    );
    fs::write(&file, lines).expect("the test's directory is writable");
    let process = Process::start(
        "a sentinel",
        Command::new(program).arg(&file).arg("--sentinel"),
        dir.join("sentinel.out"),
        dir.join("sentinel.log"),
    );
    Some((process, port))
}
