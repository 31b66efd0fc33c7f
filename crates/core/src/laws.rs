//! The laws of [`algorithm.rs`](crate::Algorithm), executable for any algorithm.
//!
//! Two ways to test an algorithm, both with every oracle of [`crate::oracles`] and every law:
//!
//! ```text
//!   explore   small parameters: every state that any run can reach,
//!             at every moment (so every step back too), with every cost
//!
//!       fresh --decide--> s1 --decide--> s3        each s x now x cost: all oracles,
//!          \\--refund--> s2 --...                   all laws
//!
//!   live      any parameters: one long life of charges, looks, refunds and a clock that
//!             jumps and steps back; then every pair of moments against `bound`
//! ```
//!
//! A broken law panics with the algorithm, the state, the moment and the cost. Lives are
//! made by the caller (a property test shrinks them) or by [`random_life`] from a seed.

mod life;
mod recorded;
mod refund;

pub use life::{LifeEvent, Random, bounded, live, random_life};
pub use refund::Refunds;

use recorded::records_all;

use alloc::collections::VecDeque;
use core::fmt::Debug;
use core::hash::Hash;
use std::collections::HashSet;

use crate::algorithm::{Algorithm, Denials};
use crate::oracles::{self, Reach, later};
use crate::{Decision, Permits, Time, Verdict};

/// Checks every law and oracle that concerns `state` at `now`, once a decision has settled it.
///
/// # Panics
/// If one is broken.
pub fn state_holds<A: Algorithm + Debug>(algorithm: &A, state: &A::State, now: Time, reach: Reach) {
    oracles::monotone(algorithm, state, now, reach);
    let state = &settled(algorithm, state, now);
    oracles::remaining(algorithm, state, now, reach);
    oracles::reset_after(algorithm, state, now, reach);
    oracles::more_after(algorithm, state, now, reach);
    oracles::expires_at(algorithm, state, now, reach);
    additive(algorithm, state, now, reach);
}

/// Returns the state after a decision that charges nothing, because a debt that is too long after
/// a clock was set back is cut by deciding, not by looking.
fn settled<A: Algorithm>(algorithm: &A, state: &A::State, now: Time) -> A::State {
    let mut settled = state.clone();
    let _ = algorithm.decide(&mut settled, now, Permits::ZERO);
    settled
}

/// Decides, and checks the decision and the new `state` against laws and oracles.
///
/// # Panics
/// If one is broken.
pub fn decide<A: Algorithm + Debug>(
    algorithm: &A,
    state: &mut A::State,
    now: Time,
    cost: Permits,
    reach: Reach,
) -> Decision {
    let before = state.clone();
    let looked = algorithm.look(state, now, cost);
    assert!(*state == before, "`look` changed the state");
    let decision = algorithm.decide(state, now, cost);
    let context = || std::format!("{cost:?} at {now:?}\n{algorithm:?}\n{before:?}\n{state:?}");
    assert_eq!(
        decision,
        looked,
        "`look` and `decide` return different decisions: {}",
        context()
    );

    let after = algorithm.look(state, now, Permits::ZERO);
    let verdict = after.verdict;
    assert_eq!(
        Decision {
            verdict,
            ..decision
        },
        after,
        "the decision does not describe the state that it leaves: {}",
        context()
    );

    let is_counted = algorithm.denials() == Denials::Counted;
    let writes = match decision.verdict {
        Verdict::Allow | Verdict::AllowAfter(_) => cost > Permits::ZERO,
        // A cost that never fits is recorded as well.
        Verdict::DenyForever => is_counted,
        Verdict::Deny { .. } => is_counted || algorithm.counts_strikes(),
        Verdict::Ban { .. } => true,
        Verdict::Banned { .. } => false,
    };
    if !writes && *state != before {
        // Only a debt that is too long after the clock was set back is cut, and only once.
        let reset = now + decision.reset_after;
        assert!(
            reset < algorithm.expires_at(&before, now),
            "the state changed without a charge: {}",
            context()
        );
        let mut again = state.clone();
        let _ = algorithm.decide(&mut again, now, cost);
        assert!(
            again == *state,
            "a second decision cut the debt again: {}",
            context()
        );
    }
    if !decision.verdict.allows() {
        oracles::retry_after(algorithm, state, now, cost, decision.verdict, reach);
    }
    decision
}

/// Cost `a + b` at one instant is the same as `a` and then `b`.
///
/// # Panics
/// If it is not.
pub fn additive<A: Algorithm + Debug>(algorithm: &A, state: &A::State, now: Time, reach: Reach) {
    let remaining = algorithm.look(state, now, Permits::ZERO).remaining;
    let mut costs = reach.costs(remaining, &[]);
    costs.retain(|&cost| Permits::ZERO < cost && cost <= remaining);
    for &a in &costs {
        let mut first = state.clone();
        let _ = algorithm.decide(&mut first, now, a);
        for &b in &costs {
            let Some(sum) = a.get().checked_add(b.get()) else {
                continue;
            };
            let (mut one_by_one, mut at_once) = (first.clone(), state.clone());
            let second = algorithm.decide(&mut one_by_one, now, b);
            let whole = algorithm.decide(&mut at_once, now, Permits::new(sum));
            let context = || std::format!("{a:?}, {b:?} at {now:?}\n{algorithm:?}\n{state:?}");
            assert_eq!(
                whole.verdict.allows(),
                second.verdict.allows(),
                "{}",
                context()
            );
            if whole.verdict.allows() {
                assert_eq!(whole, second, "{}", context());
                assert!(one_by_one == at_once, "{}", context());
            }
        }
    }
}

/// Checks that both states allow every cost that the stricter one allows: at `now`, which is not
/// before the last use of either, and later.
///
/// # Panics
/// If it does not.
pub fn stricter_is_stricter<A: Algorithm + Debug>(
    algorithm: &A,
    a: &A::State,
    b: &A::State,
    now: Time,
    reach: Reach,
) {
    let mut strict = a.clone();
    algorithm.stricter(&mut strict, b);
    let reset = algorithm.look(&strict, now, Permits::ZERO).reset_after;
    for span in reach.spans(&[reset]) {
        let Some(then) = later(algorithm, &strict, now, span) else {
            continue;
        };
        let remaining = |state| algorithm.look(state, then, Permits::ZERO).remaining;
        assert!(
            remaining(&strict) <= remaining(a).min(remaining(b)),
            "{strict:?} is not as strict at {then:?} as\n{a:?}\n{b:?}\n{algorithm:?}",
        );
    }
}

/// Reaches every state that decisions and refunds at moments `0..=horizon` (nanoseconds) can,
/// in any order of the moments, and checks every law and oracle in it at every one of these
/// moments.
///
/// Returns the number of states.
///
/// # Panics
/// If a law is broken, or if there are more than a million states.
pub fn explore<A>(algorithm: &A, refunds: &Refunds<A>, horizon: u64, reach: Reach) -> usize
where
    A: Algorithm + Debug,
    A::State: Hash + Eq,
{
    const MAX_STATES: usize = 1_000_000;
    let costs = reach.costs(algorithm.capacity(), &[]);
    let mut seen = HashSet::from([A::State::default()]);
    let mut queue = VecDeque::from([A::State::default()]);
    while let Some(state) = queue.pop_front() {
        for now in (0..=horizon).map(Time::from_nanos) {
            state_holds(algorithm, &state, now, reach);
            refunds.check(algorithm, &state, now, reach);
            for &cost in &costs {
                if refunds.denials_are_recorded {
                    records_all(algorithm, &state, now, cost);
                }
                let mut decided = state.clone();
                let _ = decide(algorithm, &mut decided, now, cost, reach);
                let refunded = refunds.state_after(algorithm, &state, now, cost);
                for next in refunded.into_iter().chain([decided]) {
                    if !seen.contains(&next) {
                        seen.insert(next.clone());
                        queue.push_back(next);
                    }
                }
            }
        }
        assert!(
            seen.len() <= MAX_STATES,
            "too many states to explore: {algorithm:?}"
        );
    }
    seen.len()
}
