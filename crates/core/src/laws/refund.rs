//! The laws of a refund: never generous, and it undoes the charge.

use core::fmt::Debug;

use super::both_last;
use crate::algorithm::Refund;
use crate::oracles::Reach;
use crate::{Decision, Permits, Time};

/// A refund gives back no more than its cost, and takes nothing.
///
/// # Panics
/// If it does not.
pub fn refund_is_never_generous<A: Refund + Debug>(
    algorithm: &A,
    state: &A::State,
    now: Time,
    reach: Reach,
) {
    refund_gives::<A>(algorithm, state, now, reach, Gift::ItsCostAlways);
}

/// How long a refund may give no more than its cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Gift {
    ItsCostAlways,
    /// It may undo a change of mode, which counts later.
    ItsCostAtFirst,
}

pub(super) fn refund_gives<A: Refund + Debug>(
    algorithm: &A,
    state: &A::State,
    now: Time,
    reach: Reach,
    gift: Gift,
) {
    let fresh = A::State::default();
    let remaining = |state: &A::State, now| algorithm.look(state, now, Permits::ZERO).remaining;
    let (had, reset) = {
        let Decision {
            remaining,
            reset_after,
            ..
        } = algorithm.look(state, now, Permits::ZERO);
        (remaining, reset_after)
    };
    let spans = reach.spans(&[reset]);
    for cost in reach.costs(algorithm.capacity(), &[had]) {
        let mut refunded = state.clone();
        algorithm.refund(&mut refunded, now, cost);
        for then in both_last(algorithm, [state, &refunded], now, &spans) {
            let context = || {
                std::format!(
                    "{cost:?} at {now:?}, asked at {then:?}\n{algorithm:?}\n{state:?}\n{refunded:?}"
                )
            };
            let (has, had) = (remaining(&refunded, then), remaining(state, then));
            assert!(has >= had, "a refund took permits: {}", context());
            assert!(
                has.get() - had.get() <= cost.get() || gift == Gift::ItsCostAtFirst && then > now,
                "a refund returned more permits than its cost: {}",
                context()
            );
            assert!(
                has <= remaining(&fresh, then),
                "a refund left more permits than a fresh state has: {}",
                context()
            );
        }
    }
}

/// A refund undoes a charge made at the same instant.
///
/// # Panics
/// If it does not.
pub fn refund_undoes<A: Refund + Debug>(algorithm: &A, state: &A::State, now: Time, reach: Reach) {
    let Decision {
        remaining,
        reset_after,
        ..
    } = algorithm.look(state, now, Permits::ZERO);
    let spans = reach.spans(&[reset_after]);
    for cost in reach.costs(algorithm.capacity(), &[remaining]) {
        let mut undone = state.clone();
        if !algorithm.decide(&mut undone, now, cost).verdict.allows() {
            continue;
        }
        algorithm.refund(&mut undone, now, cost);
        for then in both_last(algorithm, [state, &undone], now, &spans) {
            let ask = |state| algorithm.look(state, then, algorithm.capacity());
            assert_eq!(
                ask(&undone),
                ask(state),
                "the refund did not undo the charge: {cost:?} at {now:?}, asked at {then:?}\n\
                 {algorithm:?}\n{state:?}\n{undone:?}",
            );
        }
    }
}
