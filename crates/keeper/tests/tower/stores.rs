//! Stores that make callers wait, and stores that fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use http::StatusCode;
use ratekeeper::core::{Lend, Nanos, Outage, Time};
use ratekeeper::store::{ActKind, MemoryConfig, MemoryStore, Store, StoreAct, StoreError};
use ratekeeper::tower::{ByPolicy, RateLimitLayer, RequestHead};
use ratekeeper::{Clock, Keeper, Limits};
use tokio::task::yield_now;
use tower_layer::Layer;
use tower_service::Service;

use crate::stage::{Act, Clocked, Log, Stage, clock, content, get, header, parsed};

/// A memory store behind a wire that answers, makes wait, or is cut.
#[derive(Clone)]
struct Distant {
    store: Arc<MemoryStore>,
    wire: Arc<AtomicU8>,
}

const ANSWERS: u8 = 0;
const WAITS: u8 = 1;
const CUT: u8 = 2;
/// Does as asked, but the answer does not come.
const SILENT: u8 = 3;

impl Distant {
    async fn reach(&self) -> Result<&MemoryStore, StoreError> {
        loop {
            yield_now().await;
            match self.wire.load(Ordering::Relaxed) {
                WAITS => {}
                CUT => return Err(StoreError::Unavailable("the wire is cut".into())),
                _ => return Ok(&self.store),
            }
        }
    }

    /// The answer is on its way back.
    async fn arrive(&self) {
        while self.wire.load(Ordering::Relaxed) == SILENT {
            yield_now().await;
        }
    }

    fn set(&self, wire: u8) {
        self.wire.store(wire, Ordering::Relaxed);
    }
}

impl Store for Distant {
    async fn settle<A: StoreAct>(
        &self,
        act: A,
        items: &[A::Item<'_>],
        now: Time,
    ) -> Result<A::Answer, StoreError> {
        let answer = self.reach().await?.settle(act, items, now).await;
        if matches!(act.kind(), ActKind::Decide(Lend::Nothing | Lend::To(_))) {
            self.arrive().await;
        }
        answer
    }
}

type Distants = RateLimitLayer<ByPolicy<Distant, Clocked>>;

fn layer(text: &str, clock: &Clocked) -> (Distants, Distant) {
    let store = Distant {
        store: Arc::new(MemoryStore::new(MemoryConfig::default())),
        wire: Arc::default(),
    };
    let keeper = Keeper::new(parsed(text), store.clone(), Arc::clone(clock));
    (RateLimitLayer::policy(keeper), store)
}

const IN_FLIGHT: &str = r#"
[[limit]]
name = "in-flight"
key = ["all"]
concurrency = { max = 3, lease = "30s" }
"#;

fn on_loan(layer: &Distants) -> u64 {
    let keeper = layer.keeper();
    let policy = keeper.policy();
    let limit = &policy.rules[0].limit;
    keeper
        .store()
        .store
        .loans(limit, keeper.clock().now())
        .in_use
}

/// Lets all tasks run until there is nothing left to do.
async fn settle() {
    for _ in 0..50 {
        yield_now().await;
    }
}

#[tokio::test]
async fn permits_are_returned_by_a_task() {
    let clock = clock();
    let (layer, store) = layer(IN_FLIGHT, &clock);
    let mut service = layer.layer(Stage::new(Act::Endless));
    let mut held = Vec::new();
    for expected in [200, 200, 200, 429] {
        let answer = service.call(get("/", &[])).await.unwrap();
        assert_eq!(answer.status(), expected);
        held.push(answer);
    }
    assert_eq!(on_loan(&layer), 3);
    store.set(WAITS);
    drop(held); // nothing waits here
    settle().await;
    assert_eq!(on_loan(&layer), 3, "the store has not received the release");
    store.set(ANSWERS);
    settle().await;
    assert_eq!(on_loan(&layer), 0);
}

#[tokio::test]
async fn a_client_that_disconnects_during_a_store_call_keeps_no_permit() {
    let (layer, store) = layer(IN_FLIGHT, &clock());
    let mut service = layer.layer(Stage::default());
    for (wire, lent) in [(WAITS, 0), (SILENT, 3)] {
        store.set(wire);
        for _ in 0..3 {
            let asked = tokio::spawn(service.call(get("/", &[])));
            settle().await;
            asked.abort();
            assert!(asked.await.unwrap_err().is_cancelled());
        }
        assert_eq!(on_loan(&layer), lent);
        store.set(ANSWERS);
        settle().await;
        assert_eq!(on_loan(&layer), 0);
    }
    for _ in 0..5 {
        let answer = service.call(get("/", &[])).await.unwrap();
        assert_eq!(
            answer.status(),
            StatusCode::OK,
            "every request finds a permit"
        );
        settle().await;
    }
}

#[tokio::test]
async fn a_permit_that_cannot_be_released_expires_with_its_lease() {
    let clock = clock();
    let (layer, store) = layer(IN_FLIGHT, &clock);
    let mut service = layer.layer(Stage::new(Act::Endless));
    let answer = service.call(get("/", &[])).await.unwrap();
    store.set(CUT);
    drop(answer);
    settle().await;
    assert_eq!(on_loan(&layer), 1);
    clock.advance(Nanos::from_secs(30));
    assert_eq!(on_loan(&layer), 0);
}

#[test]
fn a_body_may_outlive_its_runtime() {
    let clock = clock();
    let (layer, _) = layer(IN_FLIGHT, &clock);
    let mut service = layer.layer(Stage::new(Act::Endless));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let answer = runtime.block_on(service.call(get("/", &[]))).unwrap();
    drop(runtime);
    drop(answer);
    assert_eq!(
        on_loan(&layer),
        1,
        "the permit is held until its lease ends"
    );
    clock.advance(Nanos::from_secs(30));
    assert_eq!(on_loan(&layer), 0);
}

#[tokio::test]
async fn limits_follow_on_store_error_while_the_store_fails() {
    let limit = |name: &str, outage: &str, more: &str| {
        format!(
            "[[limit]]\nname = \"{name}\"\nkey = [\"all\"]\n\
             on_store_error = \"{outage}\"\n{more}\n"
        )
    };
    let rate = "limit = \"2/1m\"";
    let shadow = "limit = \"2/1m\"\nmode = \"shadow\"";
    let lent = "concurrency = { max = 2, lease = \"30s\" }";
    for (limits, expected, retry_after) in [
        (vec![("a", "allow", rate)], 200, "-"),
        (vec![("a", "allow", lent)], 200, "-"),
        (vec![("a", "deny", rate)], 429, "1"),
        (vec![("a", "deny", lent)], 429, "1"),
        (vec![("a", "local", rate)], 429, "1"), // nothing here could hold a share
        (vec![("a", "allow", rate), ("b", "deny", rate)], 429, "1"),
        (vec![("a", "allow", rate), ("b", "deny", shadow)], 200, "-"),
        (
            vec![("a", "deny", "limit = \"2/1m\"\nmatch = { path = \"/x\" }")],
            200,
            "-",
        ),
    ] {
        let text: String = limits
            .iter()
            .map(|(name, outage, more)| limit(name, outage, more))
            .collect();
        let (layer, store) = layer(&text, &clock());
        let log = Log::default();
        let written = Arc::clone(&log);
        let layer =
            layer.on_store_error(move |error| written.lock().unwrap().push(error.to_string()));
        let mut service = layer.layer(Stage::default());
        store.set(CUT);
        for _ in 0..5 {
            let answer = service.call(get("/", &[])).await.unwrap();
            assert_eq!(answer.status(), expected, "{limits:?}");
            let wait = header(&answer, "retry-after").unwrap_or("-".into());
            assert_eq!(wait, retry_after, "{limits:?}");
        }
        let errors = log.lock().unwrap();
        assert_eq!(errors.len(), 5);
        assert!(errors[0].contains("the wire is cut"), "{errors:?}");
    }
}

#[tokio::test]
async fn a_refusal_without_the_store_does_not_say_that_a_quota_is_used() {
    for outage in [Outage::Deny, Outage::Local] {
        let name = format!("{outage:?}").to_lowercase();
        let text = format!(
            "[[limit]]\nname = \"a\"\nkey = [\"all\"]\nlimit = \"2/1m\"\non_store_error = \"{name}\"\n"
        );
        let (by_policy, store) = layer(&text, &clock());
        store.set(CUT);
        let limits = Limits::new(store, clock());
        let limit = limits.token_bucket("a", "2/1m".parse().unwrap()).unwrap();
        let together =
            RateLimitLayer::together([limit.on_outage(outage).by(|_: RequestHead<'_>| Some("k"))]);
        let mut services = (
            by_policy.layer(Stage::default()),
            together.unwrap().layer(Stage::default()),
        );
        for grpc in [false, true] {
            let request = || {
                get(
                    "/",
                    if grpc {
                        &[("content-type", "application/grpc")]
                    } else {
                        &[]
                    },
                )
            };
            for answer in [
                services.0.call(request()).await,
                services.1.call(request()).await,
            ] {
                let answer = answer.unwrap();
                assert_eq!(header(&answer, "ratelimit"), None, "{name}");
                if grpc {
                    assert_eq!(header(&answer, "grpc-status").as_deref(), Some("14"));
                    continue;
                }
                assert_eq!(
                    content(answer),
                    r#"{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Temporarily reduced capacity","status":429,"detail":"Limit a is at reduced capacity. Try again in 1 s.","violated-policies":["a"],"retry_after":1}"#
                );
            }
        }
    }
}

#[tokio::test]
async fn rates_need_no_task() {
    let (layer, _) = layer(
        "[[limit]]\nname = \"a\"\nkey = [\"all\"]\nlimit = \"2/1m\"\n",
        &clock(),
    );
    let mut service = layer.layer(Stage::default());
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(service.call(get("/", &[])).await.unwrap().status().as_u16());
    }
    assert_eq!(statuses, [200, 200, 429]);
}
