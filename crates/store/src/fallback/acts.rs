//! Acts on a store that may fail, and the part of the memory store while it fails.

use std::future::Future;

use ratekeeper_core::{Charge, Decision, Nanos, Outage, Permits, Time};
use smallvec::SmallVec;

use super::{FallbackInner, Remote};
use crate::act::{
    Act, ActItem as _, ActualCost, Ban, Correction, Decide, GiveBack, Grant, GrantAnswer, Look,
    Release, Renew, Reset, Settle, Settled,
};
use crate::{Decisions, StoreError};

/// An act on a store that may fail.
#[expect(unnameable_types, reason = "sealed, as acts are")]
pub trait FallbackAct: Act {
    /// Asks the store, and the memory store where the store fails or has only a part.
    fn perform<S: Remote>(
        self,
        store: &FallbackInner<S>,
        items: &[Self::Item<'_>],
        now: Time,
    ) -> impl Future<Output = Result<Self::Answer, StoreError>> + Send;
}

impl FallbackAct for Decide {
    async fn perform<S: Remote>(
        self,
        store: &FallbackInner<S>,
        charges: &[Self::Item<'_>],
        now: Time,
    ) -> Result<Decisions, StoreError> {
        let Self(lend) = self;
        match store.ask(self, charges, now).await {
            Ok(decisions) => Ok(decisions),
            Err(error) => store.decide_without(charges, Some(lend), now, error),
        }
    }
}

impl FallbackAct for Look {
    async fn perform<S: Remote>(
        self,
        store: &FallbackInner<S>,
        charges: &[Self::Item<'_>],
        now: Time,
    ) -> Result<Decisions, StoreError> {
        match store.ask(self, charges, now).await {
            Ok(decisions) => Ok(decisions),
            Err(error) => store.decide_without(charges, None, now, error),
        }
    }
}

/// While the store fails, only charges made here can be given back here. Fails, and gives nothing
/// back, if some were not made here.
impl FallbackAct for GiveBack {
    async fn perform<S: Remote>(
        self,
        store: &FallbackInner<S>,
        charges: &[Self::Item<'_>],
        now: Time,
    ) -> Result<(), StoreError> {
        let Err(error) = store.ask(self, charges, now).await else {
            return Ok(());
        };
        let shares: SmallVec<[Charge<'_>; 4]> =
            charges.iter().map(|charge| store.scaled(charge)).collect();
        if !shares.iter().all(|share| store.is_owed_here(share, now)) {
            return Err(error);
        }
        store.local.settle_now(self, &shares, now);
        Ok(())
    }
}

/// While the store fails, debts are owed here, and only charges made here can be given back. When
/// the store is back, a debt is charged to it up to one whole limit, and the rest is forgiven.
/// Fails, and settles nothing, if some charges were not made here, or if a limit does not count
/// here.
impl FallbackAct for Settle {
    async fn perform<S: Remote>(
        self,
        store: &FallbackInner<S>,
        settled: &[Self::Item<'_>],
        now: Time,
    ) -> Result<(), StoreError> {
        let Err(error) = store.ask(self, settled, now).await else {
            return Ok(());
        };
        let shares: SmallVec<[Settled<'_>; 4]> = settled
            .iter()
            .map(|item| Settled {
                charge: store.scaled(&item.charge),
                used: match item.used {
                    ActualCost::Permits(used) => {
                        ActualCost::Permits(store.scaled_cost(item.charge.limit, used))
                    }
                    ActualCost::Reset => ActualCost::Reset,
                },
            })
            .collect();
        let is_here = |share: &Settled<'_>| match share.correction() {
            Correction::GiveBack => store.is_owed_here(&share.charge(), now),
            Correction::Owe => share.charge.limit.outage == Outage::Local,
            // The state in the store would not be forgotten.
            Correction::Reset => false,
        };
        if !shares.iter().all(is_here) {
            return Err(error);
        }
        let charges: SmallVec<[Charge<'_>; 4]> = shares.iter().map(|it| it.charge()).collect();
        store.remember(&charges);
        store.local.settle_now(self, &shares, now);
        Ok(())
    }
}

/// Fails if the store does, because its states would not be forgotten.
impl FallbackAct for Reset {
    async fn perform<S: Remote>(
        self,
        store: &FallbackInner<S>,
        charges: &[Self::Item<'_>],
        now: Time,
    ) -> Result<SmallVec<[bool; 4]>, StoreError> {
        let mut there = store.ask(self, charges, now).await?;
        let here = store.local.settle_now(self, charges, now);
        for (there, here) in there.iter_mut().zip(here) {
            *there |= here;
        }
        Ok(there)
    }
}

/// Fails if the store does. The ban holds here as well, for the time without the store.
impl FallbackAct for Ban {
    async fn perform<S: Remote>(
        self,
        store: &FallbackInner<S>,
        charges: &[Self::Item<'_>],
        now: Time,
    ) -> Result<SmallVec<[Decision; 4]>, StoreError> {
        let there = store.ask(self, charges, now).await?;
        store.local.settle_now(self, charges, now);
        Ok(there)
    }
}

/// Fails if the store does: a grant that is repeated with its id adds nothing, so the caller may
/// repeat it. Credits do not count here.
impl FallbackAct for Grant {
    async fn perform<S: Remote>(
        self,
        store: &FallbackInner<S>,
        charges: &[Self::Item<'_>],
        now: Time,
    ) -> Result<SmallVec<[GrantAnswer; 4]>, StoreError> {
        store.ask(self, charges, now).await
    }
}

/// Gives permits back where they were lent. Fails if some were not lent here, and the store does
/// not answer.
impl FallbackAct for Release {
    async fn perform<S: Remote>(
        self,
        store: &FallbackInner<S>,
        holds: &[Self::Item<'_>],
        now: Time,
    ) -> Result<SmallVec<[Permits; 4]>, StoreError> {
        let here = store.local.settle_now(self, holds, now);
        let share = |(back, hold): (&Permits, &Self::Item<'_>)| {
            let sharers = store.sharers(hold.charge().limit).get();
            Permits::new(back.get() / u64::from(sharers))
        };
        let mut back: SmallVec<[Permits; 4]> = here.iter().zip(holds).map(share).collect();
        if back.contains(&Permits::ZERO) {
            let there = store.ask(self, holds, now).await?;
            for (back, there) in back.iter_mut().zip(there) {
                *back = (*back).max(there);
            }
        }
        Ok(back)
    }
}

impl FallbackAct for Renew {
    async fn perform<S: Remote>(
        self,
        store: &FallbackInner<S>,
        holds: &[Self::Item<'_>],
        now: Time,
    ) -> Result<SmallVec<[Option<Nanos>; 4]>, StoreError> {
        let mut spans = store.local.settle_now(self, holds, now);
        if spans.iter().any(Option::is_none) {
            let there = store.ask(self, holds, now).await?;
            for (span, there) in spans.iter_mut().zip(there) {
                *span = span.or(there);
            }
        }
        Ok(spans)
    }
}
