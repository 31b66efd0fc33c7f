//! The worst case when charges are given back at any later moment and the numbers change, by
//! dynamic programming over all reachable states.
//!
//! ```text
//!   place: state, charges that are open, numbers in force
//!   moves: charge any cost | give back any part of an open charge | take up the next numbers
//!   worst(W) = the most that stays used of the charges within W, on any way
//! ```
//!
//! What earlier charges gave back is no excuse: the receipts say what came back of others, as those
//! of a limiter do.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::ops::Range;

use foldhash::fast::FixedState;
use ratekeeper_core::{
    Edge, Exponential, Gcra, Hybrid, Interval, Log, Nanos, Permits, Quota, QuotaReset, Receipt,
    Refund, SubBuckets, Time, Window,
};

use crate::cases::cases;

/// Maximum number of moves in one tick.
const MOVES: usize = 3;

/// Each place, with the most that stays used on a way to it.
type Most<S> = HashMap<Place<S>, u64, FixedState>;

#[derive(Clone, PartialEq, Eq, Hash, Default)]
struct Place<S> {
    state: S,
    open: Vec<Open>,
    /// Index of the numbers in force.
    numbers: usize,
}

/// A charge that can still be given back.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Open {
    cost: u64,
    receipt: Receipt,
    /// Whether the charge was made in the span that is looked at.
    counts: bool,
}

impl<S: Clone + Hash + Eq> Place<S> {
    fn charge<A: Refund<State = S>>(
        &self,
        limit: &A,
        now: Time,
        cost: u64,
        search: Search,
    ) -> Step<S> {
        let mut after = self.clone();
        let decision = limit.decide(&mut after.state, now, Permits::new(cost));
        let admitted = decision.verdict.allows();
        let Search { counts, most_open } = search;
        if admitted && after.open.len() < most_open {
            let receipt = Receipt::of(&decision, now);
            after.open.push(Open {
                cost,
                receipt,
                counts,
            });
        }
        let used = if admitted && counts { cost } else { 0 };
        Step {
            after,
            used,
            back: 0,
        }
    }

    fn give_back<A: Refund<State = S>>(
        &self,
        limit: &A,
        now: Time,
        at: usize,
        back: u64,
    ) -> Step<S> {
        let mut after = self.clone();
        let Open {
            receipt, counts, ..
        } = after.open.remove(at);
        limit.give_back(&mut after.state, now, Permits::new(back), receipt);
        for other in &mut after.open {
            other.receipt.returned = Permits::new(other.receipt.returned.get() + back);
        }
        let back = if counts { back } else { 0 };
        Step {
            after,
            used: 0,
            back,
        }
    }
}

#[derive(Clone, Copy)]
struct Search {
    /// Whether charges are made in the span that is looked at.
    counts: bool,
    /// Maximum number of charges that are open at once.
    most_open: usize,
}

/// A move.
struct Step<S> {
    after: Place<S>,
    used: u64,
    back: u64,
}

/// The most that stays used of the charges in any span of 1, 2, .. `spans` ticks that starts in one
/// of `starts`. `numbers` come into force one after the other, at any moments.
fn worst<A>(numbers: &[A], search: Search, starts: Range<u64>, spans: u64) -> Vec<u64>
where
    A: Refund + Debug,
    A::State: Hash + Eq,
{
    let tick = |places: Most<A::State>, now: u64, counts: bool| {
        let search = Search { counts, ..search };
        let now = Time::from_nanos(now);
        let mut all = places.clone();
        let mut last = places;
        for _ in 0..MOVES {
            let mut after: Most<A::State> = HashMap::default();
            for (place, &most) in &last {
                let limit = &numbers[place.numbers];
                let costs = 1..=limit.capacity().get();
                let charges = costs.map(|cost| place.charge(limit, now, cost, search));
                let parts = place
                    .open
                    .iter()
                    .enumerate()
                    .flat_map(|(at, open)| (1..=open.cost).map(move |back| (at, back)));
                let returns = parts.map(|(at, back)| place.give_back(limit, now, at, back));
                let change = numbers.get(place.numbers + 1).map(|next| {
                    let mut after = Place {
                        open: Vec::new(),
                        numbers: place.numbers + 1,
                        ..place.clone()
                    };
                    next.carry(&mut after.state, limit, now, Nanos::ZERO);
                    Step {
                        after,
                        used: 0,
                        back: 0,
                    }
                });
                for step in charges.chain(returns).chain(change) {
                    let best = after.entry(step.after).or_default();
                    *best = (*best).max(most + step.used - step.back);
                }
            }
            last = HashMap::default();
            for (place, most) in after {
                match all.get_mut(&place) {
                    Some(best) if *best >= most => continue,
                    Some(best) => *best = most,
                    None => {
                        all.insert(place.clone(), most);
                    }
                }
                last.insert(place, most);
            }
        }
        all
    };
    let mut worst = vec![0; usize::try_from(spans).unwrap()];
    let mut reached = Most::default();
    reached.insert(Place::default(), 0);
    for start in 0..starts.end {
        if starts.contains(&start) {
            let mut places = reached.clone();
            for (now, worst) in (start..).zip(&mut worst) {
                places = tick(places, now, true);
                *worst = (*worst).max(*places.values().max().unwrap());
            }
        }
        reached = tick(reached, start, false);
    }
    worst
}

/// Holds the worst case of a limit, and of one whose numbers are raised for a time, against the
/// bound of the looser.
fn hold<A>(limit: &A, looser: &A, period: u64)
where
    A: Refund + Debug + Clone,
    A::State: Hash + Eq,
{
    let search = |most_open| Search {
        counts: true,
        most_open,
    };
    within(std::slice::from_ref(limit), search(2), period);
    let numbers = [limit, looser, limit].map(A::clone);
    within(&numbers, search(1), period);
}

/// Holds the worst case against the bound of the second of `numbers`, or the only one.
fn within<A>(numbers: &[A], search: Search, period: u64)
where
    A: Refund + Debug,
    A::State: Hash + Eq,
{
    let starts = 2 * period..cases(2 * period + 1, 3 * period);
    let worst = worst(numbers, search, starts, period + 2);
    for (span, most) in (1..).zip(worst) {
        let bound = numbers[numbers.len() / 2].bound(Nanos::from_nanos(span));
        assert!(
            most <= bound,
            "{span} ticks: {most} stay used, bound {bound}\n{numbers:?}"
        );
    }
}

fn quota(permits: u64, ticks: u64) -> Quota {
    Quota::new(Permits::new(permits), Nanos::from_nanos(ticks)).unwrap()
}

#[test]
fn give_backs_and_changes_admit_no_more() {
    let p = 3;
    let (small, large) = (quota(2, p), quota(3, p));
    let bucket = |quota| Gcra::token_bucket(quota).unwrap();
    hold(&bucket(small), &bucket(large), p);
    let fixed = |quota| Window::fixed(quota, Nanos::ZERO).unwrap();
    hold(&fixed(small), &fixed(large), p);
    let pair = |quota| Window::two_window(quota, Nanos::ZERO).unwrap();
    hold(&pair(small), &pair(large), p);
    for edge in [Edge::Drop, Edge::Full, Edge::Weighted] {
        let parts = |quota| SubBuckets::sub_buckets(quota, 2, edge, Nanos::ZERO).unwrap();
        hold(&parts(small), &parts(large), p);
    }
    let log = |quota| Log::sliding(quota).unwrap();
    hold(&log(small), &log(large), p);
    let reset = |quota| QuotaReset::new(quota).unwrap();
    hold(&reset(small), &reset(large), p);
    let hybrid = |quota| Hybrid::quota_linear(quota).unwrap();
    hold(&hybrid(small), &hybrid(large), p);
    let decay = |quota| Exponential::new(quota).unwrap();
    hold(&decay(small), &decay(large), p);
    let grid = |most| {
        let (most, refill) = (Permits::new(most), Permits::ONE);
        Interval::on_grid(most, refill, Nanos::from_nanos(2), Nanos::ZERO).unwrap()
    };
    hold(&grid(2), &grid(3), p);
}
