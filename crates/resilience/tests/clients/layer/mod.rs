//! The layer on a real client, against a real server that refuses by script.
//!
//! ```text
//!   Resilient<hyper client> -- loopback --> hyper server: one scripted answer a request
//! ```
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod reqwest_client;
mod retry_if;
mod server;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use ratekeeper_resilience::tower::{
    CallOptions, HttpSettings, Propagate, ResilienceLayer, Resilient,
};
use ratekeeper_resilience::{
    AdaptiveConcurrency, AdaptiveSettings, Aimd, Backoff, Bounds, Breaker, BreakerSettings,
    BreakerState, CallError, CallSettings, Guard, Law, SplitMix, Throttle, ThrottleSettings,
};
use tokio::time::Instant;
use tower_layer::Layer;
use tower_service::Service;

use server::{Act, server};

type HttpClient = Client<HttpConnector, Full<Bytes>>;

fn client(settings: impl Into<HttpSettings>) -> Resilient<HttpClient> {
    let client = Client::builder(TokioExecutor::new())
        .retry_canceled_requests(false)
        .build_http();
    ResilienceLayer::new(settings).layer(client)
}

/// Waits of a few milliseconds at most.
fn quick() -> CallSettings {
    let backoff = Backoff {
        base: Duration::from_millis(2),
        ..Backoff::default()
    };
    CallSettings {
        backoff,
        ..CallSettings::default()
    }
}

fn request(method: &str, address: &str) -> Request<Full<Bytes>> {
    let request = Request::builder().method(method).uri(address);
    request.body(Full::default()).unwrap()
}

type HttpError = hyper_util::client::legacy::Error;

async fn status(
    client: &mut Resilient<HttpClient>,
    request: Request<Full<Bytes>>,
) -> Result<StatusCode, CallError<HttpError>> {
    client.call(request).await.map(|answer| answer.status())
}

#[tokio::test]
async fn failures_are_retried_as_their_effect_permits() {
    for (script, method, key, expected, sent) in [
        (&[Act::Answer(200)][..], "GET", "", 200, 1),
        (&[Act::Answer(503), Act::Answer(200)], "GET", "", 200, 2),
        (&[Act::Answer(429), Act::Answer(200)], "PUT", "", 200, 2),
        (&[Act::HangUp, Act::Answer(200)], "GET", "", 200, 2),
        (&[Act::HangUp, Act::Answer(200)], "POST", "k", 200, 2),
        (&[Act::Answer(503)], "GET", "", 503, 3),
        (&[Act::Answer(503), Act::Answer(200)], "POST", "", 503, 1),
        (&[Act::Answer(503), Act::Answer(200)], "POST", "k", 200, 2),
        (&[Act::Answer(500), Act::Answer(200)], "GET", "", 500, 1),
        (&[Act::Answer(404), Act::Answer(200)], "GET", "", 404, 1),
    ] {
        let (address, seen) = server(script).await;
        let mut request = request(method, &address);
        if !key.is_empty() {
            let key = key.parse().unwrap();
            request.headers_mut().insert("idempotency-key", key);
        }
        let got = status(&mut client(quick()), request).await.unwrap();
        assert_eq!(got, expected, "{method} {expected}");
        assert_eq!(seen.lock().unwrap().len(), sent, "{method} {expected}");
    }
}

#[tokio::test]
async fn an_error_of_an_effectful_call_is_passed_on() {
    let (address, seen) = server(&[Act::HangUp, Act::Answer(200)]).await;
    let error = status(&mut client(quick()), request("POST", &address)).await;
    assert!(matches!(error, Err(CallError::Inner(_))), "{error:?}");
    assert_eq!(seen.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn retry_after_is_waited_for() {
    for (script, least) in [
        (&[Act::Later(429, "1"), Act::Answer(200)], 999),
        (&[Act::Later(429, "1.25"), Act::Answer(200)], 1_249),
        (&[Act::Later(429, "soon"), Act::Answer(200)], 999),
    ] {
        let (address, seen) = server(script).await;
        let got = status(&mut client(quick()), request("GET", &address)).await;
        assert_eq!(got.unwrap(), 200);
        let seen = seen.lock().unwrap();
        let waited = seen[1].2 - seen[0].2;
        assert!(waited.as_millis() >= least, "{waited:?}");
    }
}

#[tokio::test]
async fn a_call_that_cannot_end_in_time_is_not_retried() {
    let (address, seen) = server(&[Act::Later(503, "30"), Act::Answer(200)]).await;
    let began = Instant::now();
    let got = status(&mut client(quick()), request("GET", &address)).await;
    assert_eq!(got.unwrap(), 503, "the last answer is returned");
    assert!(began.elapsed().as_secs() < 10);
    assert_eq!(seen.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_call_to_a_hanging_server_ends_at_the_deadline_it_sent() {
    let (address, seen) = server(&[Act::Hang]).await;
    let mut client = client(HttpSettings {
        propagate: Propagate::Millis("x-timeout-ms".parse().unwrap()),
        ..quick().into()
    });
    let mut request = request("GET", &address);
    request.extensions_mut().insert(CallOptions {
        within: Some(Duration::from_millis(150)),
        ..CallOptions::default()
    });
    let error = status(&mut client, request).await;
    assert!(matches!(error, Err(CallError::Deadline)), "{error:?}");
    let sent = seen.lock().unwrap()[0].1.unwrap();
    assert!((1..=150).contains(&sent), "{sent}");
}

#[tokio::test]
async fn the_budget_bounds_the_retries_of_all_calls() {
    let (address, seen) = server(&[Act::Answer(503)]).await;
    let mut client = client(quick());
    for _ in 0..100 {
        assert_eq!(
            status(&mut client, request("GET", &address)).await.unwrap(),
            503
        );
    }
    // Without it: 300.
    let sent = seen.lock().unwrap().len();
    assert!((110..=120).contains(&sent), "{sent}");
}

#[tokio::test]
async fn the_breaker_opens_on_failures_and_not_on_refusals() {
    for (script, opens) in [
        (&[Act::Answer(500)][..], true),
        (&[Act::Answer(429)], false),
    ] {
        let (address, seen) = server(script).await;
        let breaker = Breaker::new(BreakerSettings::default(), SplitMix::new(1)).unwrap();
        let breaker = Arc::new(breaker);
        let mut client = client(CallSettings {
            guard: Guard::Breaker(Arc::clone(&breaker)),
            ..quick()
        });
        for _ in 0..20 {
            let _ = status(&mut client, request("POST", &address)).await;
        }
        let result = status(&mut client, request("POST", &address)).await;
        let sent = seen.lock().unwrap().len();
        if opens {
            assert!(matches!(result, Err(CallError::Open(_))), "{result:?}");
            assert_eq!(sent, 20);
        } else {
            assert_eq!(result.unwrap(), 429);
            assert_eq!(breaker.state(), BreakerState::Closed);
            assert_eq!(sent, 21);
        }
    }
}

#[tokio::test]
async fn the_throttle_spares_a_server_that_refuses() {
    let (address, seen) = server(&[Act::Answer(429)]).await;
    let mut client = client(CallSettings {
        guard: Guard::Throttle(Arc::new(
            Throttle::new(ThrottleSettings::default()).unwrap(),
        )),
        ..quick()
    });
    let mut throttled = 0;
    for _ in 0..500 {
        let result = status(&mut client, request("POST", &address)).await;
        throttled += u32::from(matches!(result, Err(CallError::Throttled)));
    }
    // The n-th is sent with a chance of 1/n: 7 of 500 on average, deviation below 3.
    let sent = seen.lock().unwrap().len();
    assert_eq!(sent + throttled as usize, 500);
    assert!(sent < 30, "{sent}");
}

/// One call at a time at first; AIMD: one more for each that is answered.
fn adaptive(initial: u32) -> Arc<AdaptiveConcurrency> {
    let settings = AdaptiveSettings {
        law: Law::Aimd(Aimd::default()),
        bounds: Bounds {
            least: 1,
            most: 10,
            initial,
        },
        window: Duration::from_micros(1),
        least_samples: 1,
    };
    Arc::new(AdaptiveConcurrency::new(settings, SplitMix::new(1)).unwrap())
}

#[tokio::test]
async fn no_more_calls_at_once_than_the_server_bears() {
    let (address, seen) = server(&[Act::Hang]).await;
    let limit = adaptive(2);
    let client = client(CallSettings {
        guard: Guard::Adaptive(Arc::clone(&limit)),
        within: Duration::from_millis(150),
        ..quick()
    });
    let calls = [(); 3].map(|()| {
        let (mut client, request) = (client.clone(), request("POST", &address));
        tokio::spawn(async move { status(&mut client, request).await })
    });
    let mut at_deadline = 0;
    for call in calls {
        match call.await.unwrap() {
            Err(CallError::Deadline) => at_deadline += 1,
            Err(CallError::AtWork { limit: 2 }) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(at_deadline, 2);
    assert!(seen.lock().unwrap().len() <= 2);
    assert_eq!((limit.in_flight(), limit.limit()), (0, 1), "it is too slow");
}

#[tokio::test]
async fn answers_move_the_limit_of_calls() {
    for (act, expected) in [
        (Act::Answer(200), 3),
        (Act::Answer(404), 2),
        (Act::Answer(500), 2),
        (Act::Answer(503), 1),
        (Act::Answer(429), 1),
        (Act::HangUp, 2),
    ] {
        let script: &'static [Act] = Vec::leak(vec![act]);
        let (address, _) = server(script).await;
        let limit = adaptive(2);
        let mut client = client(CallSettings {
            guard: Guard::Adaptive(Arc::clone(&limit)),
            ..quick()
        });
        let _ = status(&mut client, request("POST", &address)).await;
        assert_eq!(limit.limit(), expected, "{act:?}");
    }
}
