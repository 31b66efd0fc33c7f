//! Reconfigure: the same limit with other parameters.

use super::Hybrid;
use crate::{AnyAlgorithm, Error, Origin, Quota, Reconfigure};

impl Reconfigure for Hybrid {
    fn with_quota(&self, quota: Quota, _origin: Origin) -> Result<AnyAlgorithm, Error> {
        Self::quota_linear(quota).map(Into::into)
    }
}
