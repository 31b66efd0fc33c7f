//! As many requests as an upstream bears, found from the times of its responses.

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use super::message::read_response;
use super::upstream::{Next, Upstream};
use super::{Client, OPEN, Proxy, eventually, sleep};

const LIMIT: &str = "ratekeeper_upstream_concurrency_limit{route=\"\"}";
const BUSY: &str = "ratekeeper_upstream_errors_total{route=\"\",kind=\"busy\"}";
const EMPTY: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
const WORK: Duration = Duration::from_millis(20);

/// Starts an upstream with so many workers, each busy with a request for so long; further requests
/// wait for one.
fn with_workers(count: usize, work: Duration) -> Upstream {
    let (free, given_back) = (Mutex::new(count), Condvar::new());
    Upstream::new(move |visit| {
        let mut workers = given_back
            .wait_while(free.lock().unwrap(), |free| *free == 0)
            .unwrap();
        *workers -= 1;
        drop(workers);
        sleep(work);
        *free.lock().unwrap() += 1;
        given_back.notify_one();
        let _ = visit.stream.write_all(EMPTY); // the client may have left
        Next::Request
    })
}

#[test]
fn the_number_of_requests_follows_the_capacity_of_the_upstream() {
    const WORKERS: usize = 8;
    // Long beside the time for which a busy machine keeps a thread waiting.
    let upstream = with_workers(WORKERS, 5 * WORK);
    let bounds = "adaptive_concurrency = { min = 2, max = 500 }";
    let proxy = Proxy::start(&[upstream.address], bounds, OPEN);
    assert_eq!(proxy.metric(LIMIT), 2, "it begins at min");
    let (address, is_over) = (proxy.address(), Arc::new(AtomicBool::new(false)));
    let served = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..64)
        .map(|_| {
            let (is_over, served) = (Arc::clone(&is_over), Arc::clone(&served));
            thread::spawn(move || {
                let mut client = Client::new(address);
                while !is_over.load(Ordering::SeqCst) {
                    let request = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi";
                    let response = client.ask(request);
                    if response.status() == 200 {
                        served.fetch_add(1, Ordering::SeqCst);
                        continue;
                    }
                    assert_eq!(response.status(), 503, "{response:?}");
                    assert_eq!(response.one("retry-after"), Some("1"));
                    assert!(response.text().contains("RK0526"), "{response:?}");
                    sleep(WORK);
                }
            })
        })
        .collect();
    while served.load(Ordering::SeqCst) < 300 {
        sleep(WORK);
    }
    let mut limits = Vec::new();
    let before = served.load(Ordering::SeqCst);
    while served.load(Ordering::SeqCst) < before + 300 {
        limits.push(proxy.metric(LIMIT));
        sleep(WORK);
    }
    is_over.store(true, Ordering::SeqCst);
    for client in clients {
        client.join().unwrap();
    }
    assert!(proxy.metric(BUSY) > 0);
    limits.sort_unstable();
    let median = usize::try_from(limits[limits.len() / 2]).unwrap();
    assert!((WORKERS / 2..=4 * WORKERS).contains(&median), "{limits:?}");
}

/// Asks with a body that comes after a pause, until the end or as often as stated.
fn ask_slowly(address: SocketAddr, (pause, times): (Duration, usize), is_over: &AtomicBool) {
    let mut client = Client::new(address);
    for _ in 0..times {
        if is_over.load(Ordering::SeqCst) {
            return;
        }
        client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n");
        sleep(pause);
        // A refusal comes before the body, and closes the connection.
        let _ = client.stream.get_mut().write_all(b"hi");
        let response = read_response(&mut client.stream, "POST");
        if response.is_none_or(|response| response.status() == 503) {
            client = Client::new(address);
        }
    }
}

#[test]
fn slow_clients_do_not_lower_the_number() {
    const MOST: u64 = 40;
    let upstream = with_workers(100, WORK);
    let bounds = format!("adaptive_concurrency = {{ min = 1, max = {MOST} }}");
    let proxy = Proxy::start(&[upstream.address], &bounds, OPEN);
    let address = proxy.address();
    let clients = |times: (Duration, usize), is_over: &Arc<AtomicBool>| {
        let clients = (0..MOST).map(|_| {
            let is_over = Arc::clone(is_over);
            thread::spawn(move || ask_slowly(address, times, &is_over))
        });
        clients.collect::<Vec<_>>()
    };
    let is_over = Arc::new(AtomicBool::new(false));
    let fast = clients((Duration::ZERO, usize::MAX), &is_over);
    eventually("the number rises", || proxy.metric(LIMIT) > 24);
    is_over.store(true, Ordering::SeqCst);
    for client in fast {
        client.join().unwrap();
    }

    let before = proxy.metric(LIMIT);
    let never = Arc::default();
    let slow = clients((5 * WORK, 40), &never);
    for client in slow {
        client.join().unwrap();
    }
    let after = proxy.metric(LIMIT);
    assert!(after > before / 2, "{before}, then {after}");
}

#[test]
fn the_places_of_clients_that_leave_come_back() {
    let upstream = Upstream::with(EMPTY);
    // The upstream may be at work on the beginning of their bodies, for at most `response_timeout`.
    let bounds = "adaptive_concurrency = { min = 40, max = 40 }\nresponse_timeout = \"5s\"";
    let proxy = Proxy::start(&[upstream.address], bounds, OPEN);
    let head = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n";
    let waiting: Vec<_> = (0..40)
        .map(|_| {
            let mut client = proxy.client();
            client.send(head);
            client
        })
        .collect();
    // Not found by a request, which would take the place of the last of them.
    eventually("the places are taken", || {
        upstream.connections.load(Ordering::SeqCst) == waiting.len()
    });
    assert_eq!(proxy.client().get("/").status(), 503);
    drop(waiting);
    eventually("the places come back", || {
        proxy.client().get("/").status() == 200
    });
}

/// Starts an upstream that responds once its connection closes.
fn holding() -> Upstream {
    Upstream::new(|mut visit| {
        visit.until_closed();
        Next::Close
    })
}

#[test]
fn the_last_part_is_for_requests_with_priority() {
    let upstream = holding();
    let bounds = "adaptive_concurrency = { min = 5, max = 5, priority = { last = \"40%\", \
                  match = { path = \"/pay\", header = { x-plan = [\"pro\", \"team\"] } } } }";
    let proxy = Proxy::start(&[upstream.address], bounds, OPEN);
    let begin = |target: &str, plan: &str| {
        let mut client = proxy.client();
        client.send(format!("GET {target} HTTP/1.1\r\nhost: a\r\n{plan}\r\n"));
        client
    };
    let shed = |target: &str, plan: &str| {
        let response = begin(target, plan).response();
        assert!(response.text().contains("RK0526"), "{response:?}");
        assert_eq!(response.one("retry-after"), Some("1"));
        response.status() == 503
    };
    let waits = |count: usize| {
        eventually("the requests are sent", || {
            upstream.connections.load(Ordering::SeqCst) == count
        });
    };
    let low = "ratekeeper_upstream_errors_total{route=\"\",kind=\"low_priority\"}";
    let mut held: Vec<_> = (0..3).map(|_| begin("/", "")).collect();
    waits(3);
    assert!(shed("/", ""), "two of five are for others");
    assert!(shed("/", "x-plan: pro\r\n") && shed("/pay", "x-plan: free\r\n"));
    assert!(shed("/x/../pay", "x-plan: pro\r\n"), "in doubt it has none");
    assert_eq!((proxy.metric(low), proxy.metric(BUSY)), (4, 0));
    held.extend(["pro", "team"].map(|plan| begin("/pay", &format!("x-plan: {plan}\r\n"))));
    waits(5);
    assert!(shed("/pay", "x-plan: pro\r\n"), "all five are in use");
    assert_eq!((proxy.metric(low), proxy.metric(BUSY)), (4, 1));
}

#[test]
fn a_route_has_its_own_bounds_or_none() {
    let (usual, upstream) = (holding(), holding());
    let routes = ["other", "off", "same"].map(|name| {
        let bounds = match name {
            "other" => "adaptive_concurrency = { min = 2, max = 2 }",
            "off" => "adaptive_concurrency = \"off\"",
            _ => "",
        };
        format!(
            "[[listen.proxy.route]]\nname = \"{name}\"\nmatch = {{ path = \"/{name}\" }}\n\
             upstream = \"http://{}\"\n{bounds}\n",
            upstream.address
        )
    });
    let listener = "adaptive_concurrency = { min = 1, max = 1 }\n".to_owned() + &routes.concat();
    let proxy = Proxy::start(&[usual.address], &listener, OPEN);
    let mut held = Vec::new();
    for (target, most) in [("/", 1), ("/other", 2), ("/same", 1), ("/off", 9)] {
        let address = if target == "/" { &usual } else { &upstream };
        let before = address.connections.load(Ordering::SeqCst);
        for _ in 0..most {
            let mut client = proxy.client();
            client.send(format!("GET {target} HTTP/1.1\r\nhost: a\r\n\r\n"));
            held.push(client);
        }
        eventually("the requests are sent", || {
            address.connections.load(Ordering::SeqCst) == before + most
        });
        if target != "/off" {
            assert_eq!(proxy.client().get(target).status(), 503, "{target}");
        }
    }
}
