//! Breaker: stops calling a dependency that fails, and comes back one probe at a time.
//!
//! A dependency that is down costs every caller its time-out and gets no rest to recover. The
//! breaker records how calls end. When too many fail it refuses at once, waits, and then lets
//! single probes through before it closes again.
//!
//! ```text
//!              failures >= 50 % of >= 20 calls in 10 s
//!    +--------+ ------------------------------------> +--------+
//!    | closed |                                       |  open  | until jitter(5 s x 2^k)
//!    +--------+             any probe fails: k + 1    +--------+
//!        ^         +-----------+ --------------------->  |
//!        +-------- | half-open | <-----------------------+
//!     1, then 2,   +-----------+        time is over
//!     then 4 probes succeed
//! ```
//!
//! * Open for `U(0.8, 1) x min(cap, base x 2^k)`, where `k` counts the openings since the
//!   breaker last stayed closed for a whole window: a dependency that relapses after its
//!   probes goes on where it was.
//! * Defaults, with reasons: 10 s of memory (a few time-outs), 20 calls (three failures in four
//!   are too few), 50 %, 5 s (a restart), cap 60 s (callers wait for the recovery), 20 % of
//!   jitter (clients that were cut off together do not return together), rounds of 1, 2 and 4
//!   probes (a server that just restarted is cold), probes given up after 10 s.
//! * Cost: closed, asking is one atomic load; reporting a success is one compare-exchange,
//!   a failure that and ten loads. Open, refusing is two loads. Only changes take a lock.
//! * The breaker opens when a failure is reported, never by a success. A report of a call
//!   that began before the last change is ignored; one that races with the change itself
//!   may be counted in the new window.
//! * A clock that is set back prolongs the time open to twice the cap at most, and a second: if more
//!   than the cap and a second is left by the new time, it ends at once.
//! * Trade-off: all or nothing, and blind to calls that are merely slow until their caller
//!   reports a time-out.
//! * Source: M. Nygard, "Release It!" (2007), stability patterns; M. Brooker, "Exponential
//!   backoff and jitter" (2015) for the jitter.

mod gate;
mod permit;
mod probes;
mod settings;

use std::fmt;

use ratekeeper_core::{Nanos, Time};

use self::gate::{BreakerGate, Phase};
use self::permit::CallEnd;
pub use self::permit::CallPermit;
use self::probes::Probes;
pub use self::settings::BreakerSettings;
use crate::Error;
use crate::random::{Random, SplitMix};
use crate::sync::{AtomicU64, Mutex, Ordering, is_over, lock};
use crate::tally::{MarkedCount, RecentTally};

/// Present state of a [`Breaker`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BreakerState {
    /// Every call passes.
    Closed,
    /// No call passes until then; the first one afterwards is a probe.
    Open {
        /// When the first probe may pass.
        until: Time,
    },
    /// Only probes pass.
    HalfOpen,
}

/// The call must not be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused {
    /// While open: when the first probe may pass. While half-open: when the probes in
    /// flight are given up, at the latest.
    pub until: Time,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the circuit breaker is open")
    }
}

impl std::error::Error for Refused {}

/// A circuit breaker, shared by threads; see the [module](self) for figure and formula.
///
/// ```
/// use ratekeeper_core::{Nanos, Time};
/// use ratekeeper_resilience::{Breaker, BreakerSettings, BreakerState, SplitMix};
///
/// let breaker = Breaker::new(BreakerSettings::default(), SplitMix::seeded()).unwrap();
/// let now = Time::ZERO;
/// for _ in 0..20 {
///     breaker.try_pass(now).unwrap().failure(now);
/// }
/// let refused = breaker.try_pass(now).unwrap_err();
/// assert!(refused.until >= now + Nanos::from_secs(4));
/// assert_eq!(breaker.state(), BreakerState::Open { until: refused.until });
///
/// // One probe, and no other call beside it.
/// let probe = breaker.try_pass(refused.until).unwrap();
/// assert!(breaker.try_pass(refused.until).is_err());
/// probe.success(refused.until);
/// ```
pub struct Breaker {
    /// `generation << 2 | phase`. Stored with release, loaded with acquire: it publishes
    /// `open_until` and the cleared tally.
    gate: AtomicU64,
    /// Meaningful while open.
    open_until: AtomicU64,
    opened: AtomicU64,
    calls: RecentTally,
    settings: BreakerSettings,
    course: Mutex<BreakerCourse>,
}

/// State that changes only when the breaker changes phase.
struct BreakerCourse {
    /// Openings since the breaker last stayed closed for a window: `k + 1` while open.
    streak: u32,
    closed_at: Option<Time>,
    probes: Probes,
    random: SplitMix,
}

impl Breaker {
    /// Creates a closed breaker that has seen no calls. Give each its own random numbers, which
    /// keep the breakers of one fleet apart.
    ///
    /// # Errors
    /// [`Error::Window`], [`Error::Percent`], [`Error::ProbeRounds`] or [`Error::OpenFor`]
    /// for settings outside their bounds.
    pub fn new(settings: BreakerSettings, random: SplitMix) -> Result<Self, Error> {
        settings.validate()?;
        Ok(Self {
            gate: AtomicU64::new(BreakerGate::new(0, Phase::Closed).0),
            open_until: AtomicU64::new(0),
            opened: AtomicU64::new(0),
            calls: RecentTally::new(settings.window.into()).ok_or(Error::Window)?,
            settings,
            course: Mutex::new(BreakerCourse {
                streak: 0,
                closed_at: None,
                probes: Probes::default(),
                random,
            }),
        })
    }

    /// Returns a permit to make one call. Report on it how the call ended.
    ///
    /// # Errors
    /// [`Refused`] while open, and while half-open with all probes of the round under way.
    #[inline]
    pub fn try_pass(&self, now: Time) -> Result<CallPermit<'_>, Refused> {
        let gate = self.gate();
        match gate.phase() {
            Phase::Closed => Ok(CallPermit::new(self, gate)),
            Phase::Open if !self.has_waited(now) => Err(Refused {
                until: self.open_until(),
            }),
            Phase::Open | Phase::HalfOpen => self.probe(now),
        }
    }

    /// Returns the present state. It stays `Open` until a caller asks to pass.
    pub fn state(&self) -> BreakerState {
        match self.gate().phase() {
            Phase::Closed => BreakerState::Closed,
            Phase::HalfOpen => BreakerState::HalfOpen,
            Phase::Open => BreakerState::Open {
                until: self.open_until(),
            },
        }
    }

    /// Returns the number of times it has opened since it was made.
    pub fn opened_total(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    #[inline]
    fn gate(&self) -> BreakerGate {
        BreakerGate(self.gate.load(Ordering::Acquire))
    }

    fn open_until(&self) -> Time {
        Time::from_nanos(self.open_until.load(Ordering::Relaxed))
    }

    /// While open: returns true if a probe may pass.
    fn has_waited(&self, now: Time) -> bool {
        is_over(self.open_until(), self.settings.open_cap.into(), now)
    }

    /// Not closed, or not long ago: looks again under the lock.
    #[cold]
    fn probe(&self, now: Time) -> Result<CallPermit<'_>, Refused> {
        let mut course = lock(&self.course);
        let gate = self.gate();
        match gate.phase() {
            Phase::Closed => return Ok(CallPermit::new(self, gate)),
            Phase::Open => {
                if !self.has_waited(now) {
                    return Err(Refused {
                        until: self.open_until(),
                    });
                }
                course.probes = Probes::default();
                self.turn(gate, Phase::HalfOpen);
            }
            Phase::HalfOpen => {}
        }
        let patience = self.settings.probe_patience.into();
        if course.probes.is_lost(now, patience) {
            let until = self.open(&mut course, now);
            return Err(Refused { until });
        }
        if course.probes.begin(now) {
            return Ok(CallPermit::new(self, self.gate()));
        }
        Err(Refused {
            until: course.probes.given_up(patience),
        })
    }

    /// Records the end of a call of the closed breaker.
    fn count(&self, gate: BreakerGate, now: Time, failed: u64) {
        if self.gate() != gate {
            return; // it began before the last change
        }
        let call = MarkedCount {
            all: 1,
            marked: failed,
        };
        self.calls.add(now, call);
        if failed == 0 {
            return;
        }
        let seen = self.calls.sum(now);
        let share = u64::from(self.settings.failure_percent) * seen.all;
        if seen.all >= u64::from(self.settings.calls_min) && seen.marked * 100 >= share {
            let mut course = lock(&self.course);
            if self.gate() == gate {
                let relapse = course
                    .closed_at
                    .is_some_and(|closed_at| now.since(closed_at) < self.settings.window.into());
                course.streak = if relapse { course.streak } else { 0 };
                self.open(&mut course, now);
            }
        }
    }

    /// Records the end of a probe.
    fn judge(&self, gate: BreakerGate, now: Time, end: CallEnd) {
        let mut course = lock(&self.course);
        if self.gate() != gate {
            return; // given up, or another one failed
        }
        course.probes.end();
        match end {
            CallEnd::Cancelled => {}
            CallEnd::Failure => {
                self.open(&mut course, now);
            }
            CallEnd::Success => {
                if course.probes.succeed() == self.settings.probe_rounds {
                    course.closed_at = Some(now);
                    self.calls.clear();
                    self.turn(gate, Phase::Closed);
                }
            }
        }
    }

    /// Opens, and returns until when.
    fn open(&self, course: &mut BreakerCourse, now: Time) -> Time {
        let [base, cap] = [self.settings.open_base, self.settings.open_cap].map(Nanos::from);
        let doubled = base.as_nanos().saturating_mul(1 << course.streak.min(63));
        let longest = doubled.min(cap.as_nanos());
        let shortest = longest - longest / 5;
        let span = Nanos::from_nanos(shortest)..=Nanos::from_nanos(longest);
        let until = now + course.random.between(span);
        course.streak = course.streak.saturating_add(1);
        self.open_until.store(until.as_nanos(), Ordering::Relaxed);
        self.opened.fetch_add(1, Ordering::Relaxed);
        self.turn(self.gate(), Phase::Open);
        until
    }

    /// Must be called under the lock.
    fn turn(&self, from: BreakerGate, to: Phase) {
        let next = BreakerGate::new(from.generation().wrapping_add(1), to);
        self.gate.store(next.0, Ordering::Release);
    }
}

impl fmt::Debug for Breaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Breaker")
            .field("state", &self.state())
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

#[cfg(loom)]
#[cfg(test)]
mod schedules;
#[cfg(not(loom))]
#[cfg(test)]
mod tests;
