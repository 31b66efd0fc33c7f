//! Futures made again by `retry`, in virtual time: every wait is seen to the millisecond.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ratekeeper_resilience::{
    AdaptiveConcurrency, AdaptiveSettings, Aimd, Backoff, Bounds, Breaker, BreakerSettings,
    BreakerState, CallError, CallSettings, Guard, Jitter, Law, Retry, SplitMix, Throttle,
    ThrottleSettings, retry, retry_if,
};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, sleep, timeout};

type Outcome = Result<&'static str, CallError<Retry>>;

/// A hundred milliseconds, then two hundred.
fn plain() -> CallSettings {
    CallSettings {
        backoff: Backoff {
            jitter: Jitter::Without,
            ..Backoff::default()
        },
        ..CallSettings::default()
    }
}

/// Makes a call whose attempts take `takes` milliseconds and end as the script does, whose last
/// line is repeated; returns its outcome and when attempts began, in milliseconds.
async fn play(
    settings: &CallSettings,
    takes: u64,
    script: &[Result<&'static str, Retry>],
) -> (Outcome, Vec<u64>) {
    let began = Instant::now();
    let attempts = Mutex::new(Vec::new());
    let work = || {
        let mut attempts = attempts.lock().unwrap();
        let result = *script.get(attempts.len()).or(script.last()).unwrap();
        attempts.push(u64::try_from(began.elapsed().as_millis()).unwrap());
        async move {
            sleep(Duration::from_millis(takes)).await;
            result
        }
    };
    let outcome = retry_if(settings, |error: &Retry| *error, work).await;
    (outcome, attempts.into_inner().unwrap())
}

const DOWN: Result<&str, Retry> = Err(Retry::Backoff);
const fn after(secs: u64) -> Result<&'static str, Retry> {
    Err(Retry::After(Duration::from_secs(secs)))
}

#[tokio::test(start_paused = true)]
async fn errors_are_retried_as_the_caller_decides() {
    // Script, outcome, range of the moments of each attempt.
    for (script, expected, attempts) in [
        (&[Ok("up")][..], Ok("up"), &[0..=0][..]),
        (&[DOWN, Ok("up")], Ok("up"), &[0..=0, 100..=101]),
        (&[DOWN], DOWN, &[0..=0, 100..=101, 300..=303]),
        (&[Err(Retry::Stop)], Err(Retry::Stop), &[0..=0]),
        (
            &[DOWN, Err(Retry::Stop)],
            Err(Retry::Stop),
            &[0..=0, 100..=101],
        ),
        (&[after(2), Ok("up")], Ok("up"), &[0..=0, 2_000..=2_201]),
        // A stated wait is an attempt, but no step of the backoff.
        (
            &[after(2), DOWN, Ok("up")],
            Ok("up"),
            &[0..=0, 2_000..=2_201, 2_100..=2_302],
        ),
        // No wait at all: the backoff decides.
        (&[after(0), Ok("up")], Ok("up"), &[0..=0, 100..=101]),
        // Past the deadline of 10 s, and above the longest wait.
        (&[after(10), Ok("up")], after(10), &[0..=0]),
        (&[after(601), Ok("up")], after(601), &[0..=0]),
    ] {
        let (outcome, began) = play(&plain(), 0, script).await;
        match (outcome, expected) {
            (Ok(answer), Ok(expected)) => assert_eq!(answer, expected),
            (Err(CallError::Inner(error)), Err(expected)) => assert_eq!(error, expected),
            (outcome, _) => panic!("{script:?}: {outcome:?}"),
        }
        assert_eq!(began.len(), attempts.len(), "{script:?}: {began:?}");
        for (at, range) in began.iter().zip(attempts) {
            assert!(range.contains(at), "{script:?}: {began:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn attempts_and_waits_end_with_the_deadline() {
    // Milliseconds, attempts, and if the deadline cuts the last of them short.
    for (within, attempts, cut) in [
        (0, 0, true),
        (10, 1, true),
        (149, 1, false),
        (152, 2, true),
        (460, 3, false),
    ] {
        let settings = CallSettings {
            within: Duration::from_millis(within),
            ..plain()
        };
        let began = Instant::now();
        let (outcome, seen) = play(&settings, 50, &[DOWN]).await;
        assert_eq!(seen.len(), attempts, "{within} ms: {outcome:?}");
        let deadline = matches!(outcome, Err(CallError::Deadline));
        assert_eq!(deadline, cut, "{within} ms: {outcome:?}");
        let took = began.elapsed().as_millis();
        assert!(took <= u128::from(within) + 1, "{took} of {within} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn the_budget_bounds_the_retries_of_all_calls() {
    let settings = plain();
    let mut calls = Vec::new();
    for _ in 0..100 {
        let settings = settings.clone();
        calls.push(tokio::spawn(async move {
            play(&settings, 0, &[DOWN]).await.1.len()
        }));
    }
    let mut sent = 0;
    for call in calls {
        sent += call.await.unwrap();
    }
    // Without a budget: 300.
    assert!((100..=120).contains(&sent), "{sent}");
}

#[tokio::test(start_paused = true)]
async fn a_breaker_opens_on_failures_and_not_on_refusals() {
    for (error, opens) in [(Retry::Backoff, true), (Retry::Stop, false)] {
        let breaker = Breaker::new(BreakerSettings::default(), SplitMix::new(1)).unwrap();
        let breaker = Arc::new(breaker);
        let settings = CallSettings {
            guard: Guard::Breaker(Arc::clone(&breaker)),
            backoff: Backoff {
                attempts_max: 1,
                ..Backoff::default()
            },
            ..plain()
        };
        for _ in 0..20 {
            let (outcome, _) = play(&settings, 1, &[Err(error)]).await;
            assert!(matches!(outcome, Err(CallError::Inner(_))), "{outcome:?}");
        }
        let (outcome, attempts) = play(&settings, 1, &[Ok("up")]).await;
        assert_eq!(matches!(outcome, Err(CallError::Open(_))), opens);
        assert_eq!(attempts.is_empty(), opens);
        assert_eq!(breaker.state() != BreakerState::Closed, opens);
    }
}

#[tokio::test(start_paused = true)]
async fn a_throttle_spares_a_server_that_refuses() {
    for (error, at_least, at_most) in [
        (Retry::After(Duration::ZERO), 1, 30),
        (Retry::Stop, 100, 100),
    ] {
        let throttle = Throttle::new(ThrottleSettings::default()).unwrap();
        let settings = CallSettings {
            guard: Guard::Throttle(Arc::new(throttle)),
            backoff: Backoff {
                attempts_max: 1,
                ..Backoff::default()
            },
            ..plain()
        };
        let mut sent = 0;
        for _ in 0..100 {
            sent += play(&settings, 1, &[Err(error)]).await.1.len();
        }
        assert!((at_least..=at_most).contains(&sent), "{error:?}: {sent}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_an_attempt_moves_the_limit_of_calls() {
    for (result, takes, limit) in [
        (Ok("up"), 1, 3),
        (Err(Retry::Stop), 1, 2),
        (DOWN, 1, 2),
        (after(0), 1, 1),
        (Err(Retry::TimedOut), 1, 1),
        (Ok("late"), 60_000, 1),
    ] {
        let adaptive = AdaptiveSettings {
            law: Law::Aimd(Aimd::default()),
            bounds: Bounds {
                least: 1,
                most: 10,
                initial: 2,
            },
            window: Duration::from_micros(1),
            least_samples: 1,
        };
        let adaptive = AdaptiveConcurrency::new(adaptive, SplitMix::new(1)).unwrap();
        let adaptive = Arc::new(adaptive);
        let settings = CallSettings {
            guard: Guard::Adaptive(Arc::clone(&adaptive)),
            backoff: Backoff {
                attempts_max: 1,
                ..Backoff::default()
            },
            ..plain()
        };
        let (outcome, _) = play(&settings, takes, &[result]).await;
        assert_eq!(adaptive.limit(), limit, "{outcome:?}");
        assert_eq!(adaptive.in_flight(), 0);
    }
}

/// An adaptive limit that falls at a single sign of overload.
fn adaptive(initial: u32) -> (Arc<AdaptiveConcurrency>, CallSettings) {
    let adaptive = AdaptiveSettings {
        law: Law::Aimd(Aimd::default()),
        bounds: Bounds {
            least: 1,
            most: 40,
            initial,
        },
        window: Duration::from_micros(1),
        least_samples: 1,
    };
    let limit = Arc::new(AdaptiveConcurrency::new(adaptive, SplitMix::new(1)).unwrap());
    let settings = CallSettings {
        guard: Guard::Adaptive(Arc::clone(&limit)),
        ..plain()
    };
    (limit, settings)
}

async fn elapsed() -> Elapsed {
    let late = timeout(Duration::from_secs(1), std::future::pending::<()>());
    late.await.unwrap_err()
}

#[derive(Debug)]
struct Wrapped(Box<dyn std::error::Error + Send + Sync>);

impl std::fmt::Display for Wrapped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "wrapped")
    }
}

impl std::error::Error for Wrapped {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.0)
    }
}

/// Makes a call whose attempts take a second and then fail with an error that `error` makes;
/// returns the limit after it.
async fn limit_after<E: 'static>(classified: Retry, error: impl Fn(Elapsed) -> E) -> u32 {
    let (limit, settings) = adaptive(2);
    let work = || async { Err::<(), _>(error(elapsed().await)) };
    let result = retry_if(&settings, |_| classified, work).await;
    assert!(matches!(result, Err(CallError::Inner(_))));
    limit.limit()
}

#[tokio::test(start_paused = true)]
async fn a_time_out_inside_the_work_lowers_the_limit_as_the_deadline_does() {
    let timed_out = || io::Error::from(io::ErrorKind::TimedOut);
    let reset = || io::Error::from(io::ErrorKind::ConnectionReset);
    for classified in [Retry::Backoff, Retry::Stop] {
        for limit in [
            limit_after(classified, |elapsed| elapsed).await,
            limit_after(classified, io::Error::from).await,
            limit_after(classified, io::Error::other).await,
            limit_after(classified, |_| timed_out()).await,
            limit_after(classified, |_| {
                Box::<dyn std::error::Error>::from(timed_out())
            })
            .await,
            limit_after(
                classified,
                |elapsed| -> Box<dyn std::error::Error + Send + Sync> {
                    Box::new(Wrapped(elapsed.into()))
                },
            )
            .await,
        ] {
            assert_eq!(limit, 1, "{classified:?}");
        }
        assert_eq!(limit_after(classified, |_| reset()).await, 2);
        assert_eq!(limit_after(classified, |_| "slow").await, 2);
    }
    assert_eq!(limit_after(Retry::TimedOut, |_| "slow").await, 1);
}

#[tokio::test(start_paused = true)]
async fn forty_calls_that_time_out_inside_lower_the_limit() {
    let (limit, settings) = adaptive(40);
    for _ in 0..15 {
        let calls = (0..40).map(|_| {
            let settings = settings.clone();
            tokio::spawn(async move {
                let late = || timeout(Duration::from_secs(1), std::future::pending::<()>());
                retry(&settings, late).await.is_err()
            })
        });
        for call in calls.collect::<Vec<_>>() {
            assert!(call.await.unwrap());
        }
    }
    assert!(limit.limit() < 15, "{}", limit.limit());
}

#[tokio::test(start_paused = true)]
async fn calls_that_the_caller_drops_show_no_guard_anything() {
    let throttle = Throttle::new(ThrottleSettings::default()).unwrap();
    let breaker = Breaker::new(BreakerSettings::default(), SplitMix::new(1)).unwrap();
    for guard in [
        Guard::Throttle(Arc::new(throttle)),
        Guard::Breaker(Arc::new(breaker)),
        adaptive(2).1.guard,
    ] {
        let settings = CallSettings { guard, ..plain() };
        let sent = Mutex::new(0);
        let call = || {
            retry(&settings, || {
                *sent.lock().unwrap() += 1;
                async {
                    sleep(Duration::from_millis(200)).await;
                    Ok::<_, &str>("up")
                }
            })
        };
        for _ in 0..100 {
            assert!(timeout(Duration::from_millis(50), call()).await.is_err());
        }
        for _ in 0..100 {
            assert_eq!(call().await.unwrap(), "up", "{:?}", settings.guard);
        }
        assert_eq!(*sent.lock().unwrap(), 200);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_until_the_deadline_is_throttled() {
    let throttle = Throttle::new(ThrottleSettings::default()).unwrap();
    let settings = CallSettings {
        guard: Guard::Throttle(Arc::new(throttle)),
        within: Duration::from_millis(50),
        ..plain()
    };
    let mut sent = 0;
    for _ in 0..100 {
        sent += play(&settings, 60_000, &[Ok("late")]).await.1.len();
    }
    assert!(sent < 30, "{sent}");
}

#[tokio::test(start_paused = true)]
async fn every_error_is_retried_without_a_classification() {
    let mut made = 0;
    let result: Result<(), _> = retry(&plain(), || {
        made += 1;
        async { Err("down") }
    })
    .await;
    assert!(
        matches!(result, Err(CallError::Inner("down"))),
        "{result:?}"
    );
    assert_eq!(made, 3);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_makes_no_further_attempts() {
    let made = Arc::new(Mutex::new(0));
    let count = Arc::clone(&made);
    let call = async move {
        let work = || {
            *count.lock().unwrap() += 1;
            async { Err::<(), _>("down") }
        };
        retry(&plain(), work).await
    };
    assert!(timeout(Duration::from_millis(50), call).await.is_err());
    sleep(Duration::from_secs(60)).await;
    assert_eq!(*made.lock().unwrap(), 1);
}
