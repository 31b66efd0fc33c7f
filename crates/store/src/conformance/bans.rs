//! The stories of bans: strikes, their effect on other limits, and shadow mode.

use ratekeeper_core::Mode::{Enforce, Shadow};

use super::Story;
use super::StoryOutcome::{Allow, Ban, Banned, Deny};
use super::telling::{banning, bucket, fails, in_version, limit, looks, passes, reset};

/// Stories of keys that are refused too often.
pub(super) fn stories() -> Vec<Story> {
    let one = |at, outcome| match outcome {
        Allow(_) => passes(at, &[(0, "k", 1, Enforce)], &[outcome]),
        _ => fails(at, &[(0, "k", 1, Enforce)], &[outcome]),
    };
    vec![
        Story {
            name: "the third denial bans, and the next ban is longer",
            limits: vec![limit(0, banning("1/1s", "3/1h"))],
            steps: vec![
                one(0, Allow(0)),
                one(0, Deny(1000, 0)),
                one(500, Deny(500, 0)),
                looks(600, false, &[(0, "k", 1, Enforce)], &[Ban(2000)]),
                one(600, Ban(2000)),
                one(700, Banned(1900)),
                fails(800, &[(0, "k", 0, Enforce)], &[Banned(1800)]),
                passes(800, &[(0, "other", 1, Enforce)], &[Allow(0)]),
                one(2600, Allow(0)),
                one(2600, Deny(1000, 0)),
                one(2600, Deny(1000, 0)),
                one(2600, Ban(4000)),
                one(6600, Allow(0)),
            ],
        },
        Story {
            name: "only the limit's own denials are strikes, and a ban charges no other limit",
            limits: vec![limit(0, banning("2/1s", "1/1h")), limit(1, bucket("1/1h"))],
            steps: vec![
                passes(
                    0,
                    &[(0, "k", 1, Enforce), (1, "a", 1, Enforce)],
                    &[Allow(1), Allow(0)],
                ),
                fails(
                    0,
                    &[(0, "k", 1, Enforce), (1, "a", 1, Enforce)],
                    &[Allow(1), Deny(3_600_000, 0)],
                ),
                passes(0, &[(0, "k", 1, Enforce)], &[Allow(0)]),
                fails(
                    0,
                    &[(0, "k", 1, Enforce), (1, "b", 1, Enforce)],
                    &[Ban(2000), Allow(1)],
                ),
                fails(
                    1000,
                    &[(1, "b", 1, Enforce), (0, "k", 1, Enforce)],
                    &[Allow(1), Banned(1000)],
                ),
            ],
        },
        Story {
            name: "a ban in shadow mode refuses nothing",
            limits: vec![limit(0, banning("1/1h", "1/1h"))],
            steps: vec![
                passes(0, &[(0, "k", 1, Shadow)], &[Allow(0)]),
                passes(0, &[(0, "k", 1, Shadow)], &[Ban(3_600_000)]),
                passes(1000, &[(0, "k", 1, Shadow)], &[Banned(3_599_000)]),
            ],
        },
        Story {
            name: "a ban outlives a change of the limit, and a reset ends it",
            limits: vec![
                limit(0, banning("1/1s", "1/1h")),
                in_version(2, limit(0, banning("5/1s", "1/1h"))),
            ],
            steps: vec![
                one(0, Allow(0)),
                one(0, Ban(2000)),
                fails(100, &[(1, "k", 1, Enforce)], &[Banned(1900)]),
                reset(200, &[(1, "k", 1, Enforce)], &[true]),
                passes(200, &[(1, "k", 1, Enforce)], &[Allow(4)]),
            ],
        },
    ]
}
