//! Connections: if all are taken, a new client is still served; bodies have a budget.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use ratekeeper_server::Door;

use super::client::Client;
use super::{Fixture, PATIENCE};

const POLICY: &str = r#"
version = 1
[listen]
max_connections = 8
[[limit]]
name   = "all"
key    = ["all"]
bucket = { size = 1000, refill = "1/1h" }
"#;

/// Returns a connection from that address of this machine.
fn from(last: u8, to: SocketAddr) -> TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket
        .bind(SocketAddr::from(([127, 0, 0, last], 0)))
        .unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let connected = runtime.block_on(async { socket.connect(to).await.unwrap().into_std() });
    let stream = connected.unwrap();
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn metric(admin: &mut Client, series: &str) -> u64 {
    let text = admin.get("/metrics").body;
    let value = text.lines().find_map(|line| line.strip_prefix(series));
    value
        .unwrap_or_else(|| panic!("no {series}"))
        .trim()
        .parse()
        .unwrap()
}

/// Waits until the value of a series is one of `expected`.
#[expect(clippy::disallowed_methods, reason = "the test polls a metric")]
fn until(admin: &mut Client, series: &str, expected: RangeInclusive<u64>) {
    let start = Instant::now();
    while !expected.contains(&metric(admin, series)) {
        assert!(start.elapsed() < PATIENCE, "{series} is not {expected:?}");
    }
}

#[test]
fn one_client_with_all_connections_locks_no_other_client_out() {
    let fixture = Fixture::new(POLICY);
    let http = fixture.service.address(Door::Http).unwrap();
    let mut many: Vec<Client> = (0..8).map(|_| Client::new(http)).collect();
    for client in &mut many {
        assert_eq!(client.post("/v1/check", "{}").status, 200);
    }
    let mut few = Client::over(from(9, http));
    assert_eq!(few.post("/v1/check", "{}").status, 200);
    // Its own eighth takes the place of one of its own.
    let mut more = Client::new(http);
    assert_eq!(more.post("/v1/check", "{}").status, 200);
    assert_eq!(few.post("/v1/check", "{}").status, 200);
    let mut admin = fixture.admin();
    let open = "ratekeeper_connections{side=\"callers\"}";
    while metric(&mut admin, open) != 8 {}
    let closed = many
        .iter_mut()
        .map(Client::is_gone)
        .filter(|gone| *gone)
        .count();
    assert_eq!(closed, 2);
    let idle = "ratekeeper_connections_closed_total{side=\"callers\",which=\"idle\"}";
    assert_eq!(metric(&mut admin, idle), 2);
}

#[test]
fn requests_in_flight_are_interrupted_only_for_a_client_with_fewer() {
    let fixture = Fixture::new(POLICY);
    let http = fixture.service.address(Door::Http).unwrap();
    let mut many: Vec<Client> = (0..8).map(|_| Client::new(http)).collect();
    for client in &mut many {
        client.send(
            "POST /v1/check\ncontent-length: 2\nexpect: 100-continue",
            b"",
        );
        let mut line = [0; 25];
        client.stream.read_exact(&mut line).unwrap();
        assert_eq!(
            &line, b"HTTP/1.1 100 Continue\r\n\r\n",
            "the request is in flight"
        );
    }
    assert!(
        Client::new(http).is_closed(),
        "the same client has no further connection"
    );
    let mut few = Client::over(from(9, http));
    assert_eq!(few.post("/v1/check", "{}").status, 200);
    let mut served = 0;
    for client in &mut many {
        // One of them has been closed: writing or reading fails.
        let _ = client.stream.get_mut().write_all(b"{}");
        let mut answer = [0; 12];
        served += usize::from(client.stream.read_exact(&mut answer).is_ok());
    }
    assert_eq!(served, 7);
}

#[test]
fn bodies_that_are_held_have_a_budget() {
    let fixture = Fixture::new(&POLICY.replace("= 8", "= 100"));
    let http = fixture.service.address(Door::Http).unwrap();
    let mut admin = fixture.admin();
    let held = "ratekeeper_held_body_bytes";
    let piece = vec![b' '; (1 << 20) - 2];
    let unfinished = |_| {
        let mut client = Client::new(http);
        let start_line = format!("POST /v1/check/batch\ncontent-length: {}", piece.len() + 2);
        client.send(&start_line, b"");
        client.stream.get_mut().write_all(&piece).unwrap();
        client
    };
    let mut clients: Vec<Client> = (0..64).map(unfinished).collect();
    until(&mut admin, held, 64 * piece.len() as u64..=u64::MAX);
    let mut one_more = Client::new(http);
    one_more.send("POST /v1/check\ncontent-length: 2000", &[b' '; 1000]);
    let refused = one_more.answer(false);
    assert_eq!(refused.status, 503);
    assert_eq!(refused.json()["code"], "RK0521");
    assert_eq!(refused.header("retry-after"), Some("1"));
    // Bodies that came in one piece are decided all the same.
    assert_eq!(Client::new(http).post("/v1/check", "{}").status, 200);
    for client in &mut clients {
        client.stream.get_mut().write_all(b"[]").unwrap();
        assert_ne!(client.answer(false).status, 503);
    }
    until(&mut admin, held, 0..=0);
}

/// Returns a connection of HTTP/2 that asks for batches of 3 KB, and never takes an answer of them.
fn reads_nothing(http: SocketAddr, batches: u32) -> Client {
    let frame = |kind: u8, flags: u8, stream: u32, payload: &[u8]| {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
        [&head, payload].concat()
    };
    let target = "/v1/check/batch";
    let length = u8::try_from(target.len()).unwrap();
    // POST, http, and the literals of the target and the authority.
    let fields = [
        b"\x83\x86\x04",
        &[length][..],
        target.as_bytes(),
        b"\x01\x01a",
    ]
    .concat();
    let body = format!("{{\"checks\":[{}{{}}]}}", "{},".repeat(999));
    let mut client = Client::new(http);
    let stream = client.stream.get_mut();
    stream
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        .unwrap();
    let no_window = frame(4, 0, 0, b"\0\x04\0\0\0\0");
    stream.write_all(&no_window).unwrap();
    for batch in 0..batches {
        let id = 2 * batch + 1;
        let request = [frame(1, 4, id, &fields), frame(0, 1, id, body.as_bytes())].concat();
        stream.write_all(&request).unwrap();
    }
    client
}

#[test]
fn answers_that_are_not_read_have_a_budget() {
    let limits = (0..10).map(|number| {
        format!("[[limit]]\nname = \"l{number}\"\nkey = [\"all\"]\nlimit = \"1000000/1h\"\n")
    });
    let fixture = Fixture::new(&format!("version = 1\n{}", limits.collect::<String>()));
    let http = fixture.service.address(Door::Http).unwrap();
    let mut admin = fixture.admin();
    let held = "ratekeeper_held_body_bytes";
    // Their answers have 150 MB.
    let silent: Vec<Client> = (0..5).map(|_| reads_nothing(http, 20)).collect();
    until(&mut admin, held, 60 << 20..=64 << 20);
    let batch = |checks: usize| {
        let body = format!("{{\"checks\":[{}{{}}]}}", "{},".repeat(checks - 1));
        Client::new(http).post("/v1/check/batch", &body)
    };
    // The last of the silent ones may not be decided yet.
    let mut batches = (0..100).map(|_| batch(1000));
    let refused = batches.find(|answer| answer.status == 503).unwrap();
    assert_eq!(refused.json()["code"], "RK0521");
    assert_eq!(Client::new(http).post("/v1/check", "{}").status, 200);
    drop(silent);
    until(&mut admin, held, 0..=0);
    assert_eq!(batch(1000).status, 200);
}

/// Takes as long as it shows: a connection sleeps after two looks, 5 s apart.
#[test]
fn a_connection_is_answered_after_an_idle_time() {
    let fixture = Fixture::new(POLICY);
    let (mut http, mut half) = (fixture.http(), fixture.http());
    assert_eq!(http.post("/v1/check", "{}").status, 200);
    assert_eq!(half.post("/v1/check", "{}").status, 200);
    let mut silence = [0];
    let span = Some(Duration::from_secs(11));
    http.stream.get_ref().set_read_timeout(span).unwrap();
    assert!(
        http.stream.read(&mut silence).is_err(),
        "the connection stays open and sends nothing"
    );
    http.stream
        .get_ref()
        .set_read_timeout(Some(PATIENCE))
        .unwrap();
    assert_eq!(http.post("/v1/check", "{}").status, 200);
    half.stream.get_mut().write_all(b"PO").unwrap();
    half.stream
        .get_mut()
        .write_all(b"ST /v1/check HTTP/1.1\r\nhost: a\r\n")
        .unwrap();
    half.stream
        .get_mut()
        .write_all(b"content-length: 2\r\n\r\n{}")
        .unwrap();
    assert_eq!(half.answer(false).status, 200);
    fixture.service.shutdown();
}
