//! Absence: an address that fails again and again is left out, and tried by one request at a time.
//!
//! ```text
//!   failures in a row --> left out for 10 s --> one request tries it --> response: in use
//!                              ^                        '--> failure: left out, twice as long
//!                              '-------------------------------------'       (60 s at most)
//! ```
//!
//! The time runs from the start of the trial, so a trial that is given up needs no notice.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use ratekeeper_core::{Nanos, Time};

/// How long it is left out at first, and at most.
const FIRST: Nanos = Nanos::from_secs(10);
const LONGEST: Nanos = Nanos::from_secs(60);

/// The failures of an address since its last response.
#[derive(Debug, Default)]
pub(crate) struct Absence {
    failures: AtomicU32,
    /// Trials that failed.
    trials: AtomicU32,
    /// Zero while the address is in use.
    until: AtomicU64,
}

/// How an address failed, and after how many failures in a row it is left out for that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AddressFailure {
    /// No connection could be opened.
    Connection = 1,
    /// A request that was sent has no response.
    Response = 3,
    /// The response is a 502, 503 or 504. More, because an application under too much load has
    /// several in a row by chance, and others would have its load too.
    Status = 10,
}

impl Absence {
    /// Returns true while the address is left out, and no trial is due.
    pub(crate) fn is_out(&self, now: Time) -> bool {
        now.as_nanos() < self.until.load(Ordering::Relaxed)
    }

    /// Returns true until a response ends the absence.
    pub(crate) fn is_absent(&self) -> bool {
        self.until.load(Ordering::Relaxed) != 0
    }

    /// Returns true if a request may use the address. If that is its trial, no other may meanwhile.
    pub(crate) fn admits(&self, now: Time) -> bool {
        let until = self.until.load(Ordering::Relaxed);
        if until == 0 || now.as_nanos() < until {
            return until == 0;
        }
        let trials = self.trials.load(Ordering::Relaxed).saturating_add(1);
        let next = (now + span(trials)).as_nanos();
        let order = Ordering::Relaxed;
        let is_first = self.until.compare_exchange(until, next, order, order);
        if is_first.is_ok() {
            self.trials.store(trials, order);
        }
        is_first.is_ok()
    }

    /// Notes a failure.
    pub(crate) fn fail(&self, failure: AddressFailure, now: Time) {
        let before = self.failures.fetch_add(1, Ordering::Relaxed);
        if before.saturating_add(1) >= failure as u32 && !self.is_out(now) {
            let until = now + span(self.trials.load(Ordering::Relaxed));
            self.until.store(until.as_nanos(), Ordering::Relaxed);
        }
    }

    /// Notes a response that is no failure.
    pub(crate) fn respond(&self) {
        if self.failures.load(Ordering::Relaxed) > 0 {
            self.failures.store(0, Ordering::Relaxed);
            self.trials.store(0, Ordering::Relaxed);
            self.until.store(0, Ordering::Relaxed);
        }
    }
}

/// Returns how long an address is left out after so many trials.
fn span(trials: u32) -> Nanos {
    let doubled = FIRST.as_nanos() << trials.min(8);
    Nanos::from_nanos(doubled).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Time {
        Time::ZERO + Nanos::from_secs(second)
    }

    #[test]
    fn failures_in_a_row_leave_an_address_out() {
        for (failure, count) in [
            (AddressFailure::Connection, 1),
            (AddressFailure::Response, 3),
            (AddressFailure::Status, 10),
        ] {
            let absence = Absence::default();
            for in_a_row in [count - 1, count - 1, count] {
                assert!(absence.admits(at(2)), "{failure:?}");
                absence.respond();
                for _ in 0..in_a_row {
                    absence.fail(failure, at(2));
                }
            }
            assert!(!absence.admits(at(11)) && absence.is_out(at(11)));
        }
    }

    #[test]
    fn it_is_tried_by_one_request_at_growing_intervals_until_it_responds() {
        let absence = Absence::default();
        absence.fail(AddressFailure::Connection, at(0));
        let tried: Vec<u64> = (0..200)
            .flat_map(|second| [second; 3])
            .filter(|second| absence.admits(at(*second)))
            .collect();
        assert_eq!(tried, [10, 30, 70, 130, 190]);
        absence.fail(AddressFailure::Response, at(191)); // of a request that was sent before
        assert!(!absence.admits(at(249)) && absence.admits(at(250)));
        absence.respond();
        assert!(absence.admits(at(251)) && absence.admits(at(251)));
    }
}
