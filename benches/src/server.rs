//! Server: measured from outside, in a process of its own with its own processor time.
//!
//! ```text
//!   Server::start --this program, --serve KIND ..--> serve: says its port, then serves
//!   Server drops  --its standard input closes-----> ends
//! ```

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ratekeeper_server::{Config, Door, Service};

use crate::{bare, floor, report};

/// Argument that starts this program as a server; [`Server`] passes the kind.
pub(crate) const CHILD: &str = "--serve";

/// Pause between two attempts to connect to another program.
const ATTEMPT_EVERY: Duration = Duration::from_millis(5);
/// Maximum time until another program listens.
const START_WITHIN: Duration = Duration::from_secs(20);

/// A server in a process of its own; ended when dropped.
pub(crate) struct Server {
    child: Child,
    port: u16,
}

impl Server {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let program = std::env::current_exe().expect("this program has a path");
        Self::of(&program, arguments)
    }

    /// Starts a server of another build of this program.
    pub(crate) fn of(program: &Path, arguments: &[&str]) -> Self {
        let mut child = Command::new(program)
            .arg(CHILD)
            .args(arguments)
            .stdin(Stdio::piped()) // closed when we end, however we end: it ends too
            .stdout(Stdio::piped())
            .spawn()
            .expect("a build of this program can be started");
        let output = child.stdout.take().expect("it is piped");
        let mut port = String::new();
        let read = BufReader::new(output).read_line(&mut port);
        let port = read.ok().and_then(|_| port.trim().parse().ok());
        let port = port.expect("a server prints its port first");
        Self { child, port }
    }

    /// Starts another program, which listens on that port; `None` if it is not installed.
    #[expect(
        clippy::disallowed_methods,
        reason = "another program takes time to start"
    )]
    pub(crate) fn other(mut command: Command, port: u16) -> Option<Self> {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let server = Self { child, port };
        let until = Instant::now() + START_WITHIN;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if Instant::now() > until {
                return None;
            }
            thread::sleep(ATTEMPT_EVERY);
        }
        Some(server)
    }

    /// Returns the resident memory of the process, in bytes.
    pub(crate) fn resident_bytes(&self) -> f64 {
        let path = Path::new("/proc").join(self.child.id().to_string());
        let status = fs::read_to_string(path.join("status")).expect("the server runs, on Linux");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
        kib.expect("proc(5)") * 1024.0
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Returns user and system time of the process, each in microseconds.
    pub(crate) fn cpu_micros(&self) -> [f64; 2] {
        /// `USER_HZ`: the unit of these figures, on every current Linux.
        const MICROS_PER_TICK: f64 = 10_000.0;
        let stat = fs::read_to_string(
            Path::new("/proc")
                .join(self.child.id().to_string())
                .join("stat"),
        );
        let stat = stat.expect("the server runs, on Linux");
        // The name, in parentheses, may hold spaces; times are fields 14 and 15.
        let (_, fields) = stat.rsplit_once(") ").expect("proc(5)");
        let mut fields = fields.split(' ').skip(11);
        let mut next = || fields.next().and_then(|ticks| ticks.parse::<f64>().ok());
        let times = next().zip(next()).expect("proc(5)");
        [times.0 * MICROS_PER_TICK, times.1 * MICROS_PER_TICK]
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill(); // gone already: as well
        let _ = self.child.wait();
    }
}

/// The child: serves until its standard input closes.
pub(crate) fn serve(arguments: &[String]) {
    let number = |text: &str| text.parse().expect("written by this program");
    match arguments {
        [kind, policy] if kind == "service" => {
            let config = Config::new(policy).listen("http=127.0.0.1:0");
            let config = config.and_then(|config| config.listen("admin=off"));
            let config = config.expect("two addresses");
            let service = Service::start(&config).expect("the policy is good");
            let address = service.address(Door::Http).expect("the listener is open");
            wait(address.port());
        }
        [kind, policy] if kind == "envoy" => {
            let config = ["http=off", "admin=off", "grpc=127.0.0.1:0"]
                .iter()
                .try_fold(Config::new(policy), |config, door| config.listen(door));
            let config = config.expect("three addresses");
            let service = Service::start(&config).expect("the policy is good");
            let address = service.address(Door::Grpc).expect("the listener is open");
            wait(address.port());
        }
        [kind, policy] if kind == "gateway" => {
            let config = ["http=off", "admin=off", "proxy=127.0.0.1:0"]
                .iter()
                .try_fold(Config::new(policy), |config, door| config.listen(door));
            let service = Service::start(&config.expect("three addresses"));
            let service = service.expect("the policy is good");
            let address = service.address(Door::Proxy).expect("the listener is open");
            wait(address.port());
        }
        [kind, upstream] if kind == "forward" => wait(floor::forward(number_of_port(upstream))),
        [kind] if kind == "tonic" => wait(bare::serve()),
        [kind, length] if kind == "bytes" => wait(floor::bytes(number(length))),
        [kind, length] if kind == "hyper" => wait(floor::hyper(number(length))),
        [kind, answer] if kind == "hyper-like" => wait(floor::hyper_like(answer)),
        _ => unreachable!("written by this program"),
    }
}

fn number_of_port(text: &str) -> u16 {
    text.parse().expect("written by this program")
}

fn wait(port: u16) {
    report::line(&port.to_string());
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}
