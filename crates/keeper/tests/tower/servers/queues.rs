//! Requests that wait for others at work, in a real server.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use ratekeeper::core::{Concurrency, Nanos, Permits};
use ratekeeper::tower::{AdaptiveSettings, Bounds, RateLimitLayer, RequestHead};
use ratekeeper::{KeyedLimiter, Limiter};
use tokio::sync::Semaphore;

use super::axum_server::serve;
use super::client::{Client, until};

/// Handlers that end when the test lets them, one for each permit of the gate; they note
/// when they begin.
#[derive(Clone)]
struct Doors {
    begun: Arc<Mutex<Vec<usize>>>,
    gate: Arc<Semaphore>,
}

impl Doors {
    fn new() -> Self {
        Self {
            begun: Arc::default(),
            gate: Arc::new(Semaphore::new(0)),
        }
    }

    fn router(&self) -> Router {
        let Self { begun, gate } = self.clone();
        let handler = async move |Path(number): Path<usize>| {
            begun.lock().unwrap().push(number);
            gate.acquire().await.unwrap().forget();
            "done"
        };
        Router::new().route("/{number}", get(handler))
    }

    fn begun(&self) -> Vec<usize> {
        self.begun.lock().unwrap().clone()
    }
}

type Waiting = Box<dyn Fn() -> usize>;

/// One at work at a time, 20 in line, for up to 20 s.
fn lines() -> Vec<(&'static str, Doors, Router, Waiting)> {
    let longest = Nanos::from_secs(20);
    let one = || Concurrency::new(Permits::ONE, Nanos::from_secs(3_600)).unwrap();
    let mut all: Vec<(_, _, _, Waiting)> = Vec::new();

    let doors = Doors::new();
    let layer = RateLimitLayer::in_flight(Permits::ONE).queue(longest);
    let layer = layer.most_waiting(20);
    let router = doors.router().layer(layer.clone());
    all.push((
        "in-flight",
        doors,
        router,
        Box::new(move || layer.waiting()),
    ));

    let doors = Doors::new();
    let settings = AdaptiveSettings {
        bounds: Bounds {
            least: 1,
            most: 1,
            initial: 1,
        },
        ..AdaptiveSettings::default()
    };
    let layer = RateLimitLayer::adaptive(settings).unwrap().queue(longest);
    let layer = layer
        .most_waiting(20)
        .refusal(429, ratekeeper::policy::Body::Empty);
    let router = doors.router().layer(layer.clone());
    all.push(("adaptive", doors, router, Box::new(move || layer.waiting())));

    let doors = Doors::new();
    let limiter = Arc::new(Limiter::new(one()).with_most_waiting(20));
    let layer = RateLimitLayer::new(Arc::clone(&limiter)).queue(longest);
    let router = doors.router().layer(layer);
    all.push((
        "one limit",
        doors,
        router,
        Box::new(move || limiter.waiting()),
    ));

    let doors = Doors::new();
    let most = ratekeeper::MostWaiting {
        of_one_key: 20,
        ..Default::default()
    };
    let keyed = Arc::new(KeyedLimiter::new(one()).with_most_waiting(most));
    let key = |_: RequestHead<'_>| Some("ann");
    let layer = RateLimitLayer::keyed(Arc::clone(&keyed), key).queue(longest);
    let router = doors.router().layer(layer);
    all.push((
        "keyed",
        doors,
        router,
        Box::new(move || keyed.key("ann").waiting()),
    ));
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_wait_in_order_for_requests_in_progress() {
    for (name, doors, router, waiting) in lines() {
        let address = serve(router).await;
        let mut clients = Vec::new();
        for number in 0..21 {
            let mut client = Client::connect(address).await;
            client.send(&format!("/{number}"), "").await;
            clients.push((number, client));
            let come = || doors.begun().len() + waiting() > number;
            until("the request is queued or served", come).await;
        }
        assert_eq!((doors.begun(), waiting()), (vec![0], 20), "{name}");
        let refused = Client::connect(address).await.get("/21").await;
        assert_eq!(refused.status, 429, "{name}: the queue is full");
        // Every third goes away, some of them with a reset: the line is shorter then.
        let (gone, here): (Vec<_>, Vec<_>) =
            clients.into_iter().partition(|(number, _)| number % 3 == 1);
        for (number, client) in gone {
            if number % 2 == 0 {
                client.reset();
            } else {
                client.close();
            }
        }
        until("the disconnected clients have left the queue", || {
            waiting() == 13
        })
        .await;
        doors.gate.add_permits(14);
        for (number, mut client) in here {
            assert_eq!(client.answer().await.status, 200, "{name} {number}");
        }
        let expected: Vec<_> = (0..21).filter(|number| number % 3 != 1).collect();
        assert_eq!(
            doors.begun(),
            expected,
            "{name}: only the remaining clients are served, in order"
        );
        assert_eq!(waiting(), 0, "{name}");
        // Nothing was lost on the way.
        doors.gate.add_permits(1);
        let next = Client::connect(address).await.get("/22").await;
        assert_eq!(next.status, 200, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_waits_too_long_is_refused() {
    let doors = Doors::new();
    let layer = RateLimitLayer::in_flight(Permits::ONE).queue(Nanos::from_millis(50));
    let address = serve(doors.router().layer(layer.clone())).await;
    let mut first = Client::connect(address).await;
    first.send("/0", "").await;
    until("the first request has begun", || doors.begun() == [0]).await;
    let refused = Client::connect(address).await.get("/1").await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, "1"));
    assert_eq!((layer.waiting(), doors.begun()), (0, vec![0]));
    doors.gate.add_permits(1);
    assert_eq!(first.answer().await.status, 200);
    until("the permit is returned", || layer.at_work() == 0).await;
}
