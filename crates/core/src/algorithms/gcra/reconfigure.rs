//! Reconfigure: the same limit with other parameters.

use super::Gcra;
use crate::{AnyAlgorithm, Error, Nanos, Origin, Quota, Reconfigure};

impl Reconfigure for Gcra {
    /// A bucket without a queue.
    fn with_quota(&self, quota: Quota, _origin: Origin) -> Result<AnyAlgorithm, Error> {
        let bucket = Self::token_bucket(quota)?;
        Ok(bucket.with_denials(self.denials).into())
    }

    fn with_patience(&self, longest_wait: Nanos) -> Self {
        Self::with_patience(*self, longest_wait)
    }
}
