//! Bans over a limit of any algorithm: the calls that only some limits support.

use alloc::boxed::Box;

use super::{BanState, Banning, WithBans};
use crate::algorithm::Refund;
use crate::{
    AnyAlgorithm, AnyState, Call, Decision, Error, Nanos, Origin, Permits, Quota, Receipt,
    Reconfigure, Time,
};

impl Reconfigure for Banning {
    fn with_quota(&self, quota: Quota, origin: Origin) -> Result<AnyAlgorithm, Error> {
        let limit = self.limit.with_quota(quota, origin)?;
        Ok(self.over(limit).into())
    }

    fn on_clock(&self, from: Origin, to: Origin) -> Self {
        self.over(self.limit.on_clock(from, to))
    }

    fn with_patience(&self, longest_wait: Nanos) -> Self {
        self.over(self.limit.with_patience(longest_wait))
    }
}

impl<A: Refund> Refund for WithBans<A> {
    fn give_back_late(&self, state: &mut Self::State, now: Time, cost: Permits, receipt: Receipt) {
        if let Some(record) = &mut state.0 {
            self.limit.give_back(&mut record.used, now, cost, receipt);
        }
    }

    fn refund(&self, state: &mut Self::State, now: Time, cost: Permits) {
        if let Some(record) = &mut state.0 {
            self.limit.refund(&mut record.used, now, cost);
        }
    }
}

/// Calls that only some limits support.
impl Banning {
    /// The same ban over another limit.
    pub(crate) fn over(&self, limit: AnyAlgorithm) -> Self {
        Self {
            limit: Box::new(limit),
            ..self.clone()
        }
    }

    /// As [`Refund::give_back`]; `None` if the limit cannot take back a charge.
    pub(crate) fn give_back_any(
        &self,
        state: &mut BanState<AnyState>,
        now: Time,
        cost: Permits,
        receipt: Receipt,
    ) -> Option<()> {
        self.limit.supports(Call::Refund).ok()?;
        let record = state.0.as_mut();
        record.and_then(|it| {
            self.limit
                .try_give_back(&mut it.used, now, cost, receipt)
                .ok()
        });
        Some(())
    }

    /// As [`Refund::refund`]; `None` if the limit cannot take back a charge.
    pub(crate) fn refund_any(
        &self,
        state: &mut BanState<AnyState>,
        now: Time,
        cost: Permits,
    ) -> Option<()> {
        match &mut state.0 {
            Some(record) => self.limit.try_refund(&mut record.used, now, cost).ok(),
            None => self.limit.supports(Call::Refund).ok(),
        }
    }

    /// As [`Reserve::reserve`](crate::Reserve::reserve); a denial is no strike, because the caller
    /// may wait. `None` if the limit cannot promise a later moment.
    pub(crate) fn reserve_any(
        &self,
        state: &mut BanState<AnyState>,
        now: Time,
        cost: Permits,
        max_wait: Nanos,
    ) -> Option<Decision> {
        self.limit.supports(Call::Reserve).ok()?;
        let record = state.record();
        if now < record.ends {
            return Some(self.decide_in(record, now, cost));
        }
        self.limit
            .try_reserve(&mut record.used, now, cost, max_wait)
            .ok()
    }
}
