//! Acts on a store that may fail, and the part of the memory store while it fails.

use ratekeeper_core::{Charge, Outage, Permits, Time};
use smallvec::SmallVec;

use super::{FallbackInner, Remote};
use crate::act::{
    Act, ActItem as _, ActualCost, Ban, ChargeCorrection, ChargeOrigin, Decide, GiveBack, Grant,
    Look, Release, Renew, Reset, Settle, Settled,
};
use crate::{StoreCall, StoreError};

/// An act on a store that may fail.
#[expect(unnameable_types, reason = "sealed, as acts are")]
pub trait FallbackAct: Act {
    /// Performs the act on the store, and if that fails, where it has an effect, on the memory store.
    fn perform<S: Remote>(
        self,
        call: FallbackCall<'_, '_, S, Self>,
    ) -> impl StoreCall<Self::Answer> {
        call.fallback.ask(self, call.items, call.now)
    }
}

/// A call of a store that may fail.
#[expect(unnameable_types, reason = "sealed, as acts are")]
#[derive(Debug)]
pub struct FallbackCall<'a, 'i, S, A: Act> {
    pub(super) fallback: &'a FallbackInner<S>,
    pub(super) items: &'a [A::Item<'i>],
    pub(super) now: Time,
}

impl<S: Remote, A: FallbackAct> FallbackCall<'_, '_, S, A> {
    /// Performs the act on the store.
    fn ask(&self, act: A) -> impl StoreCall<A::Answer> {
        self.fallback.ask(act, self.items, self.now)
    }

    /// Performs the act on the memory store.
    fn here(&self, act: A) -> A::Answer {
        let local = &self.fallback.local;
        local.settle_now(act, self.items, self.now)
    }
}

type Answer<A> = Result<<A as Act>::Answer, StoreError>;

impl FallbackAct for Decide {
    async fn perform<S: Remote>(self, call: FallbackCall<'_, '_, S, Self>) -> Answer<Self> {
        let (lend, now) = (Some(self.0), call.now);
        let asked = call.ask(self).await;
        asked.or_else(|error| call.fallback.decide_without(call.items, lend, now, error))
    }
}

impl FallbackAct for Look {
    async fn perform<S: Remote>(self, call: FallbackCall<'_, '_, S, Self>) -> Answer<Self> {
        let (lend, now) = (None, call.now);
        let asked = call.ask(self).await;
        asked.or_else(|error| call.fallback.decide_without(call.items, lend, now, error))
    }
}

/// Without the store, only charges made here can be given back. Fails, and gives nothing back, if
/// some were not made here.
impl FallbackAct for GiveBack {
    async fn perform<S: Remote>(self, call: FallbackCall<'_, '_, S, Self>) -> Answer<Self> {
        let (fallback, items, now) = (call.fallback, call.items, call.now);
        let Err(error) = call.ask(self).await else {
            return Ok(());
        };
        let shares: SmallVec<[Charge<'_>; 4]> =
            items.iter().map(|charge| fallback.scaled(charge)).collect();
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
    async fn perform<S: Remote>(self, call: FallbackCall<'_, '_, S, Self>) -> Answer<Self> {
        let (fallback, items, now) = (call.fallback, call.items, call.now);
        let (here, there): (SettledList<'_>, SettledList<'_>) = items
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
    async fn perform<S: Remote>(self, call: FallbackCall<'_, '_, S, Self>) -> Answer<Self> {
        // A debit between the two would charge the key anew for usage that is reset.
        let _turn = call.fallback.debiting.lock().await;
        let mut there = call.ask(self).await?;
        let here = call.here(self);
        for (there, here) in there.iter_mut().zip(here) {
            *there |= here;
        }
        Ok(there)
    }
}

/// Fails if the store does. The ban holds here as well, for the time without the store.
impl FallbackAct for Ban {
    async fn perform<S: Remote>(self, call: FallbackCall<'_, '_, S, Self>) -> Answer<Self> {
        let there = call.ask(self).await?;
        call.here(self);
        Ok(there)
    }
}

/// Fails if the store does: a grant that is repeated with its id adds nothing, so the caller may
/// repeat it. Credits do not count here.
impl FallbackAct for Grant {}

/// Gives permits back where they were lent. Fails if some were not lent here, and the store does
/// not answer.
impl FallbackAct for Release {
    async fn perform<S: Remote>(self, call: FallbackCall<'_, '_, S, Self>) -> Answer<Self> {
        let here = call.here(self);
        let share = |(back, hold): (&Permits, &Self::Item<'_>)| {
            let sharers = call.fallback.sharers(hold.charge().limit).get();
            Permits::new(back.get() / u64::from(sharers))
        };
        let mut back: SmallVec<[Permits; 4]> = here.iter().zip(call.items).map(share).collect();
        if back.contains(&Permits::ZERO) {
            let there = call.ask(self).await?;
            for (back, there) in back.iter_mut().zip(there) {
                *back = (*back).max(there);
            }
        }
        Ok(back)
    }
}

impl FallbackAct for Renew {
    async fn perform<S: Remote>(self, call: FallbackCall<'_, '_, S, Self>) -> Answer<Self> {
        let mut spans = call.here(self);
        if spans.iter().any(Option::is_none) {
            let there = call.ask(self).await?;
            for (span, there) in spans.iter_mut().zip(there) {
                *span = span.or(there);
            }
        }
        Ok(spans)
    }
}
