//! An upgrade: a process takes the listening socket of the one before, as systemd hands it on.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use crate::harness::clock;
use crate::harness::free_address;
use crate::harness::process::Process;
use crate::harness::service::write_policy;
use crate::harness::visitor::Visitor;

const STARTED_WITHIN: Duration = Duration::from_secs(20);
/// Maximum time in which the clients see what they wait for.
const SEEN_WITHIN: Duration = Duration::from_secs(30);
/// Clients, and the pause of each between two requests: 300 requests a second.
const CLIENTS: u32 = 12;
const PAUSE: Duration = Duration::from_millis(40);
/// Maximum wait of a request, as the guide states, on a machine that restarts the service in time.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// An application whose `/events` never end; returns its address.
fn application() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || serve(stream).unwrap_or_default()); // a client may go away
        }
    });
    address
}

fn serve(mut stream: TcpStream) -> std::io::Result<()> {
    let head = BufReader::new(stream.try_clone()?).lines();
    let head: Vec<_> = head
        .map_while(Result::ok)
        .take_while(|line| !line.is_empty())
        .collect();
    if head.iter().any(|line| line.starts_with("GET /events")) {
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")?;
        return stream.read_to_end(&mut Vec::new()).map(drop);
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
}

/// Starts the service with the socket, as `sd_listen_fds` describes it.
fn start(dir: &Path, policy: &Path, socket: &TcpListener) -> Process {
    let address = socket.local_addr().expect("it is bound");
    let socket = OwnedFd::from(socket.try_clone().expect("a socket can be shared"));
    let script = r#"export LISTEN_PID=$$ LISTEN_FDS=1; exec "$@" 3<&0"#;
    let mut command = Command::new("sh");
    command
        .args(["-c", script, "sh", env!("CARGO_BIN_EXE_ratekeeper"), "run"])
        .arg(policy)
        .args(["--listen", "admin=127.0.0.1:0", "--json"])
        .args(["--listen", &format!("proxy={address}")])
        .current_dir(dir);
    begin(&mut command, Stdio::from(socket), &dir.join("ratekeeper"))
}

/// Starts the service, with files that begin with `output`, and waits until it listens.
fn begin(command: &mut Command, input: Stdio, output: &Path) -> Process {
    let (out, log) = (output.with_extension("out"), output.with_extension("log"));
    let process = Process::start_with("ratekeeper", command, input, out, log);
    let listening = clock::poll("a listener", STARTED_WITHIN, || {
        process.output().contains("\"proxy\"").then_some(())
    });
    listening.unwrap_or_else(|error| panic!("{error}\n{}", process.log()));
    process
}

/// Results of all clients. A client asks until `done` is set.
#[derive(Default)]
struct Visits {
    done: AtomicBool,
    admitted: AtomicU32,
    refused: AtomicU32,
}

impl Visits {
    /// Asks until the end; returns the longest wait.
    fn ask(&self, to: SocketAddr) -> Duration {
        let mut longest = Duration::ZERO;
        while !self.done.load(Ordering::Relaxed) {
            let asked = clock::now();
            let count = match Visitor::at(1).get(to, "/").status {
                200 => &self.admitted,
                status => {
                    assert_eq!(status, 429);
                    &self.refused
                }
            };
            longest = longest.max(asked.elapsed());
            count.fetch_add(1, Ordering::Relaxed);
            clock::wait(PAUSE);
        }
        longest
    }

    fn until_admitted(&self, count: u32) {
        self.until("admitted requests", &self.admitted, count);
    }

    /// Waits until each client may have asked, and was refused, twice more.
    fn until_refused_more(&self) {
        let count = self.refused.load(Ordering::Relaxed) + 2 * CLIENTS;
        self.until("refused requests", &self.refused, count);
    }

    fn until(&self, what: &str, counter: &AtomicU32, count: u32) {
        let reached = clock::poll(what, SEEN_WITHIN, || {
            (counter.load(Ordering::Relaxed) >= count).then_some(())
        });
        reached.unwrap_or_else(|error| {
            self.done.store(true, Ordering::Relaxed);
            panic!("{error}")
        });
    }
}

/// 300 requests a second, a client of an endless stream, and a receiver of metrics that is away.
#[test]
fn a_restart_behind_a_passed_socket_loses_no_request_and_forgets_no_usage() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let policy = format!(
        "[listen]\ndrain = \"200ms\"\ngrace = \"1s\"\n\
         [listen.proxy]\nupstream = \"http://{}\"\n\
         [store.memory]\nstate = \"state\"\n\
         [otlp]\nendpoint = \"http://{}\"\n\
         [[limit]]\nname = \"all\"\nkey = [\"all\"]\nlimit = \"500/100d\"\n",
        application(),
        free_address(),
    );
    let policy = write_policy(dir.path(), &policy);
    let socket = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = socket.local_addr().expect("it is bound");
    let mut service = start(dir.path(), &policy, &socket);

    let mut events = TcpStream::connect(address).expect("it listens");
    events
        .write_all(b"GET /events HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect("it is open");
    let mut first = [0; 12];
    events.read_exact(&mut first).expect("the stream begins");
    assert_eq!(&first, b"HTTP/1.1 200");

    let visits = Visits::default();
    let (longest, start): (Vec<_>, _) = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| scope.spawn(|| visits.ask(address)))
            .collect();
        visits.until_admitted(100);
        service.signal("TERM");
        let ended = service.end();
        let began = clock::now();
        let next = ended.map(|_| start(dir.path(), &policy, &socket));
        let start = began.elapsed();
        visits.until_refused_more();
        visits.done.store(true, Ordering::Relaxed);
        let longest = clients
            .into_iter()
            .map(|client| client.join().expect("no request is lost"))
            .collect();
        // Ended only now, after the last answers.
        drop(next.unwrap_or_else(|error| panic!("{error}")));
        (longest, start)
    });
    let admitted = visits.admitted.into_inner();
    assert_eq!(admitted, 499, "500 of two processes, less the stream");
    let longest = longest.iter().max();
    // No process accepts connections while the next one starts, which takes longer on a busy machine.
    let most = LONGEST_WAIT.max(2 * start);
    assert!(longest < Some(&most), "{longest:?}, start {start:?}");
}

#[test]
fn a_passed_socket_that_no_listener_has_is_an_error() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let policy = write_policy(
        dir.path(),
        "[[limit]]\nname = \"a\"\nkey = [\"all\"]\nlimit = \"1/1h\"\n",
    );
    let socket = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let script = r#"export LISTEN_PID=$$ LISTEN_FDS=1; exec "$@" 3<&0"#;
    let refused = Command::new("sh")
        .args(["-c", script, "sh", env!("CARGO_BIN_EXE_ratekeeper"), "run"])
        .arg(policy)
        .args(["--listen", "http=127.0.0.1:0", "--listen", "admin=off"])
        .stdin(Stdio::from(OwnedFd::from(socket)))
        .output()
        .expect("a shell is there");
    let message = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{message}");
    assert!(
        message.contains("no listener has this address"),
        "{message}"
    );
}

/// The kernel gives each connection to one of the two; each counts in its own memory.
#[test]
fn two_processes_share_a_port_and_the_first_one_leaves_without_a_lost_request() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let policy = format!(
        "[listen]\nreuse_port = true\ndrain = \"200ms\"\n\
         [listen.proxy]\nupstream = \"http://{}\"\n\
         [[limit]]\nname = \"all\"\nkey = [\"all\"]\nlimit = \"50/100d\"\n",
        application(),
    );
    let policy = write_policy(dir.path(), &policy);
    let address = free_address();
    let start = |name: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ratekeeper"));
        command.arg("run").arg(&policy).arg("--json");
        command.args(["--listen", "admin=127.0.0.1:0"]);
        command.args(["--listen", &format!("proxy={address}")]);
        begin(&mut command, Stdio::null(), &dir.path().join(name))
    };
    let mut first = start("first");
    let visits = Visits::default();
    let longest: Vec<_> = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| scope.spawn(|| visits.ask(address)))
            .collect();
        visits.until_refused_more(); // the first has admitted its 50
        let second = start("second");
        visits.until_admitted(100);
        visits.until_refused_more();
        first.signal("TERM");
        let ended = first.end();
        visits.until_refused_more();
        visits.done.store(true, Ordering::Relaxed);
        let longest = clients
            .into_iter()
            .map(|client| client.join().expect("no request is lost"))
            .collect();
        drop((second, ended.expect("it stops")));
        longest
    });
    assert_eq!(visits.admitted.into_inner(), 100, "the limit of each");
    let longest = longest.iter().max();
    assert!(longest < Some(&(2 * LONGEST_WAIT)), "{longest:?}");
}
