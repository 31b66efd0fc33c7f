//! The meaning of a decision's fields, as checks that search for the answer.
//!
//! An oracle does not know how an algorithm works. It asks about other moments and other costs,
//! and compares the fields with the answers:
//!
//! ```text
//!   remaining    = the largest cost allowed now                         O1
//!   retry_after  = the least wait after which the cost is allowed       O2
//!   reset_after  = the least wait after which the state acts as fresh   O3
//!   more_after   = the least wait after which more than remaining fits  O9
//!   expires_at   = a moment from which it acts as fresh                 O7
//!   and for one state, a later moment never turns an allowance away     O8
//!
//!        denied        |  allowed
//!   -----+------+------+------+------> now + d
//!       now  r - 1 ns  r             Reach::Every asks at each d, Reach::Edges beside r
//! ```
//!
//! O4 to O6 (looking, denials, refunds) are about changes of the state: see
//! [`laws`](crate::laws).

use core::fmt::Debug;
use std::vec::Vec;

use crate::{Algorithm, Decision, Nanos, Permits, Time, Verdict};

/// How far a search goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// Every moment of the next `span` nanoseconds, and every cost to one above capacity.
    /// For small parameters.
    Every {
        /// At least as long as the limit remembers.
        span: u64,
    },
    /// The moments and costs where an answer changes, those beside them, and a few others.
    Edges,
}

/// Further moments at which [`Reach::Edges`] asks: from a nanosecond to the end of time.
const FURTHER: [u64; 6] = [
    0,
    1,
    1_000_000_007,
    86_400_000_000_000,
    u64::MAX / 2,
    u64::MAX,
];

impl Reach {
    /// The spans from now at which to ask; `edges` are those where an answer changes.
    pub fn spans(self, edges: &[Nanos]) -> Vec<Nanos> {
        let nanos: Vec<u64> = match self {
            Self::Every { span } => (0..=span).collect(),
            Self::Edges => {
                let beside = |edge: &Nanos| {
                    let edge = edge.as_nanos();
                    [
                        edge / 2,
                        edge.saturating_sub(1),
                        edge,
                        edge.saturating_add(1),
                    ]
                };
                edges.iter().flat_map(beside).chain(FURTHER).collect()
            }
        };
        nanos.into_iter().map(Nanos::from_nanos).collect()
    }

    /// The costs to ask about; `edges` are those where an answer changes.
    pub fn costs(self, capacity: Permits, edges: &[Permits]) -> Vec<Permits> {
        let costs: Vec<u64> = match self {
            Self::Every { .. } => (0..=capacity.get().saturating_add(1)).collect(),
            Self::Edges => {
                let beside = |edge: &Permits| {
                    let edge = edge.get();
                    [
                        edge / 2,
                        edge.saturating_sub(1),
                        edge,
                        edge.saturating_add(1),
                    ]
                };
                let capacity = beside(&capacity);
                edges
                    .iter()
                    .flat_map(beside)
                    .chain(capacity)
                    .chain([0, 1, 1 << 32, u64::MAX])
                    .collect()
            }
        };
        costs.into_iter().map(Permits::new).collect()
    }
}

/// The moment `span` after `now`; `None` at the end of time, 584 years, where spans saturate
/// and nothing is promised, and where `state` has been left alone for longer than it lasts.
pub(crate) fn later<A: Algorithm>(
    algorithm: &A,
    state: &A::State,
    now: Time,
    span: Nanos,
) -> Option<Time> {
    let then = now.as_nanos().checked_add(span.as_nanos())?;
    let then = (then < u64::MAX).then_some(Time::from_nanos(then))?;
    let lasts_until = algorithm.expires_at(state, now) + algorithm.lasts();
    (then < lasts_until || *state == A::State::default()).then_some(then)
}

fn allows<A: Algorithm>(algorithm: &A, state: &A::State, now: Time, cost: Permits) -> bool {
    algorithm.look(state, now, cost).verdict.allows()
}

/// O1: `remaining` is the largest cost allowed at `now`.
///
/// Cost 0 may be denied too, if the state is overdrawn.
///
/// # Panics
/// If it is not.
pub fn remaining<A: Algorithm + Debug>(algorithm: &A, state: &A::State, now: Time, reach: Reach) {
    let remaining = algorithm.look(state, now, Permits::ZERO).remaining;
    for cost in reach.costs(algorithm.capacity(), &[remaining]) {
        let overdrawn = cost == Permits::ZERO && remaining == Permits::ZERO;
        assert!(
            overdrawn || allows(algorithm, state, now, cost) == (cost <= remaining),
            "O1: {remaining:?} remain, which contradicts the verdict on {cost:?} at {now:?}\n\
             {algorithm:?}\n{state:?}",
        );
    }
}

/// O2: `cost`, denied at `now` with `verdict` and leaving `state`, is allowed after the wait in
/// `verdict` and not before; never, if there is no wait. The wait of a limit of concurrency is an
/// estimate, and no later than that.
///
/// # Panics
/// If it is not.
pub fn retry_after<A: Algorithm + Debug>(
    algorithm: &A,
    state: &A::State,
    now: Time,
    cost: Permits,
    verdict: Verdict,
    reach: Reach,
) {
    assert!(!verdict.allows(), "only a denial has a wait");
    assert!(
        cost <= algorithm.capacity() || verdict == Verdict::DenyForever,
        "O2: {cost:?} is above the capacity, but the verdict is {verdict:?}\n{algorithm:?}"
    );
    let wait = verdict.retry_after();
    let estimates = algorithm.name() == "concurrency";
    let edges: Vec<Nanos> = wait.into_iter().collect();
    for span in reach.spans(&edges) {
        if estimates && wait.is_some_and(|wait| span >= wait) {
            continue;
        }
        let Some(then) = later(algorithm, state, now, span) else {
            continue;
        };
        // A fresh state is denied too where the algorithm's time ends.
        let fresh = allows(algorithm, &A::State::default(), then, cost);
        let expected = fresh && wait.is_some_and(|wait| span >= wait);
        assert_eq!(
            allows(algorithm, state, then, cost),
            expected,
            "O2: {cost:?} at {now:?} received {verdict:?}, wrong after {span:?}\n\
             {algorithm:?}\n{state:?}",
        );
    }
}

/// O3: `reset_after` is the least wait after which `state` acts as fresh.
///
/// # Panics
/// If it is not.
pub fn reset_after<A: Algorithm + Debug>(algorithm: &A, state: &A::State, now: Time, reach: Reach) {
    let reset = algorithm.look(state, now, Permits::ZERO).reset_after;
    let all = algorithm.capacity();
    for span in reach.spans(&[reset]) {
        let Some(then) = later(algorithm, state, now, span) else {
            continue;
        };
        if span >= reset {
            acts_as_fresh(algorithm, state, then, reach);
        } else if allows(algorithm, &A::State::default(), then, all) {
            assert_ne!(
                algorithm.look(state, then, all),
                algorithm.look(&A::State::default(), then, all),
                "O3: reset after {reset:?} from {now:?}, but fresh after {span:?}\n\
                 {algorithm:?}\n{state:?}",
            );
        }
    }
}

/// O9: `more_after` is the least wait after which more than `remaining` is allowed; zero if no
/// more ever is.
///
/// # Panics
/// If it is not.
pub fn more_after<A: Algorithm + Debug>(algorithm: &A, state: &A::State, now: Time, reach: Reach) {
    let looked = algorithm.look(state, now, Permits::ZERO);
    let most = |state: &A::State, then| algorithm.look(state, then, Permits::ZERO).remaining;
    for span in reach.spans(&[looked.more_after]) {
        let Some(then) = later(algorithm, state, now, span) else {
            continue;
        };
        // A fresh state has less remaining too where the algorithm's time ends.
        let fresh = most(&A::State::default(), then) > looked.remaining;
        let expected = fresh && looked.more_after > Nanos::ZERO && span >= looked.more_after;
        assert_eq!(
            most(state, then) > looked.remaining,
            expected,
            "O9: {looked:?} at {now:?} is wrong after {span:?}\n{algorithm:?}\n{state:?}",
        );
    }
}

/// O7: from `expires_at` on, and not before `reset_after`, `state` acts as fresh.
///
/// # Panics
/// If it does not.
pub fn expires_at<A: Algorithm + Debug>(algorithm: &A, state: &A::State, now: Time, reach: Reach) {
    let expiry = algorithm.expires_at(state, now);
    let reset = algorithm.look(state, now, Permits::ZERO).reset_after;
    assert!(
        expiry >= now + reset || reset == Nanos::ZERO,
        "O7: expires at {expiry:?}, resets after {reset:?} from {now:?}\n{algorithm:?}\n{state:?}",
    );
    for span in reach.spans(&[]) {
        if let Some(then) = later(algorithm, state, expiry.max(now), span) {
            acts_as_fresh(algorithm, state, then, reach);
        }
    }
}

fn acts_as_fresh<A: Algorithm + Debug>(algorithm: &A, state: &A::State, now: Time, reach: Reach) {
    let fresh = A::State::default();
    for cost in reach.costs(algorithm.capacity(), &[]) {
        assert_eq!(
            algorithm.look(state, now, cost),
            algorithm.look(&fresh, now, cost),
            "O3, O7: does not act as fresh for {cost:?} at {now:?}\n{algorithm:?}\n{state:?}",
        );
    }
}

/// O8: a cost that `state` allows at a moment is allowed at every later one, so that a clock that
/// steps back never gains.
///
/// Cost 0 is left out, because a state that is overdrawn may deny it.
///
/// # Panics
/// If a cost is denied at a later moment and allowed at an earlier one.
pub fn monotone<A: Algorithm + Debug>(algorithm: &A, state: &A::State, now: Time, reach: Reach) {
    let Decision {
        remaining,
        reset_after,
        ..
    } = algorithm.look(state, now, Permits::ZERO);
    for cost in reach.costs(algorithm.capacity(), &[remaining]) {
        if cost == Permits::ZERO {
            continue;
        }
        let mut spans = reach.spans(&[reset_after]);
        spans.sort();
        let mut allowed = false;
        for then in spans
            .into_iter()
            .filter_map(|span| later(algorithm, state, now, span))
        {
            let allows = allows(algorithm, state, then, cost);
            // A fresh state is denied too where the algorithm's time ends.
            let shut = !self::allows(algorithm, &A::State::default(), then, cost);
            assert!(
                allows || !allowed || shut,
                "O8: {cost:?} is denied at {then:?}, but was allowed earlier\n\
                 {algorithm:?}\n{state:?}",
            );
            allowed |= allows;
        }
    }
}
