//! The permits of a request come back, however it ends.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use http_body::Body;
use http_body_util::BodyExt;
use ratekeeper::core::{Concurrency, Nanos, Permits};
use ratekeeper::policy::HeaderStyle;
use ratekeeper::store::MemoryConfig;
use ratekeeper::tower::{AdaptiveSettings, Gate, RateLimitLayer, RequestHead};
use ratekeeper::{Clock, KeyedLimiter, Limiter};
use tower_layer::Layer;
use tower_service::Service;

use crate::stage::{Act, Answered, Clocked, Stage, clock, get, header, now, parsed, policy, poll};

const ENDS: [(Act, End); 7] = [
    (Act::Answer, End::Read),
    (Act::Answer, End::Drop),
    (Act::Endless, End::Drop),
    (Act::BrokenBody, End::Read),
    (Act::Fail, End::Drop),
    (Act::Panic, End::Drop),
    (Act::Hang, End::Drop),
];

#[derive(Clone, Copy)]
enum End {
    /// The client reads the body.
    Read,
    /// The client goes away.
    Drop,
}

/// Takes a request to its end; `at_work` returns the number of requests that hold a permit.
fn check<G: Gate>(layer: &RateLimitLayer<G>, at_work: impl Fn() -> u64) {
    for (act, end) in ENDS {
        let mut service = layer.layer(Stage::new(act));
        assert_eq!(at_work(), 0);
        {
            let mut call = pin!(service.call(get("/", &[])));
            assert_eq!(at_work(), 1, "the permit is held from the call on");
            let polled = catch_unwind(AssertUnwindSafe(|| poll(call.as_mut())));
            match polled {
                Ok(Poll::Ready(Ok(answer))) => {
                    assert_eq!(at_work(), 1, "the permit is held until the body is read");
                    finish(answer, end, &at_work);
                }
                Ok(Poll::Ready(Err("failed"))) | Err(_) => {}
                Ok(Poll::Ready(Err(error))) => panic!("{error}"),
                Ok(Poll::Pending) => {
                    assert_eq!(at_work(), 1, "the permit is held while the call is pending");
                }
            }
        }
        assert_eq!(at_work(), 0, "the permit is returned");
    }
}

/// Nothing is left to be sent when the head of such a response is there.
#[test]
fn a_response_without_content_returns_the_permit_with_its_head() {
    for style in [HeaderStyle::Ietf, HeaderStyle::Off] {
        let layer = RateLimitLayer::in_flight(1).headers(style);
        let mut service = layer.layer(Stage::new(Act::NoContent));
        let answer = now(&mut service, get("/", &[]));
        assert_eq!((answer.is_ok(), layer.at_work()), (true, 0));
    }
}

fn finish(answer: Answered, end: End, at_work: &impl Fn() -> u64) {
    let End::Read = end else {
        return;
    };
    let mut body = answer.into_body();
    loop {
        match poll(pin!(body.frame())) {
            Poll::Ready(Some(Ok(_))) => assert_eq!(at_work(), 1),
            Poll::Ready(Some(Err(_)) | None) => break,
            Poll::Pending => panic!("the body is pending"),
        }
    }
    assert_eq!(
        at_work(),
        0,
        "the permit is returned at the end of the body, before its drop"
    );
    drop(body);
}

#[test]
fn permits_of_a_plain_count_are_returned() {
    let layer = RateLimitLayer::in_flight(Permits::new(3));
    check(&layer, || layer.at_work());
    let silent = layer.headers(HeaderStyle::Off);
    check(&silent, || silent.at_work());
}

#[test]
fn permits_of_an_adaptive_limit_are_returned() {
    let layer = RateLimitLayer::adaptive(AdaptiveSettings::default()).unwrap();
    let limit = Arc::clone(layer.limit());
    check(&layer, || limit.in_flight().into());
}

#[test]
fn permits_that_were_waited_for_are_returned() {
    let counted = RateLimitLayer::in_flight(Permits::ONE).queue(Nanos::SECOND);
    check(&counted, || counted.at_work());
    let adaptive = RateLimitLayer::adaptive(AdaptiveSettings::default()).unwrap();
    let adaptive = adaptive.queue(Nanos::SECOND);
    check(&adaptive, || adaptive.limit().in_flight().into());
}

const IN_FLIGHT: &str = r#"
[[limit]]
name = "in-flight"
key = ["all"]
concurrency = { max = 3, lease = "30s" }
"#;

#[test]
fn permits_of_a_policy_are_returned() {
    let layer = policy(IN_FLIGHT, &clock());
    let keeper = Arc::clone(layer.keeper());
    check(&layer, || {
        let policy = keeper.policy();
        let loans = keeper
            .store()
            .loans(&policy.rules[0].limit, keeper.clock().now());
        loans.in_use
    });
}

fn two_each(clock: &Clocked) -> Arc<KeyedLimiter<Concurrency, Clocked>> {
    let two = Concurrency::new(Permits::new(2), Nanos::from_secs(30)).unwrap();
    Arc::new(KeyedLimiter::with_clock(
        two,
        MemoryConfig::default(),
        Arc::clone(clock),
    ))
}

fn token(head: RequestHead<'_>) -> Option<Vec<u8>> {
    let token = head.headers.get("x-token")?;
    Some(token.as_bytes().to_vec())
}

#[test]
fn permits_of_a_key_are_returned() {
    let keyed = two_each(&clock());
    let layer = RateLimitLayer::keyed(Arc::clone(&keyed), token);
    check(&layer, || 2 - keyed.key("").peek().remaining.get());
}

#[test]
fn permits_of_one_limit_are_returned() {
    let clock = clock();
    let three = "concurrency = { max = 3, lease = \"30s\" }";
    let limiter = Limiter::parse_with_clock(three, Arc::clone(&clock)).unwrap();
    let limiter = Arc::new(limiter);
    let at_work = || 3 - limiter.peek().remaining.get();
    check(&RateLimitLayer::new(Arc::clone(&limiter)), at_work);
    let layer = RateLimitLayer::new(Arc::clone(&limiter)).queue(Nanos::from_secs(5));
    check(&layer, at_work);
    check(&layer.headers(HeaderStyle::Off), at_work);
    let two = Concurrency::new(Permits::new(2), Nanos::from_secs(30)).unwrap();
    let typed = Arc::new(Limiter::with_clock(two, Arc::clone(&clock)));
    let layer = RateLimitLayer::new(Arc::clone(&typed)).headers(HeaderStyle::Off);
    check(&layer, || 2 - typed.peek().remaining.get());
    // A request that holds it for longer than the lease takes no other permit with it.
    let refusing = RateLimitLayer::new(Arc::clone(&limiter));
    let mut service = refusing.layer(Stage::new(Act::Endless));
    let long = now(&mut service, get("/", &[])).unwrap();
    clock.advance(Nanos::from_secs(40));
    let young = [0; 3].map(|_| now(&mut service, get("/", &[])).unwrap());
    assert_eq!(young.each_ref().map(|it| it.status().as_u16()), [200; 3]);
    assert_eq!(now(&mut service, get("/", &[])).unwrap().status(), 429);
    drop(long);
    assert_eq!(at_work(), 3);
    drop(young);
    assert_eq!(at_work(), 0);
}

#[test]
fn each_key_has_its_own_permits() {
    let keyed = two_each(&clock());
    let layer = RateLimitLayer::keyed(Arc::clone(&keyed), token).named("at-work");
    let mut service = layer.layer(Stage::new(Act::Endless));
    let mut ask = |token| now(&mut service, get("/", &[("x-token", token)])).unwrap();
    let first = ask("ann");
    let second = ask("ann");
    let field = header(&first, "ratelimit-policy");
    assert_eq!(field.unwrap(), "\"at-work\";q=2;qu=\"concurrent-requests\"");
    assert_eq!(header(&second, "ratelimit").unwrap(), "\"at-work\";r=0");
    assert_eq!(ask("ann").status(), 429);
    assert_eq!(ask("bob").status(), 200, "bob has permits of his own");
    drop(first);
    assert_eq!(ask("ann").status(), 200);
    assert_eq!(keyed.key("bob").peek().remaining.get(), 2);
    drop(second);
    assert_eq!(keyed.key("ann").peek().remaining.get(), 2);
}

#[test]
fn a_request_above_the_count_is_refused_and_holds_no_permit() {
    let layer = RateLimitLayer::in_flight(Permits::new(2));
    let mut service = layer.layer(Stage::new(Act::Endless));
    let mut held: Vec<_> = (0..5)
        .map(|_| now(&mut service, get("/", &[])).unwrap())
        .collect();
    let statuses: Vec<_> = held.iter().map(|answer| answer.status().as_u16()).collect();
    assert_eq!(statuses, [200, 200, 429, 429, 429]);
    let refused = held.pop().unwrap();
    assert_eq!(header(&refused, "retry-after").unwrap(), "1");
    let field = header(&refused, "ratelimit-policy");
    assert_eq!(
        field.unwrap(),
        "\"in-flight\";q=2;qu=\"concurrent-requests\""
    );
    drop(refused);
    assert_eq!(layer.at_work(), 2);
    drop(held);
    assert_eq!(layer.at_work(), 0);
}

/// Leases are renewed while a request holds them, also if its body is never polled.
#[tokio::test]
async fn long_answers_keep_their_permits() {
    let clock = clock();
    let of_policy = policy(IN_FLIGHT, &clock);
    let keyed = two_each(&clock);
    let of_key = RateLimitLayer::keyed(Arc::clone(&keyed), token);
    let mut service = of_policy.layer(Stage::new(Act::Endless));
    let mut other = of_key.layer(Stage::new(Act::Endless));
    let held: Vec<_> = (0..3)
        .map(|_| now(&mut service, get("/", &[])).unwrap())
        .collect();
    let held_too = now(&mut other, get("/", &[])).unwrap();
    let steps = async |seconds: u64| {
        for _ in 0..seconds {
            tokio::task::yield_now().await; // the tasks that renew go to sleep
            clock.advance(Nanos::SECOND);
            tokio::task::yield_now().await; // and wake
        }
    };
    steps(195).await;
    // From the next renewal on, a lease is shorter, and is renewed more often.
    let shorter = IN_FLIGHT.replace("30s", "5s");
    of_policy.keeper().install(parsed(&shorter));
    let two = Concurrency::new(Permits::new(2), Nanos::from_secs(5)).unwrap();
    keyed.set_limit(two);
    steps(200).await;
    let mut ask = || now(&mut service, get("/", &[])).unwrap().status().as_u16();
    assert_eq!(
        ask(),
        429,
        "the permits are still held after 395 s, with leases of 30 s and 5 s"
    );
    assert_eq!(keyed.key("").peek().remaining.get(), 1);
    drop(held);
    drop(held_too);
    assert_eq!(ask(), 200);
    assert_eq!(keyed.key("").peek().remaining.get(), 2);
}

#[test]
fn the_size_hint_of_a_body_is_passed_on() {
    let layer = RateLimitLayer::in_flight(Permits::ONE);
    let answer = now(&mut layer.layer(Stage::default()), get("/", &[])).unwrap();
    let body = answer.into_body();
    assert!(!body.is_end_stream());
    assert_eq!(body.size_hint().exact(), None);
    let mut full = layer.layer(Stage::default());
    let refused = now(&mut full, get("/", &[])).unwrap();
    let length = refused.body().size_hint().exact();
    assert!(length > Some(100), "{length:?}");
    drop(body);
}
