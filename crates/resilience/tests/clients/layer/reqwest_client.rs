//! The layer around a client of reqwest.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use ratekeeper_resilience::tower::{HttpSettings, Propagate, ResilienceLayer, Resilient, RetryIf};
use ratekeeper_resilience::{
    AdaptiveConcurrency, AdaptiveSettings, Aimd, Bounds, CallError, Effect, Failure, Guard, Law,
    SplitMix,
};
use tokio::net::TcpListener;
use tower_layer::Layer;

use super::quick;
use super::server::{Act, server};

#[tokio::test]
async fn a_client_of_reqwest_goes_into_the_layer_as_it_is() {
    let propagate = Propagate::Millis("x-timeout-ms".parse().unwrap());
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
        let http = reqwest::Client::new();
        let mut request = http.request(method.parse().unwrap(), &address);
        if let Some(body) = body {
            request = request.body(body);
        }
        let client = ResilienceLayer::new(HttpSettings {
            propagate: propagate.clone(),
            ..quick().into()
        });
        let answer = client.layer(http).send(request).await.unwrap();
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

fn client() -> (reqwest::Client, Resilient<reqwest::Client>) {
    let http = reqwest::Client::new();
    (http.clone(), ResilienceLayer::new(quick()).layer(http))
}

#[tokio::test]
async fn one_call_has_settings_of_its_own() {
    const SCRIPT: &[Act] = &[Act::Answer(503), Act::Answer(200)];
    let (address, _) = server(SCRIPT).await;
    let (http, client) = client();
    let once = client.with(|settings| settings.calls.backoff.attempts_max = 1);
    let answer = once.send(http.get(&address)).await.unwrap();
    assert_eq!(answer.status(), 503);

    let (address, _) = server(SCRIPT).await;
    let query = client.with(|settings| settings.effect = Some(Effect::Repeatable));
    let answer = query.send(http.post(&address)).await.unwrap();
    assert_eq!(answer.status(), 200);

    let (address, _) = server(&[Act::Hang]).await;
    let hasty = client.with(|settings| settings.calls.within = Duration::from_millis(100));
    let result = hasty.send(http.get(&address)).await;
    assert!(matches!(result, Err(CallError::Deadline)), "{result:?}");
}

/// The client's own time-out lowers the limit, and so does an error that the caller calls one.
#[tokio::test]
async fn a_time_out_of_the_client_lowers_the_limit() {
    let hang_up = Some(Failure::TimedOut);
    for (script, named, falls) in [
        (&[Act::Hang][..], None, true),
        (&[Act::HangUp], None, false),
        (&[Act::HangUp], hang_up, true),
    ] {
        let (address, _) = server(script).await;
        let settings = AdaptiveSettings {
            law: Law::Aimd(Aimd::default()),
            window: Duration::from_micros(1),
            least_samples: 1,
            bounds: Bounds {
                least: 1,
                most: 10,
                initial: 2,
            },
        };
        let limit = Arc::new(AdaptiveConcurrency::new(settings, SplitMix::new(1)).unwrap());
        let (http, client) = client();
        let client = client.with(|settings| {
            settings.calls.guard = Guard::Adaptive(Arc::clone(&limit));
            settings.retry_if = RetryIf::refusals().with_errors(move |_: &reqwest::Error| named);
        });
        let request = http.post(&address).timeout(Duration::from_millis(50));
        assert!(client.send(request).await.is_err());
        assert_eq!(limit.limit() < 2, falls, "{script:?} {named:?}");
    }
}

#[tokio::test]
async fn a_request_that_cannot_be_built_is_an_error() {
    let (http, client) = client();
    let result = client.send(http.get("no address")).await;
    let Err(CallError::Inner(error)) = result else {
        panic!("{result:?}");
    };
    assert!(error.is_builder(), "{error:?}");
}

/// Nothing was sent on a connection that was never made.
#[tokio::test]
async fn a_post_without_a_connection_is_made_again_if_the_caller_says_so() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let (http, client) = client();
    for (connects, expected) in [(None, 1), (Some(Failure::Refused), 3)] {
        let failed = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&failed);
        let retry_if = RetryIf::refusals().with_errors(move |error: &reqwest::Error| {
            count.fetch_add(1, Ordering::Relaxed);
            connects.filter(|_| error.is_connect())
        });
        let client = client.with(|settings| settings.retry_if = retry_if);
        let result = client.send(http.post(&address)).await;
        assert!(matches!(result, Err(CallError::Inner(_))), "{result:?}");
        assert_eq!(failed.load(Ordering::Relaxed), expected);
    }
}
