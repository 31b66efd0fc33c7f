//! Limits in a real Redis server, shared by processes: exact, corrected, and gone.
//!
//! ```text
//!   process 1 .. 6, 8 tasks each --> redis-server --> together exactly one limit
//! ```

use std::collections::HashMap;
use std::env;
use std::process::{Command, Stdio};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{HeaderName, Request};
use ratekeeper::core::{
    AnyAlgorithm, Balance, BanTerms, Banning, Concurrency, Edge, Exponential, Gcra, Hybrid,
    Interval, Log, Nanos, Outage, Permits, Quota, QuotaReset, SubBuckets, WarmUp, Window,
    for_each_algorithm,
};
use ratekeeper::policy::Facts;
use ratekeeper::tower::{RateLimitLayer, by_header, by_path};
use ratekeeper::{
    CheckError, Clock, Keeper, Limits, NamedLimit, Refused, Scope, SharedStore, SystemClock,
};
use tokio::time::{sleep, timeout};
use tower_layer::Layer;
use tower_service::Service;

use super::redis::Redis;

/// Permits of each limit.
const PERMITS: u64 = 100;
const PROCESSES: usize = 6;
/// Tasks of each process, and requests of each task for each limit: eight times the limit in all.
const TASKS: usize = 8;
const REQUESTS: usize = 17;
/// Gives a child the address of the server; the test is then one of its processes.
const URL: &str = "RATEKEEPER_TEST_LIMITS";

/// One limit by every algorithm, and the permits that it grants at once. No window ends, and no
/// permit comes back, while the test runs.
fn every_algorithm(clock: &SystemClock) -> Vec<(&'static str, AnyAlgorithm, u64)> {
    let permits = Permits::new(PERMITS);
    let day: Quota = "100/24h".parse().unwrap();
    let decades: Quota = "100/10000d".parse().unwrap(); // the grid's next line is in 2052
    let phase = clock.origin().phase(decades.per());
    let hour = Nanos::from_secs(3_600);
    let edge = Edge::Full;
    vec![
        ("bucket", Gcra::token_bucket(day).unwrap().into(), PERMITS),
        (
            "queue",
            Gcra::leaky_queue(day, permits).unwrap().into(),
            PERMITS + 1,
        ),
        ("spacing", Gcra::spacing(hour).unwrap().into(), 1),
        (
            "fixed",
            Window::fixed(decades, phase).unwrap().into(),
            PERMITS,
        ),
        (
            "two-window",
            Window::two_window(decades, phase).unwrap().into(),
            PERMITS,
        ),
        (
            "sub-buckets",
            SubBuckets::sub_buckets(decades, 4, edge, phase)
                .unwrap()
                .into(),
            PERMITS,
        ),
        ("quota-reset", QuotaReset::new(day).unwrap().into(), PERMITS),
        (
            "interval",
            Interval::from_first(permits, permits, hour).unwrap().into(),
            PERMITS,
        ),
        ("log", Log::sliding(day).unwrap().into(), PERMITS),
        ("hybrid", Hybrid::quota_linear(day).unwrap().into(), PERMITS),
        (
            "exponential",
            Exponential::new(day).unwrap().into(),
            PERMITS,
        ),
        (
            "warm-up",
            WarmUp::bursty(1.0 / 3_600.0, 1.0).unwrap().into(),
            1,
        ),
        (
            "concurrency",
            Concurrency::new(permits, hour).unwrap().into(),
            PERMITS,
        ),
        (
            "balance",
            Balance::new(permits, permits).unwrap().into(),
            PERMITS,
        ),
        ("bans", with_bans(day).into(), PERMITS),
    ]
}

/// A limit that bans for a day after a hundred refusals.
fn with_bans(quota: Quota) -> Banning {
    let day = Nanos::from_secs(86_400);
    let terms = BanTerms {
        strikes: Quota::per_day(100),
        first: day,
        growth_thousandths: 1_000,
        longest: day,
    };
    let bucket = Gcra::token_bucket(quota).unwrap();
    Banning::new(bucket.into(), terms).unwrap()
}

/// No algorithm of the list is left out of the test of six processes.
#[test]
fn every_algorithm_is_every_algorithm() {
    let tested = every_algorithm(&SystemClock::new());
    macro_rules! is_tested {
        ($algorithm:ident) => {
            let name = stringify!($algorithm);
            let mut all = tested.iter().map(|(_, algorithm, _)| algorithm);
            assert!(
                all.any(|it| matches!(it, AnyAlgorithm::$algorithm(_))),
                "{name}"
            );
        };
    }
    for_each_algorithm!(is_tested);
}

#[tokio::test(flavor = "multi_thread")]
async fn six_processes_admit_one_limit_together_by_every_algorithm() {
    if let Ok(url) = env::var(URL) {
        return ask_as_one_process(&url).await;
    }
    let Some(redis) = Redis::start().await else {
        return;
    };
    let test = "servers::limits::six_processes_admit_one_limit_together_by_every_algorithm";
    let processes: Vec<_> = (0..PROCESSES)
        .map(|_| {
            let mut command = Command::new(env::current_exe().unwrap());
            command.args([test, "--exact", "--nocapture"]);
            command.env(URL, redis.url()).stdout(Stdio::piped());
            command.spawn().unwrap()
        })
        .collect();
    let outputs: Vec<String> = processes
        .into_iter()
        .map(|process| String::from_utf8(process.wait_with_output().unwrap().stdout).unwrap())
        .collect();
    for (name, _, expected) in every_algorithm(&SystemClock::new()) {
        let counted = |output: &String| {
            let mut lines = output.lines();
            let count = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(" admitted "));
            count.and_then(|count| count.parse::<u64>().ok())
        };
        let counts: Vec<_> = outputs.iter().filter_map(counted).collect();
        assert_eq!(counts.len(), PROCESSES, "{name}: {outputs:?}");
        assert_eq!(counts.iter().sum::<u64>(), expected, "{name}: {counts:?}");
    }
}

#[expect(clippy::print_stdout, reason = "the parent reads it")]
async fn ask_as_one_process(url: &str) {
    let limits = limits(url);
    for (name, algorithm, _) in every_algorithm(limits.clock()) {
        let limit = limits
            .limit(name, algorithm)
            .unwrap()
            .on_outage(Outage::Error);
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| {
                let limit = limit.clone();
                tokio::spawn(async move {
                    let mut admitted = 0;
                    for _ in 0..REQUESTS {
                        match limit.check("ann").await {
                            Ok(_) => admitted += 1,
                            Err(CheckError::Refused { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                    admitted
                })
            })
            .collect();
        let mut admitted = 0;
        for task in tasks {
            admitted += task.await.unwrap();
        }
        println!("\n{name} admitted {admitted}");
    }
}

/// A deadline that a busy machine meets, because a call without an answer may have been charged.
fn limits(url: &str) -> Limits<SharedStore> {
    let mut config = ratekeeper::store::RedisConfig::new(url);
    config.deadline = Duration::from_secs(20);
    Limits::redis_for(std::num::NonZeroU32::MIN, config).unwrap()
}

#[tokio::test]
async fn processes_wait_for_each_other_and_share_the_numbers_of_a_key() {
    let Some(redis) = Redis::start().await else {
        return;
    };
    let [mine, theirs] = [limits(&redis.url()), limits(&redis.url())];
    let [calls, their_calls] = [&mine, &theirs].map(|limits| {
        let quota = Quota::per_second(5).burst(1);
        limits.token_bucket("calls", quota).unwrap()
    });
    calls.check("ann").await.unwrap();
    let began = theirs.clock().now();
    their_calls.acquire("ann").await.unwrap();
    assert!(theirs.clock().now().since(began) >= Nanos::from_millis(150));

    let large = Quota::per_hour(100);
    let grant = mine
        .check(&[calls.of("bob").quota(large).cost(40)])
        .await
        .unwrap();
    let left = async || {
        let shown = theirs
            .peek(&[their_calls.of("bob").quota(large).cost(0)])
            .await;
        shown.unwrap()[0].remaining.get()
    };
    assert_eq!(left().await, 60);
    mine.settle(grant.used(&calls, 10)).await.unwrap();
    assert_eq!(left().await, 90);
    assert!(mine.remove("calls"));
    let again = mine.token_bucket("calls", Quota::per_hour(1)).unwrap();
    assert!(again.reset("bob").await.unwrap(), "under all numbers");
    assert_eq!(left().await, 100);
}

#[tokio::test]
async fn a_settlement_is_seen_by_every_process() {
    let Some(redis) = Redis::start().await else {
        return;
    };
    let [mine, theirs] = [limits(&redis.url()), limits(&redis.url())];
    let minute = |limits: &Limits<SharedStore>, name| {
        limits.token_bucket(name, Quota::per_hour(1_000)).unwrap()
    };
    let [requests, tokens] = ["requests", "tokens"].map(|name| minute(&mine, name));
    let [their_requests, their_tokens] = ["requests", "tokens"].map(|name| minute(&theirs, name));
    let charges = |cost| [requests.of("ann"), tokens.of(("ann", 7_u8)).cost(cost)];
    let left = async || {
        let requests = their_requests.peek("ann").await.unwrap().remaining;
        let tokens = their_tokens.peek(("ann", 7_u8)).await.unwrap().remaining;
        (requests.get(), tokens.get())
    };

    let grant = mine.check(&charges(800)).await.unwrap();
    assert_eq!(left().await, (999, 200));
    let refused = mine.check(&charges(800)).await.unwrap_err();
    assert!(matches!(
        refused,
        CheckError::Refused { ref limit, refused: Refused::Until(_) } if **limit == *"tokens"
    ));
    assert_eq!(left().await, (999, 200), "nothing was charged");
    mine.settle(grant.used(&tokens, 300)).await.unwrap();
    assert_eq!(left().await, (999, 700));
    let grant = mine.check(&charges(700)).await.unwrap();
    mine.settle(grant.used(&tokens, 1_200).used(&requests, 0))
        .await
        .unwrap();
    assert_eq!(left().await, (999, 0));
    let owed = their_tokens
        .check(("ann", 7_u8))
        .await
        .unwrap_err()
        .to_string();
    assert_eq!(
        owed,
        "limit `tokens`: the limit is used up; try again in 31 min"
    ); // 501 of 3.6 s
    let grant = mine.check(&[requests.of("bob").cost(9)]).await.unwrap();
    mine.refund(grant).await.unwrap();
    assert_eq!(
        their_requests.peek("bob").await.unwrap().remaining.get(),
        1_000
    );
    assert!(their_tokens.reset(("ann", 7_u8)).await.unwrap());
    assert_eq!(left().await, (999, 1_000));
}

#[tokio::test]
async fn a_change_of_numbers_keeps_the_used_permits_in_redis() {
    let Some(redis) = Redis::start().await else {
        return;
    };
    let [mine, theirs] = [limits(&redis.url()), limits(&redis.url())];
    let quota = |text: &str| text.parse::<Quota>().unwrap();
    let calls = mine.token_bucket("calls", quota("10/10h")).unwrap();
    let raised = theirs.token_bucket("calls", quota("20/10h")).unwrap();
    calls.check_n("ann", 10).await.unwrap();
    let left = async |limit: &NamedLimit<SharedStore>| {
        let seen = limit.peek("ann").await.unwrap();
        seen.remaining.get()
    };
    assert_eq!(left(&raised).await, 10);
    raised.check_n("ann", 10).await.unwrap();
    assert_eq!((left(&calls).await, left(&raised).await), (0, 0));
    assert!(calls.check("ann").await.is_err());
    calls.set_limit(Gcra::token_bucket(quota("1000/10h")).unwrap());
    assert_eq!(left(&calls).await, 980);
}

#[tokio::test]
async fn without_its_server_each_limit_decides_as_it_chose() {
    let Some(mut redis) = Redis::start().await else {
        return;
    };
    let limits = Limits::redis(&redis.url()).unwrap();
    let quota: Quota = "3/24h".parse().unwrap();
    let limit = |name, outage| limits.token_bucket(name, quota).unwrap().on_outage(outage);
    let local = limit("local", Outage::Local);
    let open = limit("open", Outage::Allow);
    let closed = limit("closed", Outage::Deny);
    // Another key: on a machine so slow that the deadline passes, this charge is local as well.
    local.check("eve").await.unwrap();
    redis.kill();
    let mut admitted = [0; 3];
    for _ in 0..10 {
        for (limit, admitted) in [&local, &open, &closed].into_iter().zip(&mut admitted) {
            *admitted += u64::from(limit.check("ann").await.is_ok());
        }
    }
    assert_eq!(admitted, [3, 10, 0]);
    redis.start_again().await;
    // Requests alone find that it is back, and debit it.
    let is_debited = async || {
        closed.check("bob").await.is_ok() && local.peek("ann").await.unwrap().remaining.get() == 0
    };
    let debited = async {
        while !is_debited().await {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(20), debited).await.unwrap();
}

/// Two services, each with the limits of one layer over the same server.
#[tokio::test]
async fn a_layer_of_several_limits_holds_for_all_processes_together() {
    let Some(redis) = Redis::start().await else {
        return;
    };
    let user = || by_header(HeaderName::from_static("x-user"));
    let services = [(); 2].map(|()| {
        let limits = limits(&redis.url());
        let users = limits.token_bucket("users", "10/24h".parse().unwrap());
        let all = limits.token_bucket("all", "12/24h".parse().unwrap());
        let lends = Concurrency::new(Permits::new(3), Nanos::from_secs(60)).unwrap();
        let at_work = limits.limit("at-work", lends).unwrap();
        let members = [
            users.unwrap().by(user()),
            all.unwrap().by(by_path()),
            at_work.by(user()),
        ];
        let layer = RateLimitLayer::together(members).unwrap();
        layer.layer(Router::new().fallback(async || "done"))
    });
    let ask = async |service: usize, user: &str| {
        let request = Request::get("/").header("x-user", user);
        let request = request.body(Body::empty()).unwrap();
        services[service].clone().call(request).await.unwrap()
    };
    // Permits come back with the response, through a task.
    let mut held = Vec::new();
    for (service, expected) in [(0, 200), (1, 200), (0, 200), (1, 429)] {
        let answer = ask(service, "ann").await;
        assert_eq!(answer.status(), expected);
        held.push(answer);
    }
    drop(held);
    let mut admitted = HashMap::from([("ann", 3), ("bob", 0)]);
    let asked = async {
        while admitted != HashMap::from([("ann", 10), ("bob", 2)]) {
            for service in [0, 1] {
                for user in ["ann", "bob"] {
                    // Bob comes when ann has used her share, and finds the rest of the whole.
                    if user == "ann" || admitted["ann"] == 10 {
                        let passed = ask(service, user).await.status() == 200;
                        *admitted.get_mut(user).unwrap() += u64::from(passed);
                    }
                }
            }
        }
    };
    timeout(Duration::from_secs(20), asked).await.unwrap();
    for _ in 0..10 {
        assert_eq!(ask(0, "bob").await.status(), 429);
    }
}

#[tokio::test]
async fn plans_and_overrides_hold_for_all_processes_together() {
    let Some(redis) = Redis::start().await else {
        return;
    };
    let url = redis.url();
    let text = format!(
        r#"
version = 1
[store.redis]
url = "{url}"
deadline = "10s"
[plan]
from    = "attr:plan"
default = "free"
[[limit]]
name  = "api"
key   = ["attr:user"]
limit = "3/24h"
plans = {{ pro = "10/24h", internal = "unlimited" }}
[[override]]
limit = "api"
key   = {{ "attr:user" = "acme" }}
set   = "20/24h"
"#
    );
    let keepers = [&text, &text].map(|text| Keeper::open(text).unwrap());
    let passed = async |user, plan| {
        let attributes = [("user", user), ("plan", plan)];
        let facts = Facts {
            attributes: &attributes,
            ..Facts::default()
        };
        let mut passed = 0;
        for request in 0..30 {
            let answer = keepers[request % 2]
                .check(&facts, Scope::All)
                .await
                .unwrap();
            passed += u64::from(answer.allowed());
        }
        passed
    };
    for (user, plan, expected) in [
        ("ann", "free", 3),
        ("bob", "no such plan", 3),
        ("cyd", "pro", 10),
        ("dan", "internal", 30),
        ("acme", "free", 20),
        ("acme", "pro", 0),
    ] {
        assert_eq!(passed(user, plan).await, expected, "{user}, {plan}");
    }
}
