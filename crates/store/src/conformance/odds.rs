//! Stories of requests with charges that interact: counted denials, keys named twice.

use ratekeeper_core::Denials;

use super::telling::{bucket, fails, fixed, limit, looks, passes};
use super::{Story, StoryOutcome};
use StoryOutcome::{Allow, Deny, Never};
use ratekeeper_core::Mode::{Enforce, Shadow};

/// Stories with several charges per request, which interact.
pub(super) fn stories() -> Vec<Story> {
    vec![
        Story {
            name: "a counted denial is charged although the request is refused",
            limits: vec![
                limit(0, bucket("1/1s").with_denials(Denials::Counted)),
                limit(1, bucket("5/5s")),
            ],
            steps: vec![
                passes(
                    0,
                    &[(0, "k", 1, Enforce), (1, "k", 1, Enforce)],
                    &[Allow(0), Allow(4)],
                ),
                fails(
                    0,
                    &[(0, "k", 1, Enforce), (1, "k", 1, Enforce)],
                    &[Deny(2000, 0), Allow(4)],
                ),
                fails(1000, &[(0, "k", 1, Enforce)], &[Deny(2000, 0)]),
            ],
        },
        counted_denials_are_charged_whichever_limit_refuses(),
        Story {
            name: "one limit and key named twice stays within its bound",
            limits: vec![limit(0, bucket("3/3s")), limit(1, bucket("9/9s"))],
            steps: vec![
                fails(
                    0,
                    &[
                        (0, "k", 2, Enforce),
                        (1, "k", 1, Enforce),
                        (0, "k", 2, Enforce),
                    ],
                    &[Allow(3), Allow(9), Never(3)],
                ),
                passes(
                    0,
                    &[(0, "k", 2, Enforce), (0, "k", 1, Enforce)],
                    &[Allow(1), Allow(0)],
                ),
                fails(0, &[(0, "k", 1, Enforce)], &[Deny(1000, 0)]),
            ],
        },
    ]
}

fn counted_denials_are_charged_whichever_limit_refuses() -> Story {
    let shut = (1, "k", 1, Enforce);
    let refusal = Deny(3_600_000, 0);
    Story {
        name: "a limit that counts denials is charged whichever limit refuses",
        limits: vec![
            limit(0, bucket("4/4h").with_denials(Denials::Counted)),
            limit(1, bucket("1/1h")),
            limit(2, fixed("9/10s").with_denials(Denials::Counted)),
            limit(3, bucket("5/5h")),
        ],
        steps: vec![
            passes(0, &[(0, "k", 1, Enforce), shut], &[Allow(3), Allow(0)]),
            fails(0, &[(0, "k", 2, Enforce), shut], &[Allow(1), refusal]),
            looks(
                0,
                false,
                &[(0, "k", 1, Enforce), shut],
                &[Allow(1), refusal],
            ),
            fails(
                0,
                &[
                    (3, "free", 1, Enforce),
                    shut,
                    (0, "k", 1, Enforce),
                    (2, "other", 2, Enforce),
                    (3, "other", 1, Enforce),
                ],
                &[Allow(5), refusal, Allow(0), Allow(7), Allow(5)],
            ),
            looks(0, true, &[(2, "other", 0, Enforce)], &[Allow(7)]),
            // Also in shadow mode, and with a cost above the whole limit.
            fails(0, &[(2, "other", 2, Shadow), shut], &[Allow(5), refusal]),
            fails(0, &[shut, (2, "other", 10, Enforce)], &[refusal, Never(0)]),
            fails(
                0,
                &[(2, "other", 1, Enforce), (3, "free", 1, Enforce)],
                &[Deny(10_000, 0), Allow(5)],
            ),
            // It is charged by each charge that names it.
            fails(
                0,
                &[
                    (0, "t", 3, Enforce),
                    shut,
                    (0, "t", 2, Enforce),
                    (0, "t", 1, Enforce),
                ],
                &[Allow(0), refusal, Never(0), Never(0)],
            ),
            fails(0, &[(0, "t", 1, Enforce)], &[Deny(14_400_000, 0)]),
        ],
    }
}
