//! Costs that the body of a response states.

use std::io::{BufRead as _, Write as _};
use std::sync::Mutex;
use std::sync::mpsc::channel;

use bytes::Bytes;
use h2::server::{Builder, SendResponse};

use super::h2_upstream::{Http2Upstream, serve};
use super::upstream::{Next, Upstream};
use super::{Proxy, eventually};

const TOKENS: &str = r#"
[[limit]]
name        = "tokens"
key         = ["header:x-key"]
missing_key = "shared"
bucket      = { size = 1000, refill = "1/1h" }
count       = { status = "2xx" }
cost        = { reserve = 600, settle = "response.json:/usage/total" }
"#;
const UNSETTLED: &str = "ratekeeper_reports_total{result=\"unsettled\"}";
const RESERVED: &str = "ratekeeper_reserved_units{limit=\"tokens\"}";
/// Metric of the bytes that are held.
const HELD: &str = "ratekeeper_held_body_bytes";

/// Returns the metric of the reservations that ended so.
fn ended(result: &str) -> String {
    format!("ratekeeper_settlements_total{{limit=\"tokens\",result=\"{result}\"}}")
}

/// Returns a response with these fields and a body of this length.
fn response(fields: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\n{fields}content-length: {length}\r\n\r\n{body}")
}

/// Returns a response in chunks of one byte.
fn chunked(fields: &str, body: &str) -> String {
    let head = format!("HTTP/1.1 200 OK\r\n{fields}transfer-encoding: chunked\r\n\r\n");
    let chunks = body.split("").filter(|chunk| !chunk.is_empty());
    let chunks = chunks.map(|chunk| format!("{:x}\r\n{chunk}\r\n", chunk.len()));
    head + &chunks.collect::<String>() + "0\r\n\r\n"
}

/// Returns a response in chunks with these trailers.
fn ended_by(chunked: &str, trailers: &str) -> String {
    chunked.replace("0\r\n\r\n", &format!("0\r\n{trailers}\r\n"))
}

/// Returns how many of ten requests pass, each of which is answered with these bytes.
fn passing(listener: &str, response: &str) -> (usize, u64) {
    passing_by((listener, TOKENS), response)
}

fn passing_by((listener, limits): (&str, &str), response: &str) -> (usize, u64) {
    let upstream = Upstream::with(response);
    let proxy = Proxy::start(&[upstream.address], listener, limits);
    let mut client = proxy.client();
    let statuses = (0..10).map(|_| client.get("/").status());
    let passed = statuses.filter(|status| *status != 429).count();
    assert_eq!(proxy.metric(HELD), 0);
    (passed, proxy.metric(UNSETTLED))
}

#[test]
fn the_body_of_a_response_settles_the_cost() {
    const JSON: &str = "content-type: application/json\r\n";
    const EVENTS: &str = "content-type: text/event-stream\r\n";
    let usage = r#"{"id": "x", "usage": {"total": 100}}"#;
    let long = format!(
        "{{\"x\": \"{}\", \"usage\": {{\"total\": 100}}}}",
        "y".repeat(1_000)
    );
    let events = format!("data: {{\"usage\": null}}\n\ndata: {usage}\n\ndata: [DONE]\n\n");
    for (response, passed, unsettled) in [
        // 600 are reserved, 100 stay charged: 4 x 100 + 600.
        (response(JSON, usage), 5, 0),
        (chunked(JSON, usage), 5, 0),
        (response(EVENTS, &events), 5, 0),
        (chunked(EVENTS, &events), 5, 0),
        (ended_by(&chunked(JSON, usage), "x-sum: 6\r\n"), 5, 0),
        (response(JSON, r#"{"usage": {"total": 0}}"#), 10, 0),
        // The estimate stays.
        (response(JSON, "{}"), 1, 1),
        (response(JSON, r#"{"usage": {"total": "many"}}"#), 1, 1),
        (response(JSON, ""), 1, 1),
        (response("", usage), 1, 1),
        (
            response(&format!("{JSON}content-encoding: gzip\r\n"), usage),
            1,
            1,
        ),
        (response(JSON, &long), 1, 1),
        (response(EVENTS, "data: [DONE]\n\n"), 1, 1),
        // A result that does not count gives the charge back, whatever the body says.
        (response(JSON, usage).replace("200 OK", "500 Oops"), 10, 0),
    ] {
        let found = passing("max_inspected_body = \"1KiB\"", &response);
        assert_eq!(found, (passed, unsettled), "{response}");
    }
    assert_eq!(passing("", &response(JSON, &long)), (5, 0));
}

/// No more is asked for than the announced length, and the end of the stream comes after it.
#[test]
fn a_response_of_known_length_over_http_2_settles_the_cost() {
    let answer = |_, mut respond: SendResponse<Bytes>| async move {
        let usage = r#"{"usage": {"total": 100}}"#;
        let head = http::Response::builder()
            .header("content-type", "application/json")
            .header("content-length", usage.len());
        let head = head.body(()).unwrap();
        let mut send = respond.send_response(head, false).unwrap();
        send.send_data(Bytes::from(usage), false).unwrap();
        std::future::pending::<()>().await;
    };
    let upstream = Http2Upstream::start(None, Builder::new(), serve(answer));
    let proxy = Proxy::start_at(&[upstream.url("h2c")], "", TOKENS);
    let mut client = proxy.client();
    let statuses = (0..10).map(|_| client.get("/").status());
    assert_eq!(statuses.filter(|status| *status != 429).count(), 5);
    assert_eq!(proxy.metric(UNSETTLED), 0);
}

#[test]
fn the_price_of_a_request_is_reserved() {
    const JSON: &str = "content-type: application/json\r\n";
    let priced = |path: &str| {
        let prices =
            format!("[{{ path = \"{path}\", is = 600 }}, {{ method = \"GET\", is = 90 }}]");
        TOKENS.replace("reserve = 600", &format!("reserve = {prices}"))
    };
    let usage = r#"{"usage": {"total": 100}}"#;
    for (path, body, found) in [
        ("/", usage, (5, 0)), // 4 x 100 + 600
        ("/", "{}", (1, 1)),
        ("/other", usage, (10, 0)),
        ("/other", "{}", (10, 10)),
    ] {
        let limits = priced(path);
        let passed = passing_by(("", &limits), &response(JSON, body));
        assert_eq!(passed, found, "{path} {body}");
    }
}

#[test]
fn reservations_end_with_the_response() {
    const JSON: &str = "content-type: application/json\r\n";
    let usage = |total: u32| response(JSON, &format!("{{\"usage\": {{\"total\": {total}}}}}"));
    for (response, ok, over_reserve) in [
        (usage(100), 3, 0),
        (usage(700), 0, 1),
        (usage(100).replace("200 OK", "500 Oops"), 3, 0),
    ] {
        let upstream = Upstream::with(&response);
        let proxy = Proxy::start(&[upstream.address], "", TOKENS);
        let mut client = proxy.client();
        for _ in 0..3 {
            client.get("/");
        }
        let counts = ["ok", "over_reserve", "late", "expired"].map(|it| proxy.metric(&ended(it)));
        assert_eq!(counts, [ok, over_reserve, 0, 0], "{response}");
        assert_eq!(proxy.metric(RESERVED), 0, "{response}");
    }
}

#[test]
fn a_trailer_of_a_response_settles_the_cost() {
    let limits = TOKENS.replace("response.json:/usage/total", "response.trailer:X-Tokens");
    let with = |fields: &str, trailers: &str| ended_by(&chunked(fields, "any bytes"), trailers);
    for (response, passed, unsettled) in [
        // 600 are reserved, 100 stay charged: 4 x 100 + 600.
        (with("", "x-tokens: 100\r\n"), 5, 0),
        (
            with("content-encoding: gzip\r\n", "x-tokens: 100\r\n"),
            5,
            0,
        ),
        (with("", "x-tokens: 0\r\nx-more: 7\r\n"), 10, 0),
        // The estimate stays.
        (with("", ""), 1, 1),
        (with("x-tokens: 100\r\n", ""), 1, 1),
        (with("", "x-tokens: many\r\n"), 1, 1),
        (with("", "x-tokens: 1\r\nx-tokens: 2\r\n"), 1, 1),
        (response("", ""), 1, 1),
    ] {
        let found = passing_by(("", &limits), &response);
        assert_eq!(found, (passed, unsettled), "{response}");
    }
}

#[test]
fn a_response_is_streamed_while_it_is_read() {
    let (send, events) = channel::<&str>();
    let events = Mutex::new(events);
    let upstream = Upstream::new(move |visit| {
        assert_eq!(visit.request.one("accept-encoding"), Some("identity"));
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
        visit.stream.write_all(head.as_bytes()).unwrap();
        for event in events.lock().unwrap().iter() {
            visit.stream.write_all(event.as_bytes()).unwrap();
            if event.ends_with("[DONE]\n\n") {
                break;
            }
        }
        Next::Close
    });
    let proxy = Proxy::start(&[upstream.address], "", TOKENS);
    let request = "GET / HTTP/1.1\r\nhost: a\r\naccept-encoding: gzip\r\n\
                   connection: close, accept-encoding\r\n\r\n";
    let mut client = proxy.client();
    client.send(request);
    let mut line = String::new();
    for event in [
        "data: {\"text\": \"hel\"}\n\n",
        "data: {\"usage\": {\"total\": 100}}\n\n",
    ] {
        send.send(event).unwrap();
        // The client has each event before the next is sent.
        while !line.contains(event.trim_end()) {
            client.stream.read_line(&mut line).unwrap();
        }
    }
    let second = || proxy.client().get("/").status();
    assert_eq!(second(), 429, "the estimate is charged to the end");
    send.send("data: [DONE]\n\n").unwrap();
    std::io::Read::read_to_string(&mut client.stream, &mut line).unwrap();
    send.send("data: [DONE]\n\n").unwrap();
    eventually("the cost is settled", || second() == 200);
    assert_eq!(proxy.metric(UNSETTLED), 1, "the last stream stated none");
}

#[test]
fn a_response_that_breaks_off_keeps_the_estimate() {
    let usage = "data: {\"usage\": {\"total\": 1}}\n\n";
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n";
    // The upstream breaks off.
    let text = format!("{head}content-length: 1000\r\n\r\n{usage}");
    let upstream = Upstream::new(move |visit| {
        visit.stream.write_all(text.as_bytes()).unwrap();
        Next::Close
    });
    let proxy = Proxy::start(&[upstream.address], "", TOKENS);
    let mut client = proxy.client(); // which stays
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    eventually("the response is given up", || proxy.metric(UNSETTLED) == 1);
    assert_eq!(proxy.client().get("/").status(), 429);
    // It waits for a report that no one makes.
    assert_eq!(
        (proxy.metric(RESERVED), proxy.metric(&ended("ok"))),
        (600, 0)
    );
    // The client leaves, so that it would pay for no more than it has read.
    let text = format!("{head}content-length: 1000\r\n\r\n{usage}");
    let upstream = Upstream::with(text);
    let proxy = Proxy::start(&[upstream.address], "", TOKENS);
    let mut client = proxy.client();
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    let mut line = String::new();
    while !line.contains("usage") {
        client.stream.read_line(&mut line).unwrap();
    }
    drop(client);
    eventually("the response is given up", || proxy.metric(UNSETTLED) == 1);
    assert_eq!(proxy.client().get("/").status(), 429);
    assert_eq!(proxy.metric(HELD), 0);
}
