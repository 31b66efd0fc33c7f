//! The stories: each call to a store, its time, and the required answer.

use ratekeeper_core::{Denials, Mode, Nanos};

use super::telling::{
    bucket, fails, fixed, limit, looks, passes, queue, refund, reset, settle, sub_buckets,
};
use super::{Story, StoryOutcome};
use Mode::{Enforce, Shadow};
use StoryOutcome::{Allow, AllowAfter, Deny, Never};

/// Returns all stories.
pub(super) fn stories() -> Vec<Story> {
    let mut stories = single();
    stories.extend(beside_deciding());
    stories.extend(settlements());
    stories.extend(several());
    stories.extend(super::odds::stories());
    stories.extend(super::chains::stories());
    stories.extend(super::versions::stories());
    stories.extend(super::bans::stories());
    stories.extend(super::grants::stories());
    stories.extend(super::loans::stories());
    stories
}

/// Stories with one charge per request.
fn single() -> Vec<Story> {
    vec![
        Story {
            name: "burst, then pace; keys apart",
            limits: vec![limit(0, bucket("2/2s"))],
            steps: vec![
                passes(0, &[(0, "ada", 2, Enforce)], &[Allow(0)]),
                fails(0, &[(0, "ada", 1, Enforce)], &[Deny(1000, 0)]),
                passes(0, &[(0, "bob", 1, Enforce)], &[Allow(1)]),
                fails(999, &[(0, "ada", 1, Enforce)], &[Deny(1, 0)]),
                passes(1000, &[(0, "ada", 1, Enforce)], &[Allow(0)]),
                fails(1000, &[(0, "ada", 3, Enforce)], &[Never(0)]),
                fails(1000, &[(0, "new", 3, Enforce)], &[Never(2)]),
                passes(9000, &[(0, "ada", 0, Enforce)], &[Allow(2)]),
            ],
        },
        Story {
            name: "keys of any length",
            limits: vec![limit(0, bucket("1/1s"))],
            steps: [
                "",
                "a",
                "fifteen bytes..",
                "sixteen bytes...",
                "thirty bytes, the longest in pl",
                "a key so long that hardly any store would keep it inline, a path for example",
            ]
            .into_iter()
            .flat_map(|key| {
                [
                    passes(0, &[(0, key, 1, Enforce)], &[Allow(0)]),
                    fails(0, &[(0, key, 1, Enforce)], &[Deny(1000, 0)]),
                ]
            })
            .collect(),
        },
        Story {
            name: "windows and sub-buckets",
            limits: vec![limit(0, fixed("3/10s")), limit(1, sub_buckets("3/10s"))],
            steps: vec![
                passes(9000, &[(0, "k", 3, Enforce)], &[Allow(0)]),
                fails(9000, &[(0, "k", 1, Enforce)], &[Deny(1000, 0)]),
                passes(10_000, &[(0, "k", 1, Enforce)], &[Allow(2)]),
                passes(9000, &[(1, "k", 3, Enforce)], &[Allow(0)]),
                fails(10_000, &[(1, "k", 1, Enforce)], &[Deny(10_000, 0)]),
                passes(20_000, &[(1, "k", 1, Enforce)], &[Allow(2)]),
            ],
        },
        Story {
            name: "a queue delays requests",
            limits: vec![limit(0, queue("1/1s", 1))],
            steps: vec![
                passes(0, &[(0, "k", 1, Enforce)], &[Allow(1)]),
                passes(0, &[(0, "k", 1, Enforce)], &[AllowAfter(1000, 0)]),
                fails(0, &[(0, "k", 1, Enforce)], &[Deny(1000, 0)]),
            ],
        },
        Story {
            name: "counted denials are charged, in shadow mode too",
            limits: vec![limit(0, bucket("2/2s").with_denials(Denials::Counted))],
            steps: vec![
                passes(0, &[(0, "k", 2, Enforce)], &[Allow(0)]),
                fails(0, &[(0, "k", 1, Enforce)], &[Deny(2000, 0)]),
                passes(0, &[(0, "k", 1, Shadow)], &[Deny(3000, 0)]),
                fails(0, &[(0, "k", 1, Enforce)], &[Deny(3000, 0)]),
            ],
        },
    ]
}

/// Stories of charges that are corrected to the actual costs.
fn settlements() -> Vec<Story> {
    vec![
        Story {
            name: "a bucket owes what its work cost beyond the estimate",
            limits: vec![
                limit(0, bucket("3/3s").with_patience(Nanos::from_secs(60))),
                limit(1, bucket("9/9s").with_patience(Nanos::from_secs(4))),
            ],
            steps: vec![
                passes(0, &[(0, "k", 2, Enforce)], &[Allow(1)]),
                settle(0, &[(0, "k", 2, Enforce)], &[Some(1)]),
                looks(0, true, &[(0, "k", 0, Enforce)], &[Allow(2)]),
                settle(0, &[(0, "k", 1, Enforce)], &[Some(1)]),
                looks(0, true, &[(0, "k", 0, Enforce)], &[Allow(2)]),
                // Two of five are there; three are owed, the next comes after them.
                settle(0, &[(0, "k", 1, Enforce)], &[Some(6)]),
                fails(0, &[(0, "k", 1, Enforce)], &[Deny(4000, 0)]),
                // Several at once, one of them twice.
                passes(
                    0,
                    &[(1, "a", 5, Enforce), (1, "b", 5, Enforce)],
                    &[Allow(4), Allow(4)],
                ),
                settle(
                    0,
                    &[
                        (1, "a", 5, Enforce),
                        (1, "b", 5, Enforce),
                        (1, "a", 1, Enforce),
                    ],
                    &[Some(2), Some(9), Some(2)],
                ),
                looks(
                    0,
                    true,
                    &[(1, "a", 0, Enforce), (1, "b", 0, Enforce)],
                    &[Allow(6), Allow(0)],
                ),
                // No debt reaches further ahead than the limit promises.
                settle(0, &[(1, "b", 0, Enforce)], &[Some(1_000)]),
                fails(0, &[(1, "b", 1, Enforce)], &[Deny(5000, 0)]),
            ],
        },
        Story {
            name: "a window charges what it still has, and forgives the rest",
            limits: vec![limit(0, fixed("5/10s"))],
            steps: vec![
                passes(0, &[(0, "k", 2, Enforce)], &[Allow(3)]),
                settle(0, &[(0, "k", 2, Enforce)], &[Some(3)]),
                looks(0, true, &[(0, "k", 0, Enforce)], &[Allow(2)]),
                settle(0, &[(0, "k", 3, Enforce)], &[Some(9)]),
                fails(0, &[(0, "k", 1, Enforce)], &[Deny(10_000, 0)]),
                passes(10_000, &[(0, "k", 5, Enforce)], &[Allow(0)]),
            ],
        },
        Story {
            name: "a key that begins anew has its whole limit again, beside others that settle",
            limits: vec![
                limit(0, bucket("9/9s")),
                limit(1, fixed("5/10s")),
                limit(2, bucket("9/9s")),
            ],
            steps: vec![
                passes(
                    0,
                    &[
                        (0, "k", 3, Enforce),
                        (1, "k", 4, Enforce),
                        (2, "k", 4, Enforce),
                    ],
                    &[Allow(6), Allow(1), Allow(5)],
                ),
                passes(0, &[(0, "k", 2, Enforce)], &[Allow(4)]),
                settle(
                    0,
                    &[
                        (0, "k", 3, Enforce),
                        (1, "k", 4, Enforce),
                        (2, "k", 4, Enforce),
                    ],
                    &[None, None, Some(1)],
                ),
                looks(
                    0,
                    true,
                    &[
                        (0, "k", 0, Enforce),
                        (1, "k", 0, Enforce),
                        (2, "k", 0, Enforce),
                    ],
                    &[Allow(9), Allow(5), Allow(8)],
                ),
                // A key without a state stays so.
                settle(0, &[(0, "new", 3, Enforce)], &[None]),
                passes(0, &[(0, "new", 9, Enforce)], &[Allow(0)]),
            ],
        },
    ]
}

/// Stories of looks, refunds, resets, and a clock set back.
fn beside_deciding() -> Vec<Story> {
    vec![
        Story {
            name: "a look charges nothing and returns the current state",
            limits: vec![limit(0, bucket("2/2s"))],
            steps: vec![
                looks(0, true, &[(0, "k", 2, Enforce)], &[Allow(2)]),
                looks(0, true, &[(0, "k", 2, Enforce)], &[Allow(2)]),
                passes(0, &[(0, "k", 2, Enforce)], &[Allow(0)]),
                looks(0, false, &[(0, "k", 1, Enforce)], &[Deny(1000, 0)]),
                looks(0, true, &[(0, "k", 1, Shadow)], &[Deny(1000, 0)]),
                looks(0, true, &[(0, "k", 0, Enforce)], &[Allow(0)]),
            ],
        },
        Story {
            name: "refunds return at most the charge",
            limits: vec![limit(0, bucket("3/3s"))],
            steps: vec![
                refund(0, &[(0, "k", 2, Enforce)]),
                passes(0, &[(0, "k", 3, Enforce)], &[Allow(0)]),
                refund(0, &[(0, "k", 1, Enforce)]),
                passes(0, &[(0, "k", 1, Enforce)], &[Allow(0)]),
                refund(0, &[(0, "k", 9, Enforce)]),
                fails(0, &[(0, "k", 4, Enforce)], &[Never(3)]),
                passes(0, &[(0, "k", 3, Enforce)], &[Allow(0)]),
            ],
        },
        Story {
            name: "resets erase the state and return whether there was one",
            limits: vec![limit(0, bucket("1/1s")), limit(1, fixed("1/1s"))],
            steps: vec![
                reset(0, &[(0, "k", 1, Enforce)], &[false]),
                passes(0, &[(0, "k", 1, Enforce)], &[Allow(0)]),
                reset(
                    0,
                    &[(0, "k", 0, Enforce), (1, "k", 0, Enforce)],
                    &[true, false],
                ),
                passes(0, &[(0, "k", 1, Enforce)], &[Allow(0)]),
                reset(5000, &[(0, "k", 1, Enforce)], &[false]),
            ],
        },
        Story {
            name: "a clock that steps back admits no more",
            limits: vec![limit(0, bucket("2/2s")), limit(1, fixed("2/2s"))],
            steps: vec![
                passes(8000, &[(0, "k", 2, Enforce)], &[Allow(0)]),
                fails(3000, &[(0, "k", 1, Enforce)], &[Deny(6000, 0)]),
                passes(8000, &[(1, "k", 2, Enforce)], &[Allow(0)]),
                fails(3000, &[(1, "k", 1, Enforce)], &[Deny(7000, 0)]),
            ],
        },
    ]
}

/// Stories with several charges per request.
fn several() -> Vec<Story> {
    let three = || {
        vec![
            limit(0, bucket("10/10s")),
            limit(1, fixed("2/10s")),
            limit(2, sub_buckets("4/10s")),
        ]
    };
    vec![
        Story {
            name: "all or none: charges that would have passed show the current state",
            limits: three(),
            steps: vec![
                passes(
                    0,
                    &[
                        (0, "", 1, Enforce),
                        (1, "g", 1, Enforce),
                        (2, "u", 1, Enforce),
                    ],
                    &[Allow(9), Allow(1), Allow(3)],
                ),
                looks(
                    0,
                    false,
                    &[
                        (2, "u", 3, Enforce),
                        (1, "g", 2, Enforce),
                        (0, "", 3, Enforce),
                    ],
                    &[Allow(3), Deny(10_000, 1), Allow(9)],
                ),
                fails(
                    0,
                    &[
                        (2, "u", 3, Enforce),
                        (1, "g", 2, Enforce),
                        (0, "", 3, Enforce),
                    ],
                    &[Allow(3), Deny(10_000, 1), Allow(9)],
                ),
                passes(
                    0,
                    &[(2, "u", 3, Enforce), (0, "", 9, Enforce)],
                    &[Allow(0), Allow(0)],
                ),
            ],
        },
        Story {
            name: "a request without charges is admitted",
            limits: vec![],
            steps: vec![passes(0, &[], &[]), looks(0, true, &[], &[])],
        },
        Story {
            name: "shadow mode never refuses a request, and is not charged when it denies",
            limits: three(),
            steps: vec![
                passes(
                    0,
                    &[(1, "k", 2, Shadow), (0, "k", 1, Enforce)],
                    &[Allow(0), Allow(9)],
                ),
                passes(
                    0,
                    &[(1, "k", 1, Shadow), (0, "k", 1, Enforce)],
                    &[Deny(10_000, 0), Allow(8)],
                ),
                passes(10_000, &[(1, "k", 0, Shadow)], &[Allow(2)]),
                fails(
                    10_000,
                    &[(1, "k", 1, Shadow), (0, "k", 11, Enforce)],
                    &[Allow(2), Never(10)],
                ),
                passes(10_000, &[(1, "k", 2, Shadow)], &[Allow(0)]),
            ],
        },
    ]
}
