//! Notice: the start or the end of an alert, as operators and receivers are shown it.

use std::fmt;
use std::sync::Arc;

use ratekeeper_core::Time;
use ratekeeper_policy::{Alert, RuleMode};
use strum::{Display, IntoStaticStr};

/// The start or the end of the alert of a key. `Display` is one line for a terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AlertNotice {
    /// Start or end.
    pub change: AlertChange,
    /// The alert: the same at its start and its end, and different for each start.
    pub id: Arc<str>,
    /// Name of the limit.
    pub limit: Arc<str>,
    /// Mode of the limit.
    pub mode: RuleMode,
    /// The key in words, one for each part: `ip=192.0.2.1`; `None` unless the policy reveals keys.
    pub key: Option<Vec<String>>,
    /// The `alert` of the limit.
    pub alert: Alert,
    /// Usage that the last decision of the key left, in percent.
    pub usage_percent: u8,
    /// Time since which the key has been above, by the clock of the service.
    pub since: Time,
}

/// Start or end of an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum AlertChange {
    /// The key has been above for `for`.
    Started,
    /// It is over.
    Ended(AlertEnd),
}

/// Why an alert ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum AlertEnd {
    /// The key is no longer above.
    Fell,
    /// A new policy has no such limit, or another `alert`, mode or key of it.
    Removed,
    /// The service stops.
    Stopped,
}

impl fmt::Display for AlertNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = &self.limit;
        match self.change {
            AlertChange::Started => write!(f, "alert started: limit `{limit}`, {}", self.alert)?,
            AlertChange::Ended(why) => write!(f, "alert ended ({why}): limit `{limit}`")?,
        }
        if let Some(key) = &self.key
            && !key.is_empty()
        {
            // A key is a stranger's text: no line breaks, no escapes of a terminal.
            write!(f, ", key {}", key.join(", ").escape_debug())?;
        }
        write!(f, ", usage {}%, id {}", self.usage_percent, self.id)
    }
}
