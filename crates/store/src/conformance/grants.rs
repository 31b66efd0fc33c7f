//! The stories of balances: charges, grants that are repeated, and the way back of a charge.

use ratekeeper_core::Mode::{Enforce, Otherwise};
use ratekeeper_core::{Balance, Permits};

use super::StoryOutcome::{Allow, Deny, Never};
use super::telling::{bucket, fails, in_version, limit, looks, passes, refund, reset, step};
use super::{Story, StoryAct, StoryAnswer, StoryCharge, StoryStep};

fn balance(start: u64, max: u64) -> Balance {
    let numbers = Balance::new(Permits::new(start), Permits::new(max));
    numbers.expect("the start is not above the maximum")
}

/// A grant, and for each key the credits added, `None` if it was repeated, and the balance.
fn grant(
    at_ms: u64,
    id: &'static str,
    charges: &[StoryCharge],
    each: &[(Option<u64>, u64)],
) -> StoryStep {
    let answer = StoryAnswer::Granted(each.to_vec());
    step(at_ms, StoryAct::Grant(id), charges, answer)
}

/// Stories of limits that are topped up.
pub(super) fn stories() -> Vec<Story> {
    let a_year = 365 * 86_400_000;
    vec![
        Story {
            name: "a balance is spent, granted once by id, and never refills",
            limits: vec![limit(0, balance(10, 100))],
            steps: vec![
                passes(0, &[(0, "k", 7, Enforce)], &[Allow(3)]),
                fails(0, &[(0, "k", 4, Enforce)], &[Never(3)]),
                fails(a_year, &[(0, "k", 4, Enforce)], &[Never(3)]),
                grant(a_year, "a", &[(0, "k", 50, Enforce)], &[(Some(50), 53)]),
                grant(a_year, "a", &[(0, "k", 50, Enforce)], &[(None, 53)]),
                grant(a_year, "b", &[(0, "k", 50, Enforce)], &[(Some(47), 100)]),
                passes(a_year, &[(0, "k", 100, Enforce)], &[Allow(0)]),
                grant(a_year, "a", &[(0, "k", 50, Enforce)], &[(None, 0)]),
                refund(a_year, &[(0, "k", 30, Enforce)]),
                looks(a_year, true, &[(0, "k", 1, Enforce)], &[Allow(30)]),
                reset(a_year, &[(0, "k", 0, Enforce)], &[true]),
                looks(a_year, true, &[(0, "k", 1, Enforce)], &[Allow(10)]),
            ],
        },
        Story {
            name: "a key never seen is granted credits beyond its start",
            limits: vec![limit(0, balance(0, 100))],
            steps: vec![
                fails(0, &[(0, "new", 1, Enforce)], &[Never(0)]),
                grant(0, "a", &[(0, "new", 20, Enforce)], &[(Some(20), 20)]),
                passes(0, &[(0, "new", 5, Enforce)], &[Allow(15)]),
            ],
        },
        Story {
            name: "a balance covers what a limit denies, and takes its own charge back",
            limits: vec![limit(0, bucket("1/1h")), limit(1, balance(2, 9))],
            steps: vec![
                passes(
                    0,
                    &[(0, "k", 1, Enforce), (1, "k", 1, Otherwise)],
                    &[Allow(0), Allow(2)],
                ),
                passes(
                    0,
                    &[(0, "k", 1, Enforce), (1, "k", 1, Otherwise)],
                    &[Deny(3_600_000, 0), Allow(1)],
                ),
                refund(0, &[(1, "k", 1, Enforce)]),
                looks(
                    0,
                    true,
                    &[(0, "k", 1, Enforce), (1, "k", 1, Otherwise)],
                    &[Deny(3_600_000, 0), Allow(2)],
                ),
            ],
        },
        Story {
            name: "other numbers keep the credits of known keys",
            limits: vec![
                limit(0, balance(10, 100)),
                in_version(2, limit(0, balance(50, 60))),
                in_version(3, limit(0, balance(0, 4))),
            ],
            steps: vec![
                passes(0, &[(0, "k", 2, Enforce)], &[Allow(8)]),
                passes(1, &[(1, "k", 1, Enforce)], &[Allow(7)]),
                passes(1, &[(1, "new", 1, Enforce)], &[Allow(49)]),
                passes(2, &[(2, "k", 1, Enforce)], &[Allow(3)]),
                fails(2, &[(2, "other", 1, Enforce)], &[Never(0)]),
            ],
        },
    ]
}
