//! Source: the files that a service reads, and the policy that is put in force from them.

pub(crate) mod envoy_files;
pub(crate) mod override_change;
pub(crate) mod policy_file;
pub(crate) mod policy_text;
pub(crate) mod reload;
pub(crate) mod replace_file;
pub(crate) mod watch;

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use ratekeeper_policy::Settings;
use ratekeeper_policy::config::Listeners;

use self::envoy_files::ConfigSource;
use self::policy_text::PolicyText;
use crate::regular_file::FileReader;
use crate::{Config, addresses};

/// Where the policy comes from.
#[derive(Debug)]
pub(crate) struct PolicyOrigin {
    /// The policy file, if there is one.
    pub(crate) path: Option<PathBuf>,
    /// The listeners that the policy does not decide.
    pub(crate) listeners: Listeners,
    /// True if limits that enforce are in shadow mode.
    pub(crate) shadow: bool,
    pub(crate) envoy_files: ConfigSource,
    /// Locked while a file is read and put in force.
    pub(crate) last_seen: Mutex<SeenFile>,
    pub(crate) reader: FileReader,
}

/// The text that was read last, good or bad, with which a reload compares the policy file; and the
/// settings of the process.
#[derive(Debug, Default)]
pub(crate) struct SeenFile {
    /// The text as it was read; `None` if it could not be read.
    pub(crate) last: Option<Arc<PolicyText>>,
    pub(crate) in_force: Arc<PolicyText>,
    pub(crate) started_with: Settings,
    /// True if a file that the gateway needs, such as a certificate, could not be used.
    pub(crate) lacks_files: bool,
}

impl PolicyOrigin {
    pub(crate) fn new(config: &Config, envoy_files: ConfigSource, seen: SeenFile) -> Self {
        Self {
            path: config.policy.clone(),
            listeners: addresses::listeners(config),
            shadow: config.shadow,
            envoy_files,
            last_seen: Mutex::new(seen),
            reader: FileReader::default(),
        }
    }
}
