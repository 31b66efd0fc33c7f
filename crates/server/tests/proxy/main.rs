//! The proxy listener, between clients and upstreams that read and write bytes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod aborts;
mod access_log;
mod adaptive;
mod authority;
mod balance;
mod bodies;
mod differential;
mod elastic;
mod faults;
mod forwarding;
mod h2;
mod h2_frames;
mod h2_upstream;
mod health;
mod interim;
mod limits;
mod load;
mod message;
mod preflights;
mod random;
mod refused;
mod reloaded;
mod routes;
mod settled;
mod smuggling;
mod sockets;
mod stop;
mod tls;
mod unsent;
mod upgrade;
mod upstream;

use std::io::{BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ratekeeper::ManualClock;
use ratekeeper_core::Origin;
use ratekeeper_policy::AdminWrites;
use ratekeeper_server::{Config, Door, Service, StartError};
use tempfile::TempDir;

use message::{Message, read_response};
use upstream::Upstream;

/// Maximum wait for an event that must happen, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// An address at which connections are refused.
const REFUSES: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1);
/// A policy that admits everything.
const OPEN: &str = "[[limit]]\nname = \"all\"\nkey = [\"all\"]\nlimit = \"1000000000/1h\"\n";

/// A proxy of its own for one test.
struct Proxy {
    service: Service,
    directory: TempDir,
}

impl Proxy {
    /// Starts the proxy of these upstreams, by the lines of a policy and those of its listener.
    fn start(upstreams: &[SocketAddr], listener: &str, policy: &str) -> Self {
        let urls: Vec<_> = upstreams.iter().map(|at| format!("http://{at}")).collect();
        Self::start_at(&urls, listener, policy)
    }

    fn start_at(urls: &[String], listener: &str, policy: &str) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), urls, listener, policy)
    }

    /// Starts the proxy in a directory that holds its certificates.
    fn start_in(directory: TempDir, urls: &[String], listener: &str, policy: &str) -> Self {
        let service = Self::try_start(&directory, urls, listener, policy);
        Self {
            service: service.unwrap_or_else(|error| panic!("{error}")),
            directory,
        }
    }

    fn try_start(
        directory: &TempDir,
        urls: &[String],
        listener: &str,
        policy: &str,
    ) -> Result<Service, StartError> {
        Service::start(&config(&write(directory, urls, listener, policy)))
    }

    /// Starts the proxy with a clock of the limits that does not move: a slow machine refills
    /// nothing. Waits still take their real time.
    fn start_still(upstream: &Upstream, listener: &str, policy: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let urls = [format!("http://{}", upstream.address)];
        let config = config(&write(&directory, &urls, listener, policy));
        let clock = Arc::new(ManualClock::at(Origin::UNIX));
        Self {
            service: Service::start_with(&config, clock).unwrap(),
            directory,
        }
    }

    fn in_front_of(upstream: &Upstream) -> Self {
        Self::start(&[upstream.address], "", OPEN)
    }

    fn address(&self) -> SocketAddr {
        self.service.address(Door::Proxy).unwrap()
    }

    fn client(&self) -> Client {
        Client::new(self.address())
    }

    /// Reads the policy again.
    fn reload(&self) {
        let response = self.try_reload();
        let is_new = response.text().contains("\"reloaded\":true");
        assert!(is_new, "{}", response.text());
    }

    fn try_reload(&self) -> Message {
        let mut admin = Client::new(self.service.address(Door::Admin).unwrap());
        admin.ask("POST /v1/reload HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n")
    }

    /// Reads a policy with these upstreams and lines.
    fn reload_with(&self, upstreams: &[SocketAddr], listener: &str, policy: &str) {
        let urls: Vec<_> = upstreams.iter().map(|at| format!("http://{at}")).collect();
        write(&self.directory, &urls, listener, policy);
        self.reload();
    }

    /// Returns the value of a metric, by its name and labels.
    fn metric(&self, name: &str) -> u64 {
        let mut client = Client::new(self.service.address(Door::Admin).unwrap());
        let page = client.ask("GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n");
        let text = String::from_utf8(page.body).unwrap();
        let line = text.lines().find(|line| line.starts_with(name));
        let line = line.unwrap_or_else(|| panic!("no metric {name}"));
        let value = line.rsplit(' ').next().unwrap();
        value.trim_end_matches(".0").parse().unwrap()
    }
}

fn config(policy: &Path) -> Config {
    let mut config = Config::new(policy);
    config.watch = false;
    config.admin_writes = Some(AdminWrites::Open);
    config.listen("admin=127.0.0.1:0").unwrap()
}

/// Writes a policy, and returns its path.
fn write(directory: &TempDir, urls: &[String], listener: &str, policy: &str) -> PathBuf {
    let path = directory.path().join("ratekeeper.toml");
    let urls: Vec<_> = urls.iter().map(|url| format!("\"{url}\"")).collect();
    let urls = urls.join(", ");
    let text = format!(
        "version = 1\n[listen.proxy]\naddress = \"127.0.0.1:0\"\nupstream = [{urls}]\n{listener}\n{policy}"
    );
    std::fs::write(&path, text).unwrap();
    path
}

/// A connection that reads and writes bytes.
struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream: BufReader::new(stream),
        }
    }

    fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.get_mut().write_all(bytes.as_ref()).unwrap();
    }

    /// Reads a response; a panic if the connection ends before.
    fn response(&mut self) -> Message {
        read_response(&mut self.stream, "GET").expect("no response")
    }

    fn ask(&mut self, request: &str) -> Message {
        self.send(request);
        let method = request.split(' ').next().unwrap();
        read_response(&mut self.stream, method).expect("no response")
    }

    fn get(&mut self, target: &str) -> Message {
        self.ask(&format!("GET {target} HTTP/1.1\r\nhost: a.example\r\n\r\n"))
    }
}

/// Waits until `holds` is true.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let pause = Duration::from_millis(10);
    for _ in 0..PATIENCE.as_millis() / pause.as_millis() {
        if holds() {
            return;
        }
        sleep(pause);
    }
    panic!("{what}");
}

#[expect(
    clippy::disallowed_methods,
    reason = "a bound of the test grows with the time that it took"
)]
fn now() -> Instant {
    Instant::now()
}

#[expect(
    clippy::disallowed_methods,
    reason = "the proxy runs by the clock of the machine"
)]
fn sleep(span: Duration) {
    std::thread::sleep(span);
}
