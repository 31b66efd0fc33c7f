//! Rate limit: one call of Envoy's rate limit protocol on its way through the keeper.
//!
//! ```text
//!   call --config--> plan --> give back --> (look, hold back) --> count --> answer
//! ```
//!
//! Each descriptor is decided and counted separately, as in the Go service: this is the only call
//! that is not all or none. With the setting `stop_increment`, all descriptors are looked at before
//! they are counted; another call may come in between.

use ratekeeper_policy::envoy::{EnvoyAnswer, EnvoyCall, EnvoyCallError, EnvoyConfig};
use ratekeeper_store::{Store, StoreError};

use crate::{Clock, Keeper};

impl<S: Store, C: Clock> Keeper<S, C> {
    /// Decides and counts one call under `config`, which must be the one of [`Keeper::envoy`].
    ///
    /// ```
    /// use ratekeeper::core::Origin;
    /// use ratekeeper::policy::envoy::{EnvoyCall, EnvoyCode, EnvoyDescriptor, EnvoySettings, File, load};
    /// use ratekeeper::policy::Policy;
    /// use ratekeeper::store::{MemoryConfig, MemoryStore};
    /// use ratekeeper::{Keeper, ManualClock, at_once};
    ///
    /// let text = "
    /// domain: shop
    /// descriptors:
    ///   - { key: user, rate_limit: { unit: minute, requests_per_unit: 1 } }
    /// ";
    /// let file = File { name: "shop.yaml", text };
    /// let loaded = load(&[file], EnvoySettings::default(), Origin::UNIX).unwrap();
    /// let clock = ManualClock::at(Origin::UNIX);
    /// let store = MemoryStore::new(MemoryConfig::default());
    /// let keeper = Keeper::new(Policy::default(), store, clock);
    /// keeper.install_envoy(loaded.config);
    ///
    /// let ann = EnvoyDescriptor { entries: [("user", "ann")].into_iter().collect(), ..Default::default() };
    /// let call = EnvoyCall { domain: "shop", descriptors: [ann].into_iter().collect(), hits_addend: 0 };
    /// let config = keeper.envoy().unwrap();
    /// let ask = || at_once(keeper.rate_limit(&config, &call)).unwrap();
    /// assert_eq!(ask().overall, EnvoyCode::Ok);
    /// assert_eq!(ask().overall, EnvoyCode::OverLimit);
    /// ```
    ///
    /// # Errors
    /// For a call with too few or too many descriptors, and when the store cannot answer.
    pub async fn rate_limit<'c>(
        &self,
        config: &'c EnvoyConfig,
        call: &EnvoyCall<'_>,
    ) -> Result<EnvoyAnswer<'c>, RateLimitError> {
        let mut plan = config.plan(call, self.clock().now())?;
        let now = plan.now();
        let refunds = plan.refunds();
        if !refunds.is_empty() {
            self.store().refund(&refunds, now).await?;
        }
        drop(refunds);
        let looks = plan.looks();
        let looked = match &looks {
            Some(looks) => Some(self.store().look(looks, now).await?),
            None => None,
        };
        drop(looks);
        if let Some(looked) = looked {
            plan.hold_back(&looked.each);
        }
        let charges = plan.charges();
        if charges.is_empty() {
            return Ok(plan.answer(&[]));
        }
        let decisions = self.store().decide(&charges, now).await?;
        Ok(EnvoyAnswer {
            without_store: decisions.without_store,
            ..plan.answer(&decisions.each)
        })
    }
}

/// Why a call of the rate limit protocol has no answer.
///
/// ```
/// use ratekeeper::RateLimitError;
/// use ratekeeper::store::StoreError;
/// let error = RateLimitError::from(StoreError::Unavailable("it is away".into()));
/// assert!(error.to_string().contains("it is away"));
/// ```
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RateLimitError {
    /// The call is invalid.
    #[error(transparent)]
    Call(#[from] EnvoyCallError),
    /// The store cannot answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}
