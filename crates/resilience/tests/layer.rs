//! The layer on a real client, against a real server that refuses by script.
//!
//! ```text
//!   Resilient<hyper client> -- loopback --> hyper server: one scripted answer a request
//! ```
#![cfg(not(loom))]
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use ratekeeper_core::Nanos;
use ratekeeper_resilience::tower::{
    CallError, CallSettings, CallWithin, Guard, Propagate, ResilienceLayer, Resilient, RetryIf,
};
use ratekeeper_resilience::{
    AdaptiveConcurrency, AdaptiveSettings, Aimd, Backoff, Bounds, Breaker, BreakerSettings,
    BreakerState, Budget, BudgetSettings, Failure, Law, SplitMix, Throttle, ThrottleSettings,
};
use tokio::net::TcpListener;
use tokio::time::Instant;
use tower_layer::Layer;
use tower_service::Service;

/// Reaction of the server to a request.
#[derive(Clone, Copy, Debug)]
enum Act {
    Answer(u16),
    /// An answer with `Retry-After`.
    Later(u16, &'static str),
    /// Closes the connection without an answer.
    HangUp,
    /// Never answers.
    Hang,
}

/// Requests that the server saw: method, value of `x-timeout-ms`, and time.
type Seen = Arc<Mutex<Vec<(Method, Option<u64>, Instant)>>>;

type HttpClient = Client<HttpConnector, Full<Bytes>>;

/// Starts a server that follows the script, and repeats its last line; returns its address and
/// the requests that it sees.
async fn server(script: &'static [Act]) -> (String, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/", listener.local_addr().unwrap());
    let seen = Seen::default();
    let log = Arc::clone(&seen);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let log = Arc::clone(&log);
            let serve = hyper::service::service_fn(move |request: Request<Incoming>| {
                let number = {
                    let timeout = request.headers().get("x-timeout-ms");
                    let timeout = timeout.map(|value| value.to_str().unwrap().parse().unwrap());
                    let mut log = log.lock().unwrap();
                    log.push((request.method().clone(), timeout, Instant::now()));
                    log.len() - 1
                };
                let act = *script.get(number).or(script.last()).unwrap();
                async move {
                    let answer = Response::builder();
                    let answer = match act {
                        Act::Answer(status) => answer.status(status),
                        Act::Later(status, when) => {
                            answer.status(status).header("retry-after", when)
                        }
                        Act::HangUp => return Err("hang up"),
                        Act::Hang => std::future::pending().await,
                    };
                    Ok::<_, &str>(answer.body(Full::<Bytes>::default()).unwrap())
                }
            });
            tokio::spawn(async move {
                let connection = hyper::server::conn::http1::Builder::new();
                let _ = connection
                    .serve_connection(TokioIo::new(stream), serve)
                    .await;
            });
        }
    });
    (address, seen)
}

fn client(settings: CallSettings) -> Resilient<HttpClient> {
    let budget = Arc::new(Budget::new(BudgetSettings::default()).unwrap());
    let client = Client::builder(TokioExecutor::new())
        .retry_canceled_requests(false)
        .build_http();
    ResilienceLayer::new(settings, budget).layer(client)
}

/// Waits of a few milliseconds at most.
fn quick() -> CallSettings {
    let backoff = Backoff {
        base: Nanos::from_millis(2),
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

type Error = CallError<hyper_util::client::legacy::Error>;

async fn status(
    client: &mut Resilient<HttpClient>,
    request: Request<Full<Bytes>>,
) -> Result<StatusCode, Error> {
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
async fn a_caller_chooses_which_refusals_did_nothing() {
    const REFUSED: &[Act] = &[Act::Later(429, "1"), Act::Answer(200)];
    let undone = || RetryIf::undone_by([StatusCode::TOO_MANY_REQUESTS]);
    let of_posts = || {
        RetryIf::new(|answer| match (answer.method, answer.status.as_u16()) {
            (&Method::POST, 500) => Some(Failure::Refused),
            (_, 503) => Some(Failure::Final),
            _ => None,
        })
    };
    for (script, method, retry_if, expected, sent) in [
        (REFUSED, "POST", RetryIf::default(), 429, 1),
        (REFUSED, "POST", undone(), 200, 2),
        (
            &[Act::Answer(503), Act::Answer(200)],
            "POST",
            undone(),
            503,
            1,
        ),
        (
            &[Act::Answer(500), Act::Answer(200)],
            "POST",
            of_posts(),
            200,
            2,
        ),
        (
            &[Act::Answer(500), Act::Answer(200)],
            "GET",
            of_posts(),
            500,
            1,
        ),
        (
            &[Act::Answer(503), Act::Answer(200)],
            "GET",
            of_posts(),
            503,
            1,
        ),
        (
            &[Act::Answer(502), Act::Answer(200)],
            "GET",
            of_posts(),
            200,
            2,
        ),
        (&[Act::HangUp, Act::Answer(200)], "GET", undone(), 200, 2),
    ] {
        // For a single call: the client itself keeps to its settings.
        let (address, seen) = server(script).await;
        let client = client(quick());
        let mut one = client.with(|settings| settings.retry_if = retry_if);
        let began = Instant::now();
        let got = status(&mut one, request(method, &address)).await.unwrap();
        assert_eq!(got, expected, "{method} {script:?}");
        assert_eq!(seen.lock().unwrap().len(), sent, "{method} {script:?}");
        if sent == 2 && matches!(script[0], Act::Later(..)) {
            assert!(began.elapsed().as_millis() >= 999, "Retry-After is obeyed");
        }
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
    let (address, seen) = server(&[Act::Later(429, "1"), Act::Answer(200)]).await;
    let got = status(&mut client(quick()), request("GET", &address)).await;
    assert_eq!(got.unwrap(), 200);
    let seen = seen.lock().unwrap();
    let waited = seen[1].2 - seen[0].2;
    assert!(waited.as_millis() >= 999, "{waited:?}");
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
    let mut client = client(CallSettings {
        propagate: Propagate::Millis("x-timeout-ms".parse().unwrap()),
        ..quick()
    });
    let mut request = request("GET", &address);
    let within = CallWithin(Nanos::from_millis(150));
    request.extensions_mut().insert(within);
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
        window: Nanos::from_micros(1),
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
        within: Nanos::from_millis(150),
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

#[tokio::test]
async fn a_client_of_reqwest_goes_into_the_layer_as_it_is() {
    let stream = || reqwest::Body::wrap(Full::new(Bytes::from("once")));
    for (script, method, body, expected, sent) in [
        (
            &[Act::Later(429, "0"), Act::Answer(200)][..],
            "GET",
            None,
            200,
            2,
        ),
        (&[Act::HangUp, Act::Answer(200)], "GET", None, 200, 2),
        (
            &[Act::Answer(503), Act::Answer(200)],
            "PUT",
            Some("kept".into()),
            200,
            2,
        ),
        (
            &[Act::Answer(503), Act::Answer(200)],
            "PUT",
            Some(stream()),
            503,
            1,
        ),
        (
            &[Act::Answer(503), Act::Answer(200)],
            "POST",
            Some("kept".into()),
            503,
            1,
        ),
    ] {
        let (address, seen) = server(script).await;
        let client = reqwest::Client::new();
        let mut request = client.request(method.parse().unwrap(), &address);
        if let Some(body) = body {
            request = request.body(body);
        }
        let request = request.build().unwrap();
        let settings = CallSettings {
            propagate: Propagate::Millis("x-timeout-ms".parse().unwrap()),
            ..quick()
        };
        let budget = Arc::new(Budget::new(BudgetSettings::default()).unwrap());
        let mut client = ResilienceLayer::new(settings, budget).layer(client);
        let answer: reqwest::Response = client.call(request).await.unwrap();
        assert_eq!(answer.status(), expected, "{script:?}");
        let seen = seen.lock().unwrap();
        assert_eq!(seen.len(), sent, "{script:?}");
        let left = seen.iter().map(|(_, left, _)| left.unwrap());
        assert!(
            left.is_sorted_by(|a, b| a >= b),
            "the deadline is passed on"
        );
    }
}
