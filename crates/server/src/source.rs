//! Source: the files that a service reads, and the policy that is put in force from them.

pub(crate) mod envoy_files;
pub(crate) mod last_seen;
pub(crate) mod override_change;
pub(crate) mod policy_file;
pub(crate) mod policy_text;
pub(crate) mod reload;
pub(crate) mod replace_file;
pub(crate) mod watch;
