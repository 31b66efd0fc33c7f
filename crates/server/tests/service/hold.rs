//! Answers held back until the moment that a queue grants. The clock of the limits does not move
//! unless a test says so, so that a slow machine changes no decision; the moments are waited for.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use ratekeeper::ManualClock;
use ratekeeper_core::Origin;
use ratekeeper_server::{Config, Door, Service, StartError};
use tempfile::TempDir;

use super::PATIENCE;
use super::client::{Answer, Client};

/// A pause between two looks.
const PAUSE: Duration = Duration::from_millis(5);

struct Queue {
    service: Service,
    _directory: TempDir,
}

impl Queue {
    /// Starts a service with this `bucket` and `queue`, and further lines.
    fn new(bucket: &str, more: &str) -> Self {
        let clock = Arc::new(ManualClock::at(Origin::UNIX));
        Self::start(bucket, more, |config| Service::start_with(config, clock))
    }

    /// Starts a service by the clock of the machine.
    fn in_real_time(bucket: &str) -> Self {
        Self::start(bucket, "", Service::start)
    }

    fn start(
        bucket: &str,
        more: &str,
        start: impl FnOnce(&Config) -> Result<Service, StartError>,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ratekeeper.toml");
        let policy = format!(
            "version = 1\n[client_ip]\ntrusted_proxies = [\"127.0.0.0/8\"]\n\
             [[limit]]\nname = \"paced\"\nkey = [\"all\"]\n{bucket}\n{more}"
        );
        std::fs::write(&path, policy).unwrap();
        let config = Config::new(path).listen("http=127.0.0.1:0").unwrap();
        let config = config.listen("admin=127.0.0.1:0").unwrap();
        let service = start(&config).unwrap();
        Self {
            service,
            _directory: directory,
        }
    }

    fn http(&self) -> SocketAddr {
        self.service.address(Door::Http).unwrap()
    }

    fn ask(&self) -> Answer {
        Client::new(self.http()).get("/v1/auth")
    }

    /// Sends a request without waiting for the answer.
    fn begin(&self) -> Client {
        let mut client = Client::new(self.http());
        client.send("GET /v1/auth", b"");
        client
    }

    /// Returns the value of a metric.
    fn metric(&self, series: &str) -> u64 {
        let admin = self.service.address(Door::Admin).unwrap();
        let text = Client::new(admin).get("/metrics").body;
        let mut lines = text.lines();
        let value = lines.find_map(|line| line.strip_prefix(series)?.trim().parse().ok());
        value.unwrap_or_else(|| panic!("the metric {series} is missing in:\n{text}"))
    }

    fn await_metric(&self, series: &str, wanted: u64) {
        let start = now();
        while self.metric(series) != wanted {
            assert!(
                start.elapsed() < PATIENCE,
                "{series} did not reach {wanted} in time"
            );
            pause();
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the test measures time")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "the test polls a metric")]
fn pause() {
    thread::sleep(PAUSE);
}

/// Requests that have begun to wait: unlike [`HELD`], never less than before.
const WAITS: &str = "ratekeeper_queue_wait_seconds_count{limit=\"paced\"}";
const HELD: &str = "ratekeeper_held_answers";
const LEFT: &str = "ratekeeper_held_answers_ended_total{result=\"left\"}";

#[test]
fn requests_leave_at_the_pace_of_the_limit() {
    const INTERVAL: Duration = Duration::from_millis(200);
    let bucket = "bucket = { size = 1, refill = \"5/1s\" }\nqueue = { max = 3 }";
    let queue = Queue::in_real_time(bucket);
    let (begun, together) = (now(), Barrier::new(6));
    let mut answers: Vec<(u16, Duration)> = thread::scope(|scope| {
        let ask = || {
            together.wait();
            let answer = queue.ask();
            assert_eq!(answer.header("x-ratekeeper-delay-ms"), None);
            assert_eq!(answer.header("retry-after").is_some(), answer.status == 429);
            (answer.status, begun.elapsed())
        };
        let asking: Vec<_> = (0..6).map(|_| scope.spawn(ask)).collect();
        asking.into_iter().map(|one| one.join().unwrap()).collect()
    });
    answers.sort_unstable();
    let passed: Vec<_> = answers.iter().filter(|one| one.0 == 200).collect();
    // One more for each interval in which a busy machine was late to ask.
    assert!(passed.len() >= 4, "{answers:?}");
    for (index, (_, after)) in (0..).zip(&passed) {
        assert!(*after >= INTERVAL * index, "{answers:?}");
    }
    assert_eq!(queue.metric(HELD), 0);
}

#[test]
fn a_check_is_delayed_if_it_asks_to_wait() {
    let bucket = "bucket = { size = 1, refill = \"1/1s\" }\nqueue = { max = 9 }";
    let queue = Queue::new(bucket, "");
    let mut client = Client::new(queue.http());
    assert_eq!(client.post("/v1/check?wait=true", "{}").status, 200);
    let begun = now();
    let held = client.post("/v1/check?status=200&wait=true", "{}").json();
    assert!(
        begun.elapsed() >= Duration::from_secs(1),
        "the answer is delayed"
    );
    assert_eq!(held["limits"][0]["verdict"], "allow");
    assert!(held["limits"][0]["delay_ms"].is_null());
    let shaped = client.post("/v1/check", "{}").json();
    assert_eq!(shaped["limits"][0]["verdict"], "allow_after");
    let shaped = client.get("/v1/auth?wait=false");
    let delay: u64 = shaped
        .header("x-ratekeeper-delay-ms")
        .unwrap()
        .parse()
        .unwrap();
    assert_eq!(delay, 3_000);
}

#[test]
fn a_client_that_disconnects_frees_its_place_and_is_charged_nothing() {
    let bucket = "bucket = { size = 1, refill = \"1/3s\" }\nqueue = { max = 2 }";
    let daily = "[[limit]]\nname = \"daily\"\nkey = [\"all\"]\nlimit = \"9/24h\"\n";
    let queue = Queue::new(bucket, daily);
    let peek = || Client::new(queue.http()).post("/v1/peek", r#"{"limits":["daily"]}"#);
    let left = || peek().json()["limits"][0]["remaining"].as_u64();
    assert_eq!(queue.ask().status, 200);
    let first = queue.begin();
    queue.await_metric(HELD, 1);
    let mut second = queue.begin();
    queue.await_metric(HELD, 2);
    assert_eq!(queue.ask().status, 429, "the queue is full");
    assert_eq!(left(), Some(6));

    drop(first);
    queue.await_metric(LEFT, 1);
    assert_eq!(left(), Some(7), "the unused permit is refunded");
    let third = queue.begin();
    queue.await_metric(HELD, 2);
    assert_eq!(second.answer(false).status, 200);
    drop(third);
    queue.await_metric(HELD, 0);
}

#[test]
fn requests_above_the_maximum_are_refused_and_keep_no_place() {
    let bucket = "bucket = { size = 1, refill = \"1/3s\" }\nqueue = { max = 9 }";
    let queue = Queue::new(bucket, "[listen]\nmax_held = 1\n");
    assert_eq!(queue.ask().status, 200);
    let held = queue.begin();
    queue.await_metric(HELD, 1);
    let refused = queue.ask();
    assert_eq!(refused.status, 429);
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert_eq!(wait, 6);
    let mut client = Client::new(queue.http());
    let next = client.post("/v1/check", "{}").json();
    let delay = next["limits"][0]["delay_ms"].as_u64().unwrap();
    assert_eq!(delay, 6_000, "the refused request has no place");
    drop(held);
}

#[test]
fn a_service_that_stops_refuses_requests_due_after_its_end() {
    let bucket = "bucket = { size = 1, refill = \"1/1m\" }\nqueue = { max = 9 }";
    let queue = Queue::new(bucket, "");
    assert_eq!(queue.ask().status, 200);
    let mut held = queue.begin();
    queue.await_metric(HELD, 1);
    queue.service.stop();
    let refused = held.answer(false);
    assert_eq!(refused.status, 429);
    assert!(refused.header("retry-after").is_some());
    queue.service.shutdown();
}

#[test]
fn bytes_after_a_delayed_request_are_the_next_request() {
    let bucket = "bucket = { size = 1, refill = \"5/1s\" }\nqueue = { max = 9 }";
    let queue = Queue::new(bucket, "");
    assert_eq!(queue.ask().status, 200);
    let mut held = queue.begin();
    queue.await_metric(WAITS, 1);
    held.stream
        .get_mut()
        .write_all(b"GET /healthcheck HTTP/1.1\r\nhost: a\r\n\r\n")
        .unwrap();
    assert_eq!(held.answer(false).status, 200);
    assert_eq!(held.answer(false).body, "OK");
}

#[test]
fn waits_and_reservations_are_those_of_requests_in_a_queue() {
    let bucket = "bucket = { size = 1, refill = \"1/1h\" }\nqueue = { max = 9 }";
    let logins = "[[limit]]\nname = \"logins\"\nkey = [\"all\"]\nlimit = \"100/1h\"\n\
                  count = { status = [401] }\n\
                  [[limit]]\nname = \"sooner\"\nkey = [\"all\"]\n\
                  bucket = { size = 1, refill = \"1/1m\" }\nqueue = { max = 9 }";
    let queue = Queue::new(bucket, logins);
    let length =
        |limit: &str| queue.metric(&format!("ratekeeper_queue_length{{limit=\"{limit}\"}}"));
    let waits = |limit: &str| {
        queue.metric(&format!(
            "ratekeeper_queue_wait_seconds_count{{limit=\"{limit}\"}}"
        ))
    };
    let reserved = || {
        let text = "ratekeeper_reserved_units{limit=\"logins\"}";
        let admin = queue.service.address(Door::Admin).unwrap();
        let body = Client::new(admin).get("/metrics").body;
        let mut lines = body.lines();
        let value = lines.find_map(|line| line.strip_prefix(text)?.trim().parse::<f64>().ok());
        value.unwrap()
    };
    assert_eq!(queue.ask().status, 200);
    assert_eq!((length("paced"), waits("paced")), (0, 0));
    let held = queue.begin();
    queue.await_metric(HELD, 1);
    assert_eq!((length("paced"), length("sooner")), (1, 0));
    assert_eq!((waits("paced"), waits("sooner")), (1, 0));
    assert!((reserved() - 2.0).abs() < 0.1, "{}", reserved());
    drop(held);
    queue.await_metric(LEFT, 1);
    assert_eq!((length("paced"), waits("paced")), (0, 1));
    assert!((reserved() - 1.0).abs() < 0.1, "its charge was given back");
}
