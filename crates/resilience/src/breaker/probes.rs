//! Probes: the calls of a breaker that is half-open, in rounds of 1, 2, 4, ...

use ratekeeper_core::{Nanos, Time};

use crate::sync::is_over;

/// The present round of probes, and those before it.
#[derive(Default)]
pub(super) struct Probes {
    /// From 0; it has `2^round` probes.
    round: u32,
    in_flight: u32,
    succeeded: u32,
    last_began: Time,
}

impl Probes {
    /// Begins a probe; returns false if all of the round have begun.
    pub(super) fn begin(&mut self, now: Time) -> bool {
        let free = self.in_flight + self.succeeded < self.size();
        if free {
            self.in_flight += 1;
            self.last_began = now;
        }
        free
    }

    /// Records that a probe has ended, or was cancelled and makes room.
    pub(super) fn end(&mut self) {
        self.in_flight -= 1; // each permit ends once, in the generation that gave it
    }

    /// Records that a probe succeeded; returns the number of completed rounds.
    pub(super) fn succeed(&mut self) -> u32 {
        self.succeeded += 1;
        if self.succeeded == self.size() {
            *self = Self {
                round: self.round + 1,
                ..Self::default()
            };
        }
        self.round
    }

    /// Returns when the probes in flight are given up.
    pub(super) fn given_up(&self, patience: Nanos) -> Time {
        self.last_began + patience
    }

    /// Returns true if a probe is in flight for longer than `patience`.
    pub(super) fn is_lost(&self, now: Time, patience: Nanos) -> bool {
        self.in_flight > 0 && is_over(self.given_up(patience), patience, now)
    }

    fn size(&self) -> u32 {
        1 << self.round
    }
}
