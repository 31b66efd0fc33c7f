//! Settings: how calls are made, and the state that they share.

use std::sync::Arc;
use std::time::Duration;

use crate::{AdaptiveConcurrency, Backoff, Breaker, Budget, RetryAfter, Throttle, Typical};

/// Decides if an attempt is worth making.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Guard {
    /// Nothing: every attempt is made.
    #[default]
    Without,
    /// The smoother of the two; for servers that are called often.
    Throttle(Arc<Throttle>),
    /// For servers that are up or down.
    Breaker(Arc<Breaker>),
    /// For servers that do not report their limits: limits the attempts in flight, by the time that
    /// the server takes to answer. An attempt of the tower layer ends with the head of its answer.
    Adaptive(Arc<AdaptiveConcurrency>),
}

/// How calls are made. Clones share budget and guard: create the settings once for each server,
/// and give one call others by `CallSettings { within, ..settings.clone() }`.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use ratekeeper_resilience::{Breaker, BreakerSettings, CallSettings, Guard, SplitMix};
///
/// let breaker = Breaker::new(BreakerSettings::default(), SplitMix::seeded())?;
/// let settings = CallSettings {
///     guard: Guard::Breaker(Arc::new(breaker)),
///     ..CallSettings::default()
/// };
/// let patient = CallSettings { within: Duration::from_secs(60), ..settings.clone() };
/// assert!(Arc::ptr_eq(&settings.budget, &patient.budget));
/// # Ok::<(), ratekeeper_resilience::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct CallSettings {
    /// How long a call may take with all its attempts and waits. Default 10 s.
    pub within: Duration,
    /// Typical times of one attempt. Default not known.
    pub typical: Typical,
    /// Guard that decides if an attempt is made. Default none.
    pub guard: Guard,
    /// Bound of the retries of all calls together. Default a budget of its own.
    ///
    /// Time is the tokio runtime's, counted from one zero in all the process: do not use
    /// a shared budget or guard with another clock.
    pub budget: Arc<Budget>,
    /// Waits and attempts.
    pub backoff: Backoff,
    /// How far a wait that the server states is obeyed; a call that would have to wait for
    /// longer ends with the refusal.
    pub retry_after: RetryAfter,
}

impl Default for CallSettings {
    fn default() -> Self {
        Self {
            within: Duration::from_secs(10),
            typical: Typical::default(),
            guard: Guard::default(),
            budget: Arc::default(),
            backoff: Backoff::default(),
            retry_after: RetryAfter::default(),
        }
    }
}
