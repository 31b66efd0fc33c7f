//! The caller decides which failures are retried.

use http::{Method, StatusCode};
use ratekeeper_resilience::tower::{CallOptions, HttpSettings, RetryIf};
use ratekeeper_resilience::{CallError, Effect, Failure};
use tokio::time::Instant;

use super::server::{Act, server};
use super::{HttpError, client, quick, request, status};

#[tokio::test]
async fn a_caller_chooses_which_refusals_did_nothing() {
    const REFUSED: &[Act] = &[Act::Later(429, "1"), Act::Answer(200)];
    const LATER: &[Act] = &[Act::Later(503, "1"), Act::Answer(200)];
    const BARE: &[Act] = &[Act::Answer(503), Act::Answer(200)];
    const BROKEN: &[Act] = &[Act::Answer(500), Act::Answer(200)];
    const GATEWAY: &[Act] = &[Act::Answer(502), Act::Answer(200)];
    const HANGS_UP: &[Act] = &[Act::HangUp, Act::Answer(200)];
    let by_status = || RetryIf::refused_by([StatusCode::TOO_MANY_REQUESTS]);
    let of_posts = || {
        RetryIf::new(|answer| match (answer.method, answer.status.as_u16()) {
            (&Method::POST, 500) => Some(Failure::Refused),
            (_, 503) => Some(Failure::Final),
            _ => None,
        })
    };
    for (script, method, retry_if, expected, sent) in [
        (REFUSED, "POST", RetryIf::default(), 429, 1),
        (REFUSED, "POST", by_status(), 200, 2),
        (BARE, "POST", by_status(), 503, 1),
        (REFUSED, "POST", RetryIf::refusals(), 200, 2),
        (LATER, "PATCH", RetryIf::refusals(), 200, 2),
        (LATER, "POST", RetryIf::default(), 503, 1),
        (BARE, "POST", RetryIf::refusals(), 503, 1),
        (BARE, "GET", RetryIf::refusals(), 200, 2),
        (GATEWAY, "POST", RetryIf::refusals(), 502, 1),
        (BROKEN, "POST", of_posts(), 200, 2),
        (BROKEN, "GET", of_posts(), 500, 1),
        (BARE, "GET", of_posts(), 503, 1),
        (GATEWAY, "GET", of_posts(), 200, 2),
        (HANGS_UP, "GET", RetryIf::refusals(), 200, 2),
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
async fn errors_are_classified_by_their_type() {
    let again = |_: &HttpError| Some(Failure::Refused);
    let never = |_: &HttpError| Some(Failure::Final);
    let of_another_type = |_: &std::io::Error| Some(Failure::Final);
    for (method, retry_if, sent) in [
        ("POST", RetryIf::default(), 1),
        ("POST", RetryIf::refusals(), 1),
        ("POST", RetryIf::default().with_errors(again), 2),
        ("GET", RetryIf::refusals().with_errors(never), 1),
        ("GET", RetryIf::default().with_errors(of_another_type), 2),
    ] {
        let (address, seen) = server(&[Act::HangUp, Act::Answer(200)]).await;
        let mut client = client(HttpSettings {
            retry_if,
            ..quick().into()
        });
        let result = status(&mut client, request(method, &address)).await;
        assert_eq!(seen.lock().unwrap().len(), sent, "{method} {result:?}");
        match sent {
            1 => assert!(matches!(result, Err(CallError::Inner(_))), "{result:?}"),
            _ => assert_eq!(result.unwrap(), 200),
        }
    }
}

fn options(change: impl FnOnce(&mut CallOptions)) -> CallOptions {
    let mut options = CallOptions::default();
    change(&mut options);
    options
}

#[tokio::test]
async fn options_of_a_request_win_over_the_settings_of_its_client() {
    const SCRIPT: &[Act] = &[Act::Answer(503), Act::Answer(503), Act::Answer(200)];
    let default = CallOptions::default;
    let attempts = |most| options(|options| options.attempts_max = Some(most));
    let retry_if = |class| {
        let retry_if = RetryIf::new(move |_| Some(class));
        options(|options| options.retry_if = Some(retry_if))
    };
    let effect = |effect| options(|options| options.effect = Some(effect));
    let repeatable = Some(Effect::Repeatable);
    for (method, of_client, options, expected, sent) in [
        ("GET", None, default(), 200, 3),
        ("POST", None, default(), 503, 1),
        ("POST", repeatable, default(), 200, 3),
        ("GET", None, attempts(0), 503, 1),
        ("GET", None, attempts(1), 503, 1),
        ("GET", None, attempts(2), 503, 2),
        ("GET", None, retry_if(Failure::Final), 503, 1),
        ("POST", None, retry_if(Failure::Refused), 200, 3),
        ("POST", None, effect(Effect::Repeatable), 200, 3),
        ("GET", None, effect(Effect::Effectful), 503, 1),
        ("GET", repeatable, effect(Effect::Effectful), 503, 1),
    ] {
        let (address, seen) = server(SCRIPT).await;
        let mut client = client(HttpSettings {
            effect: of_client,
            ..quick().into()
        });
        let mut request = request(method, &address);
        request.extensions_mut().insert(options.clone());
        let got = status(&mut client, request).await.unwrap();
        assert_eq!(got, expected, "{method} {options:?}");
        let seen = seen.lock().unwrap().len();
        assert_eq!(seen, sent, "{method} {options:?}");
    }
}
