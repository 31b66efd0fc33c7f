//! Upstreams of several addresses.

use std::io::Write as _;

use super::upstream::{Next, Upstream};
use super::{Client, Door, OPEN, Proxy, REFUSES, eventually};

fn named(name: &'static str) -> Upstream {
    Upstream::with(format!(
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n{name}"
    ))
}

#[test]
fn addresses_are_used_in_turn() {
    let [a, b, c] = ["a", "b", "c"].map(named);
    let proxy = Proxy::start(&[a.address, b.address, c.address], "", OPEN);
    let mut client = proxy.client();
    let names: String = (0..6).map(|_| client.get("/").text().to_owned()).collect();
    assert_eq!(names, "abcabc");
}

#[test]
fn an_address_that_refuses_connections_is_left_out() {
    let up = named("a");
    let proxy = Proxy::start(&[REFUSES, up.address], "", OPEN);
    let mut client = proxy.client();
    for _ in 0..10 {
        // Also a request with a body, because nothing of it was sent to the other address.
        let response = client.ask("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi");
        assert_eq!((response.status(), response.text()), (200, "a"));
    }
    assert_eq!(
        proxy.metric("ratekeeper_upstream_errors_total{route=\"\",kind=\"refused\"}"),
        0
    );
}

#[test]
fn an_idle_connection_that_breaks_does_not_rule_out_its_address() {
    let up = Upstream::new(|visit| {
        visit
            .stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\na")
            .unwrap();
        if visit.connection == 0 {
            visit.stream.peek(&mut [0]).unwrap();
            return Next::Close;
        }
        Next::Request
    });
    let proxy = Proxy::start(&[up.address, REFUSES], "", OPEN);
    let mut client = proxy.client();
    assert_eq!(
        [client.get("/1").status(), client.get("/2").status()],
        [200; 2]
    );
}

#[test]
fn only_idempotent_requests_are_sent_to_another_address() {
    let breaks = || {
        Upstream::new(|visit| {
            let _ = visit.stream.flush();
            Next::Close
        })
    };
    let (broken, up) = (breaks(), named("a"));
    let proxy = Proxy::start(&[broken.address, up.address], "", OPEN);
    let mut client = proxy.client();
    for _ in 0..4 {
        assert_eq!(client.get("/").status(), 200);
    }
    let post = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi";
    let statuses = [client.ask(post).status(), client.ask(post).status()];
    assert_eq!(statuses, [502, 200], "in turn, and not repeated");
    let both = breaks();
    let proxy = Proxy::start(&[broken.address, both.address], "", OPEN);
    let mut client = proxy.client();
    let retried: Vec<_> = (0..100).map(|_| client.get("/").status()).collect();
    assert!(retried.iter().all(|status| *status == 502));
    let attempts = std::iter::from_fn(|| both.seen_already()).count()
        + std::iter::from_fn(|| broken.seen_already()).count();
    assert!(
        (101..=100 + 40 + 8).contains(&attempts),
        "the budget bounds retries: {attempts}"
    );
}

#[test]
fn a_request_that_is_sent_twice_is_one_for_its_limits() {
    let broken = Upstream::new(|_| Next::Close);
    let up = named("a");
    let policy = "[[limit]]\nname = \"four\"\nkey = [\"all\"]\nlimit = \"4/1h\"\n";
    let proxy = Proxy::start(&[broken.address, up.address], "", policy);
    let mut client = proxy.client();
    let statuses = [(); 5].map(|()| client.get("/").status());
    assert_eq!(statuses, [200, 200, 200, 200, 429]);
    let sent = std::iter::from_fn(|| broken.seen_already()).count();
    assert_eq!(sent, 2, "every other one was sent twice");
}

#[test]
fn an_address_that_hangs_is_left_out_and_the_last_one_never() {
    let hangs = || {
        Upstream::new(|mut visit| {
            visit.until_closed();
            Next::Close
        })
    };
    let (hung, up) = (hangs(), named("a"));
    let limits = "response_timeout = \"200ms\"";
    let proxy = Proxy::start(&[hung.address, up.address], limits, OPEN);
    let mut client = proxy.client();
    let post = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi";
    let statuses = [(); 12].map(|()| client.ask(post).status());
    let expected = [504, 200, 504, 200, 504, 200, 200, 200, 200, 200, 200, 200];
    assert_eq!(statuses, expected, "left out after three failures in a row");
    let proxy = Proxy::start(&[hung.address, up.address], limits, OPEN);
    let mut client = proxy.client();
    let statuses = [(); 12].map(|()| client.get("/").status());
    assert_eq!(statuses, [200; 12], "a GET is sent to the other address");
    let proxy = Proxy::start(&[hung.address], limits, OPEN);
    for _ in 0..5 {
        assert_eq!(proxy.client().get("/").status(), 504);
    }
    let seen = std::iter::from_fn(|| hung.seen_already()).count();
    assert_eq!(seen, 3 + 3 + 5, "the only address is always asked");
}

#[test]
fn an_address_that_answers_only_503_is_left_out_and_the_last_one_never() {
    let down = || Upstream::with("HTTP/1.1 503 Down\r\ncontent-length: 0\r\n\r\n");
    let (one, other, up) = (down(), down(), named("a"));
    let proxy = Proxy::start(&[one.address, up.address], "", OPEN);
    let mut client = proxy.client();
    let post = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi";
    let statuses = [(); 30].map(|()| client.ask(post).status());
    assert_eq!(statuses[..20], [503, 200].repeat(10));
    assert_eq!(statuses[20..], [200; 10], "left out after ten in a row");
    let proxy = Proxy::start(&[one.address, other.address], "", OPEN);
    let mut client = proxy.client();
    for _ in 0..50 {
        assert_eq!(client.get("/").status(), 503);
    }
    let up = "ratekeeper_upstream_up{route=\"\",address";
    let all = [1, 2].map(|address| proxy.metric(&format!("{up}=\"{address}\"}}")));
    assert_eq!(all.iter().sum::<u64>(), 1, "{all:?}");
}

/// Returns the text of the changes that operators see.
fn changes(proxy: &Proxy) -> String {
    let mut admin = Client::new(proxy.service.address(Door::Admin).unwrap());
    let state = admin.ask("GET /v1/dashboard HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let state: serde_json::Value = serde_json::from_slice(&state.body).unwrap();
    state["changes"].to_string()
}

#[test]
fn an_address_that_fails_is_down_among_the_changes_once() {
    let up = named("a");
    let (address, at) = (REFUSES, "upstream_up{route=\"\",address=\"1\"}");
    let proxy = Proxy::start(&[address, up.address], "", OPEN);
    let is_up = || proxy.metric(&format!("ratekeeper_{at}"));
    assert_eq!((proxy.client().get("/").status(), is_up()), (200, 0));
    let down = format!("upstream down: {address} is left out");
    eventually("it is down", || changes(&proxy).contains(&down));
    // A reload that keeps the upstream reports nothing again.
    proxy.reload_with(
        &[address, up.address],
        "cors = [\"https://a.example\"]",
        OPEN,
    );
    assert_eq!(changes(&proxy).matches("is left out").count(), 1);
}
