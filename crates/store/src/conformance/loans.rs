//! Stories of permits on loan: with and without names, alone and beside rate limits.

use ratekeeper_core::{Concurrency, Denials, Nanos, Permits};

use super::telling::{
    bucket, decided, fails, in_version, limit, looks, passes, refund, reset, step,
};
use super::{Story, StoryAct, StoryAnswer, StoryCharge, StoryOutcome, StoryStep};
use StoryOutcome::{Allow, Deny, Never};
use ratekeeper_core::Mode::{Enforce, Shadow};

/// A limit of `permits` at once, each on loan for 16 s.
fn at_once(permits: u64) -> Concurrency {
    let limit = Concurrency::new(Permits::new(permits), Nanos::from_secs(16));
    limit.expect("the limit is within bounds")
}

fn acquires(at_ms: u64, name: u8, charges: &[StoryCharge], each: &[StoryOutcome]) -> StoryStep {
    step(at_ms, StoryAct::Acquire(name), charges, decided(true, each))
}

fn refused(at_ms: u64, name: u8, charges: &[StoryCharge], each: &[StoryOutcome]) -> StoryStep {
    step(
        at_ms,
        StoryAct::Acquire(name),
        charges,
        decided(false, each),
    )
}

fn watches(
    at_ms: u64,
    admitted: bool,
    charges: &[StoryCharge],
    each: &[StoryOutcome],
) -> StoryStep {
    step(at_ms, StoryAct::Watch, charges, decided(admitted, each))
}

fn releases(at_ms: u64, name: u8, charges: &[StoryCharge], back: &[u64]) -> StoryStep {
    let answer = StoryAnswer::Released(back.to_vec());
    step(at_ms, StoryAct::Release(name), charges, answer)
}

fn renews(at_ms: u64, name: u8, charges: &[StoryCharge], each: &[Option<u64>]) -> StoryStep {
    let answer = StoryAnswer::Renewed(each.to_vec());
    step(at_ms, StoryAct::Renew(name), charges, answer)
}

const ADA: StoryCharge = (0, "ada", 1, Enforce);
const BOB: StoryCharge = (0, "bob", 1, Enforce);

pub(super) fn stories() -> Vec<Story> {
    let mut stories = alone();
    stories.extend(beside_rates());
    stories
}

fn alone() -> Vec<Story> {
    vec![
        Story {
            name: "permits return once, by release or by expiry",
            limits: vec![limit(0, at_once(2))],
            steps: vec![
                acquires(0, 1, &[ADA], &[Allow(1)]),
                acquires(3_000, 2, &[ADA], &[Allow(0)]),
                refused(4_000, 3, &[ADA], &[Deny(2_500, 0)]), // held for 4 s and for 1 s
                acquires(4_000, 3, &[BOB], &[Allow(1)]),
                releases(4_000, 2, &[ADA, BOB], &[1, 0]),
                releases(4_000, 2, &[ADA], &[0]),
                acquires(4_000, 4, &[ADA], &[Allow(0)]),
                refused(15_999, 5, &[ADA], &[Deny(1, 0)]), // the holder of 1 has crashed
                releases(16_000, 1, &[ADA], &[0]),
                acquires(16_000, 5, &[ADA], &[Allow(0)]),
                reset(16_000, &[ADA], &[true]),
                releases(16_000, 5, &[ADA], &[0]),
                acquires(16_000, 6, &[(0, "ada", 2, Enforce)], &[Allow(0)]),
                releases(16_000, 6, &[ADA], &[2]),
                refused(16_000, 7, &[(0, "ada", 3, Enforce)], &[Never(2)]),
            ],
        },
        Story {
            name: "a renewed lease continues; an expired one cannot be renewed",
            limits: vec![limit(0, at_once(1)), limit(1, bucket("9/1s"))],
            steps: vec![
                acquires(0, 1, &[ADA], &[Allow(0)]),
                renews(15_000, 1, &[ADA, BOB], &[Some(16_000), None]),
                refused(30_000, 2, &[ADA], &[Deny(1_000, 0)]),
                renews(31_000, 1, &[ADA], &[None]),
                acquires(31_000, 2, &[ADA], &[Allow(0)]),
                // A rate limit has nothing on loan.
                acquires(31_000, 3, &[(1, "ada", 1, Enforce)], &[Allow(8)]),
                renews(31_000, 3, &[(1, "ada", 1, Enforce)], &[None]),
                releases(31_000, 3, &[(1, "ada", 1, Enforce)], &[0]),
            ],
        },
        Story {
            name: "without a name, a decision takes permits and a refund returns them",
            limits: vec![limit(0, at_once(2))],
            steps: vec![
                passes(0, &[(0, "ada", 2, Enforce)], &[Allow(0)]),
                fails(0, &[ADA], &[Deny(1_000, 0)]),
                refund(1_000, &[ADA]),
                looks(1_000, true, &[ADA], &[Allow(1)]),
                acquires(1_000, 1, &[ADA], &[Allow(0)]),
                refund(1_000, &[(0, "ada", 2, Enforce)]), // one of them: the other has a name
                passes(1_000, &[ADA], &[Allow(0)]),
                releases(1_000, 1, &[ADA], &[1]),
            ],
        },
        Story {
            name: "counted denials hold permits until they are refunded",
            limits: vec![limit(0, at_once(1).with_denials(Denials::Counted))],
            steps: vec![
                passes(0, &[ADA], &[Allow(0)]),
                fails(0, &[ADA], &[Deny(1_000, 0)]),
                refund(0, &[ADA]),
                fails(0, &[ADA], &[Deny(1_000, 0)]),
                refund(0, &[ADA]),
                refund(0, &[ADA]),
                refused(0, 1, &[(0, "ada", 2, Enforce)], &[Never(1)]),
                acquires(0, 1, &[ADA], &[Allow(0)]),
                refused(0, 2, &[ADA], &[Deny(1_000, 0)]), // a denied name holds nothing
                releases(0, 1, &[ADA], &[1]),
                acquires(0, 3, &[ADA], &[Allow(0)]),
            ],
        },
        Story {
            name: "new parameters keep the permits on loan",
            limits: vec![limit(0, at_once(3)), in_version(2, limit(0, at_once(1)))],
            steps: vec![
                acquires(0, 1, &[(0, "ada", 2, Enforce)], &[Allow(1)]),
                refused(0, 2, &[(1, "ada", 1, Enforce)], &[Deny(1_000, 0)]),
                releases(0, 1, &[(1, "ada", 1, Enforce)], &[2]),
                acquires(0, 2, &[(1, "ada", 1, Enforce)], &[Allow(0)]),
            ],
        },
        Story {
            name: "a change from a rate lends the used permits for one lease",
            limits: vec![
                limit(0, bucket("4/4h")),
                in_version(2, limit(0, at_once(3))),
            ],
            steps: vec![
                passes(0, &[(0, "ada", 2, Enforce)], &[Allow(2)]),
                acquires(0, 1, &[(1, "ada", 1, Enforce)], &[Allow(0)]),
                acquires(17_000, 2, &[(1, "ada", 3, Enforce)], &[Allow(0)]),
            ],
        },
    ]
}

fn beside_rates() -> Vec<Story> {
    let limits = || vec![limit(0, at_once(1)), limit(1, bucket("2/2h"))];
    let both = |key| [(0, key, 1, Enforce), (1, key, 1, Enforce)];
    let rate = (1, "ada", 0, Enforce);
    vec![
        Story {
            name: "a rate and permits are charged together or not at all",
            limits: limits(),
            steps: vec![
                acquires(0, 1, &both("ada"), &[Allow(0), Allow(1)]),
                refused(0, 2, &both("ada"), &[Deny(1_000, 0), Allow(1)]),
                looks(0, true, &[rate], &[Allow(1)]),
                releases(0, 1, &both("ada"), &[1, 0]),
                acquires(0, 3, &both("ada"), &[Allow(0), Allow(0)]),
                releases(0, 3, &both("ada"), &[1, 0]),
                refused(0, 4, &both("ada"), &[Allow(1), Deny(3_600_000, 0)]),
                acquires(0, 5, &[ADA], &[Allow(0)]),
            ],
        },
        Story {
            name: "a request that only watches takes no permit, but is charged the rate",
            limits: limits(),
            steps: vec![
                watches(0, true, &both("ada"), &[Allow(1), Allow(1)]),
                acquires(0, 1, &[ADA], &[Allow(0)]),
                watches(0, false, &both("ada"), &[Deny(1_000, 0), Allow(1)]),
                releases(0, 1, &[ADA], &[1]),
                watches(0, true, &both("ada"), &[Allow(1), Allow(0)]),
                watches(0, true, &[ADA], &[Allow(1)]),
            ],
        },
        Story {
            name: "unnamed permits that count denials are taken although the rate refuses",
            limits: vec![
                limit(0, at_once(3).with_denials(Denials::Counted)),
                limit(1, bucket("1/1h")),
            ],
            steps: vec![
                passes(0, &both("ada"), &[Allow(2), Allow(0)]),
                fails(0, &both("ada"), &[Allow(1), Deny(3_600_000, 0)]),
                refused(0, 1, &both("ada"), &[Allow(1), Deny(3_600_000, 0)]),
                looks(0, false, &both("ada"), &[Allow(1), Deny(3_600_000, 0)]),
                refund(0, &[ADA]),
                refund(0, &[ADA]),
                looks(0, true, &[ADA], &[Allow(3)]),
            ],
        },
        Story {
            name: "permits in shadow mode are lent while any are free, and refuse no request",
            limits: limits(),
            steps: vec![
                acquires(0, 1, &[(0, "ada", 1, Shadow)], &[Allow(0)]),
                acquires(0, 2, &[(0, "ada", 1, Shadow)], &[Deny(1_000, 0)]),
                releases(0, 2, &[ADA], &[0]),
                releases(0, 1, &[ADA], &[1]),
            ],
        },
    ]
}
