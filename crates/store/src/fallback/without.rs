//! Without: decisions while the store is unavailable, as each limit chose.

use std::num::NonZeroU32;

use ratekeeper_core::{
    Algorithm as _, Charge, Decision, Lend, Limit, LimitScope, Mode, Nanos, Outage, Permits, Quota,
    Time, Verdict,
};
use smallvec::{SmallVec, smallvec};

use super::{FallbackInner, Remote, add};
use crate::{Decide, Decisions, Look, StoreError};

/// `retry_after` of a refusal where nothing better is known: about when the store is asked next.
const RETRY: Nanos = Nanos::from_secs(1);

/// The decision of a limit that refuses everything meanwhile.
const REFUSAL: Decision = Decision::deny_all(RETRY);

impl<S: Remote> FallbackInner<S> {
    /// Returns the number of processes that share a limit.
    pub(super) fn sharers(&self, limit: &Limit) -> NonZeroU32 {
        match limit.scope {
            LimitScope::Cluster => self.nodes,
            LimitScope::Node => NonZeroU32::MIN,
        }
    }

    /// Returns the charge against a share: a permit counts once for every process. A condition
    /// counts once in each process, and the headroom of a share is the same part of it.
    pub(super) fn scaled<'a>(&self, charge: &Charge<'a>) -> Charge<'a> {
        if matches!(charge.mode, Mode::Once | Mode::Headroom) {
            return *charge;
        }
        charge.at_cost(self.scaled_cost(charge.limit, charge.cost))
    }

    pub(super) fn scaled_cost(&self, limit: &Limit, cost: Permits) -> Permits {
        Permits::new(cost.get().saturating_mul(self.sharers(limit).get().into()))
    }

    /// Returns true if at least the cost of `share` was charged here.
    pub(super) fn is_owed_here(&self, share: &Charge<'_>, now: Time) -> bool {
        if share.limit.outage != Outage::Local {
            return false;
        }
        let free = share.at_cost(Permits::ZERO);
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
        let sharers = self.sharers(charge.limit);
        if sharers == NonZeroU32::MIN || capacity.get() == Quota::MAX_PERMITS {
            return share;
        }
        let forever = charge.cost > capacity;
        let verdict = match share.verdict {
            Verdict::DenyForever if !forever => Verdict::Deny { retry_after: RETRY },
            verdict => verdict,
        };
        Decision {
            verdict,
            remaining: Permits::new(share.remaining.get() / u64::from(sharers.get())), // down
            ..share
        }
    }

    /// Decides as the limits chose for an outage; refuses if the store is in use, and has too much to
    /// do for these keys.
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
        let is_crowded = matches!(error, StoreError::Crowded);
        let outages = if is_crowded {
            smallvec![Outage::Deny; charges.len()]
        } else {
            outages(charges)
        };
        let any = |outage| outages.contains(&outage);
        if any(Outage::Error) {
            return Err(error);
        }
        let each = || charges.iter().zip(&outages);
        let refused =
            each().any(|(charge, outage)| charge.mode == Mode::Enforce && *outage == Outage::Deny);
        let shares: SmallVec<[Charge<'_>; 4]> = each()
            .filter(|(_, outage)| **outage == Outage::Local)
            .map(|(charge, _)| self.scaled(charge))
            .collect();
        let local = match lend {
            Some(lend) if !refused => {
                self.remember(&shares);
                self.local.settle_now(Decide(lend), &shares, now)
            }
            _ => self.local.settle_now(Look, &shares, now),
        };
        if lend.is_some() && !is_crowded {
            let counts = &self.counts;
            let counter = match () {
                () if refused => &counts.deny,
                () if any(Outage::Allow) => &counts.allow,
                () if any(Outage::Local) => &counts.local,
                () => &counts.deny,
            };
            add(counter, 1);
        }
        let mut decided = local.each.into_iter();
        let each = each().map(|(charge, outage)| match (outage, charge.mode) {
            (Outage::Local, _) => {
                let share = decided.next().unwrap_or(REFUSAL);
                self.unscaled(charge, share)
            }
            // What only a charge depends on refuses nothing itself.
            (Outage::Allow, _) | (_, Mode::Once | Mode::Headroom) => {
                Decision::without_times(Verdict::Allow, charge.limit.algorithm.capacity())
            }
            (Outage::Deny | Outage::Error, _) => REFUSAL,
        });
        Ok(Decisions {
            mark: None,
            each: each.collect(),
            admitted: local.admitted && !refused,
            made: now,
            without_store: true,
        })
    }
}

/// Returns the choice for each charge; that of the first charge holds for its whole chain.
fn outages(charges: &[Charge<'_>]) -> SmallVec<[Outage; 4]> {
    let mut of_chain = Outage::default();
    let each = charges.iter().enumerate().map(|(at, charge)| {
        if at == 0 || charge.mode != Mode::Otherwise {
            of_chain = charge.limit.outage;
        }
        of_chain
    });
    each.collect()
}
