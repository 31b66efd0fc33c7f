//! Faults under load: of upstreams, of clients, and reloads. No other request is lost, and each
//! permit comes back.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::message::{read_request, read_response};
use super::random::Random;
use super::upstream::{Next, Upstream};
use super::{Client, Proxy, eventually, sleep};

const CLIENTS: u64 = 8;
const REQUESTS: usize = 30;
const HELD: &str = "ratekeeper_concurrency_in_use{limit=\"work\"}";
const WHOLE: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhelloworld";
const SHORT: Duration = Duration::from_millis(5);
/// How long the proxy waits. Long enough for a machine that gives these threads no time for a
/// second, or a request that is answered would be taken for one that hangs.
const PATIENCE: &str = "response_timeout = \"2s\"\nbody_timeout = \"2s\"\n";

/// Returns limits of which one has permits; a reload changes the other one.
fn limits(rate: usize) -> String {
    format!(
        "[[limit]]\nname = \"work\"\nkey = [\"all\"]\n\
         concurrency = {{ max = 1000, lease = \"1h\" }}\n\
         [[limit]]\nname = \"all\"\nkey = [\"all\"]\nlimit = \"{rate}/1h\"\n"
    )
}

/// An upstream that does as the path asks.
fn faulty() -> Upstream {
    Upstream::new(|mut visit| {
        let mut send = |bytes: &[u8]| visit.stream.write_all(bytes).is_ok();
        match visit.request.start.split(['/', ' ']).nth(2).unwrap() {
            "refuse" => return Next::Close,
            "cut" => {
                send(&WHOLE[..WHOLE.len() - 4]);
                return Next::Close;
            }
            "garbage" => {
                send(b"HTTP/1.1 200 OK\r\na b\r\n\r\n");
                return Next::Close;
            }
            "hang" => {
                visit.until_closed();
                return Next::Close;
            }
            "stall" => {
                send(&WHOLE[..WHOLE.len() - 4]);
                visit.until_closed();
                return Next::Close;
            }
            "slow" => {
                for part in WHOLE.chunks(9) {
                    send(part);
                    sleep(SHORT);
                }
            }
            _ => {
                sleep(SHORT);
                send(WHOLE);
            }
        }
        Next::Request
    })
}

/// Sends a request of a kind, and checks its end.
fn ask(client: &mut Client, kind: &str) {
    client.send(format!(
        "POST /{kind} HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi"
    ));
    let response = read_response(&mut client.stream, "POST");
    let found = response
        .as_ref()
        .map(|response| (response.status(), response.is_whole));
    let expected: &[_] = match kind {
        "refuse" | "garbage" => &[Some((502, true))],
        "hang" => &[Some((504, true))],
        // Of a body that breaks off at once, not even the head may come.
        "cut" | "stall" => &[Some((200, false)), None],
        _ => &[Some((200, true))],
    };
    assert!(expected.contains(&found), "{kind}: {response:?}");
}

/// One client: requests of all kinds, some of which it gives up.
fn client(proxy: SocketAddr, seed: u64) {
    let mut random = Random::new(seed);
    let mut client = Client::new(proxy);
    for _ in 0..REQUESTS {
        let kind = random.pick(&[
            "whole", "whole", "whole", "slow", "slow", "refuse", "cut", "garbage", "hang", "stall",
            "leave", "leave",
        ]);
        if kind == "leave" {
            leave(&mut client, &mut random);
        } else {
            ask(&mut client, kind);
        }
        if matches!(kind, "leave" | "cut" | "stall") {
            client = Client::new(proxy);
        }
    }
}

/// Sends a request and gives it up: in the middle of its own body, before the head of the response,
/// or in the middle of that.
fn leave(client: &mut Client, random: &mut Random) {
    let (path, body) = (
        random.pick(&["hang", "slow", "stall"]),
        random.pick(&["hi", "h"]),
    );
    client.send(format!(
        "POST /{path} HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{body}"
    ));
    if path == "stall" && body == "hi" {
        let _ = client.stream.fill_buf();
    }
}

#[test]
fn faults_and_reloads_lose_no_other_request_and_no_permit() {
    let upstream = faulty();
    let proxy = Proxy::start(&[upstream.address], PATIENCE, &limits(1_000_000));
    let address = proxy.address();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|seed| thread::spawn(move || client(address, seed)))
        .collect();
    let path = proxy.directory.path().join("ratekeeper.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let mut reloads = 0;
    while clients.iter().any(|client| !client.is_finished()) {
        reloads += 1;
        let changed = text.replace("1000000/1h", &format!("{}/1h", 1_000_000 + reloads));
        std::fs::write(&path, changed).unwrap();
        proxy.reload();
    }
    for client in clients {
        client.join().unwrap();
    }
    assert!(reloads > 10, "{reloads}");
    eventually("each permit comes back", || proxy.metric(HELD) == 0);
    proxy.service.shutdown();
}

/// A server that is killed: its port closes, and all of its connections.
struct Killable {
    address: SocketAddr,
    is_dead: Arc<AtomicBool>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
    served: Arc<AtomicUsize>,
}

impl Killable {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let killable = Self {
            address: listener.local_addr().unwrap(),
            is_dead: Arc::default(),
            streams: Arc::default(),
            served: Arc::default(),
        };
        let (is_dead, streams) = (Arc::clone(&killable.is_dead), Arc::clone(&killable.streams));
        let served = Arc::clone(&killable.served);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if is_dead.load(Ordering::SeqCst) {
                    return;
                }
                streams.lock().unwrap().push(stream.try_clone().unwrap());
                let served = Arc::clone(&served);
                thread::spawn(move || {
                    let mut reader = BufReader::new(stream.try_clone().unwrap());
                    let mut stream = stream;
                    while read_request(&mut reader).is_some() {
                        sleep(SHORT);
                        if stream.write_all(WHOLE).is_err() {
                            return;
                        }
                        served.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        });
        killable
    }

    fn kill(&self) {
        self.is_dead.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.address)); // wakes the listener, which closes
        for stream in self.streams.lock().unwrap().iter() {
            let _ = stream.shutdown(Shutdown::Both); // it may have ended
        }
    }
}

#[test]
fn an_upstream_that_is_killed_under_load_costs_no_idempotent_request() {
    let (dies, stays) = (Killable::start(), Killable::start());
    let proxy = Proxy::start(&[dies.address, stays.address], "", &limits(1_000_000));
    let address = proxy.address();
    let is_over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let is_over = Arc::clone(&is_over);
            thread::spawn(move || {
                let mut client = Client::new(address);
                while !is_over.load(Ordering::SeqCst) {
                    let response = client.get("/");
                    assert_eq!((response.status(), response.is_whole), (200, true));
                }
            })
        })
        .collect();
    let served = |by: &Killable, more: usize| {
        let before = by.served.load(Ordering::SeqCst);
        eventually("requests are served", || {
            by.served.load(Ordering::SeqCst) >= before + more
        });
    };
    served(&dies, 100);
    dies.kill();
    served(&stays, 200);
    is_over.store(true, Ordering::SeqCst);
    for client in clients {
        client.join().unwrap();
    }
    eventually("each permit comes back", || proxy.metric(HELD) == 0);
}
