//! Without: decisions while the store is unavailable, as each limit chose.

use std::num::NonZeroU32;

use ratekeeper_core::{
    Algorithm as _, Charge, Decision, Lend, Mode, Nanos, Outage, Permits, Time, Verdict,
};
use smallvec::SmallVec;

use super::{FallbackInner, Remote, add};
use crate::{Decide, Decisions, Look, StoreError};

/// `retry_after` of a refusal where nothing better is known: about when the store is asked next.
const RETRY: Nanos = Nanos::from_secs(1);
impl<S: Remote> FallbackInner<S> {
    /// Returns the charge against a share: a permit counts once for every process.
    pub(super) fn scaled<'a>(&self, charge: &Charge<'a>) -> Charge<'a> {
        Charge {
            cost: self.scaled_cost(charge.cost),
            ..*charge
        }
    }

    pub(super) fn scaled_cost(&self, cost: Permits) -> Permits {
        Permits::new(cost.get().saturating_mul(self.nodes.get()))
    }

    /// Returns true if at least the cost of `share` was charged here.
    pub(super) fn is_owed_here(&self, share: &Charge<'_>, now: Time) -> bool {
        if share.limit.outage != Outage::Local {
            return false;
        }
        let free = Charge {
            cost: Permits::ZERO,
            ..*share
        };
        let stands = self.local.settle_now(Look, &[free], now);
        let whole = share.limit.algorithm.capacity();
        let left = stands.each.first().map_or(whole, |each| each.remaining);
        whole - left >= share.cost
    }

    /// Returns the decision about a request, given that about its share.
    fn unscaled(&self, charge: &Charge<'_>, share: Decision) -> Decision {
        let capacity = charge.limit.algorithm.capacity();
        // A limit of the maximum capacity is a counter: its reader compares the count of the
        // share with the number of a rule.
        if self.nodes == NonZeroU32::MIN || capacity == Permits::MAX {
            return share;
        }
        let forever = charge.cost > capacity;
        let verdict = match share.verdict {
            Verdict::DenyForever if !forever => Verdict::Deny { retry_after: RETRY },
            verdict => verdict,
        };
        Decision {
            verdict,
            remaining: Permits::new(share.remaining.get() / self.nodes), // down
            ..share
        }
    }

    /// Decides as the limits chose for an outage.
    ///
    /// # Errors
    /// `error`, if one of them chose [`Outage::Error`].
    pub(super) fn decide_without(
        &self,
        charges: &[Charge<'_>],
        lend: Option<Lend>,
        now: Time,
        error: StoreError,
    ) -> Result<Decisions, StoreError> {
        let chose = |outage| move |charge: &Charge<'_>| charge.limit.outage == outage;
        let any = |outage| charges.iter().any(chose(outage));
        if any(Outage::Error) {
            return Err(error);
        }
        let enforced = |charge: &&Charge<'_>| charge.mode == Mode::Enforce;
        let refused = charges.iter().filter(enforced).any(chose(Outage::Deny));
        let shares: SmallVec<[Charge<'_>; 4]> = charges
            .iter()
            .filter(|charge| chose(Outage::Local)(charge))
            .map(|charge| self.scaled(charge))
            .collect();
        let local = match lend {
            Some(lend) if !refused => {
                self.remember(&shares);
                self.local.settle_now(Decide(lend), &shares, now)
            }
            _ => self.local.settle_now(Look, &shares, now),
        };
        if lend.is_some() {
            let counts = &self.counts;
            let counter = if refused {
                &counts.deny
            } else if any(Outage::Allow) {
                &counts.allow
            } else if any(Outage::Local) {
                &counts.local
            } else {
                &counts.deny
            };
            add(counter, 1);
        }
        let mut decided = local.each.into_iter();
        let each = charges.iter().map(|charge| match charge.limit.outage {
            Outage::Local => {
                let share = decided.next().unwrap_or_else(refusal);
                self.unscaled(charge, share)
            }
            Outage::Allow => Decision {
                verdict: Verdict::Allow,
                remaining: charge.limit.algorithm.capacity(),
                reset_after: Nanos::ZERO,
                more_after: Nanos::ZERO,
            },
            Outage::Deny | Outage::Error => refusal(),
        });
        Ok(Decisions {
            each: each.collect(),
            admitted: local.admitted && !refused,
        })
    }
}

fn refusal() -> Decision {
    Decision {
        verdict: Verdict::Deny { retry_after: RETRY },
        remaining: Permits::ZERO,
        reset_after: RETRY,
        more_after: RETRY,
    }
}
