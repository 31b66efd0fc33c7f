//! Stories of charges with alternatives: of each chain the first charge that allows is made, and no
//! other.

use super::telling::{bucket, fails, fixed, limit, looks, passes};
use super::{Story, StoryOutcome};
use StoryOutcome::{Allow, Deny, Never};
use ratekeeper_core::Mode::{Enforce, Otherwise, Shadow};

/// Stories with chains.
pub(super) fn stories() -> Vec<Story> {
    vec![one_of_each_chain(), all_chains_or_none(), odd_chains()]
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
            limit(0, 1, bucket("2/2s")),
            limit(1, 1, bucket("1/1h")),
            limit(2, 1, fixed("1/1h")),
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
            limit(0, 1, bucket("1/1h")),
            limit(1, 1, bucket("2/2h")),
            limit(2, 1, bucket("2/2h")),
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
        limits: vec![limit(0, 1, bucket("1/1h")), limit(1, 1, bucket("5/5h"))],
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
