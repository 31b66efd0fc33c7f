//! Stories of charges that depend on each other: of each chain the first charge that allows is
//! made, and no other; a condition excuses the charge after it; headroom is left to other requests.

use super::telling::{bucket, fails, fixed, limit, looks, passes};
use super::{Story, StoryOutcome};
use StoryOutcome::{Allow, Deny, Never};
use ratekeeper_core::Mode::{Enforce, Headroom, Once, Otherwise, Shadow};

/// Stories with chains.
pub(super) fn stories() -> Vec<Story> {
    vec![
        one_of_each_chain(),
        all_chains_or_none(),
        odd_chains(),
        once_for_each_value(),
        headroom_is_left(),
    ]
}

fn one_of_each_chain() -> Story {
    let chain = [
        (0, "k", 1, Enforce),
        (1, "k", 1, Otherwise),
        (2, "team", 1, Otherwise),
    ];
    Story {
        name: "an alternative is charged only when those before it deny",
        limits: vec![
            limit(0, bucket("2/2s")),
            limit(1, bucket("1/1h")),
            limit(2, fixed("1/1h")),
        ],
        steps: vec![
            passes(0, &chain, &[Allow(1), Allow(1), Allow(1)]),
            passes(0, &chain, &[Allow(0), Allow(1), Allow(1)]),
            looks(0, true, &chain, &[Deny(1000, 0), Allow(1), Allow(1)]),
            passes(0, &chain, &[Deny(1000, 0), Allow(0), Allow(1)]),
            passes(0, &chain, &[Deny(1000, 0), Deny(3_600_000, 0), Allow(0)]),
            fails(
                0,
                &chain,
                &[Deny(1000, 0), Deny(3_600_000, 0), Deny(3_600_000, 0)],
            ),
            passes(1000, &chain, &[Allow(0), Allow(0), Allow(0)]),
        ],
    }
}

fn all_chains_or_none() -> Story {
    let both = [
        (0, "k", 1, Enforce),
        (1, "k", 1, Otherwise),
        (2, "k", 1, Enforce),
        (1, "k", 1, Otherwise),
    ];
    Story {
        name: "all chains of a request are charged, or none",
        limits: vec![
            limit(0, bucket("1/1h")),
            limit(1, bucket("2/2h")),
            limit(2, bucket("2/2h")),
        ],
        steps: vec![
            passes(0, &both, &[Allow(0), Allow(2), Allow(1), Allow(2)]),
            passes(
                0,
                &both,
                &[Deny(3_600_000, 0), Allow(1), Allow(0), Allow(1)],
            ),
            // Both chains now need the one permit that is left.
            fails(
                0,
                &both,
                &[
                    Deny(3_600_000, 0),
                    Allow(1),
                    Deny(3_600_000, 0),
                    Deny(3_600_000, 1),
                ],
            ),
            looks(0, true, &[(1, "k", 1, Enforce)], &[Allow(1)]),
            passes(0, &both[..2], &[Deny(3_600_000, 0), Allow(0)]),
        ],
    }
}

fn odd_chains() -> Story {
    let refusal = Deny(3_600_000, 0);
    Story {
        name: "chains in shadow mode, of large costs, and without a first charge",
        limits: vec![limit(0, bucket("1/1h")), limit(1, bucket("5/5h"))],
        steps: vec![
            // In shadow mode the alternative is charged, and refuses nothing.
            passes(
                0,
                &[(0, "s", 1, Shadow), (1, "s", 5, Otherwise)],
                &[Allow(0), Allow(5)],
            ),
            passes(
                0,
                &[(0, "s", 1, Shadow), (1, "s", 5, Otherwise)],
                &[refusal, Allow(0)],
            ),
            passes(
                0,
                &[(0, "s", 1, Shadow), (1, "s", 1, Otherwise)],
                &[refusal, Deny(3_600_000, 0)],
            ),
            // A cost above the whole limit is one for the alternative.
            passes(
                0,
                &[(0, "c", 2, Enforce), (1, "c", 2, Otherwise)],
                &[Never(1), Allow(3)],
            ),
            fails(
                0,
                &[(0, "c", 6, Enforce), (1, "c", 6, Otherwise)],
                &[Never(1), Never(3)],
            ),
            // Without a charge before it, it enforces.
            passes(0, &[(0, "o", 1, Otherwise)], &[Allow(0)]),
            fails(0, &[(0, "o", 1, Otherwise)], &[refusal]),
            fails(
                0,
                &[(0, "o", 1, Otherwise), (1, "o", 1, Enforce)],
                &[refusal, Allow(5)],
            ),
            passes(
                0,
                &[(0, "o", 1, Otherwise), (1, "o", 1, Otherwise)],
                &[refusal, Allow(4)],
            ),
        ],
    }
}

/// Limit 0 has met a value, limit 1 counts values, limit 2 is another limit of the request. On a
/// cluster, the keys of a condition and its charge begin with the same part.
fn once_for_each_value() -> Story {
    const K: &str = "\x01k";
    let asks = |value| [(0, value, 1, Once), (1, K, 1, Enforce)];
    let beside = |value| [(0, value, 1, Once), (1, K, 1, Enforce), (2, K, 1, Enforce)];
    let seen = Deny(3_600_000, 0);
    Story {
        name: "a condition that denies excuses the next charge; both are made, or neither",
        limits: vec![
            limit(0, fixed("1/1h")),
            limit(1, fixed("2/1h")),
            limit(2, fixed("3/1h")),
        ],
        steps: vec![
            passes(0, &asks("\x01k\x01a"), &[Allow(0), Allow(1)]),
            passes(0, &asks("\x01k\x01a"), &[seen, Allow(1)]),
            looks(0, true, &asks("\x01k\x01a"), &[seen, Allow(1)]),
            looks(0, true, &asks("\x01k\x01b"), &[Allow(1), Allow(1)]),
            passes(0, &asks("\x01k\x01b"), &[Allow(0), Allow(0)]),
            // A value that is refused is not met.
            fails(0, &asks("\x01k\x01c"), &[Allow(1), seen]),
            fails(0, &asks("\x01k\x01c"), &[Allow(1), seen]),
            passes(0, &beside("\x01k\x01b"), &[seen, Allow(0), Allow(2)]),
            fails(0, &beside("\x01k\x01c"), &[Allow(1), seen, Allow(2)]),
            // In shadow mode, too.
            passes(
                0,
                &[(0, "\x01k\x01c", 1, Once), (1, K, 1, Shadow)],
                &[Allow(0), seen],
            ),
            fails(0, &asks("\x01k\x01c"), &[Allow(1), seen]),
            // Another limit refuses the request, and the value is not met.
            passes(0, &[(2, "\x01l", 3, Enforce)], &[Allow(0)]),
            fails(
                0,
                &[
                    (0, "\x01l\x01d", 1, Once),
                    (1, "\x01l", 1, Enforce),
                    (2, "\x01l", 1, Enforce),
                ],
                &[Allow(1), Allow(2), seen],
            ),
            passes(
                0,
                &[(0, "\x01l\x01d", 1, Once), (1, "\x01l", 1, Enforce)],
                &[Allow(0), Allow(1)],
            ),
            // A new window begins for both.
            passes(3_600_000, &asks("\x01k\x01c"), &[Allow(0), Allow(1)]),
        ],
    }
}

fn headroom_is_left() -> Story {
    let low = [(0, "k", 2, Headroom), (0, "k", 1, Enforce)];
    let both = [low[0], low[1], (1, "k", 1, Enforce)];
    Story {
        name: "a charge with headroom is allowed only if there is room for both, and charges its cost",
        limits: vec![limit(0, bucket("5/5s")), limit(1, bucket("9/9s"))],
        steps: vec![
            passes(0, &low, &[Allow(5), Allow(4)]),
            passes(0, &both, &[Allow(4), Allow(3), Allow(8)]),
            passes(0, &low, &[Allow(3), Allow(2)]),
            fails(0, &low, &[Allow(2), Deny(1000, 2)]),
            fails(0, &both, &[Allow(2), Deny(1000, 2), Allow(8)]),
            looks(0, false, &low, &[Allow(2), Deny(1000, 2)]),
            passes(
                0,
                &[
                    (0, "k", 2, Headroom),
                    (0, "k", 1, Shadow),
                    (1, "k", 1, Enforce),
                ],
                &[Allow(2), Deny(1000, 2), Allow(7)],
            ),
            passes(0, &low[1..], &[Allow(1)]),
            passes(0, &low[1..], &[Allow(0)]),
            fails(0, &low, &[Allow(0), Deny(3000, 0)]),
            passes(3000, &low, &[Allow(3), Allow(2)]),
            // More than the limit holds.
            fails(
                3000,
                &[(0, "k", 5, Headroom), (0, "k", 1, Enforce)],
                &[Allow(2), Never(2)],
            ),
        ],
    }
}
