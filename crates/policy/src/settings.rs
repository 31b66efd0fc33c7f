//! Settings: what a policy file says beside its rules.

use std::path::PathBuf;

use crate::envoy;

/// `headers = "ietf" | "legacy" | "both" | "off"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum HeaderStyle {
    /// `RateLimit-Policy` and `RateLimit`.
    #[default]
    Ietf,
    /// `X-RateLimit-*`.
    Legacy,
    /// Both.
    Both,
    /// Neither.
    Off,
}

/// Settings of the process that the policy file may hold.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Settings {
    /// `[listen]`: addresses of the doors.
    pub listen: Listen,
    /// `[envoy]`: configuration files of Envoy's rate limit service.
    pub envoy_files: EnvoyFiles,
    /// `[store.memory] budget`: bytes the store may use; none for the default.
    pub memory_budget: Option<usize>,
}

/// `[envoy]`: configuration files of Envoy's rate limit service, and what holds for all of
/// them.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct EnvoyFiles {
    /// A file or a directory, relative to that of the policy; none for no such service.
    pub config: Option<PathBuf>,
    /// What holds for all of them.
    pub settings: envoy::Settings,
}

/// `[listen]`: none means not stated, `Some("off")` means off.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Listen {
    /// The check API and forward-auth.
    pub http: Option<String>,
    /// Metrics, health, keys, reload.
    pub admin: Option<String>,
}
