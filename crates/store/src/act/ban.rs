//! Ban: bans of keys by hand.

use ratekeeper_core::{Call, Charge, Decision, Nanos};
use smallvec::SmallVec;

use super::{Act, ActKind, supports};
use crate::StoreError;
use crate::settle::RequestStates;

/// Bans keys for this span from now, in place of a ban in force; a span of zero lifts a ban.
#[derive(Clone, Copy, Debug)]
pub struct Ban(pub Nanos);

impl Act for Ban {
    type Item<'a> = Charge<'a>;
    type Answer = SmallVec<[Decision; 4]>;

    fn kind(self) -> ActKind {
        ActKind::Ban(self.0)
    }

    fn run(self, states: &mut impl RequestStates) -> Self::Answer {
        (0..states.count())
            .map(|at| states.ban(at, self.0))
            .collect()
    }

    fn check(self, charges: &[Self::Item<'_>]) -> Result<(), StoreError> {
        let mut charges = charges.iter();
        charges.try_for_each(|charge| supports(charge, Call::Ban))
    }
}
