//! Reconfigure: the same limit with other parameters.

use super::Concurrency;
use crate::{AnyAlgorithm, Error, Origin, Quota, Reconfigure};

impl Reconfigure for Concurrency {
    /// As many permits as the quota has, on the same lease.
    fn with_quota(&self, quota: Quota, _origin: Origin) -> Result<AnyAlgorithm, Error> {
        let loans = Self::new(quota.permits(), self.lease)?;
        Ok(loans.with_denials(self.denials).into())
    }
}
