//! Charges that are given back at any later moment, under every algorithm that takes them back.
//!
//! ```text
//!   life     charge 3   wait   charge 2   give back 2 of the 3   wait   give back 1 of the 2 ..
//!   replay   charge 1          charge 1   from the start: the real state is never better
//! ```
//!
//! And the permits that stay used keep within `bound` in every span; those of an interval bucket
//! with strokes from its first take, within the bound of a grid. `RATEKEEPER_LIVES` sets the number
//! of lives of each limit.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use ratekeeper_core::laws::Random;
use ratekeeper_core::{
    Algorithm, AnyAlgorithm, AnyState, Balance, BanTerms, Banning, Concurrency, Edge, Exponential,
    Gcra, Hybrid, Interval, Log, Nanos, Permits, Quota, QuotaReset, Receipt, SubBuckets, Time,
    Window, WithBans,
};

/// Number of operations of a life.
const OPERATIONS: usize = 20;

/// The lives in which a state is held against a replay.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Replayed {
    All,
    /// Those in which a part of each charge stays: windows open with a charge, and without it a
    /// later one would open them, and end later.
    InPart,
    /// None: a charge that turns a hybrid smooth at the end of its window looks like one of the
    /// bucket.
    None,
    /// None: without a charge a bucket may be full earlier, and its strokes begin anew. They stay, as
    /// those of a grid do, which bounds it.
    Strokes,
}

fn quota(permits: u64, per: u64) -> Quota {
    Quota::new(Permits::new(permits), Nanos::from_nanos(per)).unwrap()
}

fn limits() -> Vec<(AnyAlgorithm, Replayed)> {
    let (nanos, permits) = (Nanos::from_nanos, Permits::new);
    let mut limits: Vec<(AnyAlgorithm, Replayed)> = Vec::new();
    for (count, per) in [(1, 1), (1, 5), (3, 6), (3, 7), (4, 2), (5, 12)] {
        let quota = quota(count, per);
        limits.push((Gcra::token_bucket(quota).unwrap().into(), Replayed::All));
        let burst = quota.with_burst(permits(2)).unwrap();
        let queue = Gcra::new(burst, permits(3)).unwrap();
        limits.push((queue.into(), Replayed::All));
        limits.push((
            Window::fixed(quota, nanos(1)).unwrap().into(),
            Replayed::All,
        ));
        limits.push((
            Window::two_window(quota, nanos(2)).unwrap().into(),
            Replayed::All,
        ));
        for edge in [Edge::Drop, Edge::Full, Edge::Weighted] {
            let parts = per.min(3).try_into().unwrap();
            let window = SubBuckets::sub_buckets(quota, parts, edge, nanos(1)).unwrap();
            limits.push((window.into(), Replayed::All));
        }
        limits.push((Log::sliding(quota).unwrap().into(), Replayed::All));
        limits.push((QuotaReset::new(quota).unwrap().into(), Replayed::InPart));
        limits.push((Hybrid::quota_linear(quota).unwrap().into(), Replayed::None));
        limits.push((Exponential::new(quota).unwrap().into(), Replayed::All));
        let strikes = BanTerms {
            strikes: "100/1s".parse().unwrap(),
            first: Nanos::SECOND,
            growth_thousandths: 1_000,
            longest: Nanos::SECOND,
        };
        let banning: Banning = WithBans::new(Log::sliding(quota).unwrap().into(), strikes).unwrap();
        limits.push((banning.into(), Replayed::All));
    }
    let gap = Log::sliding(quota(3, 9))
        .unwrap()
        .with_gap(nanos(2))
        .unwrap();
    limits.push((gap.into(), Replayed::All));
    for (most, refill, every) in [(1, 1, 3), (4, 1, 2), (5, 2, 3), (7, 3, 4), (4, 4, 5)] {
        let (most, refill, every) = (permits(most), permits(refill), nanos(every));
        let grid = Interval::on_grid(most, refill, every, nanos(1)).unwrap();
        limits.push((grid.into(), Replayed::All));
        let first = Interval::from_first(most, refill, every).unwrap();
        limits.push((first.into(), Replayed::Strokes));
    }
    limits.push((
        Concurrency::new(permits(3), nanos(32)).unwrap().into(),
        Replayed::All,
    ));
    limits.push((
        Balance::new(permits(4), permits(9)).unwrap().into(),
        Replayed::All,
    ));
    limits
}

/// A charge of a life.
#[derive(Clone, Copy, Debug)]
struct Made {
    at: Time,
    cost: u64,
    back: u64,
    is_open: bool,
    receipt: Receipt,
}

struct Life<'a> {
    limit: &'a AnyAlgorithm,
    /// The limit whose bound it keeps.
    bounded_by: &'a AnyAlgorithm,
    state: AnyState,
    now: Time,
    made: Vec<Made>,
    /// What a receipt knows of what came back since: of which charges, and how much sooner they
    /// are paid; else all permits.
    knows_order: bool,
}

impl Life<'_> {
    fn spend(&mut self, cost: u64) {
        let decision = self
            .limit
            .decide(&mut self.state, self.now, Permits::new(cost));
        if decision.verdict.allows() && cost > 0 {
            self.made.push(Made {
                at: self.now,
                cost,
                back: 0,
                is_open: true,
                receipt: Receipt::of(&decision, self.now),
            });
        }
    }

    fn give_back(&mut self, index: usize, back: u64) {
        let made = &mut self.made[index];
        (made.back, made.is_open) = (back, false);
        let (limit, receipt, back) = (self.limit, made.receipt, Permits::new(back));
        let owed = |state: &_| limit.look(state, self.now, Permits::ZERO).reset_after;
        let before = owed(&self.state);
        limit
            .try_give_back(&mut self.state, self.now, back, receipt)
            .unwrap();
        let sooner = before.saturating_sub(owed(&self.state));
        for (at, made) in self.made.iter_mut().enumerate() {
            let receipt = &mut made.receipt;
            if !self.knows_order {
                (receipt.returned, receipt.sooner) = (receipt.returned + back, Nanos::MAX);
            } else if at > index {
                receipt.returned = receipt.returned + back;
                receipt.sooner = receipt.sooner + sooner;
            }
        }
    }

    /// Holds the state against a replay in which the charges that were given back were smaller.
    fn is_no_better(&self) {
        let mut replay = AnyState::default();
        for made in &self.made {
            let cost = Permits::new(made.cost - made.back);
            let _ = self.limit.decide(&mut replay, made.at, cost);
        }
        for ahead in 0..40 {
            let then = self.now + Nanos::from_nanos(ahead);
            let left = |state: &AnyState| self.limit.look(state, then, Permits::ZERO).remaining;
            assert!(
                left(&self.state) <= left(&replay),
                "better than a replay: {:?} of {:?} at {then:?}\n{:?}\n{:#?}\nreal {:?}\nreplay {replay:?}",
                left(&self.state),
                left(&replay),
                self.limit,
                self.made,
                self.state,
            );
        }
    }

    /// Holds the permits that stay used against `bound`, in every span.
    fn is_bounded(&self) {
        for (first, from) in self.made.iter().enumerate() {
            let mut used = 0;
            for to in &self.made[first..] {
                used += to.cost - to.back;
                let span = to.at.since(from.at) + Nanos::from_nanos(1);
                let bound = self.bounded_by.bound(span);
                assert!(
                    used <= bound,
                    "{used} of {bound}: {:?}\n{:#?}",
                    self.limit,
                    self.made
                );
            }
        }
    }
}

fn lives() -> u64 {
    let set = std::env::var("RATEKEEPER_LIVES").ok();
    set.map_or(2_000, |lives| lives.parse().unwrap())
}

#[test]
fn no_give_back_makes_a_state_better_than_a_smaller_charge() {
    let limits = limits();
    for (at, (limit, replayed)) in limits.iter().enumerate() {
        let most = limit.capacity().get();
        let bounded_by = match replayed {
            Replayed::Strokes => &limits[at - 1].0, // the grid
            _ => limit,
        };
        for seed in 0..lives() {
            let mut random = Random::new(seed);
            let mut life = Life {
                limit,
                bounded_by,
                state: AnyState::default(),
                now: Time::from_nanos(100 + random.below(20)),
                made: Vec::new(),
                knows_order: seed / 2 % 2 == 0,
            };
            for _ in 0..OPERATIONS {
                match random.below(8) {
                    0..=2 => life.now = life.now + Nanos::from_nanos(1 + random.below(5)),
                    3..=5 => life.spend(1 + random.below(most.min(4))),
                    6 => life.spend(most),
                    _ => {}
                }
                let open: Vec<usize> = (0..life.made.len())
                    .filter(|&at| life.made[at].is_open)
                    .collect();
                if open.is_empty() || random.below(2) == 0 {
                    continue;
                }
                let index = open[usize::try_from(random.below(open.len() as u64)).unwrap()];
                let cost = life.made[index].cost;
                let back = match random.below(2) {
                    0 => random.below(cost + 1),
                    _ => cost,
                };
                let in_part = *replayed == Replayed::InPart && seed % 2 == 0;
                life.give_back(index, back.min(cost - u64::from(in_part)));
                if in_part || *replayed == Replayed::All {
                    life.is_no_better();
                }
            }
            life.is_bounded();
        }
    }
}
