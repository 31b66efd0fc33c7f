//! Calls through the layer to a service without a network, in virtual time: every wait is seen
//! to the millisecond.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderMap, Request, Response};
use ratekeeper_resilience::tower::{
    CallOptions, HttpSettings, Propagate, ResilienceLayer, Resilient,
};
use ratekeeper_resilience::{
    AdaptiveConcurrency, AdaptiveSettings, Backoff, Budget, BudgetSettings, CallError,
    CallSettings, Guard, Jitter, SplitMix, Typical,
};
use tokio::time::{Instant, advance, sleep, timeout};
use tower_layer::Layer;
use tower_service::Service;

/// Fields of an answer.
type Fields = &'static [(&'static str, &'static str)];

/// A service that answers one thing, and keeps to the contract of services: a caller must have
/// found this very clone ready, once for each call.
struct Play {
    status: u16,
    fields: Fields,
    /// From readiness asked to readiness given, and from a call to its answer.
    ready_after: Duration,
    takes: Duration,
    seen: Arc<Mutex<Vec<(Instant, HeaderMap)>>>,
    ready_at: Option<(Instant, Pin<Box<tokio::time::Sleep>>)>,
}

impl Play {
    fn new(status: u16, fields: Fields) -> Self {
        Self {
            status,
            fields,
            ready_after: Duration::ZERO,
            takes: Duration::ZERO,
            seen: Arc::default(),
            ready_at: None,
        }
    }

    fn client(&self, settings: impl Into<HttpSettings>) -> Resilient<Self> {
        ResilienceLayer::new(settings).layer(self.clone())
    }

    fn sent(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    /// Milliseconds between one request and the next.
    fn gaps(&self) -> Vec<u128> {
        let seen = self.seen.lock().unwrap();
        let gaps = seen.windows(2).map(|pair| pair[1].0 - pair[0].0);
        gaps.map(|gap| gap.as_millis()).collect()
    }

    /// Returns the value of this field in the n-th request.
    fn field(&self, number: usize, name: &str) -> String {
        let seen = self.seen.lock().unwrap();
        seen[number].1[name].to_str().unwrap().to_owned()
    }
}

/// Readiness is not cloned.
impl Clone for Play {
    fn clone(&self) -> Self {
        Self {
            seen: Arc::clone(&self.seen),
            ready_at: None,
            ..*self
        }
    }
}

impl Service<Request<()>> for Play {
    type Response = Response<()>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<()>, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        let after = self.ready_after;
        let (_, sleep) =
            (self.ready_at).get_or_insert_with(|| (Instant::now() + after, Box::pin(sleep(after))));
        sleep.as_mut().poll(context).map(Ok)
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        let ready = self.ready_at.take();
        assert!(
            ready.is_some_and(|(at, _)| at <= Instant::now()),
            "called before it was ready"
        );
        let headers = request.headers().clone();
        self.seen.lock().unwrap().push((Instant::now(), headers));
        let mut answer = Response::builder().status(self.status);
        for (name, value) in self.fields {
            answer = answer.header(*name, *value);
        }
        let takes = self.takes;
        Box::pin(async move {
            sleep(takes).await;
            Ok(answer.body(()).unwrap())
        })
    }
}

fn request(method: &str) -> Request<()> {
    let request = Request::builder().method(method).uri("http://localhost/");
    request.body(()).unwrap()
}

/// A request with a maximum time for its call.
fn within(span: Duration) -> Request<()> {
    let mut request = request("GET");
    request.extensions_mut().insert(CallOptions {
        within: Some(span),
        ..CallOptions::default()
    });
    request
}

/// A hundred milliseconds, then two hundred, and patience for all that is obeyed.
fn plain() -> CallSettings {
    CallSettings {
        within: Duration::from_secs(10_000),
        backoff: Backoff {
            jitter: Jitter::Without,
            ..Backoff::default()
        },
        ..CallSettings::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_as_long_as_the_server_states_and_up_to_a_tenth_more() {
    const DATE: (&str, &str) = ("date", "Sat, 21 Nov 2026 00:00:00 GMT");
    let backoff = [100..=101, 200..=202];
    let stated = |secs: u128| {
        let wait = secs * 1_000..=secs * 1_100 + 1;
        [wait.clone(), wait]
    };
    let rows: &[(Fields, Option<_>)] = &[
        (&[], Some(backoff.clone())),
        (&[("retry-after", "20")], Some(stated(20))),
        (&[("retry-after", "soon")], Some(stated(1))),
        (&[("retry-after", "2.0")], Some(stated(2))),
        (&[("retry-after-ms", "3000")], Some(stated(3))),
        (&[("x-ratelimit-reset-after", "4.00")], Some(stated(4))),
        (
            &[("retry-after", "9"), ("retry-after", "7")],
            Some(stated(7)),
        ),
        // The same moment for all, without jitter: not to be done.
        (&[("retry-after", "0")], Some(backoff.clone())),
        (
            &[("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT")],
            Some(backoff.clone()),
        ),
        (
            &[DATE, ("retry-after", "Sat, 21 Nov 2026 00:00:03 GMT")],
            Some(stated(3)),
        ),
        (&[("ratelimit", r#""a";r=0;t=7"#)], Some(stated(7))),
        (
            &[
                ("ratelimit", r#""a";r=0;t=7"#),
                ("ratelimit", r#""b";r=0;t=8"#),
            ],
            Some(stated(8)),
        ),
        (
            &[("ratelimit", r#""a";r=0;t=7"#), ("ratelimit", "caf\u{e9}")],
            Some(backoff.clone()),
        ),
        (&[("ratelimit", r#""a";r=1;t=7"#)], Some(backoff.clone())),
        (
            &[("ratelimit", r#""a";r=0;t=7"#), ("retry-after", "2")],
            Some(stated(2)),
        ),
        (
            &[("ratelimit-remaining", "0"), ("ratelimit-reset", "7")],
            Some(stated(7)),
        ),
        (
            &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "7")],
            Some(stated(7)),
        ),
        (
            &[DATE, ("x-ratelimit-reset", "1795219207")],
            Some(stated(7)),
        ),
        (
            &[("x-ratelimit-remaining", "1"), ("x-ratelimit-reset", "7")],
            Some(backoff.clone()),
        ),
        // Neither obeyed nor ignored: the refusal is the answer.
        (&[("retry-after", "601")], None),
        (&[("retry-after", "315360000")], None),
        (&[("retry-after", "99999999999999999999")], None),
    ];
    for (fields, expected) in rows {
        let play = Play::new(429, fields);
        let answer = play.client(plain()).call(request("GET")).await.unwrap();
        assert_eq!(answer.status(), 429);
        let gaps = play.gaps();
        let expected = expected.as_ref().map_or(&[][..], |waits| waits);
        assert_eq!(gaps.len(), expected.len(), "{fields:?}: {gaps:?}");
        for (gap, expected) in gaps.iter().zip(expected) {
            assert!(expected.contains(gap), "{fields:?}: {gaps:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn no_call_sleeps_past_the_deadline() {
    // Milliseconds that a call may take, with attempts of 50 each; number of attempts.
    for (millis, sent) in [
        (0, 0),
        (1, 1),
        (149, 1),
        (150, 1),
        (152, 2),
        (399, 2),
        (460, 3),
    ] {
        let play = Play {
            takes: Duration::from_millis(50),
            ..Play::new(503, &[])
        };
        let began = Instant::now();
        let request = within(Duration::from_millis(millis));
        let _ = play.client(plain()).call(request).await;
        assert_eq!(play.sent(), sent, "{millis} ms");
        let took = began.elapsed().as_millis();
        assert!(took <= u128::from(millis) + 1, "{took} of {millis} ms");
    }
    // For ever is a deadline too.
    let play = Play::new(503, &[]);
    let answer = play.client(plain()).call(within(Duration::MAX)).await;
    assert_eq!((answer.unwrap().status().as_u16(), play.sent()), (503, 3));
}

#[tokio::test(start_paused = true)]
async fn no_attempt_begins_that_cannot_end() {
    for (round_trip, service, sent) in [(0, 0, 2), (50, 0, 1), (0, 51, 1), (0, 48, 2)] {
        let play = Play::new(503, &[]);
        let settings = CallSettings {
            typical: Typical {
                round_trip: Duration::from_millis(round_trip),
                service: Duration::from_millis(service),
            },
            ..plain()
        };
        // The first retry leaves after 100 ms, when 49 or 50 are left.
        let call = within(Duration::from_millis(150));
        let answer = play.client(settings).call(call).await.unwrap();
        assert_eq!(answer.status(), 503, "the last answer is returned");
        assert_eq!(play.sent(), sent, "{round_trip} and {service} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_readiness_counts() {
    let play = Play {
        ready_after: Duration::from_millis(400),
        ..Play::new(200, &[])
    };
    let limit = AdaptiveConcurrency::new(AdaptiveSettings::default(), SplitMix::new(1)).unwrap();
    let limit = Arc::new(limit);
    let mut client = play.client(HttpSettings {
        calls: CallSettings {
            typical: Typical {
                service: Duration::from_millis(100),
                ..Typical::default()
            },
            guard: Guard::Adaptive(Arc::clone(&limit)),
            ..plain()
        },
        propagate: Propagate::Millis("x-timeout-ms".parse().unwrap()),
        ..HttpSettings::default()
    });
    for (millis, told) in [(300, None), (450, None), (600, Some(190..=200))] {
        let before = play.sent();
        let result = client.call(within(Duration::from_millis(millis))).await;
        let Some(told) = told else {
            assert!(matches!(result, Err(CallError::Deadline)), "{result:?}");
            assert_eq!(play.sent(), before, "{millis} ms");
            continue;
        };
        assert_eq!(result.unwrap().status(), 200);
        let left = play.field(before, "x-timeout-ms").parse().unwrap();
        assert!(told.contains(&left), "{left} ms");
    }
    assert_eq!(limit.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_a_request_bears_is_never_extended() {
    let millis = Propagate::Millis("x-timeout-ms".parse().unwrap());
    let rows = [
        (Propagate::GrpcTimeout, "grpc-timeout", "120m", 1),
        (Propagate::GrpcTimeout, "grpc-timeout", "1S", 3),
        (Propagate::GrpcTimeout, "grpc-timeout", "soon", 3),
        (millis.clone(), "x-timeout-ms", "120", 2),
        (millis.clone(), "x-timeout-ms", "100", 1),
        (Propagate::Nothing, "x-timeout-ms", "100", 3),
    ];
    for (propagate, name, value, sent) in rows {
        let play = Play {
            takes: Duration::from_millis(if value == "120m" { 30 } else { 1 }),
            ..Play::new(503, &[])
        };
        let mut client = play.client(HttpSettings {
            propagate: propagate.clone(),
            ..plain().into()
        });
        let mut request = request("GET");
        request.headers_mut().insert(name, value.parse().unwrap());
        client.call(request).await.unwrap();
        assert_eq!(play.sent(), sent, "{name}: {value}");
        if propagate == millis {
            let last: u64 = play.field(sent - 1, name).parse().unwrap();
            assert!(last <= value.parse().unwrap(), "{last}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_not_sent_adds_nothing_to_the_budget() {
    let settings = BudgetSettings {
        ratio_percent: 100,
        reserve: 0,
        ..BudgetSettings::default()
    };
    let play = Play::new(503, &[]);
    let mut client = play.client(CallSettings {
        budget: Arc::new(Budget::new(settings).unwrap()),
        ..plain()
    });
    for _ in 0..100 {
        let result = client.call(within(Duration::ZERO)).await;
        assert!(matches!(result, Err(CallError::Deadline)), "{result:?}");
    }
    client.call(request("GET")).await.unwrap();
    assert_eq!(play.sent(), 2, "one request, one retry");
}

#[tokio::test(start_paused = true)]
async fn layers_made_at_different_times_share_one_budget() {
    let settings = plain();
    let play = Play::new(503, &[("retry-after", "0")]);
    let mut early = play.client(settings.clone());
    advance(Duration::from_secs(3_600)).await;
    let mut late = play.client(settings);
    let began = Instant::now();
    while began.elapsed().as_secs() < 60 {
        early.call(request("GET")).await.unwrap();
        late.call(request("GET")).await.unwrap();
        advance(Duration::from_millis(10)).await;
    }
    let (calls, sent) = (play.sent() - retries(&play), play.sent());
    let bound = calls / 10 + 10 * 7;
    assert!(sent - calls <= bound, "{} of {bound}", sent - calls);
}

/// Requests that followed another within the waits of the backoff, and did not begin a call.
fn retries(play: &Play) -> usize {
    let gaps = play.gaps();
    gaps.iter().filter(|gap| (100..=202).contains(*gap)).count()
}

/// A thousand calls at once to a server that is down: when they come again, by milliseconds.
async fn herd(fields: Fields, jitter: Jitter) -> Vec<u128> {
    let play = Play::new(503, fields);
    let backoff = Backoff {
        jitter,
        attempts_max: 2,
        ..Backoff::default()
    };
    let client = play.client(CallSettings { backoff, ..plain() });
    let began = Instant::now();
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..1_000 {
        calls.spawn(client.clone().call(request("GET")));
    }
    while let Some(answer) = calls.join_next().await {
        assert_eq!(answer.unwrap().unwrap().status(), 503);
    }
    let seen = play.seen.lock().unwrap();
    let again = seen[1_000..].iter();
    again.map(|(at, _)| (*at - began).as_millis()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_herd_of_calls_is_bounded_by_the_budget_and_spread_by_jitter() {
    for (fields, jitter, spread) in [
        (&[][..], Jitter::Full, true),
        (&[], Jitter::Without, false),
        (&[("retry-after", "20")], Jitter::Without, true),
    ] {
        let again = herd(fields, jitter).await;
        // A tenth and the reserve; calls that fail before all have begun find less.
        let count = again.len();
        assert!((10..=110).contains(&count), "{count} retries");
        let together = |of: &u128| again.iter().filter(|at| *at / 10 == of / 10).count();
        let most = again.iter().map(together).max().unwrap();
        assert_eq!(most * 3 < count, spread, "{most} of {count} in 10 ms");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_while_it_waits_leaves_nothing_behind() {
    let limit = AdaptiveConcurrency::new(AdaptiveSettings::default(), SplitMix::new(1)).unwrap();
    let limit = Arc::new(limit);
    let settings = CallSettings {
        guard: Guard::Adaptive(Arc::clone(&limit)),
        ..plain()
    };
    // In an attempt, and between two.
    for (takes, fields) in [(20, &[][..]), (0, &[("retry-after", "20")])] {
        let play = Play {
            takes: Duration::from_secs(takes),
            ..Play::new(503, fields)
        };
        let call = play.client(settings.clone()).call(request("GET"));
        assert!(timeout(Duration::from_secs(10), call).await.is_err());
        assert_eq!(limit.in_flight(), 0);
        sleep(Duration::from_secs(60)).await;
        assert_eq!(play.sent(), 1);
    }
}
