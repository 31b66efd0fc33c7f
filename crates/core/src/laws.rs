//! The laws of [`algorithm.rs`](crate::Algorithm), executable for any algorithm.
//!
//! Two ways to test an algorithm, both with every oracle of [`oracles`](crate::oracles) and every
//! law:
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

pub use life::{
    LifeEvent, Random, bounded, live, live_charges, live_loans, live_modes, random_life,
};

use recorded::records_all;
use refund::{Gift, refund_gives};
pub use refund::{refund_is_never_generous, refund_undoes};

use alloc::collections::VecDeque;
use core::fmt::Debug;
use core::hash::Hash;
use std::collections::HashSet;
use std::vec::Vec;

use crate::algorithm::{Algorithm, Denials, Refund};
use crate::oracles::{self, Reach, later};
use crate::{Decision, Nanos, Permits, Time, Verdict};

/// Checks every law and oracle that concerns `state` at `now`, once a decision has settled it,
/// because a debt that is too long after a clock was set back is cut by deciding, not by looking.
///
/// # Panics
/// If one is broken.
pub fn state_holds<A: Algorithm + Debug>(algorithm: &A, state: &A::State, now: Time, reach: Reach) {
    oracles::monotone(algorithm, state, now, reach);
    let mut settled = state.clone();
    let _ = algorithm.decide(&mut settled, now, Permits::ZERO);
    let state = &settled;
    oracles::remaining(algorithm, state, now, reach);
    oracles::reset_after(algorithm, state, now, reach);
    oracles::more_after(algorithm, state, now, reach);
    oracles::expires_at(algorithm, state, now, reach);
    additive(algorithm, state, now, reach);
}

/// Decides, and checks the decision and the new `state` against laws and oracles.
///
/// # Panics
/// If one is broken.
pub fn decide<A: Algorithm + Debug>(
    algorithm: &A,
    denials: Denials,
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
    assert_eq!(
        decision.remaining,
        after.remaining,
        "`remaining` is not that of the state after the decision: {}",
        context()
    );
    assert_eq!(
        decision.reset_after,
        after.reset_after,
        "`reset_after` is not that of the state after the decision: {}",
        context()
    );
    assert_eq!(
        decision.more_after,
        after.more_after,
        "`more_after` is not that of the state after the decision: {}",
        context()
    );

    let writes = match decision.verdict {
        Verdict::Allow | Verdict::AllowAfter(_) => cost > Permits::ZERO,
        // A cost that never fits is recorded as well.
        Verdict::DenyForever => denials == Denials::Counted,
        Verdict::Deny { .. } => denials == Denials::Counted || algorithm.counts_strikes(),
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
    let costs = reach.costs(remaining, &[]);
    for &a in costs
        .iter()
        .filter(|&&a| Permits::ZERO < a && a <= remaining)
    {
        let mut first = state.clone();
        let _ = algorithm.decide(&mut first, now, a);
        for &b in costs
            .iter()
            .filter(|&&b| Permits::ZERO < b && b <= remaining)
        {
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

/// The refund of an algorithm, and the law for it.
trait Refunds<A: Algorithm> {
    /// True if counted denials record a cost above the capacity; false for permits on loan,
    /// because no caller could give them back.
    const RECORDS_ALL: bool = true;
    fn is_lawful(algorithm: &A, state: &A::State, now: Time, reach: Reach);
    /// The state after the refund, if the algorithm can do that.
    fn refund(algorithm: &A, state: &A::State, now: Time, cost: Permits) -> Option<A::State>;
}

struct TakesBack;

impl<A: Refund + Debug> Refunds<A> for TakesBack {
    fn is_lawful(algorithm: &A, state: &A::State, now: Time, reach: Reach) {
        let mut settled = state.clone();
        let _ = algorithm.decide(&mut settled, now, Permits::ZERO);
        refund_is_never_generous(algorithm, &settled, now, reach);
        refund_undoes(algorithm, &settled, now, reach);
    }
    fn refund(algorithm: &A, state: &A::State, now: Time, cost: Permits) -> Option<A::State> {
        let mut state = state.clone();
        algorithm.refund(&mut state, now, cost);
        Some(state)
    }
}

struct TakesBackModes;

impl<A: Refund + Debug> Refunds<A> for TakesBackModes {
    fn is_lawful(algorithm: &A, state: &A::State, now: Time, reach: Reach) {
        let mut settled = state.clone();
        let _ = algorithm.decide(&mut settled, now, Permits::ZERO);
        refund_gives(algorithm, &settled, now, reach, Gift::ItsCostAtFirst);
        refund_undoes(algorithm, &settled, now, reach);
    }
    fn refund(algorithm: &A, state: &A::State, now: Time, cost: Permits) -> Option<A::State> {
        TakesBack::refund(algorithm, state, now, cost)
    }
}

struct TakesFirst;

impl<A: Refund + Debug> Refunds<A> for TakesFirst {
    const RECORDS_ALL: bool = false;
    fn is_lawful(algorithm: &A, state: &A::State, now: Time, reach: Reach) {
        refund_is_never_generous(algorithm, state, now, reach);
    }
    fn refund(algorithm: &A, state: &A::State, now: Time, cost: Permits) -> Option<A::State> {
        TakesBack::refund(algorithm, state, now, cost)
    }
}

struct KeepsAll;

impl<A: Algorithm> Refunds<A> for KeepsAll {
    fn is_lawful(_: &A, _: &A::State, _: Time, _: Reach) {}
    fn refund(_: &A, _: &A::State, _: Time, _: Permits) -> Option<A::State> {
        None
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
    for then in reach
        .spans(&[reset])
        .into_iter()
        .filter_map(|span| later(algorithm, &strict, now, span))
    {
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
pub fn explore<A>(algorithm: &A, denials: Denials, horizon: u64, reach: Reach) -> usize
where
    A: Refund + Debug,
    A::State: Hash + Eq,
{
    explore_with::<A, TakesBack>(algorithm, denials, horizon, reach)
}

/// As [`explore`], for an algorithm that cannot take back a charge.
///
/// # Panics
/// As [`explore`].
pub fn explore_charges<A>(algorithm: &A, denials: Denials, horizon: u64, reach: Reach) -> usize
where
    A: Algorithm + Debug,
    A::State: Hash + Eq,
{
    explore_with::<A, KeepsAll>(algorithm, denials, horizon, reach)
}

/// As [`explore`], for an algorithm with modes: a refund that undoes a change of mode may give
/// more than its cost later.
///
/// # Panics
/// As [`explore`].
pub fn explore_modes<A>(algorithm: &A, denials: Denials, horizon: u64, reach: Reach) -> usize
where
    A: Refund + Debug,
    A::State: Hash + Eq,
{
    explore_with::<A, TakesBackModes>(algorithm, denials, horizon, reach)
}

/// As [`explore`], for permits on loan: a refund gives back the permits that end first, so that
/// it need not undo the last charge.
///
/// # Panics
/// As [`explore`].
pub fn explore_loans<A>(algorithm: &A, denials: Denials, horizon: u64, reach: Reach) -> usize
where
    A: Refund + Debug,
    A::State: Hash + Eq,
{
    explore_with::<A, TakesFirst>(algorithm, denials, horizon, reach)
}

fn explore_with<A, R>(algorithm: &A, denials: Denials, horizon: u64, reach: Reach) -> usize
where
    A: Algorithm + Debug,
    A::State: Hash + Eq,
    R: Refunds<A>,
{
    const MOST: usize = 1_000_000;
    let costs = reach.costs(algorithm.capacity(), &[]);
    let mut seen = HashSet::from([A::State::default()]);
    let mut queue = VecDeque::from([A::State::default()]);
    while let Some(state) = queue.pop_front() {
        for now in (0..=horizon).map(Time::from_nanos) {
            state_holds(algorithm, &state, now, reach);
            R::is_lawful(algorithm, &state, now, reach);
            for &cost in &costs {
                if R::RECORDS_ALL {
                    records_all(algorithm, denials, &state, now, cost);
                }
                let mut decided = state.clone();
                let _ = decide(algorithm, denials, &mut decided, now, cost, reach);
                let refunded = R::refund(algorithm, &state, now, cost);
                for next in refunded.into_iter().chain([decided]) {
                    if !seen.contains(&next) {
                        seen.insert(next.clone());
                        queue.push_back(next);
                    }
                }
            }
        }
        assert!(
            seen.len() <= MOST,
            "too many states to explore: {algorithm:?}"
        );
    }
    seen.len()
}
