//! Requests that wait in line.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ratekeeper::core::{AnyAlgorithm, Concurrency, Gcra, Nanos, Permits};
use ratekeeper::store::MemoryConfig;
use ratekeeper::tower::{
    AdaptiveConcurrency, AdaptiveSettings, Bounds, Gate, RateLimitLayer, RequestHead,
    ResponseFuture, Single,
};
use ratekeeper::{KeyedLimiter, Limiter, MostWaiting};
use ratekeeper_resilience::SplitMix;
use tower_layer::Layer;
use tower_service::Service;

use crate::stage::{Act, Answered, Clocked, Stage, clock, get, header, limiter, policy, poll};

type Waiting = Pin<Box<ResponseFuture<Stage, ()>>>;
type Lines = RateLimitLayer<Single<ratekeeper::core::Gcra, Clocked>>;

/// One each 100 ms, and at most `most` in line, for a second.
fn line(most: usize, clock: &Clocked) -> Lines {
    let limiter = limiter("1/100ms", clock).with_most_waiting(most);
    RateLimitLayer::new(limiter).queue(Nanos::SECOND)
}

fn call(layer: &Lines) -> Waiting {
    Box::pin(layer.layer(Stage::default()).call(get("/", &[])))
}

/// Polls all; returns those answered now, with their statuses.
fn answered(waiting: &mut Vec<(usize, Waiting)>) -> Vec<(usize, u16)> {
    let mut done = Vec::new();
    waiting.retain_mut(|(number, call)| match poll(call.as_mut()) {
        Poll::Ready(answer) => {
            done.push((*number, answer.unwrap().status().as_u16()));
            false
        }
        Poll::Pending => true,
    });
    done
}

#[test]
fn requests_are_served_in_order_of_arrival() {
    let clock = clock();
    let layer = line(100, &clock);
    let mut waiting: Vec<_> = (0..10).map(|number| (number, call(&layer))).collect();
    assert_eq!(answered(&mut waiting), [(0, 200)]);
    for number in 1..10 {
        assert_eq!(answered(&mut waiting), []);
        clock.advance(Nanos::from_millis(100));
        assert_eq!(answered(&mut waiting), [(number, 200)]);
    }
}

#[test]
fn a_request_that_cannot_be_served_in_time_is_refused_at_once() {
    let clock = clock();
    let layer = line(100, &clock);
    let mut waiting: Vec<_> = (0..14).map(|number| (number, call(&layer))).collect();
    let refused = [11, 12, 13].map(|number| (number, 429));
    assert_eq!(answered(&mut waiting)[1..], refused);
    assert_eq!(
        waiting.len(),
        10,
        "ten requests wait, one second of the rate"
    );
    let mut late = call(&layer);
    let Poll::Ready(Ok(answer)) = poll(late.as_mut()) else {
        panic!("the call is pending");
    };
    assert_eq!(
        header(&answer, "retry-after").unwrap(),
        "2",
        "1.1 s, rounded up"
    );
}

#[test]
fn a_full_queue_refuses_requests() {
    let clock = clock();
    let layer = line(3, &clock);
    let mut waiting: Vec<_> = (0..6).map(|number| (number, call(&layer))).collect();
    assert_eq!(answered(&mut waiting), [(0, 200), (4, 429), (5, 429)]);
}

#[test]
fn a_client_that_disconnects_leaves_the_queue_and_the_rest_move_up() {
    let clock = clock();
    let layer = line(100, &clock);
    let mut waiting: Vec<_> = (0..6).map(|number| (number, call(&layer))).collect();
    assert_eq!(answered(&mut waiting), [(0, 200)]);
    waiting.retain(|(number, _)| number % 2 == 1); // 2 and 4 are gone
    clock.advance(Nanos::from_millis(100));
    assert_eq!(answered(&mut waiting), [(1, 200)]);
    waiting.remove(0); // 3 was first
    clock.advance(Nanos::from_millis(100));
    assert_eq!(answered(&mut waiting), [(5, 200)]);
    clock.advance(Nanos::from_millis(100));
    let mut next = call(&layer);
    assert!(
        poll(next.as_mut()).is_ready(),
        "no other request was charged"
    );
}

/// Requests wait for others at work, under every limit that counts them.
fn check_at_work<G: Gate>(name: &str, layer: &RateLimitLayer<G>, clock: &Clocked) {
    let call = |act: Act| Box::pin(layer.layer(Stage::new(act)).call(get("/", &[])));
    let Poll::Ready(Ok(first)) = poll(call(Act::Endless).as_mut()) else {
        panic!("{name}: the first request is pending");
    };
    let mut waiting: Vec<_> = (1..6).map(|number| (number, call(Act::Endless))).collect();
    // Three may wait.
    assert_eq!(
        statuses(&mut waiting),
        [(4, REFUSED), (5, REFUSED)],
        "{name}"
    );
    clock.advance(Nanos::from_millis(999));
    assert_eq!(statuses(&mut waiting), [], "{name}");
    drop(first);
    let (number, second) = served(&mut waiting).unwrap();
    assert_eq!(number, 1, "{name}: the first waiter is served");
    assert!(
        served(&mut waiting).is_none(),
        "{name}: no other waiter is served"
    );
    waiting.remove(0); // 2 goes away
    drop(second);
    let (number, third) = served(&mut waiting).unwrap();
    assert_eq!(number, 3, "{name}: the next waiter moved up");
    // No request passes the line, and none waits for more than a second.
    let mut late = vec![(6, call(Act::Answer)), (7, call(Act::Answer))];
    assert_eq!(statuses(&mut late), [], "{name}");
    clock.advance(Nanos::from_millis(500));
    late.push((8, call(Act::Answer)));
    assert_eq!(statuses(&mut late), [], "{name}");
    clock.advance(Nanos::from_millis(500));
    assert_eq!(statuses(&mut late), [(6, REFUSED), (7, REFUSED)], "{name}");
    drop(third);
    let (number, answer) = served(&mut late).unwrap();
    assert_eq!(number, 8, "{name}");
    drop(answer);
    assert_eq!(
        statuses(&mut vec![(9, call(Act::Answer))]),
        [(9, 200)],
        "{name}"
    );
}

/// 429 or 503.
const REFUSED: u16 = 0;

type Calls = Vec<(usize, Waiting)>;

/// Polls all; returns those answered now, with their statuses. Bodies are dropped.
fn statuses(waiting: &mut Calls) -> Vec<(usize, u16)> {
    let of = |status| if status < 400 { status } else { REFUSED };
    let mut done = answered(waiting);
    for (_, status) in &mut done {
        *status = of(*status);
    }
    done
}

/// The first that is answered; those behind it are not asked.
fn served(waiting: &mut Calls) -> Option<(usize, Answered)> {
    for at in 0..waiting.len() {
        if let Poll::Ready(answer) = poll(waiting[at].1.as_mut()) {
            let answer = answer.unwrap();
            assert_eq!(answer.status(), 200);
            return Some((waiting.remove(at).0, answer));
        }
    }
    None
}

fn one_at_once() -> AdaptiveSettings {
    let bounds = Bounds {
        least: 1,
        most: 1,
        initial: 1,
    };
    AdaptiveSettings {
        bounds,
        ..AdaptiveSettings::default()
    }
}

#[test]
fn requests_wait_for_those_in_progress() {
    let second = Nanos::SECOND;
    let one = || Concurrency::new(Permits::ONE, Nanos::from_secs(60)).unwrap();
    let held = clock();
    let layer = RateLimitLayer::in_flight_with_clock(Permits::ONE, Arc::clone(&held));
    check_at_work("in-flight", &layer.queue(second).most_waiting(3), &held);

    let held = clock();
    let limit = AdaptiveConcurrency::new(one_at_once(), SplitMix::new(1)).unwrap();
    let layer = RateLimitLayer::adaptive_with_clock(limit, Arc::clone(&held));
    check_at_work("adaptive", &layer.queue(second).most_waiting(3), &held);

    let held = clock();
    let limiter = Limiter::with_clock(one(), Arc::clone(&held)).with_most_waiting(3);
    check_at_work(
        "one limit",
        &RateLimitLayer::new(limiter).queue(second),
        &held,
    );

    let held = clock();
    let any = AnyAlgorithm::from(one());
    let limiter = Limiter::with_clock(any, Arc::clone(&held)).with_most_waiting(3);
    check_at_work(
        "configured",
        &RateLimitLayer::new(limiter).queue(second),
        &held,
    );

    let held = clock();
    let keyed = KeyedLimiter::with_clock(one(), MemoryConfig::default(), Arc::clone(&held));
    let keyed = keyed.with_most_waiting(MostWaiting {
        of_one_key: 3,
        ..MostWaiting::default()
    });
    let key = |_: RequestHead<'_>| Some(*b"ann");
    check_at_work(
        "a key",
        &RateLimitLayer::keyed(keyed, key).queue(second),
        &held,
    );
}

/// Permits that come back when a lease ends are for waiters, too.
#[test]
fn the_end_of_a_lease_serves_the_first_waiter() {
    let clock = clock();
    let lease = Concurrency::new(Permits::ONE, Nanos::from_millis(300)).unwrap();
    let limiter = Limiter::with_clock(lease, Arc::clone(&clock));
    assert!(limiter.check().is_ok());
    let mut waiting = pin!(limiter.try_acquire(1, Duration::from_secs(1)));
    assert!(poll(waiting.as_mut()).is_pending());
    clock.advance(Nanos::from_millis(300));
    let waited = Some(Duration::from_millis(300));
    assert_eq!(poll(waiting), Poll::Ready(Ok(waited)));
    let mut next = pin!(limiter.try_acquire(1, Duration::from_millis(299)));
    assert!(
        poll(next.as_mut()).is_pending(),
        "the permit may be returned sooner"
    );
}

#[test]
fn readiness_neither_waits_nor_takes_a_permit() {
    let clock = clock();
    let limiter = Arc::new(limiter("1/1h", &clock));
    let layer = RateLimitLayer::new(Arc::clone(&limiter)).queue(Nanos::SECOND);
    let mut services: Vec<_> = (0..100).map(|_| layer.layer(Stage::default())).collect();
    for service in &mut services {
        let ready = std::future::poll_fn(|context| {
            Service::<http::Request<()>>::poll_ready(service, context)
        });
        assert!(poll(std::pin::pin!(ready)).is_ready());
    }
    assert_eq!(limiter.peek().remaining.get(), 1);
    let _ = limiter.check();
    let ready = std::future::poll_fn(|context| {
        Service::<http::Request<()>>::poll_ready(&mut services[0], context)
    });
    assert!(
        poll(std::pin::pin!(ready)).is_ready(),
        "no permit is left, and readiness does not wait"
    );
}

#[test]
fn each_key_has_its_own_queue() {
    let clock = clock();
    let apart = Gcra::spacing(Nanos::from_millis(100)).unwrap();
    let keyed = KeyedLimiter::with_clock(apart, MemoryConfig::default(), Arc::clone(&clock));
    let token = |head: RequestHead<'_>| Some(head.headers.get("x-token")?.as_bytes().to_vec());
    let layer = RateLimitLayer::keyed(keyed, token).queue(Nanos::from_millis(250));
    let call = |token| {
        let mut service = layer.layer(Stage::default());
        Box::pin(service.call(get("/", &[("x-token", token)])))
    };
    let mut waiting: Vec<_> = ["a", "b", "a", "a", "a", "b"]
        .map(call)
        .into_iter()
        .enumerate()
        .collect();
    let mut answered = || answered(&mut waiting);
    assert_eq!(answered(), [(0, 200), (1, 200), (4, 429)]);
    clock.advance(Nanos::from_millis(100));
    assert_eq!(answered(), [(2, 200), (5, 200)]);
    clock.advance(Nanos::from_millis(100));
    assert_eq!(answered(), [(3, 200)]);
}

/// Requests that would wait pass at once under a layer in shadow mode, in any order of settings.
fn check_shadow<G: Gate>(name: &str, layer: RateLimitLayer<G>) {
    let layer = layer.shadow();
    let mut calls: Vec<_> = (0..3)
        .map(|_| Box::pin(layer.layer(Stage::new(Act::Endless)).call(get("/", &[]))))
        .collect();
    let answers: Vec<_> = calls
        .iter_mut()
        .map(|call| match poll(call.as_mut()) {
            Poll::Ready(answer) => Some(answer.unwrap().status().as_u16()),
            Poll::Pending => None,
        })
        .collect();
    assert_eq!(answers, [Some(200); 3], "{name}");
    let counts = layer.counts();
    assert_eq!((counts.passed, counts.refused), (3, 0), "{name}");
}

#[test]
fn a_layer_in_shadow_mode_delays_no_request() {
    let (clock, second) = (clock(), Nanos::SECOND);
    let key = |_: RequestHead<'_>| Some(*b"ann");
    check_shadow("one limit", line(3, &clock));
    for (name, algorithm) in [
        (
            "a key",
            AnyAlgorithm::from(Gcra::spacing(Nanos::from_millis(100)).unwrap()),
        ),
        (
            "loans of a key",
            Concurrency::new(Permits::ONE, Nanos::from_secs(60))
                .unwrap()
                .into(),
        ),
    ] {
        let memory = MemoryConfig::default();
        let keyed = KeyedLimiter::with_clock(algorithm, memory, Arc::clone(&clock));
        check_shadow(name, RateLimitLayer::keyed(keyed, key).queue(second));
    }
    let counted = RateLimitLayer::in_flight_with_clock(Permits::ONE, Arc::clone(&clock));
    check_shadow("in-flight", counted.queue(second));
    let limit = AdaptiveConcurrency::new(one_at_once(), SplitMix::new(1)).unwrap();
    let adaptive = RateLimitLayer::adaptive_with_clock(limit, Arc::clone(&clock));
    check_shadow("adaptive", adaptive.queue(second));
    let paced = r#"
[[limit]]
name = "paced"
key = ["all"]
bucket = { size = 1, refill = "1/1s" }
queue = { max = 5 }
"#;
    check_shadow("a policy", policy(paced, &clock));
    let tried = policy(&format!("{paced}mode = \"shadow\"\n"), &clock);
    check_shadow("a limit in shadow mode", tried);
}
