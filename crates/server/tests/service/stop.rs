//! Stop: no new connection is accepted, and no request in flight is broken off.

use std::io::Write;
use std::net::TcpStream;

use ratekeeper_server::{Door, Event};

use super::Fixture;

const POLICY: &str = r#"
version = 1
[[limit]]
name   = "all"
key    = ["all"]
bucket = { size = 1000, refill = "1/1h" }
"#;

/// So long that a busy machine asks in time.
const DRAINS: &str = "[listen]\ndrain = \"3s\"\n";

#[test]
fn requests_in_flight_are_finished() {
    let fixture = Fixture::new(&format!("{POLICY}{DRAINS}"));
    let address = fixture.service.address(Door::Http).unwrap();
    let (mut busy, mut idle) = (fixture.http(), fixture.http());
    assert_eq!(idle.post("/v1/check", "{}").status, 200);
    // Half a request: the head is taken, the body still to come.
    assert_eq!(busy.post("/v1/check", "{}").status, 200);
    busy.send(
        "POST /v1/check\ncontent-length: 2\nexpect: 100-continue",
        b"",
    );
    let mut line = String::new();
    std::io::BufRead::read_line(&mut busy.stream, &mut line).unwrap();
    assert_eq!(
        line, "HTTP/1.1 100 Continue\r\n",
        "the request is in flight"
    );
    std::io::BufRead::read_line(&mut busy.stream, &mut line).unwrap();

    let mut admin = fixture.admin();
    assert_eq!(admin.get("/readyz").status, 200);
    fixture.service.stop();
    fixture.await_event(|event| matches!(event, Event::Stopping).then_some(()));
    assert_eq!(
        admin.get("/readyz").status,
        503,
        "the service is not ready while it drains"
    );
    assert!(idle.is_closed(), "idle connections are closed");
    // The door lingers as long as the idle connection did, but on another thread.
    let admin = fixture.service.address(Door::Admin).unwrap();
    for address in [address, admin] {
        let mut attempts = (0..10_000).map(|_| TcpStream::connect(address));
        assert!(
            attempts.any(|attempt| attempt.is_err()),
            "no new connection is accepted at {address}"
        );
    }

    busy.stream.get_mut().write_all(b"{}").unwrap();
    let answer = busy.answer(false);
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("connection"), Some("close"));
    assert!(busy.is_closed());
    fixture.await_event(|event| matches!(event, Event::Stopped).then_some(()));
    fixture.service.wait();
}

#[test]
fn a_stopped_service_frees_its_addresses() {
    let fixture = Fixture::new(POLICY);
    let address = fixture.service.address(Door::Http).unwrap();
    fixture.service.shutdown();
    assert!(TcpStream::connect(address).is_err());
}
