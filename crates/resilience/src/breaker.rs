//! Breaker: stops calling what does not answer, and comes back one probe at a time.
//!
//! A dependency that is down costs every caller its time-out and gets no rest to recover.
//! The breaker watches how calls end. When too many fail it refuses on the spot, waits, and
//! then lets single probes through before it trusts again.
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
//! * Defaults, with reasons: 10 s of memory (a few time-outs), 20 calls (three failures in
//!   four say nothing), 50 %, 5 s (a restart), cap 60 s (somebody waits for the recovery),
//!   20 % of jitter (clients that were cut off together do not return together), rounds of
//!   1, 2 and 4 probes (what just restarted is cold), probes given up after 10 s.
//! * Cost: closed, asking is one atomic load; reporting a success is one compare-exchange,
//!   a failure that and ten loads. Open, refusing is two loads. Only changes take a lock.
//! * The breaker opens when a failure is reported, never by a success. A report of a call
//!   that began before the last change is ignored; one that races with the change itself
//!   may be counted in the new window.
//! * Trade-off: all or nothing, and blind to calls that are merely slow until their caller
//!   reports a time-out.
//! * Source: M. Nygard, "Release It!" (2007), stability patterns; M. Brooker, "Exponential
//!   backoff and jitter" (2015) for the jitter.

mod gate;
mod permit;
mod settings;

use std::fmt;

use ratekeeper_core::{Nanos, Time};

use self::gate::{Gate, Phase};
use self::permit::End;
pub use self::permit::Permit;
pub use self::settings::BreakerSettings;
use crate::Error;
use crate::random::{Random, SplitMix};
use crate::sync::{AtomicU64, Mutex, Ordering, lock};
use crate::tally::{Count, Tally};

/// What a [`Breaker`] does at present.
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
/// // One probe, and nobody beside it.
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
    calls: Tally,
    settings: BreakerSettings,
    course: Mutex<Course>,
}

/// What changes only with the state.
struct Course {
    /// Openings since the breaker last stayed closed for a window: `k + 1` while open.
    streak: u32,
    closed_at: Option<Time>,
    probes: Probes,
    random: SplitMix,
}

/// The present round of probes.
#[derive(Default)]
struct Probes {
    /// From 0; it has `2^round` probes.
    round: u32,
    in_flight: u32,
    succeeded: u32,
    last_began: Time,
}

impl Breaker {
    /// A closed breaker that has seen nothing. Give each its own random numbers: they are
    /// what keeps breakers of one fleet apart.
    ///
    /// # Errors
    /// [`Error::Window`], [`Error::Percent`], [`Error::ProbeRounds`] or [`Error::OpenFor`]
    /// for settings outside their bounds.
    pub fn new(settings: BreakerSettings, random: SplitMix) -> Result<Self, Error> {
        settings.validate()?;
        Ok(Self {
            gate: AtomicU64::new(Gate::new(0, Phase::Closed).0),
            open_until: AtomicU64::new(0),
            opened: AtomicU64::new(0),
            calls: Tally::new(settings.window).ok_or(Error::Window)?,
            settings,
            course: Mutex::new(Course {
                streak: 0,
                closed_at: None,
                probes: Probes::default(),
                random,
            }),
        })
    }

    /// Asks to make one call. Report how it ended on the permit.
    ///
    /// # Errors
    /// [`Refused`] while open, and while half-open with all probes of the round under way.
    #[inline]
    pub fn try_pass(&self, now: Time) -> Result<Permit<'_>, Refused> {
        let gate = self.gate();
        match gate.phase() {
            Phase::Closed => Ok(Permit::new(self, gate)),
            Phase::Open if now < self.open_until() => Err(Refused {
                until: self.open_until(),
            }),
            Phase::Open | Phase::HalfOpen => self.probe(now),
        }
    }

    /// What the breaker does at present. It stays `Open` until somebody asks to pass.
    pub fn state(&self) -> BreakerState {
        match self.gate().phase() {
            Phase::Closed => BreakerState::Closed,
            Phase::HalfOpen => BreakerState::HalfOpen,
            Phase::Open => BreakerState::Open {
                until: self.open_until(),
            },
        }
    }

    /// How often it has opened since it was made.
    pub fn opened_total(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    #[inline]
    fn gate(&self) -> Gate {
        Gate(self.gate.load(Ordering::Acquire))
    }

    fn open_until(&self) -> Time {
        Time::from_nanos(self.open_until.load(Ordering::Relaxed))
    }

    /// Not closed, or not long ago: looks again under the lock.
    #[cold]
    fn probe(&self, now: Time) -> Result<Permit<'_>, Refused> {
        let mut course = lock(&self.course);
        let gate = self.gate();
        match gate.phase() {
            Phase::Closed => return Ok(Permit::new(self, gate)),
            Phase::Open => {
                let until = self.open_until();
                if now < until {
                    return Err(Refused { until });
                }
                course.probes = Probes::default();
                self.turn(gate, Phase::HalfOpen);
            }
            Phase::HalfOpen => {}
        }
        let given_up = course.probes.last_began + self.settings.probe_patience;
        if course.probes.in_flight > 0 && now >= given_up {
            let until = self.open(&mut course, now);
            return Err(Refused { until });
        }
        if course.probes.is_full() {
            return Err(Refused { until: given_up });
        }
        course.probes.in_flight += 1;
        course.probes.last_began = now;
        Ok(Permit::new(self, self.gate()))
    }

    /// A call of the closed breaker ended.
    fn count(&self, gate: Gate, now: Time, failed: u64) {
        if self.gate() != gate {
            return; // it began before the last change
        }
        let call = Count {
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
                    .is_some_and(|closed_at| now.since(closed_at) < self.settings.window);
                course.streak = if relapse { course.streak } else { 0 };
                self.open(&mut course, now);
            }
        }
    }

    /// A probe ended.
    fn judge(&self, gate: Gate, now: Time, end: End) {
        let mut course = lock(&self.course);
        if self.gate() != gate {
            return; // given up, or another one failed
        }
        course.probes.in_flight -= 1;
        match end {
            End::Cancelled => {}
            End::Failure => {
                self.open(&mut course, now);
            }
            End::Success => {
                course.probes.succeeded += 1;
                if course.probes.succeeded < course.probes.size() {
                    return;
                }
                course.probes = Probes {
                    round: course.probes.round + 1,
                    ..Probes::default()
                };
                if course.probes.round == self.settings.probe_rounds {
                    course.closed_at = Some(now);
                    self.calls.clear();
                    self.turn(gate, Phase::Closed);
                }
            }
        }
    }

    /// Opens, says until when.
    fn open(&self, course: &mut Course, now: Time) -> Time {
        let BreakerSettings {
            open_base,
            open_cap,
            ..
        } = self.settings;
        let doubled = open_base
            .as_nanos()
            .saturating_mul(1 << course.streak.min(63));
        let longest = doubled.min(open_cap.as_nanos());
        let shortest = longest - longest / 5;
        let span = Nanos::from_nanos(shortest)..=Nanos::from_nanos(longest);
        let until = now + course.random.between(span);
        course.streak = course.streak.saturating_add(1);
        self.open_until.store(until.as_nanos(), Ordering::Relaxed);
        self.opened.fetch_add(1, Ordering::Relaxed);
        self.turn(self.gate(), Phase::Open);
        until
    }

    /// Under the lock.
    fn turn(&self, from: Gate, to: Phase) {
        let next = Gate::new(from.generation().wrapping_add(1), to);
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

impl Probes {
    fn size(&self) -> u32 {
        1 << self.round
    }

    fn is_full(&self) -> bool {
        self.in_flight + self.succeeded >= self.size()
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn secs(secs: u64) -> Time {
        Time::ZERO + Nanos::from_secs(secs)
    }

    fn breaker() -> Breaker {
        Breaker::new(BreakerSettings::default(), SplitMix::new(1)).unwrap()
    }

    fn report(breaker: &Breaker, now: Time, successes: u32, failures: u32) {
        for _ in 0..successes {
            breaker.try_pass(now).unwrap().success(now);
        }
        for _ in 0..failures {
            match breaker.try_pass(now) {
                Ok(permit) => permit.failure(now),
                Err(_) => return,
            }
        }
    }

    /// Opens a breaker at `now`, says until when.
    fn open(breaker: &Breaker, now: Time) -> Time {
        report(breaker, now, 0, 20);
        breaker.try_pass(now).unwrap_err().until
    }

    /// Lets a whole recovery succeed at `now`.
    fn recover(breaker: &Breaker, now: Time) {
        for _ in 0..1 + 2 + 4 {
            breaker.try_pass(now).unwrap().success(now);
        }
        assert_eq!(breaker.state(), BreakerState::Closed);
    }

    #[test]
    fn half_of_twenty_opens() {
        for (successes, failures, opens) in [
            (0, 19, false),
            (0, 20, true),
            (10, 9, false),
            (10, 10, true),
            (11, 10, false),
            (1_000, 999, false),
            (1_000, 1_000, true),
        ] {
            let breaker = breaker();
            report(&breaker, secs(1), successes, failures);
            let opened = breaker.state() != BreakerState::Closed;
            assert_eq!(opened, opens, "{successes} and {failures}");
            assert_eq!(breaker.opened_total(), u64::from(opens));
        }
    }

    #[test]
    fn failures_are_forgotten_after_the_window() {
        let breaker = breaker();
        report(&breaker, secs(0), 0, 19);
        report(&breaker, secs(10), 0, 1);
        assert_eq!(breaker.state(), BreakerState::Closed);
    }

    #[test]
    fn probes_come_one_then_two_then_four() {
        let breaker = breaker();
        let now = open(&breaker, secs(1));
        assert!(breaker.try_pass(now - Nanos::from_nanos(1)).is_err());
        for round in [1, 2, 4] {
            let probes: Vec<_> = (0..round).map(|_| breaker.try_pass(now).unwrap()).collect();
            let refused = breaker.try_pass(now).unwrap_err();
            assert_eq!(refused.until, now + Nanos::from_secs(10));
            assert_eq!(breaker.state(), BreakerState::HalfOpen);
            for probe in probes {
                probe.success(now);
            }
        }
        assert_eq!(breaker.state(), BreakerState::Closed);
        report(&breaker, now, 0, 19);
        assert_eq!(
            breaker.state(),
            BreakerState::Closed,
            "the count begins anew"
        );
    }

    #[test]
    fn a_failed_probe_opens_for_longer() {
        let breaker = breaker();
        let mut now = secs(0);
        open(&breaker, now);
        for longest in [5, 10, 20, 40, 60, 60, 60] {
            let BreakerState::Open { until } = breaker.state() else {
                panic!("not open");
            };
            let open_for = until.since(now);
            let longest = Nanos::from_secs(longest);
            let shortest = Nanos::from_nanos(longest.as_nanos() / 5 * 4);
            assert!((shortest..=longest).contains(&open_for), "{open_for:?}");
            now = until;
            breaker.try_pass(now).unwrap().failure(now);
        }
    }

    #[test]
    fn a_relapse_goes_on_where_it_was_and_health_is_rewarded() {
        for (healthy_secs, longest_secs) in [(0, 10), (9, 10), (10, 5), (100, 5)] {
            let breaker = breaker();
            let closed_at = open(&breaker, secs(0));
            recover(&breaker, closed_at);
            let now = closed_at + Nanos::from_secs(healthy_secs);
            let open_for = open(&breaker, now).since(now);
            let longest = Nanos::from_secs(longest_secs);
            assert!(open_for <= longest, "{healthy_secs}: {open_for:?}");
            let shortest = Nanos::from_nanos(longest.as_nanos() / 5 * 4);
            assert!(open_for >= shortest, "{healthy_secs}: {open_for:?}");
        }
    }

    #[test]
    fn a_dropped_probe_makes_room_and_a_lost_one_is_given_up() {
        let breaker = breaker();
        let now = open(&breaker, secs(0));
        drop(breaker.try_pass(now).unwrap());
        let lost = breaker.try_pass(now).unwrap();
        let given_up = breaker.try_pass(now).unwrap_err().until;
        let until = breaker.try_pass(given_up).unwrap_err().until;
        assert_eq!(breaker.state(), BreakerState::Open { until });
        lost.success(given_up); // too late
        assert_eq!(breaker.state(), BreakerState::Open { until });
    }

    #[test]
    fn late_reports_are_ignored() {
        let breaker = breaker();
        let slow: Vec<_> = (0..100)
            .map(|_| breaker.try_pass(secs(0)).unwrap())
            .collect();
        let now = open(&breaker, secs(0));
        recover(&breaker, now);
        for permit in slow {
            permit.failure(now);
        }
        assert_eq!(breaker.state(), BreakerState::Closed);
    }

    #[test]
    fn settings_out_of_bounds_are_refused() {
        let good = BreakerSettings::default();
        for (settings, error) in [
            (
                BreakerSettings {
                    window: Nanos::from_nanos(9),
                    ..good
                },
                Error::Window,
            ),
            (
                BreakerSettings {
                    failure_percent: 0,
                    ..good
                },
                Error::Percent,
            ),
            (
                BreakerSettings {
                    failure_percent: 101,
                    ..good
                },
                Error::Percent,
            ),
            (
                BreakerSettings {
                    probe_rounds: 0,
                    ..good
                },
                Error::ProbeRounds,
            ),
            (
                BreakerSettings {
                    probe_rounds: 17,
                    ..good
                },
                Error::ProbeRounds,
            ),
            (
                BreakerSettings {
                    open_base: Nanos::ZERO,
                    ..good
                },
                Error::OpenFor,
            ),
            (
                BreakerSettings {
                    open_base: Nanos::from_secs(61),
                    ..good
                },
                Error::OpenFor,
            ),
        ] {
            assert_eq!(Breaker::new(settings, SplitMix::new(1)).unwrap_err(), error);
        }
    }

    proptest! {
        /// While a breaker is not closed, probes in flight never pass the size of the last
        /// round, and it is never open for longer than its cap.
        #[test]
        fn probes_and_times_stay_in_bounds(
            steps in prop::collection::vec((0_u8..5, 0_u64..8_000), 0..300),
            seed: u64,
        ) {
            let settings = BreakerSettings { calls_min: 2, ..BreakerSettings::default() };
            let breaker = Breaker::new(settings, SplitMix::new(seed)).unwrap();
            let (mut now, mut held) = (Time::ZERO, Vec::new());
            for (step, millis) in steps {
                now = now + Nanos::from_millis(millis);
                match (step, held.pop()) {
                    (0, Some(permit)) => Permit::success(permit, now),
                    (1, Some(permit)) => Permit::failure(permit, now),
                    (2, permit) => drop(permit),
                    (_, permit) => {
                        held.extend(permit);
                        held.extend(breaker.try_pass(now));
                    }
                }
                let gate = breaker.gate();
                let probes = held.iter().filter(|permit| permit.gate == gate).count();
                match breaker.state() {
                    BreakerState::Closed => {}
                    BreakerState::HalfOpen => prop_assert!(probes <= 4),
                    BreakerState::Open { until } => {
                        prop_assert_eq!(probes, 0);
                        prop_assert!(until.since(now) <= settings.open_cap);
                    }
                }
            }
            // It never locks itself in: with time and success it closes.
            held.clear();
            for _ in 0..20 {
                now = now + settings.open_cap;
                if let Ok(permit) = breaker.try_pass(now) {
                    permit.success(now);
                }
            }
            prop_assert_eq!(breaker.state(), BreakerState::Closed);
        }
    }
}

/// Every schedule of two threads; `RUSTFLAGS="--cfg loom" cargo test -p
/// ratekeeper-resilience --lib schedules`.
#[cfg(loom)]
#[cfg(test)]
mod schedules {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    fn breaker(calls_min: u32) -> Arc<Breaker> {
        let settings = BreakerSettings {
            calls_min,
            probe_rounds: 1,
            ..BreakerSettings::default()
        };
        Arc::new(Breaker::new(settings, SplitMix::new(1)).unwrap())
    }

    fn both(breaker: &Arc<Breaker>, act: impl Fn(&Breaker) -> bool + Copy + Send + 'static) -> u32 {
        let other = {
            let breaker = Arc::clone(breaker);
            thread::spawn(move || act(&breaker))
        };
        u32::from(act(breaker)) + u32::from(other.join().unwrap())
    }

    #[test]
    fn two_failures_are_both_counted_and_open_once() {
        loom::model(|| {
            let breaker = breaker(2);
            both(&breaker, |breaker| {
                let permit = breaker.try_pass(Time::ZERO);
                permit.map(|permit| permit.failure(Time::ZERO)).is_ok()
            });
            assert!(matches!(breaker.state(), BreakerState::Open { .. }));
            assert_eq!(breaker.opened_total(), 1);
        });
    }

    #[test]
    fn one_of_two_threads_gets_the_probe() {
        loom::model(|| {
            let breaker = breaker(1);
            breaker.try_pass(Time::ZERO).unwrap().failure(Time::ZERO);
            let passed = both(&breaker, |breaker| {
                let permit = breaker.try_pass(Time::ZERO + Nanos::from_secs(60));
                permit.map(std::mem::forget).is_ok()
            });
            assert_eq!(passed, 1);
        });
    }

    #[test]
    fn who_sees_it_closed_again_finds_an_empty_window() {
        loom::model(|| {
            let breaker = breaker(2);
            for _ in 0..2 {
                breaker.try_pass(Time::ZERO).unwrap().failure(Time::ZERO);
            }
            let BreakerState::Open { until } = breaker.state() else {
                panic!("open");
            };
            let probe = breaker.try_pass(until).unwrap();
            let other = {
                let breaker = Arc::clone(&breaker);
                thread::spawn(move || {
                    if let Ok(permit) = breaker.try_pass(until) {
                        permit.failure(until);
                    }
                })
            };
            probe.success(until);
            other.join().unwrap();
            assert_eq!(breaker.state(), BreakerState::Closed);
        });
    }
}
