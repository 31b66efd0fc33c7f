//! Ban: bans of keys by hand.

use ratekeeper_core::{Call, Charge, Decision, Nanos};
use smallvec::SmallVec;

use super::{Act, ActKind};
use crate::StoreError;
use crate::settle::RequestStates;

/// Bans keys for this span from now, in place of a ban that stands; a span of zero lifts a ban.
#[derive(Clone, Copy, Debug)]
pub struct Ban(pub Nanos);

impl Act for Ban {
    type Item<'a> = Charge<'a>;
    type Answer = SmallVec<[Decision; 4]>;

    fn kind(self) -> ActKind {
        ActKind::Ban
    }

    fn run(self, states: &mut impl RequestStates) -> Self::Answer {
        (0..states.count())
            .map(|at| states.ban(at, self.0))
            .collect()
    }

    fn check(self, charges: &[Self::Item<'_>]) -> Result<(), StoreError> {
        charges.iter().try_for_each(|charge| {
            let supported = charge.limit.algorithm.supports(Call::Ban);
            supported.map_err(|why| {
                StoreError::Unsupported(format!("the limit `{}`: {why}", charge.limit.name))
            })
        })
    }
}
