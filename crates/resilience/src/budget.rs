//! Budget: retries may add a tenth to the load, and no more.
//!
//! A maximum of attempts bounds the retries of one call; when every call fails, all of them
//! still come three times, at the moment the server can bear it least. A budget is shared by
//! the calls of a client: each first attempt pays in a tenth, each retry takes out one.
//!
//! ```text
//!   requests  ||||||||||||||||||||||||||||||  paid in: 0.1 each, for 10 s
//!   retries   r         r         r           taken out: 1 each, for 10 s
//!                                  x  x  x    refused: nothing left
//! ```
//!
//! A retry passes iff, with it, `retries <= ratio x requests + reserve`, where requests are
//! those of the last 9 to 10 s, and retries those of the last 10 to 11 s: rounding allows
//! less, never more.
//!
//! * Bound: in any span of 10 s that ends with a retry, at most `ratio x requests + reserve`
//!   retries are granted, requests being those of the same span. In a longer one the reserve counts for each 10 s
//!   begun. A retry is granted before its wait: those that wait for one moment come at that
//!   moment, as many as were granted while they waited.
//! * Defaults: 10 % (the load of a bad day stays near that of a good one), 10 s (savings of the
//!   morning do not pay for a storm at noon), and a reserve of 10, one a second, because a
//!   client with few calls saves too little to retry any.
//! * Threads may read clocks that differ by up to a window. If they differ by more, or the
//!   clock is set back, it begins anew, with its reserve.
//! * After idling the next call costs what any call costs: slots are recognised as stale,
//!   not walked through.
//! * Above a million requests a second (2^20 a slot) the budget is up to half smaller.
//! * Cost: paying in is one compare-exchange; only retries take a lock.
//! * Source: Finagle's `RetryBudget` (Twitter, 2016); Google, "Site Reliability Engineering"
//!   (2016), chapter 22; gRPC proposal A6, "Client retries" (2017).

use std::time::Duration;

use ratekeeper_core::Time;

use crate::Error;
use crate::sync::{Mutex, lock};
use crate::tally::{MarkedCount, RecentTally, SLOTS};

/// Bounds of the load that retries add; see the [module](self) for the reasons of the defaults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BudgetSettings {
    /// Retries allowed for each hundred requests; at most 1,000. Default 10.
    pub ratio_percent: u32,
    /// Retries allowed in each window beside those. Default 10: one a second.
    pub reserve: u32,
    /// How long requests and retries are remembered; at least 10 ns. Default 10 s.
    pub window: Duration,
}

/// More than ten retries a request bound nothing.
const RATIO_PERCENT_MAX: u32 = 1_000;

impl Default for BudgetSettings {
    fn default() -> Self {
        Self {
            ratio_percent: 10,
            reserve: 10,
            window: Duration::from_secs(10),
        }
    }
}

/// A retry budget, shared by threads; see the [module](self) for figure and formula.
///
/// ```
/// use ratekeeper_core::Time;
/// use ratekeeper_resilience::Budget;
///
/// let budget = Budget::default();
/// let now = Time::ZERO;
/// for _ in 0..50 {
///     budget.deposit(now); // a first attempt
/// }
/// let retries = (0..50).filter(|_| budget.withdraw(now)).count();
/// assert_eq!(retries, 5 + 10);
/// ```
#[derive(Debug)]
pub struct Budget {
    settings: BudgetSettings,
    requests: RecentTally,
    retries: Mutex<Retries>,
}

impl Default for Budget {
    /// Creates a budget by the default settings.
    fn default() -> Self {
        Self::new(BudgetSettings::default()).expect("the defaults are within their bounds")
    }
}

impl Budget {
    /// Creates a budget with its reserve.
    ///
    /// # Errors
    /// [`Error::Window`] or [`Error::Ratio`] for settings outside their bounds.
    pub fn new(settings: BudgetSettings) -> Result<Self, Error> {
        if settings.ratio_percent > RATIO_PERCENT_MAX {
            return Err(Error::Ratio);
        }
        let requests = RecentTally::new(settings.window.into()).ok_or(Error::Window)?;
        Ok(Self {
            settings,
            requests,
            retries: Mutex::new(Retries::default()),
        })
    }

    /// Records the first attempt of a call. Retries pay nothing in.
    pub fn deposit(&self, now: Time) {
        self.requests.add(now, MarkedCount { all: 1, marked: 0 });
    }

    /// Takes out one retry and returns true if the budget suffices; otherwise returns false.
    #[must_use = "retry only if this returns true"]
    pub fn withdraw(&self, now: Time) -> bool {
        let slot = self.requests.slot(now);
        let mut retries = lock(&self.retries);
        let taken = retries.advance(slot);
        let granted = taken < self.allowance(now);
        retries.counts[0] += u64::from(granted);
        granted
    }

    /// Returns the number of retries left at `now`, for metrics.
    pub fn left(&self, now: Time) -> u64 {
        let slot = self.requests.slot(now);
        let taken = lock(&self.retries).advance(slot);
        self.allowance(now).saturating_sub(taken)
    }

    /// Rounded down, because a part of a retry is none.
    fn allowance(&self, now: Time) -> u64 {
        let requests = self.requests.sum(now).all;
        requests * u64::from(self.settings.ratio_percent) / 100 + u64::from(self.settings.reserve)
    }
}

/// Retries of the present slot and the ten before it: all of the last window, and a little
/// more.
#[derive(Debug, Default)]
struct Retries {
    /// Newest first.
    counts: [u64; SLOTS + 1],
    newest: u64,
}

impl Retries {
    /// Advances to `slot`, forgets old counts, and returns the sum of the others.
    fn advance(&mut self, slot: u64) -> u64 {
        let span = self.counts.len() as u64;
        if slot > self.newest {
            // At most `span`: an idle week is one fill.
            let gone = usize::try_from((slot - self.newest).min(span)).unwrap_or(SLOTS + 1);
            self.counts.rotate_right(gone % (SLOTS + 1));
            self.counts[..gone].fill(0);
            self.newest = slot;
        } else if self.newest - slot >= span {
            // The clock was set back. Threads that read it differ by less.
            *self = Self {
                newest: slot,
                ..Self::default()
            };
        }
        self.counts.iter().sum()
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ratekeeper_core::Nanos;

    fn at(secs: u64) -> Time {
        Time::ZERO + Nanos::from_secs(secs)
    }

    fn budget(ratio_percent: u32, reserve: u32) -> Budget {
        let settings = BudgetSettings {
            ratio_percent,
            reserve,
            ..BudgetSettings::default()
        };
        Budget::new(settings).unwrap()
    }

    fn granted(budget: &Budget, now: Time) -> usize {
        (0..1_000).filter(|_| budget.withdraw(now)).count()
    }

    #[test]
    fn a_tenth_and_the_reserve() {
        for (requests, retries) in [(0, 10), (9, 10), (10, 11), (1_000, 110)] {
            let budget = budget(10, 10);
            (0..requests).for_each(|_| budget.deposit(at(0)));
            assert_eq!(budget.left(at(0)), retries);
            assert_eq!(granted(&budget, at(0)) as u64, retries, "{requests}");
            assert_eq!(budget.left(at(0)), 0);
        }
    }

    #[test]
    fn saved_retries_expire_with_the_window() {
        let budget = budget(10, 0);
        (0..100).for_each(|_| budget.deposit(at(0)));
        assert_eq!(budget.left(at(9)), 10);
        assert_eq!(budget.left(at(10)), 0);
    }

    #[test]
    fn the_reserve_returns_after_the_window_and_not_before() {
        let budget = budget(10, 10);
        assert_eq!(granted(&budget, at(0)), 10);
        for (now, left) in [(9, 0), (10, 0), (11, 10)] {
            assert_eq!(budget.left(at(now)), left, "at {now} s");
        }
    }

    #[test]
    fn an_idle_week_costs_and_saves_nothing() {
        let budget = budget(10, 10);
        (0..100).for_each(|_| budget.deposit(at(0)));
        assert_eq!(granted(&budget, at(0)), 20);
        assert_eq!(granted(&budget, at(7 * 86_400)), 10);
        // To the end of time, in no time.
        assert_eq!(granted(&budget, Time::MAX), 10);
    }

    #[test]
    fn a_clock_set_back_neither_locks_out_nor_mints_for_racing_threads() {
        let budget = budget(10, 10);
        assert_eq!(granted(&budget, at(1_000)), 10);
        assert_eq!(granted(&budget, at(995)), 0);
        assert_eq!(granted(&budget, at(10)), 10);
    }

    #[test]
    fn threads_together_get_what_one_would() {
        let budget = budget(10, 10);
        (0..1_000).for_each(|_| budget.deposit(at(0)));
        let total: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| granted(&budget, at(0))))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .sum()
        });
        assert_eq!(total, 110);
    }

    /// A server that is down for six hours, a hundred calls a second.
    #[test]
    fn hours_do_not_wear_it_out() {
        let budget = budget(10, 10);
        let (mut calls, mut retries) = (0_u64, 0_u64);
        for tick in 0..6 * 3_600 * 100 {
            let now = Time::ZERO + Nanos::from_millis(tick * 10);
            budget.deposit(now);
            calls += 1;
            retries += (0..2).filter(|_| budget.withdraw(now)).count() as u64;
            if tick % 100_000 == 0 {
                assert!(
                    retries <= calls / 10 + 10 * (1 + tick / 1_000),
                    "at {now:?}"
                );
            }
        }
        // Of 110 in 10 s those that rounding by a slot leaves: 9 to 10 s paid in, 10 to 11 s
        // taken out.
        let allowed = calls / 10 + 6 * 3_600;
        assert!(
            retries <= allowed && retries >= allowed * 9 / 11,
            "{retries} of {allowed}"
        );
    }

    proptest! {
        /// In any span of a window ending at a retry: retries <= ratio x requests + reserve.
        #[test]
        fn extra_load_stays_within_its_bound(
            steps in prop::collection::vec((0_u64..2_500, 0_u32..20, 0_u32..20), 1..120),
            ratio in 0_u32..300,
            reserve in 0_u32..12,
        ) {
            let budget = budget(ratio, reserve);
            let (mut now, mut requests, mut retries) = (Time::ZERO, Vec::new(), Vec::new());
            for (millis, calls, again) in steps {
                now = now + Nanos::from_millis(millis);
                for _ in 0..calls {
                    budget.deposit(now);
                    requests.push(now);
                }
                retries.extend((0..again).filter(|_| budget.withdraw(now)).map(|_| now));
            }
            let within = |times: &[Time], end: Time| {
                let recent = times.iter().filter(|&&time| {
                    time <= end && end.since(time) < Nanos::from_secs(10)
                });
                recent.count() as u64
            };
            for &end in &retries {
                let bound = within(&requests, end) * u64::from(ratio) / 100 + u64::from(reserve);
                prop_assert!(within(&retries, end) <= bound);
            }
        }
    }
}

/// Every schedule of two threads; `RUSTFLAGS="--cfg loom" cargo test -p ratekeeper-resilience
/// --lib schedules`.
#[cfg(loom)]
#[cfg(test)]
mod schedules {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    #[test]
    fn one_of_two_threads_gets_the_only_retry() {
        loom::model(|| {
            let settings = BudgetSettings {
                ratio_percent: 50,
                reserve: 0,
                ..BudgetSettings::default()
            };
            let budget = Arc::new(Budget::new(settings).unwrap());
            budget.deposit(Time::ZERO);
            let call = |budget: &Budget| {
                budget.deposit(Time::ZERO);
                u64::from(budget.withdraw(Time::ZERO))
            };
            let other = {
                let budget = Arc::clone(&budget);
                thread::spawn(move || call(&budget))
            };
            let granted = call(&budget) + other.join().unwrap();
            // A half of three: the second thread finds two requests at least.
            assert_eq!(granted, 1);
        });
    }
}
