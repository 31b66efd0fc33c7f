//! Acts on a store that may fail, and the part of the memory store while it fails.

use ratekeeper_core::{Charge, Decision, Nanos, Outage, Permits, Time};
use smallvec::SmallVec;

use super::{FallbackInner, Remote};
use crate::act::{
    Act, ActItem as _, ActualCost, Ban, ChargeCorrection, ChargeOrigin, Decide, GiveBack, Grant,
    Look, Release, Renew, Reset, Settle, Settled,
};
use crate::{Decisions, StoreCall, StoreError};

/// An act on a store that may fail.
#[expect(unnameable_types, reason = "sealed, as acts are")]
pub trait FallbackAct: Act {
    /// Performs the act on the store, and if that fails, where it has an effect, on the memory store.
    fn perform<S: Remote>(
        self,
        fallback: &FallbackInner<S>,
        items: &[Self::Item<'_>],
        now: Time,
    ) -> impl StoreCall<Self::Answer> {
        fallback.ask(self, items, now)
    }
}

impl FallbackAct for Decide {
    async fn perform<S: Remote>(
        self,
        fallback: &FallbackInner<S>,
        charges: &[Self::Item<'_>],
        now: Time,
    ) -> Result<Decisions, StoreError> {
        let asked = fallback.ask(self, charges, now).await;
        asked.or_else(|error| fallback.decide_without(charges, Some(self.0), now, error))
    }
}

impl FallbackAct for Look {
    async fn perform<S: Remote>(
        self,
        fallback: &FallbackInner<S>,
        charges: &[Self::Item<'_>],
        now: Time,
    ) -> Result<Decisions, StoreError> {
        let asked = fallback.ask(self, charges, now).await;
        asked.or_else(|error| fallback.decide_without(charges, None, now, error))
    }
}

/// Without the store, only charges made here can be given back. Fails, and gives nothing back, if
/// some were not made here.
impl FallbackAct for GiveBack {
    async fn perform<S: Remote>(
        self,
        fallback: &FallbackInner<S>,
        charges: &[Self::Item<'_>],
        now: Time,
    ) -> Result<(), StoreError> {
        let Err(error) = fallback.ask(self, charges, now).await else {
            return Ok(());
        };
        let shares: SmallVec<[Charge<'_>; 4]> = charges
            .iter()
            .map(|charge| fallback.scaled(charge))
            .collect();
        if !shares.iter().all(|share| fallback.is_owed_here(share, now)) {
            return Err(error);
        }
        fallback.local.settle_now(self, &shares, now);
        Ok(())
    }
}

/// Charges made here are given back here, whether or not the store is away. Without the store,
/// debts are owed here. When the store is back, a debt is charged to it up to one whole limit, and
/// the rest is forgiven. Fails, and settles nothing else, if some charges were made in the store, or
/// if a limit does not count here.
impl FallbackAct for Settle {
    async fn perform<S: Remote>(
        self,
        fallback: &FallbackInner<S>,
        settled: &[Self::Item<'_>],
        now: Time,
    ) -> Result<(), StoreError> {
        let (here, there): (SettledList<'_>, SettledList<'_>) = settled
            .iter()
            .copied()
            .partition(|item| item.correction() == ChargeCorrection::Keep);
        let here: SettledList<'_> = here.iter().map(|item| fallback.made_here(item)).collect();
        fallback.local.settle_now(self, &here, now);
        if there.is_empty() {
            return Ok(());
        }
        let Err(error) = fallback.ask(self, &there, now).await else {
            return Ok(());
        };
        let is_owed = |item: &Settled<'_>| {
            item.correction() == ChargeCorrection::Owe && item.charge.limit.outage == Outage::Local
        };
        if !there.iter().all(is_owed) {
            return Err(error);
        }
        let shares: SettledList<'_> = there.iter().map(|it| fallback.made_here(it)).collect();
        let charges: SmallVec<[Charge<'_>; 4]> = shares.iter().map(|it| it.charge()).collect();
        fallback.remember(&charges);
        fallback.local.settle_now(self, &shares, now);
        Ok(())
    }
}

type SettledList<'a> = SmallVec<[Settled<'a>; 4]>;

impl<S: Remote> FallbackInner<S> {
    /// Returns the same correction of the share of the limit that counts here.
    fn made_here<'a>(&self, item: &Settled<'a>) -> Settled<'a> {
        let (ChargeOrigin::Store(receipt) | ChargeOrigin::Outage(receipt)) = item.origin;
        Settled {
            charge: self.scaled(&item.charge),
            used: match item.used {
                ActualCost::Permits(used) => {
                    ActualCost::Permits(self.scaled_cost(item.charge.limit, used))
                }
                ActualCost::Reset => ActualCost::Reset,
            },
            origin: ChargeOrigin::Store(receipt),
        }
    }
}

/// Fails if the store does, because its states would not be forgotten.
impl FallbackAct for Reset {
    async fn perform<S: Remote>(
        self,
        fallback: &FallbackInner<S>,
        charges: &[Self::Item<'_>],
        now: Time,
    ) -> Result<SmallVec<[bool; 4]>, StoreError> {
        // A debit between the two would charge the key anew for usage that is reset.
        let _turn = fallback.debiting.lock().await;
        let mut there = fallback.ask(self, charges, now).await?;
        let here = fallback.local.settle_now(self, charges, now);
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
        fallback: &FallbackInner<S>,
        charges: &[Self::Item<'_>],
        now: Time,
    ) -> Result<SmallVec<[Decision; 4]>, StoreError> {
        let there = fallback.ask(self, charges, now).await?;
        fallback.local.settle_now(self, charges, now);
        Ok(there)
    }
}

/// Fails if the store does: a grant that is repeated with its id adds nothing, so the caller may
/// repeat it. Credits do not count here.
impl FallbackAct for Grant {}

/// Gives permits back where they were lent. Fails if some were not lent here, and the store does
/// not answer.
impl FallbackAct for Release {
    async fn perform<S: Remote>(
        self,
        fallback: &FallbackInner<S>,
        holds: &[Self::Item<'_>],
        now: Time,
    ) -> Result<SmallVec<[Permits; 4]>, StoreError> {
        let here = fallback.local.settle_now(self, holds, now);
        let share = |(back, hold): (&Permits, &Self::Item<'_>)| {
            let sharers = fallback.sharers(hold.charge().limit).get();
            Permits::new(back.get() / u64::from(sharers))
        };
        let mut back: SmallVec<[Permits; 4]> = here.iter().zip(holds).map(share).collect();
        if back.contains(&Permits::ZERO) {
            let there = fallback.ask(self, holds, now).await?;
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
        fallback: &FallbackInner<S>,
        holds: &[Self::Item<'_>],
        now: Time,
    ) -> Result<SmallVec<[Option<Nanos>; 4]>, StoreError> {
        let mut spans = fallback.local.settle_now(self, holds, now);
        if spans.iter().any(Option::is_none) {
            let there = fallback.ask(self, holds, now).await?;
            for (span, there) in spans.iter_mut().zip(there) {
                *span = span.or(there);
            }
        }
        Ok(spans)
    }
}
