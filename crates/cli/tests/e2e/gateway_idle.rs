//! Memory of idle connections at the proxy listener: as many as one process may open, 10,000 at
//! most, each of which has had a response.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::gateway::gateway;
use crate::harness::clock;
use crate::harness::process::Process;
use crate::harness::say;
use crate::harness::upstream::Upstream;

/// Connections that are kept open.
const CONNECTIONS: usize = 10_000;
/// Files of this process and of the gateway for all else.
const OTHER_FILES: u64 = 600;
/// Maximum memory of an idle connection; docs/guide/gateway.md states it.
const MAX_BYTES: usize = 10 << 10;
/// A connection sleeps after two looks, 5 s apart; then its buffers are freed.
const SLEEPS_WITHIN: Duration = Duration::from_secs(60);
const OPEN: &str = "[[limit]]\nname = \"all\"\nkey = [\"all\"]\nlimit = \"1000000/1h\"\n";

#[test]
fn an_idle_connection_takes_less_than_the_guide_states() {
    let files = raise_descriptors();
    // The gateway keeps half of its files for the application.
    let most = usize::try_from((files - OTHER_FILES) / 2).expect("a number of files");
    let count = CONNECTIONS.min(most);
    let home = tempfile::tempdir().expect("a directory of its own");
    let upstream = Upstream::start();
    let policy = format!(
        "version = 1\n[listen]\nidle_timeout = \"10m\"\n[listen.proxy]\n\
         upstream = \"http://{}\"\n{OPEN}",
        upstream.address()
    );
    fs::write(home.path().join("ratekeeper.toml"), policy).expect("it is writable");
    let (service, proxy) = gateway(home.path(), &["run"]);
    let mut held: Vec<_> = (0..10).map(|_| connection(proxy)).collect();
    let before = resident_bytes(&service);
    held.extend((0..count).map(|_| connection(proxy)));
    let awake = each(&service, before, count);
    let asleep = clock::poll("memory of connections that sleep", SLEEPS_WITHIN, || {
        let asleep = each(&service, before, count);
        (asleep < MAX_BYTES).then_some(asleep)
    });
    let asleep =
        asleep.unwrap_or_else(|error| panic!("{error}: {}", each(&service, before, count)));
    say(&format!(
        "{count} idle connections of the gateway: {awake} bytes each, {asleep} asleep"
    ));
    for client in held.iter_mut().step_by(500) {
        ask(client); // it wakes
    }
}

/// Raises the number of files that this process may open to the largest that it may set.
fn raise_descriptors() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised).expect("the soft limit may be raised");
    limit.maximum.unwrap_or(u64::from(u32::MAX))
}

/// Opens a connection that has had a response.
fn connection(proxy: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(proxy).expect("the gateway listens");
    ask(&mut stream);
    stream
}

fn ask(stream: &mut TcpStream) {
    let request = "HEAD / HTTP/1.1\r\nhost: a.example\r\n\r\n";
    stream
        .write_all(request.as_bytes())
        .expect("the gateway reads");
    let mut response = Vec::new();
    while !response.ends_with(b"\r\n\r\n") {
        let mut buffer = [0; 1024];
        let read = stream.read(&mut buffer).expect("the gateway answers");
        assert!(read > 0, "the gateway closes the connection");
        response.extend(&buffer[..read]);
    }
    assert!(response.starts_with(b"HTTP/1.1 200 "), "{response:?}");
}

/// Returns the memory that the gateway has taken since, for each connection.
fn each(service: &Process, before: usize, count: usize) -> usize {
    resident_bytes(service).saturating_sub(before) / count
}

fn resident_bytes(service: &Process) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", service.id()));
    let status = status.expect("the gateway runs on Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.trim().parse::<usize>().ok())
        .expect("a size in KiB")
        << 10
}
