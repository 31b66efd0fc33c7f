//! Permit: permission to do one piece of work, and the duty to report how it ended.

use std::ops::Deref;

use ratekeeper_core::Time;

use super::{AdaptiveConcurrency, End};
use crate::sync::Ordering;

/// Permission to do one piece of work. Dropped without a report, it counts as ignored.
#[derive(Debug)]
#[must_use = "a call is counted as in flight only while its permit exists"]
pub struct AdaptivePermit<L: Deref<Target = AdaptiveConcurrency>> {
    limit: L,
    began: Time,
}

impl<L: Deref<Target = AdaptiveConcurrency>> AdaptivePermit<L> {
    pub(super) const fn new(limit: L, began: Time) -> Self {
        Self { limit, began }
    }

    /// Returns when the work began.
    pub const fn began(&self) -> Time {
        self.began
    }

    /// Measures the work from `now` on, because a wait before it, for example for its input,
    /// says nothing about the capacity.
    ///
    /// ```
    /// # use ratekeeper_core::{Nanos, Time};
    /// # use ratekeeper_resilience::*;
    /// # let settings = AdaptiveSettings::default();
    /// let limit = AdaptiveConcurrency::new(settings, SplitMix::seeded()).unwrap();
    /// let mut permit = limit.try_acquire(Time::ZERO).unwrap();
    /// let input_came = Time::ZERO + Nanos::from_millis(700);
    /// permit.begin(input_came);
    /// assert_eq!(permit.began(), input_came);
    /// ```
    pub const fn begin(&mut self, now: Time) {
        self.began = now;
    }

    /// Reports that the work was done, whatever the result, and took until `now`.
    pub fn success(self, now: Time) {
        self.end(End::Done, now);
    }

    /// Reports that the work was rejected for overload, or given up because it took too long.
    pub fn dropped(self, now: Time) {
        self.end(End::Dropped, now);
    }

    /// Reports that the work ended as `end` at `now`.
    ///
    /// ```
    /// # use ratekeeper_core::Time;
    /// # use ratekeeper_resilience::*;
    /// # let settings = AdaptiveSettings::default();
    /// let limit = AdaptiveConcurrency::new(settings, SplitMix::seeded()).unwrap();
    /// let permit = limit.try_acquire(Time::ZERO).unwrap();
    /// permit.end(End::of_http(503), Time::ZERO);
    /// ```
    pub fn end(self, end: End, now: Time) {
        if end != End::Ignored {
            self.limit.report(self.began, now, end);
        }
    }

    /// Reports that the time of this work carries no information: a bad request, a cancelled
    /// one, one answered from a cache.
    pub fn ignored(self) {
        drop(self);
    }
}

impl<L: Deref<Target = AdaptiveConcurrency>> Drop for AdaptivePermit<L> {
    fn drop(&mut self) {
        self.limit.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
