//! ratekeeper is down: the answers that visitors see, and how they are let pass instead. ratekeeper
//! stops: requests in flight are finished.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::harness::proxy::{Kind, WhenDown};
use crate::harness::service::{Service, write_policy};
use crate::harness::visitor::Visitor;
use crate::harness::{Stage, clock};

/// A stop takes time, because requests in flight are finished.
const END_WITHIN: Duration = Duration::from_secs(10);

const ONE_PER_ADDRESS: &str = r#"
    [[limit]]
    name   = "per-address"
    key    = ["ip"]
    bucket = { size = 1, refill = "1/1h" }
"#;

/// The table of the guide: the answers to visitors while ratekeeper is down.
#[test]
fn proxies_answer_as_documented_while_the_service_is_down() {
    for (kind, refused) in [(Kind::Nginx, 500), (Kind::Caddy, 502), (Kind::Haproxy, 503)] {
        for (when_down, status) in [(WhenDown::Refuse, refused), (WhenDown::LetPass, 200)] {
            let stage = Stage::open_with(kind, when_down, |dir| write_policy(dir, ONE_PER_ADDRESS));
            let Some(mut stage) = stage else { continue };
            let visitor = Visitor::at(2);
            let case = format!("{kind:?}, {when_down:?}");

            assert_eq!(visitor.get(stage.address(), "/").status, 200, "{case}");
            assert_eq!(visitor.get(stage.address(), "/").status, 429, "{case}");
            stage.service.process.crash();
            for _ in 0..3 {
                assert_eq!(
                    visitor.post(stage.address(), "/down").status,
                    status,
                    "{case}"
                );
            }
            assert_eq!(
                stage.upstream.count("POST /down"),
                if status == 200 { 3 } else { 0 }
            );

            // The same door opens again, and the proxy finds it by itself.
            let policy = stage.dir().join("policy.toml");
            stage.service = Service::start_at(stage.dir(), &policy, stage.service.http());
            let limited = clock::poll("limit after the outage", END_WITHIN, || {
                (visitor.get(stage.address(), "/").status == 429).then_some(())
            });
            limited.unwrap_or_else(|error| panic!("{case}: {error}"));
        }
    }
}

/// Visitors keep asking while ratekeeper stops. No visitor waits in vain, and no request that was
/// accepted is dropped: its client, nginx, sees refused connections at the end, never a broken one.
#[test]
fn a_graceful_stop_breaks_no_request() {
    let limits = r#"
        [[limit]]
        name   = "wide"
        key    = ["ip"]
        bucket = { size = 1_000_000, refill = "1000/1s" }
    "#;
    let open = |dir: &std::path::Path| write_policy(dir, limits);
    let Some(mut stage) = Stage::open_with(Kind::Nginx, WhenDown::LetPass, open) else {
        return;
    };
    let stop = AtomicBool::new(false);
    let address = stage.address();
    let ask = || {
        let mut answers = 0;
        while !stop.load(Ordering::Relaxed) {
            assert_eq!(Visitor::at(2).get(address, "/").status, 200);
            answers += 1;
        }
        answers
    };
    let (ended, answers) = thread::scope(|scope| {
        let visitors: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
        while stage.upstream.total() < 200 {
            thread::yield_now();
        }
        stage.service.process.signal("TERM");
        let ended = stage.service.process.end();
        let seen = stage.upstream.total();
        while stage.upstream.total() < seen + 50 {
            thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        let answers: usize = visitors
            .into_iter()
            .map(|visitor| visitor.join().unwrap_or(0))
            .sum();
        (ended, answers)
    });
    let ended = ended.expect("ratekeeper ends after the signal");
    assert!(ended.success(), "{ended}");
    assert!(answers >= 250, "{answers} whole answers");
    assert_eq!(stage.upstream.total(), answers);
    // A connection that was refused, or not opened in time, is no broken answer: nothing had been
    // asked. (A listener that closes begins no handshake, so nginx may wait for one in vain.)
    let log = stage.proxy.process.log();
    let mut broken = log.lines().filter(|line| {
        let broken = [
            "reset by peer",
            "prematurely closed",
            "timed out",
            "Broken pipe",
        ];
        let connecting =
            line.contains("connect() failed") || line.contains("while connecting to upstream");
        broken.iter().any(|word| line.contains(word)) && !connecting
    });
    assert_eq!(broken.next(), None, "nginx saw a broken answer");
}

/// A client that keeps its connection cannot know that the service is about to stop: its next
/// request is answered, and the answer announces that it was the last.
#[test]
fn a_kept_connection_is_answered_once_more() {
    let dir = tempfile::TempDir::new().expect("the system has a temporary directory");
    let service = Service::start(dir.path(), &write_policy(dir.path(), ONE_PER_ADDRESS));
    let connect = || {
        Visitor::at(2)
            .connect(service.http())
            .expect("the listener is open")
    };
    let ask = |mut stream: &TcpStream| {
        stream.write_all(b"GET /v1/auth HTTP/1.1\r\nHost: app.example\r\n\r\n")
    };
    let [fresh, mut used] = [connect(), connect()];
    ask(&used).expect("a first question");
    let mut first = [0; 12];
    used.read_exact(&mut first).expect("a first answer");
    assert_eq!(&first, b"HTTP/1.1 200");

    service.process.signal("TERM");
    let stopping = clock::poll("service that is not ready", END_WITHIN, || {
        (Visitor::at(1).get(service.admin(), "/readyz").status == 503).then_some(())
    });
    stopping.unwrap_or_else(|error| panic!("{error}"));
    for mut stream in [fresh, used] {
        ask(&stream).expect("a question after the stop");
        let mut answer = String::new();
        stream
            .read_to_string(&mut answer)
            .expect("a whole answer, then the end");
        assert!(answer.contains("HTTP/1.1 429 "), "{answer}");
        assert!(
            answer.to_lowercase().contains("connection: close"),
            "{answer}"
        );
    }
}

/// The rest of a half-sent request is awaited, and the request answered.
#[test]
fn a_request_half_sent_is_answered_after_the_stop() {
    let dir = tempfile::TempDir::new().expect("the system has a temporary directory");
    let mut service = Service::start(dir.path(), &write_policy(dir.path(), ONE_PER_ADDRESS));
    let mut stream = Visitor::at(2)
        .connect(service.http())
        .expect("the listener is open");
    let body = r#"{"request": {"ip": "192.0.2.1"}}"#;
    let head = format!(
        "POST /v1/check HTTP/1.1\r\nHost: ratekeeper\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let (first, second) = body.split_at(10);
    stream
        .write_all(format!("{head}{first}").as_bytes())
        .expect("half a request");

    // There is no outside sign that the first half was read; a second connection that is answered
    // after it shows that the service is past accepting it.
    assert_eq!(Visitor::at(1).get(service.admin(), "/healthz").status, 200);
    assert_eq!(
        Visitor::at(2)
            .post(service.http(), "/v1/nothing-here")
            .status,
        404
    );
    service.process.signal("TERM");
    let refused = clock::poll("closed listener", END_WITHIN, || {
        Visitor::at(2)
            .connect(service.http())
            .is_err()
            .then_some(())
    });
    refused.unwrap_or_else(|error| panic!("{error}"));

    stream.write_all(second.as_bytes()).expect("the other half");
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .expect("a whole answer, then the end");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(answer.contains(r#""allowed":true"#), "{answer}");
    let ended = service
        .process
        .end()
        .expect("ratekeeper ends after the signal");
    assert!(ended.success(), "{ended}");
}
