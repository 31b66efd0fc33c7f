//! The adaptive limit around a handler that has a fixed capacity, and gets slow beyond that:
//! requests that its clients have served, with the limit and without. In virtual time, so that the
//! load of the machine changes no number.
//!
//! ```text
//!   100 clients, patient for 150 ms      8 workers, 20 ms each: 400 a second at best
//!
//!   without:  all 100 wait for a worker, 250 ms: every client has given up before its answer
//!             is there, and asks again; the work goes on, for nobody
//!   with:     about a dozen are at work, the others are told so at once, and come back later
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::routing::get;
use http::Request;
use ratekeeper::TokioClock;
use ratekeeper::tower::{
    AdaptiveConcurrency, AdaptiveSettings, Bounds, Gradient, Law, RateLimitLayer, Vegas,
};
use ratekeeper_resilience::SplitMix;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tower_service::Service;

const WORKERS: usize = 8;
const WORK: Duration = Duration::from_millis(20);
const CLIENTS: usize = 100;
const PATIENCE: Duration = Duration::from_millis(150);
/// Wait of a client that was refused.
const PAUSE: Duration = Duration::from_millis(100);
/// Until the limit is found.
const BEFORE: Duration = Duration::from_millis(1_500);
const COUNTED: Duration = Duration::from_millis(1_500);

/// A handler that works on when its client has gone, as that of a database does.
fn working() -> Router {
    let workers = Arc::new(Semaphore::new(WORKERS));
    let handler = async move || {
        let workers = Arc::clone(&workers);
        let work = tokio::spawn(async move {
            let _worker = workers.acquire_owned().await.unwrap();
            sleep(WORK).await;
        });
        work.await.unwrap();
        "done"
    };
    Router::new().route("/", get(handler))
}

#[derive(Default)]
struct Seen {
    served: AtomicUsize,
    refused: AtomicUsize,
    given_up: AtomicUsize,
}

/// One client, from `start` on; its answers from `from` to `until` count.
async fn ask(mut router: Router, [from, until]: [Instant; 2], seen: Arc<Seen>) {
    while Instant::now() < until {
        let request = Request::get("/").body(Body::empty()).unwrap();
        let answer = timeout(PATIENCE, router.call(request)).await;
        let answer = answer.map(Result::unwrap);
        let counts = Instant::now() >= from;
        let count = |what: &AtomicUsize| what.fetch_add(usize::from(counts), Ordering::Relaxed);
        match answer {
            Ok(answer) if answer.status() == 200 => {
                // Only an answer that was read to its end has a time.
                to_bytes(answer.into_body(), 9).await.unwrap();
                count(&seen.served)
            }
            Ok(answer) => {
                assert_eq!(answer.status(), 503);
                assert_eq!(answer.headers()["retry-after"], "1");
                sleep(PAUSE).await; // sooner than `Retry-After` asks
                count(&seen.refused)
            }
            Err(_) => count(&seen.given_up),
        };
    }
}

/// Counts the answers to all clients; `look` is called meanwhile.
async fn load(router: Router, mut look: impl FnMut()) -> Arc<Seen> {
    let from = Instant::now() + BEFORE;
    let until = from + COUNTED;
    let seen = Arc::new(Seen::default());
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| tokio::spawn(ask(router.clone(), [from, until], Arc::clone(&seen))))
        .collect();
    sleep_until(from).await;
    while Instant::now() < until {
        look();
        sleep(Duration::from_millis(10)).await;
    }
    for client in clients {
        client.await.unwrap();
    }
    seen
}

#[tokio::test(start_paused = true)]
async fn the_limit_converges_on_the_capacity_of_the_server_and_goodput_holds() {
    let alone = load(working(), || {}).await;
    let alone = alone.served.load(Ordering::Relaxed);
    for law in [
        Law::Gradient(Gradient::default()),
        Law::Vegas(Vegas::default()),
    ] {
        let settings = AdaptiveSettings {
            law,
            bounds: Bounds {
                least: 1,
                most: 1_000,
                initial: 4,
            },
            window: Duration::from_millis(50),
            ..AdaptiveSettings::default()
        };
        let limit = AdaptiveConcurrency::new(settings, SplitMix::new(1)).unwrap();
        let layer = RateLimitLayer::adaptive_with_clock(limit, TokioClock::new());
        let mut limits = Vec::new();
        let limited = working().layer(layer.clone());
        let seen = load(limited, || limits.push(layer.limit().limit() as usize)).await;
        limits.sort_unstable();
        let median = limits[limits.len() / 2];
        let [served, refused, given_up] =
            [&seen.served, &seen.refused, &seen.given_up].map(|it| it.load(Ordering::Relaxed));
        println!(
            "{law:?}: limit {median}, served {served} (without: {alone}), refused {refused}, \
             given up {given_up}"
        );
        assert!(
            (WORKERS..4 * WORKERS).contains(&median),
            "{law:?}: {limits:?}"
        );
        // Without a limit few clients have an answer in time: the queue is beyond 150 ms.
        assert!(
            served > 3 * alone,
            "{law:?}: {served} served, {alone} without a limit"
        );
        assert!(
            served > 5 * given_up,
            "{law:?}: {served} served, {given_up} given up"
        );
        assert!(refused > 0);
    }
}
