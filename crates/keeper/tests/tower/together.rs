//! Several limits as one layer: all are charged, or none.

use std::sync::Arc;

use http::{HeaderName, Request};
use ratekeeper::core::{Concurrency, Gcra, Nanos, Permits, Quota};
use ratekeeper::policy::{Body, HeaderStyle};
use ratekeeper::store::{MemoryConfig, MemoryStore};
use ratekeeper::tower::{Gate, KeySource, RateLimitLayer, RequestHead, by_header};
use ratekeeper::{Limiter, Limits, NamedLimit, at_once};
use tower_layer::Layer;
use tower_service::Service;

use crate::stage::{Act, Clocked, Stage, clock, content, get, header, now, status};

type Bucket = NamedLimit<MemoryStore, Clocked>;

const USER: HeaderName = HeaderName::from_static("x-user");
const TOKEN: HeaderName = HeaderName::from_static("x-token");

fn limits(clock: &Clocked) -> Limits<MemoryStore, Clocked> {
    Limits::new(MemoryStore::new(MemoryConfig::default()), Arc::clone(clock))
}

fn bucket(limits: &Limits<MemoryStore, Clocked>, name: &str, quota: &str) -> Bucket {
    limits.token_bucket(name, quota.parse().unwrap()).unwrap()
}

fn by(user: &str, token: &str) -> Request<()> {
    get("/", &[("x-user", user), ("x-token", token)])
}

fn left(limit: &Bucket, key: &str) -> u64 {
    at_once(limit.peek(key)).unwrap().remaining.get()
}

#[test]
fn a_refused_request_is_charged_by_no_limit() {
    let limits = limits(&clock());
    let users = bucket(&limits, "per-user", "5/1h");
    let tokens = bucket(&limits, "per-token", "2/1h");
    let layer = RateLimitLayer::together([users.by(by_header(USER)), tokens.by(by_header(TOKEN))]);
    let layer = layer.unwrap();
    let mut service = layer.layer(Stage::default());
    let statuses = [1, 2, 3, 4].map(|_| status(&mut service, by("ann", "t1")));
    assert_eq!(statuses, [200, 200, 429, 429]);
    assert_eq!(left(&users, "ann"), 3, "refused requests are free");
    assert_eq!(status(&mut service, by("ann", "t2")), 200);
    assert_eq!((left(&users, "ann"), left(&tokens, "t2")), (2, 1));
    assert_eq!((layer.counts().passed, layer.counts().refused), (3, 2));
}

#[test]
fn clients_see_every_limit_the_tightest_first() {
    let limits = limits(&clock());
    let users = bucket(&limits, "per-user", "2/1h");
    let tokens = bucket(&limits, "per-token", "4/1m");
    let both = [tokens.by(by_header(TOKEN)), users.by(by_header(USER))];
    let mut service = RateLimitLayer::together(both)
        .unwrap()
        .layer(Stage::default());
    let all = |answer: &crate::stage::Answered, name: &str| {
        let values = answer.headers().get_all(name).iter();
        let values: Vec<_> = values
            .map(|value| value.to_str().unwrap().to_owned())
            .collect();
        values.join(" | ")
    };
    now(&mut service, by("ann", "t")).unwrap();
    let passed = now(&mut service, by("ann", "t")).unwrap();
    assert_eq!(
        all(&passed, "ratelimit"),
        r#""per-user";r=0;t=1800 | "per-token";r=2;t=30"#
    );
    let refused = now(&mut service, by("ann", "t")).unwrap();
    assert_eq!(refused.status(), 429);
    assert_eq!(header(&refused, "retry-after").unwrap(), "1800");
    assert_eq!(
        all(&refused, "ratelimit-policy"),
        r#""per-user";q=2;w=3600 | "per-token";q=4;w=60"#
    );
    let body = content(refused);
    assert!(
        body.contains(r#""violated-policies":["per-user"]"#),
        "{body}"
    );
    at_once(tokens.check_n("t", 2)).unwrap();
    let body = content(now(&mut service, by("ann", "t")).unwrap());
    let both = r#""violated-policies":["per-user","per-token"]"#;
    assert!(body.contains(both), "{body}");
}

#[test]
fn a_request_without_a_key_of_one_limit_is_refused_uncharged() {
    let limits = limits(&clock());
    let users = bucket(&limits, "per-user", "5/1h");
    let tokens = bucket(&limits, "per-token", "5/1h");
    let shared = by_header(TOKEN).or_shared();
    let mut strict =
        RateLimitLayer::together([users.by(by_header(USER)), tokens.by(by_header(TOKEN))])
            .unwrap()
            .layer(Stage::default());
    let mut lax = RateLimitLayer::together([users.by(by_header(USER)), tokens.by(shared)])
        .unwrap()
        .layer(Stage::default());
    let request = || get("/", &[("x-user", "ann")]);
    assert_eq!(status(&mut strict, request()), 400);
    assert_eq!(left(&users, "ann"), 5);
    assert_eq!(status(&mut lax, request()), 200);
    assert_eq!(at_once(tokens.peek(())).unwrap().remaining.get(), 4);
}

#[test]
fn each_limit_has_a_cost_of_its_own() {
    let limits = limits(&clock());
    let requests = bucket(&limits, "requests", "5/1h");
    let bytes = bucket(&limits, "bytes", "1000/1h");
    let length = |head: RequestHead<'_>| {
        let length = head.headers.get("content-length");
        Permits::new(length.map_or(0, |it| it.to_str().unwrap().parse().unwrap()))
    };
    let both = [
        requests.by(by_header(USER)),
        bytes.by(by_header(USER)).cost(length),
    ];
    let layer = RateLimitLayer::together(both).unwrap();
    let mut service = layer.layer(Stage::default());
    let send = |bytes: &str| get("/", &[("x-user", "ann"), ("content-length", bytes)]);
    let statuses = ["600", "600", "400"].map(|bytes| status(&mut service, send(bytes)));
    assert_eq!(statuses, [200, 429, 200]);
    assert_eq!((left(&requests, "ann"), left(&bytes, "ann")), (3, 0));
}

#[test]
fn permits_come_back_with_the_body() {
    let clock = clock();
    let limits = limits(&clock);
    let users = bucket(&limits, "per-user", "5/1h");
    let lends = Concurrency::new(Permits::new(2), Nanos::from_secs(30)).unwrap();
    let at_work = limits.limit("at-work", lends).unwrap();
    let both = [users.by(by_header(USER)), at_work.by(by_header(USER))];
    let layer = RateLimitLayer::together(both).unwrap();
    let mut service = layer.layer(Stage::new(Act::Endless));
    let mut held: Vec<_> = (0..2)
        .map(|_| now(&mut service, by("ann", "")).unwrap())
        .collect();
    assert!(held.iter().all(|answer| answer.status() == 200));
    assert_eq!(status(&mut service, by("ann", "")), 429);
    assert_eq!(left(&users, "ann"), 3, "a refused request is free");
    held.pop();
    assert_eq!(now(&mut service, by("ann", "")).unwrap().status(), 200);
    drop(held);
}

#[tokio::test]
async fn a_leaky_queue_delays_a_request() {
    let clock = clock();
    let limits = limits(&clock);
    let queue = Gcra::leaky_queue(Quota::per_second(1), Permits::new(5)).unwrap();
    let paced = limits.limit("paced", queue).unwrap();
    let layer = RateLimitLayer::together([paced.by(by_header(USER))]).unwrap();
    delays(layer, &clock).await;
    let one = || RateLimitLayer::new(Limiter::with_clock(queue, Arc::clone(&clock)));
    delays(one(), &clock).await;
    delays(one().headers(HeaderStyle::Off), &clock).await;
}

async fn delays<G: Gate>(layer: RateLimitLayer<G>, clock: &Clocked) {
    let stage = Stage::default();
    let mut service = layer.layer(stage.clone());
    assert_eq!(status(&mut service, by("ann", "")), 200);
    let delayed = tokio::spawn(service.call(by("ann", "")));
    tokio::task::yield_now().await;
    assert_eq!(stage.served(), 1);
    clock.advance(Nanos::SECOND);
    assert_eq!(delayed.await.unwrap().unwrap().status(), 200);
}

#[test]
fn the_program_chooses_fields_and_refusal() {
    let limits = limits(&clock());
    let users = bucket(&limits, "per-user", "1/1h");
    let tokens = bucket(&limits, "per-token", "1/1h");
    let both = [users.by(by_header(USER)), tokens.by(by_header(TOKEN))];
    let layer = RateLimitLayer::together(both).unwrap();
    let layer = layer.headers(HeaderStyle::Off).refusal(503, Body::Empty);
    let mut service = layer.layer(Stage::default());
    let passed = now(&mut service, by("ann", "t")).unwrap();
    assert_eq!(passed.status(), 200);
    assert!(passed.headers().is_empty(), "{:?}", passed.headers());
    let refused = now(&mut service, by("ann", "t")).unwrap();
    assert_eq!(refused.status(), 503);
    assert_eq!(header(&refused, "retry-after").unwrap(), "3600");
    assert_eq!(content(refused), "");
}

#[test]
fn limits_of_other_stores_are_refused() {
    let (ours, others) = (limits(&clock()), limits(&clock()));
    let users = bucket(&ours, "per-user", "1/1h");
    let foreign = bucket(&others, "per-token", "1/1h");
    let together = |limits: Vec<_>| {
        let error = RateLimitLayer::together(limits).err();
        error.map(|error| error.to_string()).unwrap_or_default()
    };
    let error = together(vec![users.by(by_header(USER)), foreign.by(by_header(USER))]);
    assert!(
        error.contains("`per-token` belongs to other `Limits`"),
        "{error}"
    );
    let error = together(vec![]);
    assert!(error.contains("at least one limit"), "{error}");
}
