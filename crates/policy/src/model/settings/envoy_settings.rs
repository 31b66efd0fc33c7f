//! Settings of Envoy's rate limit service for the rules of all its files.

use ratekeeper_core::Outage;

/// Settings of all rules: the environment of the Go service.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "five switches of another program, each on its own"
)]
pub struct EnvoySettings {
    /// True if several files may describe one domain.
    pub merge_domains: bool,
    /// If any descriptor of a call would be over, only the descriptors that would are counted.
    pub stop_increment: bool,
    /// No call is refused; the statuses stay true.
    pub shadow_mode: bool,
    /// Every rule is a quota rule.
    pub quota_mode: bool,
    /// Answers carry dynamic metadata.
    pub dynamic_metadata: bool,
    /// Behaviour while the shared store fails.
    pub outage: Outage,
}
