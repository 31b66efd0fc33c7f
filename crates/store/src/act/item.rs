//! Items: charges, charges with their actual costs, and holds of permits.

use std::fmt::Debug;

use ratekeeper_core::{Charge, Key, LeaseId, Limit, Mode, Permits};

/// One item of a request.
pub trait ActItem<'a>: Copy + Debug + Send + Sync + 'a {
    /// The charge of the item; of nothing, for a hold.
    fn charge(self) -> Charge<'a>;

    /// Returns true if the charge is owed: it is made even beyond the limit.
    fn is_owed(self) -> bool {
        false
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
        Charge {
            limit: self.limit,
            key: self.key,
            cost: Permits::ZERO,
            mode: Mode::Enforce,
        }
    }

    fn lease(self) -> Option<LeaseId> {
        Some(self.lease)
    }
}

/// A charge that was made as an estimate, and the actual cost of the work.
#[derive(Clone, Copy, Debug)]
pub struct Settled<'a> {
    /// The charge as it was made.
    pub charge: Charge<'a>,
    /// The actual cost.
    pub used: Permits,
}

impl<'a> ActItem<'a> for Settled<'a> {
    /// Returns the charge of the difference.
    fn charge(self) -> Charge<'a> {
        let (taken, used) = (self.charge.cost, self.used);
        Charge {
            cost: taken.max(used) - taken.min(used),
            ..self.charge
        }
    }

    fn is_owed(self) -> bool {
        self.used > self.charge.cost
    }
}
