//! The stories of limits that change: the usage that is kept, and the moments that were promised.

use ratekeeper_core::Mode::Enforce;

use super::Story;
use super::StoryOutcome::{Allow, AllowAfter, Deny};
use super::telling::{
    bucket, burst_of, fails, fixed, in_version, limit, passes, queue, sub_buckets,
};

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
            name: "a burst that is lowered at the same rate forgives nothing",
            limits: [30, 10, 30]
                .into_iter()
                .zip(1..)
                .map(|(burst, version)| in_version(version, limit(0, burst_of(burst, "10/10s"))))
                .collect(),
            steps: vec![
                passes(0, &[(0, "k", 30, Enforce)], &[Allow(0)]),
                fails(0, &[(1, "k", 1, Enforce)], &[Deny(21_000, 0)]),
                fails(1000, &[(1, "k", 1, Enforce)], &[Deny(20_000, 0)]),
                passes(1000, &[(2, "k", 1, Enforce)], &[Allow(0)]),
                fails(1000, &[(2, "k", 1, Enforce)], &[Deny(1000, 0)]),
            ],
        },
        Story {
            name: "promised moments outlast a shorter queue",
            limits: vec![
                limit(0, queue("1/1s", 5)),
                in_version(2, limit(0, queue("2/1s", 5))),
            ],
            steps: vec![
                passes(0, &[(0, "k", 6, Enforce)], &[AllowAfter(5000, 0)]),
                fails(0, &[(1, "k", 1, Enforce)], &[Deny(3000, 0)]),
                fails(2999, &[(1, "k", 1, Enforce)], &[Deny(1, 0)]),
                passes(3000, &[(1, "k", 1, Enforce)], &[AllowAfter(2500, 0)]),
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
