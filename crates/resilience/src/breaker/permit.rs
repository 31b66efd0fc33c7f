//! Permit: permission to make one call, and the duty to report how it ended.

use ratekeeper_core::Time;

use super::Breaker;
use super::gate::{BreakerGate, Phase};

/// How a call ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CallEnd {
    Success,
    Failure,
    Cancelled,
}

/// Permission to make one call. Dropped without a report it carries no information; a call that
/// is abandoned because it takes too long is a failure, and must be reported.
#[derive(Debug)]
#[must_use = "report how the call ended"]
pub struct CallPermit<'a> {
    breaker: &'a Breaker,
    pub(super) gate: BreakerGate,
    reported: ReportState,
}

/// State of a permit's report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ReportState {
    Owed,
    Made,
}

impl<'a> CallPermit<'a> {
    pub(super) fn new(breaker: &'a Breaker, gate: BreakerGate) -> Self {
        Self {
            breaker,
            gate,
            reported: ReportState::Owed,
        }
    }

    /// Reports that the dependency did its work, whatever the answer was: refusing a bad
    /// request is a success too.
    pub fn success(mut self, now: Time) {
        self.report(now, CallEnd::Success);
    }

    /// Reports that the dependency failed: no connection, a time-out, an internal error.
    pub fn failure(mut self, now: Time) {
        self.report(now, CallEnd::Failure);
    }

    fn report(&mut self, now: Time, end: CallEnd) {
        self.reported = ReportState::Made;
        match (self.gate.phase(), end) {
            (Phase::HalfOpen, _) => self.breaker.judge(self.gate, now, end),
            (_, CallEnd::Success) => self.breaker.count(self.gate, now, 0),
            (_, CallEnd::Failure) => self.breaker.count(self.gate, now, 1),
            (_, CallEnd::Cancelled) => {}
        }
    }
}

/// A probe that is dropped makes room for another.
impl Drop for CallPermit<'_> {
    fn drop(&mut self) {
        if self.reported == ReportState::Owed {
            self.report(Time::ZERO, CallEnd::Cancelled); // a cancellation needs no time
        }
    }
}
