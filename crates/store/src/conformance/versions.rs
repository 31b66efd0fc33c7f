//! The stories of limits that change: the usage that is kept.

use ratekeeper_core::Mode::Enforce;

use super::Story;
use super::StoryOutcome::{Allow, Deny};
use super::telling::{bucket, fails, fixed, in_version, limit, passes, sub_buckets};

/// Stories in which parameters change while states are kept.
pub(super) fn stories() -> Vec<Story> {
    vec![
        Story {
            name: "a bucket of another rate keeps the used permits",
            limits: vec![
                limit(0, bucket("10/10s")),
                in_version(2, limit(0, bucket("20/10s"))),
            ],
            steps: vec![
                passes(0, &[(0, "k", 10, Enforce)], &[Allow(0)]),
                passes(0, &[(1, "k", 1, Enforce)], &[Allow(9)]),
                fails(0, &[(1, "k", 10, Enforce)], &[Deny(500, 9)]),
                passes(4500, &[(1, "k", 18, Enforce)], &[Allow(0)]),
            ],
        },
        Story {
            name: "a window of the same length keeps its counts",
            limits: vec![
                limit(0, fixed("10/10s")),
                in_version(2, limit(0, fixed("12/10s"))),
            ],
            steps: vec![
                passes(0, &[(0, "k", 9, Enforce)], &[Allow(1)]),
                passes(0, &[(1, "k", 1, Enforce)], &[Allow(2)]),
                passes(0, &[(0, "k", 1, Enforce)], &[Allow(1)]), // by an older policy
            ],
        },
        Story {
            name: "a window of another length starts with the used permits",
            limits: vec![
                limit(0, fixed("100/1m")),
                in_version(2, limit(0, fixed("1000/1h"))),
            ],
            steps: vec![
                passes(0, &[(0, "k", 80, Enforce)], &[Allow(20)]),
                passes(0, &[(1, "k", 0, Enforce)], &[Allow(920)]),
            ],
        },
        Story {
            name: "another algorithm starts with the used permits, up to its capacity",
            limits: vec![
                limit(0, bucket("10/10s")),
                in_version(2, limit(0, fixed("8/10s"))),
                in_version(3, limit(0, sub_buckets("20/10s"))),
                in_version(4, limit(0, bucket("10/10s"))),
            ],
            steps: vec![
                passes(0, &[(0, "a", 3, Enforce)], &[Allow(7)]),
                passes(0, &[(0, "b", 10, Enforce)], &[Allow(0)]),
                passes(0, &[(1, "a", 0, Enforce)], &[Allow(5)]),
                fails(0, &[(1, "b", 1, Enforce)], &[Deny(10_000, 0)]),
                passes(0, &[(1, "c", 1, Enforce)], &[Allow(7)]),
                passes(0, &[(2, "a", 0, Enforce)], &[Allow(17)]),
                passes(0, &[(2, "b", 0, Enforce)], &[Allow(12)]),
                passes(0, &[(3, "a", 0, Enforce)], &[Allow(7)]),
                passes(0, &[(3, "b", 0, Enforce)], &[Allow(2)]),
            ],
        },
    ]
}
