//! Grant: credits added to the balances of keys.

use ratekeeper_core::{Call, Charge, Decision, GrantId, Granted};
use smallvec::SmallVec;

use super::{Act, ActKind, supports};
use crate::StoreError;
use crate::settle::RequestStates;

/// Adds the cost of each charge to the balance of its key, unless a grant with this id was made
/// before. The state of the key holds the id, so that both are one write, in every store.
#[derive(Clone, Copy, Debug)]
pub struct Grant(pub GrantId);

/// The answer of a grant to one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GrantAnswer {
    /// The result; `None` if a full memory store has no room for the key: then nothing was added.
    pub granted: Option<Granted>,
    /// The decision about a cost of zero afterwards: `remaining` is the balance.
    pub decision: Decision,
}

impl Act for Grant {
    type Item<'a> = Charge<'a>;
    type Answer = SmallVec<[GrantAnswer; 4]>;

    fn kind(self) -> ActKind {
        ActKind::Grant(self.0)
    }

    fn run(self, states: &mut impl RequestStates) -> Self::Answer {
        (0..states.count())
            .map(|at| states.grant(at, self.0))
            .collect()
    }

    fn check(self, charges: &[Self::Item<'_>]) -> Result<(), StoreError> {
        let mut charges = charges.iter();
        charges.try_for_each(|charge| supports(charge, Call::Grant))
    }
}
