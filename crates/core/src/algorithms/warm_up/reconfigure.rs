//! Reconfigure: the same limit with other parameters.

use super::{WarmUp, WarmUpState, WarmUpTicket};
use crate::{AnyAlgorithm, Error, Gcra, Origin, Quota, Reconfigure, Time};

impl WarmUp {
    /// Changes the rate under a key: debts stay as they are, and stored permits stay the same
    /// share of the maximum.
    ///
    /// # Errors
    /// [`Error::Rate`] unless the rate is above zero.
    pub fn set_rate(
        &mut self,
        state: &mut WarmUpState,
        now: Time,
        permits_per_second: f64,
    ) -> Result<(), Error> {
        let new = Self::new(permits_per_second, self.line.rest)?.with_largest(self.largest);
        *state = WarmUpState(Some(new.rescaled(self.seen(state, now), self)));
        *self = new;
        Ok(())
    }

    /// A ticket under these numbers that was one under `old`.
    pub(super) fn rescaled(&self, ticket: WarmUpTicket, old: &Self) -> WarmUpTicket {
        let cold = old.line.cools();
        let stored = if old.line.most == f64::INFINITY {
            if cold { 0.0 } else { self.line.most }
        } else if old.line.most == 0.0 {
            if cold { self.line.most } else { 0.0 }
        } else {
            ticket.stored * self.line.most / old.line.most
        };
        WarmUpTicket { stored, ..ticket }
    }
}

impl Reconfigure for WarmUp {
    /// A token bucket: a rate and a warm-up cannot be read from a quota.
    fn with_quota(&self, quota: Quota, _origin: Origin) -> Result<AnyAlgorithm, Error> {
        Gcra::token_bucket(quota).map(Into::into)
    }
}
