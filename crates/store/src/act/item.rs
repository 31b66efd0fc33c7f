//! Items: charges, charges with their actual costs, and holds of permits.

use std::fmt::Debug;

use ratekeeper_core::{Charge, Key, LeaseId, Limit, Nanos, Permits, Receipt};

/// One item of a request.
pub trait ActItem<'a>: Copy + Debug + Send + Sync + 'a {
    /// Returns the charge of the item; for a hold, a charge of zero.
    fn charge(self) -> Charge<'a>;

    /// Returns how settling corrects the charge.
    fn correction(self) -> ChargeCorrection {
        ChargeCorrection::GiveBack
    }

    /// Returns the receipt of a charge that was made; `None` for a gift.
    fn receipt(self) -> Option<Receipt> {
        None
    }

    /// The name that holds permits.
    fn lease(self) -> Option<LeaseId> {
        None
    }
}

impl<'a> ActItem<'a> for Charge<'a> {
    #[inline]
    fn charge(self) -> Self {
        self
    }
}

/// Permits on loan, under the name they were lent to.
#[derive(Clone, Copy, Debug)]
pub struct Hold<'a> {
    /// The limit that lent them.
    pub limit: &'a Limit,
    /// The key that was charged.
    pub key: Key<'a>,
    /// The name that holds them.
    pub lease: LeaseId,
}

impl<'a> ActItem<'a> for Hold<'a> {
    fn charge(self) -> Charge<'a> {
        Charge::enforced(self.limit, self.key, Permits::ZERO)
    }

    fn lease(self) -> Option<LeaseId> {
        Some(self.lease)
    }
}

/// How settling corrects a charge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(unnameable_types, reason = "sealed, as items are")]
pub enum ChargeCorrection {
    /// Its cost is given back.
    GiveBack,
    /// It stays: the store never made it.
    Keep,
    /// Its cost is charged, even beyond the limit.
    Owe,
    /// The state of its key is forgotten.
    Reset,
}

/// A charge that was made as an estimate, and the actual cost of the work.
#[derive(Clone, Copy, Debug)]
pub struct Settled<'a> {
    /// The charge as it was made.
    pub charge: Charge<'a>,
    /// The actual cost.
    pub used: ActualCost,
    /// Where and when it was made.
    pub origin: ChargeOrigin,
}

/// Where a charge was made, and when; see [`Decisions::origin`](crate::Decisions::origin).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChargeOrigin {
    /// In the store.
    Store(Receipt),
    /// In this process, while the store was away: it is given back there, or not at all.
    Outage(Receipt),
}

impl ChargeOrigin {
    /// The origin of another charge of the same moment, for which time has paid `span` after it.
    #[must_use]
    pub fn paid_after(self, span: Nanos) -> Self {
        let paid = |receipt: Receipt| Receipt {
            paid: receipt.made + span,
            ..receipt
        };
        match self {
            Self::Store(receipt) => Self::Store(paid(receipt)),
            Self::Outage(receipt) => Self::Outage(paid(receipt)),
        }
    }
}

/// The actual cost of work that was charged as an estimate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ActualCost {
    /// A number of permits.
    Permits(Permits),
    /// None, and the key begins anew, without its earlier charges.
    Reset,
}

impl<'a> ActItem<'a> for Settled<'a> {
    /// Returns the charge of the difference.
    fn charge(self) -> Charge<'a> {
        let taken = self.charge.cost;
        let cost = match self.used {
            ActualCost::Permits(used) => taken.max(used) - taken.min(used),
            ActualCost::Reset => Permits::ZERO,
        };
        self.charge.at_cost(cost)
    }

    fn correction(self) -> ChargeCorrection {
        match self.used {
            ActualCost::Permits(used) if used > self.charge.cost => ChargeCorrection::Owe,
            ActualCost::Permits(_) if self.receipt().is_none() => ChargeCorrection::Keep,
            ActualCost::Permits(_) => ChargeCorrection::GiveBack,
            ActualCost::Reset => ChargeCorrection::Reset,
        }
    }

    fn receipt(self) -> Option<Receipt> {
        match self.origin {
            ChargeOrigin::Store(receipt) => Some(receipt),
            ChargeOrigin::Outage(_) => None,
        }
    }
}
