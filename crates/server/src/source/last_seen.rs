//! Last seen: the state that a reload compares a policy file with.

use std::sync::Arc;

use ratekeeper_policy::Settings;

use super::policy_text::PolicyText;

/// The text that was read last, good or bad, and the settings of the process.
#[derive(Debug)]
pub(crate) struct SeenFile {
    /// The text as it was read; `None` if it could not be read.
    pub(crate) last: Option<Arc<PolicyText>>,
    pub(crate) in_force: Arc<PolicyText>,
    pub(crate) started_with: Settings,
    /// True if limits that enforce are in shadow mode.
    pub(crate) shadow: bool,
}
