//! Permit: leave to make one call, and the duty to say how it ended.

use ratekeeper_core::Time;

use super::Breaker;
use super::gate::{Gate, Phase};

/// How a call ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Success,
    Failure,
    Cancelled,
}

/// Leave to make one call. Dropped without a report it says nothing about the dependency;
/// a call that is abandoned because it takes too long is a failure, and is to be reported.
#[derive(Debug)]
#[must_use = "report how the call ended"]
pub struct Permit<'a> {
    breaker: &'a Breaker,
    pub(super) gate: Gate,
    reported: Report,
}

/// Whether a permit has been spoken for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Report {
    Owed,
    Made,
}

impl<'a> Permit<'a> {
    pub(super) fn new(breaker: &'a Breaker, gate: Gate) -> Self {
        Self {
            breaker,
            gate,
            reported: Report::Owed,
        }
    }

    /// The dependency did its work, whatever the answer said: refusing a bad request is
    /// a success of the one who refuses.
    pub fn success(mut self, now: Time) {
        self.report(now, End::Success);
    }

    /// The dependency did not do its work: no connection, a time-out, an internal error.
    pub fn failure(mut self, now: Time) {
        self.report(now, End::Failure);
    }

    fn report(&mut self, now: Time, end: End) {
        self.reported = Report::Made;
        match (self.gate.phase(), end) {
            (Phase::HalfOpen, _) => self.breaker.judge(self.gate, now, end),
            (_, End::Success) => self.breaker.count(self.gate, now, 0),
            (_, End::Failure) => self.breaker.count(self.gate, now, 1),
            (_, End::Cancelled) => {}
        }
    }
}

/// A probe that is dropped makes room for another.
impl Drop for Permit<'_> {
    fn drop(&mut self) {
        if self.reported == Report::Owed {
            self.report(Time::ZERO, End::Cancelled); // who is cancelled asks for no time
        }
    }
}
