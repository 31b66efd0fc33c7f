//! Lives of one key: charges, refunds and a clock that jumps and steps back.
//!
//! ```text
//!   Wait 5   Spend 2   StepBack 3   Spend 1   Refund 1 ...
//!   ---------*---------------------*---------*-------------> every law at every event,
//!            2                     1                         `bound` over every span
//! ```

use core::fmt::Debug;
use std::vec::Vec;

use super::recorded::records_all;
use super::{Refunds, decide, state_holds};
use crate::algorithm::Algorithm;
use crate::oracles::Reach;
use crate::{Nanos, Permits, Time};

/// One event in the life of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LifeEvent {
    /// The clock moves on.
    Wait(Nanos),
    /// The clock steps back.
    StepBack(Nanos),
    /// A request.
    Spend(Permits),
    /// A charge comes back unused.
    Refund(Permits),
}

/// Maximum distance of the clock behind its furthest reading in a life: 9 s. Clocks of racing
/// threads differ by less; beyond 10 s [`Gcra`](crate::Gcra) assumes that the clock was set, and
/// a law of bounds cannot know by how much.
const LATEST_READER: Nanos = Nanos::from_secs(9);

/// Replays `events` from `start`, checking every law and oracle on the way, and at the end the
/// admitted permits against `bound`. Refunds are left out if the algorithm has none.
///
/// # Panics
/// If a law is broken.
pub fn live<A: Algorithm + Debug>(
    algorithm: &A,
    refunds: &Refunds<A>,
    start: Time,
    events: &[LifeEvent],
    reach: Reach,
) {
    let mut state = A::State::default();
    let (mut now, mut latest, mut furthest) = (start, Time::ZERO, start);
    let mut admitted = Vec::new();
    for event in events {
        match *event {
            LifeEvent::Wait(span) => {
                let lasts_until = algorithm.expires_at(&state, now) + algorithm.lasts();
                now = now + span;
                // The end of the clock stands for all later moments: nothing expires there.
                if now >= lasts_until && lasts_until < Time::MAX {
                    state = A::State::default(); // a store has forgotten it
                }
                furthest = furthest.max(now);
            }
            // The bound of all steps together: further back, the clock was set (see
            // `LATEST_READER`).
            LifeEvent::StepBack(span) => now = (now - span).max(furthest - LATEST_READER),
            LifeEvent::Refund(cost) => {
                let Some(refunded) = refunds.state_after(algorithm, &state, now, cost) else {
                    continue;
                };
                state = refunded;
                // A permit given back may be spent again, and a state given back whole
                // forgets how late it was: count afresh.
                admitted.clear();
                latest = Time::ZERO;
            }
            LifeEvent::Spend(cost) => {
                if refunds.denials_are_recorded {
                    records_all(algorithm, &state, now, cost);
                }
                let decision = decide(algorithm, &mut state, now, cost, reach);
                if decision.verdict.allows() {
                    latest = latest.max(now);
                    admitted.push((latest, cost));
                }
            }
        }
        state_holds(algorithm, &state, now, reach);
        refunds.check(algorithm, &state, now, reach);
    }
    bounded(algorithm, &admitted);
}

/// Checks that the admitted permits, each at the latest moment of any charge made by then, stay
/// within `bound` in every span.
///
/// # Panics
/// If it does not.
pub fn bounded<A: Algorithm + Debug>(algorithm: &A, admitted: &[(Time, Permits)]) {
    for (first, &(from, _)) in admitted.iter().enumerate() {
        let mut sum = 0;
        for &(to, cost) in &admitted[first..] {
            sum += cost.get();
            let span = to.since(from) + Nanos::from_nanos(1); // half-open: holds both moments
            assert!(
                sum <= algorithm.bound(span),
                "{sum} admitted from {from:?} to {to:?}, bound {}\n{algorithm:?}",
                algorithm.bound(span),
            );
        }
    }
}

/// A life of `length` events made from `seed`: waits around `scale`, costs around `most`.
pub fn random_life(seed: u64, length: usize, scale: Nanos, most: Permits) -> Vec<LifeEvent> {
    let mut random = Random(seed);
    let mut event = || {
        let scale = scale.as_nanos().max(1);
        let span = match random.below(6) {
            0 => random.below(3),
            1 | 2 => random.below(scale / 8 + 2),
            3 | 4 => random.below(scale.saturating_add(2)),
            _ => random.below(scale.saturating_mul(3)),
        };
        let cost = match random.below(4) {
            0 => random.below(most.get() + 2),
            1 => random.below(most.get() / 4 + 2),
            _ => 1,
        };
        let (span, cost) = (Nanos::from_nanos(span), Permits::new(cost));
        match random.below(16) {
            0..=5 => LifeEvent::Wait(span),
            6 => LifeEvent::StepBack(span),
            7 => LifeEvent::Refund(cost),
            _ => LifeEvent::Spend(cost),
        }
    };
    (0..length).map(|_| event()).collect()
}

/// `SplitMix64`: small, good enough to pick cases, the same everywhere.
///
/// Source: G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators"
/// (2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is at least 1; the bias is below `end / 2^64`.
    pub const fn below(&mut self, end: u64) -> u64 {
        ((self.next() as u128 * end as u128) >> 64) as u64
    }
}
