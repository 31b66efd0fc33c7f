//! The laws of refunds, and which of them an algorithm keeps.
//!
//! ```text
//!   Refunds    gives at most its cost   undoes a charge   counted denials record all
//!   exact      now and later            yes               yes
//!   of_modes   now                      yes               yes
//!   of_loans   now and later            no                no
//!   none       -                        -                 yes
//! ```

use core::fmt::Debug;
use std::vec::Vec;

use super::settled;
use crate::algorithm::{Algorithm, Refund};
use crate::oracles::{Reach, later};
use crate::{Nanos, Permits, Receipt, Time};

type RefundFunction<A> = fn(&A, &mut <A as Algorithm>::State, Time, Permits);

/// How an algorithm takes back charges, and the laws that its refunds keep.
#[derive(Debug)]
pub struct Refunds<A: Algorithm> {
    /// `None` if the algorithm cannot take back a charge.
    refund: Option<RefundFunction<A>>,
    /// Checks the laws of refunds in a state.
    laws: fn(&A, &A::State, Time, Reach),
    /// True if counted denials record a cost above the capacity.
    pub(super) denials_are_recorded: bool,
}

impl<A: Algorithm> Refunds<A> {
    /// No refunds: the algorithm cannot take back a charge.
    pub fn none() -> Self {
        Self {
            refund: None,
            laws: |_, _, _, _| {},
            denials_are_recorded: true,
        }
    }

    /// Checks the laws of refunds in `state`.
    ///
    /// # Panics
    /// If one is broken.
    pub(super) fn check(&self, algorithm: &A, state: &A::State, now: Time, reach: Reach) {
        (self.laws)(algorithm, state, now, reach);
    }

    /// Returns the state after a refund; `None` if the algorithm cannot take back a charge.
    pub(super) fn state_after(
        &self,
        algorithm: &A,
        state: &A::State,
        now: Time,
        cost: Permits,
    ) -> Option<A::State> {
        let mut state = state.clone();
        self.refund?(algorithm, &mut state, now, cost);
        Some(state)
    }
}

impl<A: Refund + Debug> Refunds<A> {
    /// Refunds that undo a charge, and never give more than its cost.
    pub fn exact() -> Self {
        Self {
            refund: Some(A::refund),
            laws: |algorithm, state, now, reach| {
                let state = &settled(algorithm, state, now);
                gives_its_cost(algorithm, state, now, reach, Until::Ever);
                undoes(algorithm, state, now, reach);
            },
            denials_are_recorded: true,
        }
    }

    /// Refunds of an algorithm with modes: one that undoes a change of mode may give more than its
    /// cost later.
    pub fn of_modes() -> Self {
        Self {
            laws: |algorithm, state, now, reach| {
                let state = &settled(algorithm, state, now);
                gives_its_cost(algorithm, state, now, reach, Until::Now);
                undoes(algorithm, state, now, reach);
            },
            ..Self::exact()
        }
    }

    /// Refunds of permits on loan: they give back the permits that end first, so that they need not
    /// undo the last charge. Counted denials do not record a cost above the capacity, because no
    /// caller could give it back.
    pub fn of_loans() -> Self {
        Self {
            laws: |algorithm, state, now, reach| {
                gives_its_cost(algorithm, state, now, reach, Until::Ever);
            },
            denials_are_recorded: false,
            ..Self::exact()
        }
    }
}

/// Until when a refund gives no more than its cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Until {
    Now,
    Ever,
}

/// A refund gives back no more than its cost, and takes nothing.
///
/// # Panics
/// If it does not.
fn gives_its_cost<A: Refund + Debug>(
    algorithm: &A,
    state: &A::State,
    now: Time,
    reach: Reach,
    until: Until,
) {
    let fresh = A::State::default();
    let remaining = |state: &A::State, now| algorithm.look(state, now, Permits::ZERO).remaining;
    let looked = algorithm.look(state, now, Permits::ZERO);
    let spans = reach.spans(&[looked.reset_after]);
    for cost in reach.costs(algorithm.capacity(), &[looked.remaining]) {
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
                has.get() - had.get() <= cost.get() || until == Until::Now && then > now,
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
fn undoes<A: Refund + Debug>(algorithm: &A, state: &A::State, now: Time, reach: Reach) {
    let looked = algorithm.look(state, now, Permits::ZERO);
    let spans = reach.spans(&[looked.reset_after]);
    for cost in reach.costs(algorithm.capacity(), &[looked.remaining]) {
        let mut undone = state.clone();
        let decision = algorithm.decide(&mut undone, now, cost);
        if !decision.verdict.allows() {
            continue;
        }
        algorithm.give_back(&mut undone, now, cost, Receipt::of(&decision, now));
        for then in both_last(algorithm, [state, &undone], now, &spans) {
            let ask = |state| algorithm.look(state, then, algorithm.capacity());
            assert_eq!(
                ask(&undone),
                ask(state),
                "giving back did not undo the charge: {cost:?} at {now:?}, asked at {then:?}\n\
                 {algorithm:?}\n{state:?}\n{undone:?}",
            );
        }
    }
}

/// The moments `spans` after `now` at which both states are still read correctly.
fn both_last<A: Algorithm>(
    algorithm: &A,
    states: [&A::State; 2],
    now: Time,
    spans: &[Nanos],
) -> Vec<Time> {
    let last = |&span: &Nanos| {
        let [one, other] = states.map(|state| later(algorithm, state, now, span));
        one.and(other)
    };
    spans.iter().filter_map(last).collect()
}
