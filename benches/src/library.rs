//! The library beside its peers: one call of each, as a program would make it, clock included.
//!
//! ```text
//!   floor    the least that all need: the counter read, and one change of a word
//!   ours     Limiter, KeyedLimiter, AdaptiveConcurrency
//!   peers    governor, leaky-bucket, ratelimit, tower, a tokio semaphore
//! ```
//!
//! Each runs with the clock it ships with: the processor's counter (ours, governor), or the
//! machine's clock (ratelimit, leaky-bucket and tower through tokio). Two read no clock (`*`): an
//! unfair leaky-bucket while it has permits, which it gives back in steps, so that it may pass
//! twice its burst at once; and tower's `RateLimit` while it refuses, which a timer ends. The
//! latter belongs to one task, so it has no row of two threads. A concurrency limit has a row of
//! its own, because its permits are given back. `1.50 x peer` is that many times as fast.

mod keys;
mod tower;

use std::future::Future;
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::atomic::AtomicU64;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ::tower::limit::rate::Rate;
use ::tower::limit::{ConcurrencyLimit, RateLimit};
use governor::{DefaultDirectRateLimiter, RateLimiter};
use leaky_bucket::RateLimiter as LeakyBucket;
use ratekeeper::core::Time;
use ratekeeper::{Clock, Limiter, SystemClock};
use ratekeeper_resilience::{AdaptiveConcurrency, AdaptiveSettings, SplitMix};
use ratelimit::Ratelimiter;
use tokio::sync::Semaphore;
use tower_service::Service;

use crate::direct::{ALLOWS, governor_allows, load_and_cas};
use crate::measure::{Contender, Measured, measure};
use crate::{Effort, compare, report};

/// Never denied in a run: a permit a nanosecond.
const OFTEN: u64 = 1_000_000_000;
/// Prefix of the names of rows that are not peers.
const FLOOR: &str = "floor";
/// Prefix of the names of our rows.
const OURS: &str = "ratekeeper";

pub(crate) fn run(effort: Effort) {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_time().build().expect("a runtime");
    let _entered = runtime.enter(); // leaky-bucket and tower ask for its clock
    one_limit(effort, Ask::Allow);
    one_limit(effort, Ask::Deny);
    two_threads(effort, Ask::Allow);
    two_threads(effort, Ask::Deny);
    acquire(effort);
    concurrency(effort);
    keys::numbers(Effort {
        keys: 100_000,
        ..effort
    });
    keys::numbers(effort);
    keys::numbers_done_with(effort);
    keys::strings(effort);
    tower::run(effort);
    sizes();
}

/// Measures the layer only.
pub(crate) fn layer(effort: Effort) {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_time().build().expect("a runtime");
    let _entered = runtime.enter(); // tower asks for its clock
    tower::run(effort);
}

/// Prints a table, and notes our row and the fastest peer for the comparison.
fn show(title: &str, rows: &[Measured]) {
    report::beside(title, (FLOOR, OURS), rows);
    compare::best(&format!("{title}, ns"), rows, (FLOOR, OURS));
}

/// Answer of the limits in a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ask {
    Allow,
    Deny,
}

/// A limiter of each kind that gives this answer.
struct Limiters {
    ours: Limiter,
    governor: DefaultDirectRateLimiter,
    ratelimit: Ratelimiter,
    leaky: LeakyBucket,
    leaky_unfair: LeakyBucket,
}

impl Limiters {
    fn new(ask: Ask) -> Self {
        let leaky = |fair| {
            let mut builder = LeakyBucket::builder();
            match ask {
                // It refills in steps: enough permits that it never runs out.
                Ask::Allow => builder.max(usize::MAX >> 2).initial(usize::MAX >> 2),
                Ask::Deny => builder
                    .max(1)
                    .initial(0)
                    .interval(Duration::from_secs(24 * 3_600)),
            };
            builder.fair(fair).build()
        };
        let limiters = match ask {
            Ask::Allow => Self {
                ours: Limiter::per(ALLOWS).expect("a quota"),
                governor: RateLimiter::direct(governor_allows()),
                ratelimit: Ratelimiter::builder(OFTEN)
                    .max_tokens(OFTEN)
                    .initial_available(OFTEN)
                    .build()
                    .expect("a rate"),
                leaky: leaky(true),
                leaky_unfair: leaky(false),
            },
            Ask::Deny => Self {
                ours: Limiter::per("1/1d").expect("a quota"),
                governor: RateLimiter::direct(governor::Quota::per_hour(NonZeroU32::MIN)),
                ratelimit: Ratelimiter::builder(1)
                    .period(Duration::from_secs(24 * 3_600))
                    .initial_available(1)
                    .build()
                    .expect("a rate"),
                leaky: leaky(true),
                leaky_unfair: leaky(false),
            },
        };
        if ask == Ask::Deny {
            let _ = limiters.ours.check();
            let _ = (limiters.governor.check(), limiters.ratelimit.try_wait());
        }
        let allowed = [
            limiters.ours.check().is_ok(),
            limiters.governor.check().is_ok(),
            limiters.ratelimit.try_wait().is_ok(),
            limiters.leaky.try_acquire(1),
            limiters.leaky_unfair.try_acquire(1),
        ];
        assert_eq!(
            allowed,
            [ask == Ask::Allow; 5],
            "each limiter decides as measured"
        );
        limiters
    }
}

/// Creates tower's limit around a service that does nothing.
fn tower_rate(ask: Ask) -> RateLimit<Nothing> {
    let rate = match ask {
        Ask::Allow => Rate::new(u64::MAX, Duration::from_secs(24 * 3_600)),
        Ask::Deny => Rate::new(1, Duration::from_secs(24 * 3_600)),
    };
    RateLimit::new(Nothing, rate)
}

/// A service that is done at once.
#[derive(Clone, Copy)]
struct Nothing;

impl Service<()> for Nothing {
    type Response = ();
    type Error = std::convert::Infallible;
    type Future = std::future::Ready<Result<(), Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, (): ()) -> Self::Future {
        std::future::ready(Ok(()))
    }
}

/// Polls once, without a waker.
fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Returns the name of the unfair leaky-bucket, which reads the clock only when it is empty.
const fn unfair(ask: Ask) -> &'static str {
    match ask {
        Ask::Allow => "leaky-bucket try_acquire, unfair *",
        Ask::Deny => "leaky-bucket try_acquire, unfair",
    }
}

fn one_limit(effort: Effort, ask: Ask) {
    let word = AtomicU64::new(0);
    let counter = quanta::Clock::new();
    let Limiters {
        ours,
        governor,
        ratelimit,
        leaky,
        leaky_unfair,
    } = &Limiters::new(ask);
    let mut tower = tower_rate(ask);
    let tower_name = match ask {
        Ask::Allow => "tower RateLimit",
        Ask::Deny => "tower RateLimit *",
    };
    if ask == Ask::Deny {
        let _ = poll_once(std::future::poll_fn(|context| tower.poll_ready(context)));
        let _ = poll_once(tower.call(()));
    }
    let mut contenders = vec![
        match ask {
            Ask::Allow => Contender::new("floor: counter + compare-exchange", |_| {
                (counter.raw(), load_and_cas(&word))
            }),
            Ask::Deny => Contender::new("floor: counter + load", |_| {
                (
                    counter.raw(),
                    word.load(std::sync::atomic::Ordering::Relaxed),
                )
            }),
        },
        Contender::new("ratekeeper Limiter::check", |_| ours.check().is_ok()),
        Contender::new("governor check", |_| governor.check().is_ok()),
        Contender::new("ratelimit try_wait", |_| ratelimit.try_wait().is_ok()),
        Contender::new("leaky-bucket try_acquire", |_| leaky.try_acquire(1)),
        Contender::new(unfair(ask), |_| leaky_unfair.try_acquire(1)),
        Contender::new(tower_name, |_| {
            let ready = poll_once(std::future::poll_fn(|context| tower.poll_ready(context)));
            match ready {
                Poll::Ready(_) => poll_once(tower.call(())).is_ready(),
                Poll::Pending => false,
            }
        }),
    ];
    let rows = measure(effort.rounds, &mut contenders);
    show(&format!("one limit, {ask:?}"), &rows);
}

fn two_threads(effort: Effort, ask: Ask) {
    let word = AtomicU64::new(0);
    let counter = quanta::Clock::new();
    let Limiters {
        ours,
        governor,
        ratelimit,
        leaky,
        leaky_unfair,
    } = &Limiters::new(ask);
    let mut contenders = vec![
        match ask {
            Ask::Allow => Contender::pair("floor: counter + compare-exchange", |_| {
                (counter.raw(), load_and_cas(&word))
            }),
            Ask::Deny => Contender::pair("floor: counter + load", |_| {
                (
                    counter.raw(),
                    word.load(std::sync::atomic::Ordering::Relaxed),
                )
            }),
        },
        Contender::pair("ratekeeper Limiter::check", |_| ours.check().is_ok()),
        Contender::pair("governor check", |_| governor.check().is_ok()),
        Contender::pair("ratelimit try_wait", |_| ratelimit.try_wait().is_ok()),
    ];
    // The clock of tokio belongs to a thread.
    let handle = tokio::runtime::Handle::current();
    contenders.push(Contender::pair("leaky-bucket try_acquire", {
        let handle = handle.clone();
        move |_| {
            let _entered = handle.enter();
            leaky.try_acquire(1)
        }
    }));
    contenders.push(Contender::pair(unfair(ask), move |_| {
        let _entered = handle.enter();
        leaky_unfair.try_acquire(1)
    }));
    let rows = measure(effort.rounds, &mut contenders);
    show(&format!("one limit, 2 threads, {ask:?}"), &rows);
}

/// Measures async waiting for a permit that is available: one poll.
fn acquire(effort: Effort) {
    let word = AtomicU64::new(0);
    let counter = quanta::Clock::new();
    let Limiters {
        ours,
        governor,
        leaky,
        leaky_unfair,
        ..
    } = &Limiters::new(Ask::Allow);
    let mut contenders = vec![
        Contender::new("floor: counter + compare-exchange", |_| {
            (counter.raw(), load_and_cas(&word))
        }),
        Contender::new("ratekeeper Limiter::acquire", |_| {
            poll_once(ours.acquire()).is_ready()
        }),
        Contender::new("governor until_ready", |_| {
            poll_once(governor.until_ready()).is_ready()
        }),
        Contender::new("leaky-bucket acquire_one", |_| {
            poll_once(leaky.acquire_one()).is_ready()
        }),
        Contender::new("leaky-bucket acquire_one, unfair *", |_| {
            poll_once(leaky_unfair.acquire_one()).is_ready()
        }),
    ];
    let rows = measure(effort.rounds, &mut contenders);
    show("acquire, a permit is there", &rows);
}

/// Measures taking one of many permits, and giving it back.
fn concurrency(effort: Effort) {
    let word = AtomicU64::new(0);
    let semaphore = Semaphore::new(100);
    let settings = AdaptiveSettings::default();
    let ours = AdaptiveConcurrency::new(settings, SplitMix::new(1)).expect("the defaults");
    let ours = &ours;
    let semaphore = &semaphore;
    let clock = SystemClock::new();
    let mut tower = ConcurrencyLimit::new(Nothing, 100);
    let mut contenders = vec![
        Contender::new("floor: two compare-exchanges", |_| {
            (load_and_cas(&word), load_and_cas(&word))
        }),
        Contender::new("ratekeeper AdaptiveConcurrency", |_| {
            ours.try_acquire(Time::ZERO).is_some()
        }),
        Contender::new("timed and reported: AdaptiveConcurrency", |_| {
            let permit = ours.try_acquire(clock.now());
            permit.map(|permit| permit.success(clock.now())).is_some()
        }),
        Contender::new("tokio Semaphore try_acquire", |_| {
            semaphore.try_acquire().is_ok()
        }),
        Contender::new("tokio Semaphore acquire", |_| {
            poll_once(semaphore.acquire()).is_ready()
        }),
        Contender::new("tower ConcurrencyLimit", move |_| {
            let _ = poll_once(std::future::poll_fn(|context| tower.poll_ready(context)));
            poll_once(tower.call(())).is_ready()
        }),
    ];
    contenders.push(Contender::pair("floor, 2 threads", |_| {
        (load_and_cas(&word), load_and_cas(&word))
    }));
    contenders.push(Contender::pair("ratekeeper, 2 threads", |_| {
        ours.try_acquire(Time::ZERO).is_some()
    }));
    contenders.push(Contender::pair("tokio Semaphore, 2 threads", |_| {
        semaphore.try_acquire().is_ok()
    }));
    let pairs = contenders.split_off(6);
    let rows = measure(effort.rounds, &mut contenders);
    show("a permit of 100, taken and given back", &rows);
    let mut contenders = pairs;
    let rows = measure(effort.rounds, &mut contenders);
    show("a permit of 100, taken and given back by 2 threads", &rows);
}

fn sizes() {
    report::line("\nbytes of one limiter");
    for (name, bytes) in [
        ("ratekeeper Limiter", size_of::<Limiter>()),
        ("governor", size_of::<DefaultDirectRateLimiter>()),
        ("ratelimit", size_of::<Ratelimiter>()),
        ("leaky-bucket", size_of::<LeakyBucket>()),
        ("tower RateLimit", size_of::<RateLimit<Nothing>>()),
        (
            "ratekeeper AdaptiveConcurrency",
            size_of::<AdaptiveConcurrency>(),
        ),
        ("tokio Semaphore", size_of::<Semaphore>()),
    ] {
        report::line(&format!("{name:<46} {bytes:>8}"));
    }
}
