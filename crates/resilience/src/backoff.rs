//! Backoff: how long to wait before trying again, and when to stop trying.
//!
//! Waits double, so that a server that stays down meets ever fewer attempts. They are drawn
//! at random from zero up, so that clients that failed together come back apart.
//!
//! ```text
//!   retry n    0     1        2                3
//!   longest    |--|  |-----|  |-----------|    |-----------------|   doubles up to the cap
//!   drawn       x       x        x                       x          evenly from 0: full
//! ```
//!
//! * Full: `U(0, min(cap, base x 2^n))`. Decorrelated: `min(cap, U(base, 3 x previous))`.
//! * Defaults: base 100 ms (a few round trips), cap 20 s (people wait no longer), 3 attempts
//!   in all (a request through three such layers is sent 27 times at worst).
//! * A wait given by the server ([`Attempts::next_after`]) is an attempt, but no step of the
//!   backoff: the server knows better, and the next guess need not be longer for it.
//! * Trade-off: full jitter does the least work and waits the least; decorrelated jitter
//!   never returns at once (`base` is its floor).
//! * Bound: no wait of its own exceeds `cap`, and no call is made more than `attempts_max`
//!   times. Waits given by a server are bounded by
//!   [`RetryAfter::longest`](crate::RetryAfter::longest).
//! * Source: M. Brooker, "Exponential backoff and jitter" (2015); Google, "Site Reliability
//!   Engineering" (2016), chapter 22, for three attempts.

use std::time::Duration;

use ratekeeper_core::Nanos;

use crate::random::Random;

/// How waits are spread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Jitter {
    /// From zero up to the longest wait.
    #[default]
    Full,
    /// From the base up to three times the last wait.
    Decorrelated,
    /// The longest wait itself: right for a client that is alone, wrong for a herd.
    Without,
}

/// How waits grow and how many attempts are made; see the [module](self) for the reasons of
/// the defaults.
///
/// ```
/// use ratekeeper_core::Nanos;
/// use ratekeeper_resilience::{Backoff, SplitMix};
///
/// let mut random = SplitMix::seeded();
/// let mut attempts = Backoff::default().attempts();
/// // The first attempt failed:
/// assert!(attempts.next_wait(&mut random).unwrap() <= Nanos::from_millis(100));
/// // so did the second:
/// assert!(attempts.next_wait(&mut random).unwrap() <= Nanos::from_millis(200));
/// // and the third, which was the last.
/// assert_eq!(attempts.next_wait(&mut random), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backoff {
    /// The longest wait before the first retry, or with decorrelated jitter the shortest wait; zero
    /// never waits. Default 100 ms.
    pub base: Duration,
    /// The longest wait ever, below `base` too. Default 20 s.
    pub cap: Duration,
    /// Maximum number of attempts, the first included; 0 counts as 1. Default 3.
    pub attempts_max: u32,
    /// How waits are spread. Default full.
    pub jitter: Jitter,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            base: Duration::from_millis(100),
            cap: Duration::from_secs(20),
            attempts_max: 3,
            jitter: Jitter::Full,
        }
    }
}

impl Backoff {
    /// Returns the attempts of one call, the first of which is being made.
    pub fn attempts(self) -> Attempts {
        Attempts {
            backoff: self,
            made: 1,
            steps: 0,
            previous: self.base.into(),
        }
    }
}

/// The attempts of one call.
#[derive(Clone, Debug)]
pub struct Attempts {
    backoff: Backoff,
    made: u32,
    steps: u32,
    previous: Nanos,
}

impl Attempts {
    /// Returns the number of attempts so far, the one under way included.
    pub fn made(&self) -> u32 {
        self.made
    }

    /// Records a failed attempt and returns the wait before the next one, at most
    /// [`Backoff::cap`]; `None` if it was the last.
    #[must_use = "wait for the returned time, or stop if it is `None`"]
    pub fn next_wait(&mut self, random: &mut impl Random) -> Option<Nanos> {
        self.count()?;
        let backoff = &self.backoff;
        let (base, cap) = (Nanos::from(backoff.base), Nanos::from(backoff.cap));
        let doubled = base.as_nanos().saturating_mul(1 << self.steps.min(63));
        let longest = Nanos::from_nanos(doubled).min(cap);
        let wait = match backoff.jitter {
            Jitter::Without => longest,
            Jitter::Full => random.up_to(longest),
            Jitter::Decorrelated => {
                let tripled = Nanos::from_nanos(self.previous.as_nanos().saturating_mul(3));
                random.between(base..=tripled).min(cap)
            }
        };
        self.steps += 1;
        self.previous = wait;
        Some(wait)
    }

    /// Records a failed attempt and returns `wait`, which the server asked for; `None` if the
    /// attempt was the last. [`RetryAfter`](crate::RetryAfter) adds the jitter.
    #[must_use = "wait for the returned time, or stop if it is `None`"]
    pub fn next_after(&mut self, wait: Nanos) -> Option<Nanos> {
        self.count()?;
        Some(wait)
    }

    fn count(&mut self) -> Option<()> {
        if self.made >= self.backoff.attempts_max {
            return None;
        }
        self.made += 1;
        Some(())
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::SplitMix;
    use proptest::prelude::*;

    fn millis(millis: u64) -> Nanos {
        Nanos::from_millis(millis)
    }

    fn waits(backoff: Backoff) -> Vec<Nanos> {
        let (mut attempts, mut random) = (backoff.attempts(), SplitMix::new(1));
        std::iter::from_fn(|| attempts.next_wait(&mut random)).collect()
    }

    #[test]
    fn waits_double_up_to_the_cap() {
        let backoff = Backoff {
            cap: Duration::from_millis(500),
            attempts_max: 6,
            jitter: Jitter::Without,
            ..Backoff::default()
        };
        assert_eq!(waits(backoff), [100, 200, 400, 500, 500].map(millis));
    }

    #[test]
    fn three_attempts_have_two_waits() {
        for (attempts_max, waits_made) in [(0, 0), (1, 0), (2, 1), (3, 2)] {
            let backoff = Backoff {
                attempts_max,
                ..Backoff::default()
            };
            assert_eq!(waits(backoff).len(), waits_made, "{attempts_max}");
        }
    }

    #[test]
    fn a_wait_from_the_server_is_an_attempt_but_no_step() {
        let backoff = Backoff {
            jitter: Jitter::Without,
            ..Backoff::default()
        };
        let (mut attempts, mut random) = (backoff.attempts(), SplitMix::new(1));
        assert_eq!(attempts.next_after(millis(7_000)), Some(millis(7_000)));
        assert_eq!(attempts.next_wait(&mut random), Some(millis(100)));
        assert_eq!(attempts.made(), 3);
        assert_eq!(attempts.next_after(millis(1)), None);
    }

    #[test]
    fn full_jitter_is_half_of_the_longest_on_average() {
        let mut random = SplitMix::new(3);
        let total: u64 = (0..10_000)
            .filter_map(|_| Backoff::default().attempts().next_wait(&mut random))
            .map(Nanos::as_nanos)
            .sum();
        // Standard deviation of the mean: 0.3 ms.
        assert!((49_000_000..51_000_000).contains(&(total / 10_000)));
    }

    #[test]
    fn decorrelated_jitter_reaches_from_the_base_to_three_times_the_last() {
        let backoff = Backoff {
            jitter: Jitter::Decorrelated,
            ..Backoff::default()
        };
        let mut random = SplitMix::new(3);
        let firsts: Vec<_> = (0..10_000)
            .filter_map(|_| backoff.attempts().next_wait(&mut random))
            .collect();
        assert!(firsts.iter().min() < Some(&millis(101)), "from the base");
        assert!(
            firsts.iter().max() > Some(&millis(299)),
            "to three times it"
        );
    }

    #[test]
    fn any_number_of_attempts_may_be_asked_for() {
        for jitter in [Jitter::Full, Jitter::Decorrelated, Jitter::Without] {
            for base in [Duration::ZERO, Duration::from_millis(100), Duration::MAX] {
                let backoff = Backoff {
                    base,
                    cap: Duration::MAX,
                    attempts_max: u32::MAX,
                    jitter,
                };
                let (mut attempts, mut random) = (backoff.attempts(), SplitMix::new(1));
                for _ in 0..1_000 {
                    assert!(attempts.next_wait(&mut random).is_some());
                }
            }
        }
    }

    proptest! {
        #[test]
        fn no_wait_exceeds_its_bounds(
            base: u64, cap: u64, attempts_max in 0_u32..200, jitter in 0_usize..3, seed: u64,
        ) {
            let jitter = [Jitter::Full, Jitter::Decorrelated, Jitter::Without][jitter];
            let (base, cap) = (Nanos::from_nanos(base), Nanos::from_nanos(cap));
            let backoff = Backoff { base: base.into(), cap: cap.into(), attempts_max, jitter };
            let (mut attempts, mut random) = (backoff.attempts(), SplitMix::new(seed));
            let mut previous = base;
            while let Some(wait) = attempts.next_wait(&mut random) {
                prop_assert!(wait <= cap);
                if jitter == Jitter::Decorrelated {
                    prop_assert!(wait >= base.min(cap));
                    let tripled = Nanos::from_nanos(previous.as_nanos().saturating_mul(3));
                    prop_assert!(wait <= tripled.max(base));
                }
                previous = wait;
            }
            prop_assert_eq!(attempts.made(), attempts_max.max(1));
        }
    }
}
