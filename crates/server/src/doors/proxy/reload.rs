//! Reload: what a reload needs of a listener, without the listener's requests.

use std::sync::Arc;

use ratekeeper_policy::Settings;

use crate::StartError;

/// A listener whose settings can be replaced.
pub(crate) trait Reload: Send + Sync {
    /// Reads what the settings name, and returns the function that puts them in force.
    ///
    /// # Errors
    /// Why they cannot be in force.
    fn prepare(self: Arc<Self>, settings: &Settings) -> Result<Box<dyn FnOnce()>, StartError>;
}
