//! Counted denials record a cost that never fits: all of it, up to a longest lock-out.

use core::fmt::Debug;

use crate::algorithm::{Algorithm, Denials};
use crate::{Permits, Time, Verdict};

/// A cost above the capacity leaves no permits where denials are counted; at any size and any
/// number of repetitions, no more is owed than after the largest.
///
/// # Panics
/// If more is left, or owed.
pub(super) fn records_all<A: Algorithm + Debug>(
    algorithm: &A,
    before: &A::State,
    now: Time,
    cost: Permits,
) {
    if algorithm.denials() == Denials::Free || cost <= algorithm.capacity() {
        return;
    }
    let mut state = before.clone();
    let denied = algorithm.decide(&mut state, now, cost);
    assert_eq!(
        (denied.verdict, denied.remaining),
        (Verdict::DenyForever, Permits::ZERO),
        "{cost:?} at {now:?} is not recorded\n{algorithm:?}\n{before:?}\n{state:?}",
    );
    let _ = algorithm.decide(&mut state, now, Permits::MAX);
    let most = state.clone();
    for cost in [Permits::MAX, cost] {
        let _ = algorithm.decide(&mut state, now, cost);
        assert!(
            state == most,
            "{cost:?} at {now:?} extends the maximum lock-out\n{algorithm:?}\n{most:?}\n{state:?}",
        );
    }
}
