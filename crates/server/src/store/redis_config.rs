//! Redis config: the connection to a shared store, from a policy, a command line, or both.

use ratekeeper_core::Origin;
use ratekeeper_store::{RedisConfig, StoreError};

use crate::{StartError, StoreSettings};

/// Returns the connection to the store of these settings, for limits on a clock of that origin.
///
/// # Errors
/// [`StartError::Store`] if a secret or a certificate is not where the settings say. Paths are
/// taken as they are: see [`StoreSettings::at_home`].
pub fn redis_config(shared: &StoreSettings, origin: Origin) -> Result<RedisConfig, StartError> {
    let login = shared.login.as_ref();
    let login = login.map(|login| (login.username.clone(), login.password.clone()));
    let config = ratekeeper::redis_config(&shared.redis, login).map_err(|error| match error {
        StoreError::Misconfigured(why) => StartError::Store(why),
        other => StartError::Store(other.to_string()),
    })?;
    Ok(RedisConfig { origin, ..config })
}
