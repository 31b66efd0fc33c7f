//! Polling: ask a long-running operation whether it is done, ever less often.
//!
//! ```text
//!   started                                             done, or the deadline
//!     |--1 s--|---1.5 s---|----2.25 s----|----- ... up to 30 s -----|
//!             ask         ask            ask
//! ```
//!
//! * `d = 1 s` at first, then `min(30 s, 1.5 x d) x U(0.8, 1.2)`: operations that were started
//!   together drift apart. Never longer than 36 s.
//! * A wait given by the server replaces the next one and leaves `d` as it was. Zero is ignored,
//!   so that there is always a pause.
//! * No question is asked after the deadline: a wait that would pass it is `None`.
//! * Many operations of one host share a [`PollPace`]: one question a second, whatever their
//!   number, each in its place.
//! * Trade-off: an operation is noticed late by at most a second and 0.8 of its duration, and by
//!   half of it as a rule.
//! * Source: Google AIP-151, "Long-running operations" (2019).

use ratekeeper_core::{Gcra, Nanos, Permits, Reserve, Tat, Time};

use crate::Error;
use crate::deadline::Deadline;
use crate::random::Random;
use crate::sync::{Mutex, lock};

const FIRST: Nanos = Nanos::from_secs(1);
const LONGEST: Nanos = Nanos::from_secs(30);

/// The questions about one operation.
///
/// ```
/// use std::time::Duration;
/// use ratekeeper_core::{Nanos, Time};
/// use ratekeeper_resilience::{Deadline, Polling, SplitMix};
///
/// let mut random = SplitMix::seeded();
/// let mut polling = Polling::new(Deadline::within(Time::ZERO, Duration::from_secs(60)));
/// let first = polling.next_wait(Time::ZERO, None, &mut random);
/// assert_eq!(first, Some(Nanos::from_secs(1)));
/// let stated = Some(Nanos::from_secs(61));
/// assert_eq!(polling.next_wait(Time::ZERO, stated, &mut random), None, "past the deadline");
/// ```
#[derive(Clone, Debug)]
pub struct Polling {
    /// The next wait.
    wait: Nanos,
    deadline: Deadline,
}

impl Polling {
    /// Creates the questions about an operation that is started now, until `deadline`.
    pub fn new(deadline: Deadline) -> Self {
        Self {
            wait: FIRST,
            deadline,
        }
    }

    /// Returns the wait before the next question about an operation that is not done: `stated` if
    /// the server gave one, as [`RetryAfter::parse`](crate::RetryAfter::parse) parses it. `None`
    /// if that would be after the deadline.
    #[must_use = "wait for the returned time, or stop if it is `None`"]
    pub fn next_wait(
        &mut self,
        now: Time,
        stated: Option<Nanos>,
        random: &mut impl Random,
    ) -> Option<Nanos> {
        let stated = stated.filter(|&wait| wait > Nanos::ZERO);
        let wait = stated.unwrap_or_else(|| {
            let longer = (self.wait.as_nanos() / 2 * 3).min(LONGEST.as_nanos());
            let range = Nanos::from_nanos(longer / 5 * 4)..=Nanos::from_nanos(longer / 5 * 6);
            std::mem::replace(&mut self.wait, random.between(range))
        });
        (now + wait < self.deadline.time()).then_some(wait)
    }
}

/// One question at a time to one host, shared by threads: a [`Gcra`] that promises moments.
#[derive(Debug)]
pub struct PollPace {
    limit: Gcra,
    tat: Mutex<Tat>,
}

/// How far ahead moments are promised: no operation is asked about less often.
const PATIENCE: Nanos = Nanos::from_secs(3_600);

impl PollPace {
    /// Creates a pace of at most one question each `gap`; a second is usual.
    ///
    /// # Errors
    /// [`Error::Gap`] for a gap of zero or above an hour.
    pub fn new(gap: impl Into<Nanos>) -> Result<Self, Error> {
        let gap = gap.into();
        if gap > PATIENCE {
            return Err(Error::Gap);
        }
        let limit = Gcra::spacing(gap).map_err(|_| Error::Gap)?;
        Ok(Self {
            limit: limit.with_patience(PATIENCE),
            tat: Mutex::new(Tat::default()),
        })
    }

    /// Takes the next free moment and returns how long to wait for it; `None` if it is not
    /// before `deadline`, or more than an hour away.
    pub fn next_wait(&self, now: Time, deadline: Deadline) -> Option<Nanos> {
        let left = deadline.time().since(now).as_nanos();
        let longest = Nanos::from_nanos(left.checked_sub(1)?);
        let mut tat = lock(&self.tat);
        let reserved = self.limit.reserve(&mut tat, now, Permits::ONE, longest);
        reserved.verdict.wait()
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::SplitMix;
    use proptest::prelude::*;

    const NEVER: Deadline = Deadline::at(Time::MAX);

    #[test]
    fn polls_become_rare() {
        let (mut polling, mut random) = (Polling::new(NEVER), SplitMix::new(1));
        let waits: Vec<_> = (0..40)
            .map(|_| polling.next_wait(Time::ZERO, None, &mut random).unwrap())
            .collect();
        assert_eq!(waits[0], Nanos::from_secs(1));
        assert!(waits[1] >= Nanos::from_millis(1_200) && waits[1] <= Nanos::from_millis(1_800));
        for wait in &waits[20..] {
            assert!(
                *wait >= Nanos::from_secs(24) && *wait <= Nanos::from_secs(36),
                "{wait:?}"
            );
        }
    }

    #[test]
    fn polls_started_together_drift_apart() {
        let mut random = SplitMix::new(1);
        let seconds: Vec<_> = (0..1_000)
            .map(|_| {
                let mut polling = Polling::new(NEVER);
                let _first = polling.next_wait(Time::ZERO, None, &mut random);
                polling.next_wait(Time::ZERO, None, &mut random).unwrap()
            })
            .collect();
        // 1.5 s x U(0.8, 1.2): evenly from 1.2 to 1.8 s.
        for sixth in 0..6 {
            let from = Nanos::from_millis(1_200 + 100 * sixth);
            let within = |wait: &&Nanos| **wait >= from && **wait <= from + Nanos::from_millis(100);
            let count = seconds.iter().filter(within).count();
            // 167, with a standard deviation of 12.
            assert!((110..220).contains(&count), "{count} from {from:?}");
        }
    }

    #[test]
    fn a_wait_from_the_server_replaces_one_wait() {
        let (mut polling, mut random) = (Polling::new(NEVER), SplitMix::new(1));
        let stated = Some(Nanos::from_secs(7));
        assert_eq!(polling.next_wait(Time::ZERO, stated, &mut random), stated);
        let now = polling.next_wait(Time::ZERO, Some(Nanos::ZERO), &mut random);
        assert_eq!(now, Some(Nanos::from_secs(1)), "never without a pause");
        let own = polling.next_wait(Time::ZERO, None, &mut random);
        assert!(own >= Some(Nanos::from_millis(1_200)), "{own:?}");
    }

    #[test]
    fn a_host_is_asked_once_a_second_by_all_together() {
        let pace = PollPace::new(Nanos::SECOND).unwrap();
        for wait in 0..100 {
            assert_eq!(
                pace.next_wait(Time::ZERO, NEVER),
                Some(Nanos::from_secs(wait))
            );
        }
        let soon = Deadline::within(Time::ZERO, Nanos::from_secs(99));
        assert_eq!(pace.next_wait(Time::ZERO, soon), None);
        let at_once = Deadline::within(Time::ZERO, Nanos::from_secs(100));
        assert_eq!(
            pace.next_wait(Time::ZERO, at_once),
            None,
            "at it, not before"
        );
        let later = Time::ZERO + Nanos::from_secs(1_000);
        assert_eq!(pace.next_wait(later, soon), None, "it has passed");
        assert_eq!(pace.next_wait(later, NEVER), Some(Nanos::ZERO));
        assert_eq!(PollPace::new(Nanos::ZERO).unwrap_err(), Error::Gap);
        assert_eq!(
            PollPace::new(Nanos::from_secs(3_601)).unwrap_err(),
            Error::Gap
        );
    }

    proptest! {
        #[test]
        fn no_poll_is_sent_after_the_deadline(span_secs in 0_u64..400, seed: u64) {
            let deadline = Deadline::within(Time::ZERO, Nanos::from_secs(span_secs));
            let (mut polling, mut random) = (Polling::new(deadline), SplitMix::new(seed));
            let mut now = Time::ZERO;
            while let Some(wait) = polling.next_wait(now, None, &mut random) {
                prop_assert!(wait <= Nanos::from_secs(36));
                now = now + wait;
                prop_assert!(now < deadline.time());
            }
        }
    }
}
