//! The memory store behind the trait of all stores: every answer is there at once.

use ratekeeper_core::{Charge, Lend, Nanos, Permits, Time};
use smallvec::SmallVec;

use super::MemoryStore;
use crate::store::can_refund;
use crate::{Decisions, Hold, Store, StoreError};

impl Store for MemoryStore {
    fn answers_at_once(&self) -> bool {
        true
    }

    async fn decide(&self, charges: &[Charge<'_>], now: Time) -> Result<Decisions, StoreError> {
        Ok(self.decide_now(charges, now))
    }
    async fn acquire(
        &self,
        charges: &[Charge<'_>],
        lend: Lend,
        now: Time,
    ) -> Result<Decisions, StoreError> {
        Ok(self.acquire_now(charges, lend, now))
    }
    async fn look(&self, charges: &[Charge<'_>], now: Time) -> Result<Decisions, StoreError> {
        Ok(self.look_now(charges, now))
    }
    async fn refund(&self, charges: &[Charge<'_>], now: Time) -> Result<(), StoreError> {
        can_refund(charges)?;
        self.refund_now(charges, now);
        Ok(())
    }
    async fn reset(
        &self,
        charges: &[Charge<'_>],
        now: Time,
    ) -> Result<SmallVec<[bool; 4]>, StoreError> {
        Ok(self.reset_now(charges, now))
    }
    async fn release(
        &self,
        holds: &[Hold<'_>],
        now: Time,
    ) -> Result<SmallVec<[Permits; 4]>, StoreError> {
        Ok(self.release_now(holds, now))
    }
    async fn renew(
        &self,
        holds: &[Hold<'_>],
        now: Time,
    ) -> Result<SmallVec<[Option<Nanos>; 4]>, StoreError> {
        Ok(self.renew_now(holds, now))
    }
}
