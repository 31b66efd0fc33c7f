//! `[listen.proxy]` is read again while requests run on.

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::thread;

use ratekeeper_server::{Door, Service};

use super::message::read_response;
use super::upstream::{Next, Upstream};
use super::{Client, OPEN, Proxy, REFUSES, config, eventually, write};

fn named(name: &'static str) -> Upstream {
    Upstream::with(format!(
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n{name}"
    ))
}

#[test]
fn a_reload_changes_the_address_and_a_request_of_before_goes_on() {
    let (finish, finished) = channel();
    let finished = Mutex::new(finished);
    let old = Upstream::new(move |visit| {
        let head = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello";
        visit.stream.write_all(head).unwrap();
        finished.lock().unwrap().recv().unwrap();
        visit.stream.write_all(b"world").unwrap();
        Next::Request
    });
    let new = named("n");
    let proxy = Proxy::start(&[old.address], "", OPEN);
    let mut waiting = proxy.client();
    waiting.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    drop(old.seen());
    proxy.reload_with(&[new.address], "", OPEN);
    assert_eq!(proxy.client().get("/").text(), "n");
    finish.send(()).unwrap();
    assert_eq!(waiting.response().text(), "helloworld");
    assert_eq!(waiting.get("/").text(), "n", "on the same connection");
}

#[test]
fn routes_time_limits_origins_sizes_and_checks_are_read_again() {
    let hangs = Upstream::new(|mut visit| {
        visit.until_closed();
        Next::Close
    });
    let (usual, spare) = (named("u"), named("s"));
    let proxy = Proxy::start(&[usual.address], "", OPEN);
    let page = "GET /x HTTP/1.1\r\nhost: a\r\norigin: https://app.example\r\n\r\n";
    assert_eq!(proxy.client().ask(page).text(), "u");
    let routes = |to| {
        format!(
            "response_timeout = \"200ms\"\ncors = [\"https://app.example\"]\n\
             health = {{ path = \"/\" }}\nadaptive_concurrency = {{ min = 5, max = 9 }}\n\
             [[listen.proxy.route]]\nname = \"x\"\nmatch = {{ path = \"/x\" }}\n\
             upstream = \"http://{to}\"\n"
        )
    };
    proxy.reload_with(&[usual.address], &routes(spare.address), OPEN);
    assert_eq!(proxy.client().ask(page).text(), "s");
    let up = "ratekeeper_upstream_up{route=\"x\",address=\"1\"}";
    assert_eq!(proxy.metric(up), 1);
    let limit = "ratekeeper_upstream_concurrency_limit{route=\"x\"}";
    assert_eq!(proxy.metric(limit), 5);
    proxy.reload_with(&[usual.address], &routes(hangs.address), OPEN);
    let late = proxy.client().ask(page);
    assert_eq!(late.status(), 504);
    let origin = late.one("access-control-allow-origin");
    assert_eq!(origin, Some("https://app.example"));
    eventually("the new address is checked", || proxy.metric(up) == 0);
    proxy.reload_with(&[usual.address], "", OPEN);
    assert_eq!(proxy.client().ask(page).text(), "u");
}

#[test]
fn an_upstream_that_stays_the_same_keeps_its_connections() {
    let upstream = named("u");
    let proxy = Proxy::start(&[upstream.address], "", OPEN);
    let mut client = proxy.client();
    let route = "[[listen.proxy.route]]\nname = \"x\"\nupstream = \"http://127.0.0.1:1\"\n";
    for settings in ["cors = [\"https://a.example\"]", route, ""] {
        assert_eq!(client.get("/").text(), "u");
        proxy.reload_with(&[upstream.address], settings, OPEN);
        assert_eq!(client.get("/").text(), "u");
    }
    let connections = upstream.connections.load(Ordering::SeqCst);
    let workers = thread::available_parallelism().unwrap().get();
    assert!(connections <= workers, "{connections}");
}

#[test]
fn settings_that_cannot_be_used_change_nothing() {
    let upstream = named("u");
    let proxy = Proxy::start(&[upstream.address], "", OPEN);
    let own = format!("http://{}", proxy.address());
    write(&proxy.directory, &[own], "", OPEN);
    let refused = proxy.try_reload();
    assert_eq!(refused.status(), 422, "{}", refused.text());
    assert_eq!(proxy.client().get("/").text(), "u");
    let path = write(
        &proxy.directory,
        &[format!("http://{}", upstream.address)],
        "",
        OPEN,
    );
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("127.0.0.1:0", "127.0.0.1:1")).unwrap();
    proxy.reload();
    assert_eq!(proxy.client().get("/").text(), "u");
    let mut admin = Client::new(proxy.service.address(Door::Admin).unwrap());
    let page = admin.ask("GET /v1/dashboard HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let notice = "the address or TLS of [listen.proxy] changed: restart";
    assert!(page.text().contains(notice), "{}", page.text());
}

/// A change of an override puts the whole file in force, as a reload does, or nothing of it.
#[test]
fn an_override_puts_the_gateway_in_force_that_the_file_has() {
    let (old, new) = (named("o"), named("n"));
    let directory = tempfile::tempdir().unwrap();
    let (path, overrides) = (
        directory.path().join("ratekeeper.toml"),
        directory.path().join("overrides.csv"),
    );
    std::fs::write(&overrides, "limit,key,set\n").unwrap();
    let write = |upstream: SocketAddr| {
        let text = format!(
            "version = 1\noverrides = \"overrides.csv\"\n[listen.proxy]\naddress = \"127.0.0.1:0\"\n\
             upstream = \"http://{upstream}\"\n[[limit]]\nname = \"a\"\nkey = [\"header:x\"]\n\
             limit = \"9/1m\"\nmissing_key = \"skip\"\n"
        );
        std::fs::write(&path, text).unwrap();
    };
    write(old.address);
    let service = Service::start(&config(&path)).unwrap();
    let proxy = Proxy { service, directory };
    let put = |number: u32| {
        let mut admin = Client::new(proxy.service.address(Door::Admin).unwrap());
        admin.ask(&format!(
            "PUT /v1/overrides?limit=a&key=ann&set={number}/1m HTTP/1.1\r\nhost: localhost\r\n\
             content-length: 0\r\n\r\n"
        ))
    };
    assert_eq!(put(1).status(), 200);
    assert_eq!(proxy.client().get("/").text(), "o");
    write(proxy.address()); // its own, which is refused
    assert_eq!(put(2).status(), 422);
    let text = std::fs::read_to_string(&overrides).unwrap();
    assert!(text.contains("1/1m") && !text.contains("2/1m"), "{text}");
    write(new.address);
    assert_eq!(put(3).status(), 200);
    assert_eq!(proxy.client().get("/").text(), "n");
}

#[test]
fn reloads_under_load_lose_no_request() {
    let (a, b) = (named("a"), named("b"));
    let proxy = Proxy::start(&[a.address], "", OPEN);
    let (address, is_over) = (proxy.address(), AtomicBool::new(false));
    let counts = [(); 2].map(|()| AtomicU32::new(0));
    thread::scope(|scope| {
        let ask = |count: &AtomicU32| {
            let mut client = Client::new(address);
            while !is_over.load(Ordering::SeqCst) {
                let post = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi";
                client.send(post);
                let response = read_response(&mut client.stream, "POST").expect("no response");
                assert_eq!(response.status(), 200);
                count.fetch_add(1, Ordering::SeqCst);
            }
        };
        let clients = (counts.each_ref()).map(|count| scope.spawn(move || ask(count)));
        for turn in 0..20 {
            let (addresses, cors) = if turn % 2 == 0 {
                ([b.address], "")
            } else {
                ([a.address], "cors = [\"https://a.example\"]")
            };
            proxy.reload_with(&addresses, cors, OPEN);
            let load = || counts.each_ref().map(|count| count.load(Ordering::SeqCst));
            let before = load();
            eventually("each client goes on", || {
                load().iter().zip(before).all(|(now, before)| *now > before)
            });
        }
        is_over.store(true, Ordering::SeqCst);
        for client in clients {
            client.join().unwrap();
        }
    });
}

#[test]
fn a_reload_goes_on_with_the_counts_and_the_bound_of_requests_in_flight() {
    let (finish, finished) = channel::<()>();
    let finished = Mutex::new(finished);
    let upstream = Upstream::new(move |visit| {
        if visit.request.start.contains("/hold") {
            finished.lock().unwrap().recv().unwrap();
        }
        let ok = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
        visit.stream.write_all(ok).unwrap();
        Next::Request
    });
    let addresses = [upstream.address, REFUSES];
    let listener = |most: u32, seconds: u32| {
        format!(
            "adaptive_concurrency = {{ min = {most}, max = {most} }}\nbody_timeout = \"{seconds}s\""
        )
    };
    let proxy = Proxy::start(&addresses, &listener(3, 60), OPEN);
    let (up, failed) = (
        "ratekeeper_upstream_up{route=\"\",address=\"2\"}",
        "ratekeeper_upstream_failed_attempts_total{route=\"\",address=\"2\"}",
    );
    let responses = "ratekeeper_upstream_responses_total{route=\"\",class=\"2xx\"}";
    let in_flight = "ratekeeper_upstream_in_flight{route=\"\"}";
    for _ in 0..2 {
        assert_eq!(proxy.client().get("/").status(), 200);
    }
    assert_eq!(proxy.metric(up), 0);
    let attempts = proxy.metric(failed);
    let begin = || {
        let mut client = proxy.client();
        client.send("GET /hold HTTP/1.1\r\nhost: a\r\n\r\n");
        client
    };
    let mut held: Vec<_> = (0..3).map(|_| begin()).collect();
    eventually("they are sent", || proxy.metric(in_flight) == 3);
    for seconds in 61..64 {
        proxy.reload_with(&addresses, &listener(3, seconds), OPEN);
        assert_eq!(proxy.client().get("/").status(), 503);
        assert_eq!((proxy.metric(in_flight), proxy.metric(responses)), (3, 2));
        assert_eq!(proxy.metric(up), 0);
        assert!(proxy.metric(failed) >= attempts);
    }
    proxy.reload_with(&[REFUSES, upstream.address], &listener(5, 60), OPEN);
    held.push(begin());
    eventually("there is room for two more", || {
        proxy.metric(in_flight) == 4
    });
    assert_eq!(proxy.client().get("/").status(), 200);
    let moved = up.replace("\"2\"", "\"1\"");
    assert_eq!(proxy.metric(&moved), 0, "by its address, not its place");
    proxy.reload_with(&[upstream.address], &listener(2, 60), OPEN);
    assert_eq!(proxy.client().get("/").status(), 503);
    for _ in &held {
        finish.send(()).unwrap();
    }
    for client in &mut held {
        assert_eq!(client.response().status(), 200);
    }
    assert_eq!(proxy.metric(responses), 7);
    eventually("all have ended", || proxy.metric(in_flight) == 0);
}
