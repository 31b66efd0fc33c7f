//! The `Store` trait of the Redis store: each act has its own kind of outcome.

use ratekeeper_core::{Charge, Lend, Nanos, Origin, Permits, Time};
use smallvec::SmallVec;

use super::{KIND, RedisAct, RedisOutcome, RedisStore, decisions, named, unnamed};
use crate::store::can_refund;
use crate::{Decisions, Hold, Store, StoreError};

impl Store for RedisStore {
    fn set_origin(&self, origin: Origin) {
        self.limits.set_origin(origin);
    }

    async fn decide(&self, charges: &[Charge<'_>], now: Time) -> Result<Decisions, StoreError> {
        self.acquire(charges, Lend::Unnamed, now).await
    }

    async fn acquire(
        &self,
        charges: &[Charge<'_>],
        lend: Lend,
        now: Time,
    ) -> Result<Decisions, StoreError> {
        let outcome = self
            .ask(RedisAct::Decide(lend), &unnamed(charges), now)
            .await?;
        Ok(decisions(outcome))
    }

    async fn look(&self, charges: &[Charge<'_>], now: Time) -> Result<Decisions, StoreError> {
        let outcome = self.ask(RedisAct::Look, &unnamed(charges), now).await?;
        Ok(decisions(outcome))
    }

    async fn refund(&self, charges: &[Charge<'_>], now: Time) -> Result<(), StoreError> {
        can_refund(charges)?;
        let refunded = self.ask(RedisAct::Refund, &unnamed(charges), now).await;
        refunded.map(|_| ())
    }

    async fn reset(
        &self,
        charges: &[Charge<'_>],
        now: Time,
    ) -> Result<SmallVec<[bool; 4]>, StoreError> {
        match self.ask(RedisAct::Reset, &unnamed(charges), now).await? {
            RedisOutcome::WereThere(there) => Ok(there),
            _ => unreachable!("{KIND}"),
        }
    }

    async fn release(
        &self,
        holds: &[Hold<'_>],
        now: Time,
    ) -> Result<SmallVec<[Permits; 4]>, StoreError> {
        match self.ask(RedisAct::Release, &named(holds), now).await? {
            RedisOutcome::Released(permits) => Ok(permits),
            _ => unreachable!("{KIND}"),
        }
    }

    async fn renew(
        &self,
        holds: &[Hold<'_>],
        now: Time,
    ) -> Result<SmallVec<[Option<Nanos>; 4]>, StoreError> {
        match self.ask(RedisAct::Renew, &named(holds), now).await? {
            RedisOutcome::Renewed(spans) => Ok(spans),
            _ => unreachable!("{KIND}"),
        }
    }
}
