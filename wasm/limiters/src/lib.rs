//! Limits on wasm32-unknown-unknown. The host, `../run.mjs`, sets the time of some, and the others
//! read JavaScript's clock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use ratekeeper::core::{Clock, Gcra, Nanos, Origin, Quota, Time};
use ratekeeper::store::MemoryConfig;
use ratekeeper::{KeyedLimiter, Limiter, Refused};

/// The host's clock: whole milliseconds, which it sets.
#[derive(Default)]
struct HostClock(AtomicU64);

impl Clock for HostClock {
    fn now(&self) -> Time {
        Time::ZERO + Nanos::from_millis(self.0.load(Ordering::Relaxed))
    }

    fn origin(&self) -> Origin {
        Origin::UNIX // not known
    }
}

static CLOCK: LazyLock<Arc<HostClock>> = LazyLock::new(Arc::default);

/// A burst of three, and one more every 100 ms.
const QUOTA: Quota = Quota::per_second(10).burst(3);

fn bucket() -> Gcra {
    Gcra::token_bucket(QUOTA).expect("a quota that a bucket can count")
}

static ONE: LazyLock<Limiter<Gcra, Arc<HostClock>>> =
    LazyLock::new(|| Limiter::with_clock(bucket(), Arc::clone(&CLOCK)));

static KEYED: LazyLock<KeyedLimiter<Gcra, Arc<HostClock>>> = LazyLock::new(|| {
    let memory = MemoryConfig { budget_bytes: 1 << 20 };
    KeyedLimiter::with_clock(bucket(), memory, Arc::clone(&CLOCK))
});

/// By JavaScript's clock, without a line of code.
static SYSTEM: LazyLock<Limiter> = LazyLock::new(|| Limiter::token_bucket(QUOTA).expect("as above"));

/// Sets the host's clock.
#[unsafe(no_mangle)]
pub extern "C" fn set_millis(millis: u32) {
    CLOCK.0.store(millis.into(), Ordering::Relaxed);
}

/// Returns 0 if the request passes, else the milliseconds to wait.
fn millis<T>(answer: Result<T, Refused>) -> f64 {
    match answer {
        Ok(_) => 0.0,
        Err(Refused::Until(wait)) => wait.as_secs_f64() * 1e3,
        Err(Refused::Never) => f64::INFINITY,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn check() -> f64 {
    millis(ONE.check())
}

#[unsafe(no_mangle)]
pub extern "C" fn check_key(user: u32) -> f64 {
    millis(KEYED.check(user))
}

#[unsafe(no_mangle)]
pub extern "C" fn check_by_the_system_clock() -> f64 {
    millis(SYSTEM.check())
}
