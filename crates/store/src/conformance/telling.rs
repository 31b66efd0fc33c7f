//! Telling: the helper functions that build the steps of stories.

use ratekeeper_core::{
    AnyAlgorithm, BanTerms, Banning, Charge, Edge, Gcra, Key, Limit, LimitId, Mode, Nanos, Permits,
    Quota, SubBuckets, Time, Window,
};

use super::{StoryAct, StoryAnswer, StoryCharge, StoryOutcome, StoryStep};

/// A limit of the cluster for tests, named `limit-ID`, that keeps its share while its store fails.
pub fn limit(id: u32, algorithm: impl Into<AnyAlgorithm>) -> Limit {
    Limit::new(format!("limit-{id}"), LimitId::new(id), algorithm)
}

/// A newer version of a limit.
pub(super) fn in_version(version: u32, limit: Limit) -> Limit {
    Limit { version, ..limit }
}

/// A charge for tests, in mode enforce.
pub fn charge<'a>(limit: &'a Limit, key: &'a [u8], cost: u64) -> Charge<'a> {
    Charge {
        limit,
        key: Key::from_bytes(key),
        cost: Permits::new(cost),
        mode: Mode::Enforce,
    }
}

const QUOTA: &str = "the quota is within bounds";

pub(super) fn bucket(quota: &str) -> Gcra {
    Gcra::token_bucket(quota.parse().expect(QUOTA)).expect(QUOTA)
}

pub(super) fn burst_of(burst: u64, quota: &str) -> Gcra {
    let quota: Quota = quota.parse().expect(QUOTA);
    Gcra::token_bucket(quota.with_burst(Permits::new(burst)).expect(QUOTA)).expect(QUOTA)
}

/// A bucket of `quota`, with a ban of two seconds after `strikes`, and then of four.
pub(super) fn banning(quota: &str, strikes: &str) -> Banning {
    let terms = BanTerms {
        strikes: strikes.parse().expect(QUOTA),
        first: Nanos::from_secs(2),
        growth_thousandths: 2_000,
        longest: Nanos::from_secs(4),
    };
    Banning::new(bucket(quota).into(), terms).expect(QUOTA)
}

pub(super) fn fixed(quota: &str) -> Window {
    Window::fixed(quota.parse().expect(QUOTA), Nanos::ZERO).expect(QUOTA)
}

pub(super) fn sub_buckets(quota: &str) -> SubBuckets {
    let quota = quota.parse().expect(QUOTA);
    SubBuckets::sub_buckets(quota, 5, Edge::Full, Nanos::ZERO).expect(QUOTA)
}

pub(super) fn queue(quota: &str, queue: u64) -> Gcra {
    Gcra::leaky_queue(quota.parse().expect(QUOTA), Permits::new(queue)).expect(QUOTA)
}

pub(super) fn step(
    at_ms: u64,
    act: StoryAct,
    charges: &[StoryCharge],
    answer: StoryAnswer,
) -> StoryStep {
    StoryStep {
        at: Time::ZERO + Nanos::from_millis(at_ms),
        act,
        charges: charges.to_vec(),
        answer,
    }
}

pub(super) fn decided(admitted: bool, each: &[StoryOutcome]) -> StoryAnswer {
    StoryAnswer::Decided {
        admitted,
        each: each.to_vec(),
    }
}

pub(super) fn passes(at_ms: u64, charges: &[StoryCharge], each: &[StoryOutcome]) -> StoryStep {
    step(at_ms, StoryAct::Decide, charges, decided(true, each))
}

pub(super) fn fails(at_ms: u64, charges: &[StoryCharge], each: &[StoryOutcome]) -> StoryStep {
    step(at_ms, StoryAct::Decide, charges, decided(false, each))
}

pub(super) fn looks(
    at_ms: u64,
    admitted: bool,
    charges: &[StoryCharge],
    each: &[StoryOutcome],
) -> StoryStep {
    step(at_ms, StoryAct::Look, charges, decided(admitted, each))
}

pub(super) fn refund(at_ms: u64, charges: &[StoryCharge]) -> StoryStep {
    step(at_ms, StoryAct::Refund, charges, StoryAnswer::Refunded)
}

/// `None`: the key begins anew.
pub(super) fn settle(
    at_ms: u64,
    charges: &[StoryCharge],
    used: &'static [Option<u64>],
) -> StoryStep {
    let act = StoryAct::Settle(used);
    step(at_ms, act, charges, StoryAnswer::Refunded)
}

pub(super) fn reset(at_ms: u64, charges: &[StoryCharge], there: &[bool]) -> StoryStep {
    step(
        at_ms,
        StoryAct::Reset,
        charges,
        StoryAnswer::WereThere(there.to_vec()),
    )
}
