//! Absence: an address that fails again and again is left out, and tried by one request at a time.
//!
//! ```text
//!   failure, failure, failure --> left out for 10 s --> one request tries it --> response: in use
//!        no connection can be opened --^      ^                  '--> none: left out, twice as long
//!                                             '---------------------------'       (60 s at most)
//! ```
//!
//! A response ends it, whatever its status. The time runs from the start of the trial, so a trial
//! that is given up needs no notice.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use ratekeeper_core::{Nanos, Time};

/// Failures in a row after which an address is left out.
const FAILURES: u32 = 3;
/// How long it is left out at first, and at most.
const FIRST: Nanos = Nanos::from_secs(10);
const LONGEST: Nanos = Nanos::from_secs(60);

/// The failures of an address since its last response.
#[derive(Debug, Default)]
pub(crate) struct Absence {
    failures: AtomicU32,
    /// Trials without a response.
    trials: AtomicU32,
    /// Zero while the address is in use.
    until: AtomicU64,
}

/// How an address failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AddressFailure {
    /// No connection could be opened.
    Connection,
    /// A request that was sent has no response.
    Response,
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
        let before = match failure {
            AddressFailure::Connection => self.failures.swap(FAILURES, Ordering::Relaxed),
            AddressFailure::Response => self.failures.fetch_add(1, Ordering::Relaxed),
        };
        let counts = failure == AddressFailure::Connection || before.saturating_add(1) >= FAILURES;
        if counts && !self.is_out(now) {
            let until = now + span(self.trials.load(Ordering::Relaxed));
            self.until.store(until.as_nanos(), Ordering::Relaxed);
        }
    }

    /// Notes a response.
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
    fn three_failures_in_a_row_or_one_connection_leave_an_address_out() {
        let absence = Absence::default();
        for _ in 0..5 {
            absence.fail(AddressFailure::Response, at(1));
            absence.fail(AddressFailure::Response, at(1));
            absence.respond();
        }
        assert!(absence.admits(at(1)));
        for _ in 0..3 {
            absence.fail(AddressFailure::Response, at(2));
        }
        assert!(!absence.admits(at(2)));
        let refuses = Absence::default();
        refuses.fail(AddressFailure::Connection, at(2));
        assert!(!refuses.admits(at(11)) && refuses.is_out(at(11)));
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
