//! Envoy: settings of its rate limit service: of the rules of all its files, and of the answers.

use std::path::PathBuf;

use ratekeeper_core::Outage;
use strum::EnumString;

use crate::Tls;

/// `[envoy]`: configuration files of Envoy's rate limit service, and the settings of all of them.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct EnvoyFiles {
    /// A file or a directory, relative to that of the policy; `None` for no such service.
    pub config: Option<PathBuf>,
    /// Settings of all of the files.
    pub settings: EnvoySettings,
}

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

/// `[envoy]`: how the gRPC listener answers, beside the statuses.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct EnvoyDoor {
    /// `headers`: `RateLimit` fields that report its limits to the client. Envoy itself adds
    /// those called `X-RateLimit-*`.
    pub headers: EnvoyHeaders,
    /// `header_names`: names of the fields of [`EnvoyHeaders::Draft03`].
    pub header_names: EnvoyHeaderNames,
    /// `body`: the body that a refused client receives.
    pub body: EnvoyBody,
    /// `metadata`: reports the limit that refused to Envoy's other filters and its access log.
    pub metadata: bool,
    /// `tls`: certificates; `None` for plain text.
    pub tls: Option<Tls>,
}

/// Header fields that Envoy is asked to add.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum EnvoyHeaders {
    /// None.
    #[default]
    Off,
    /// `RateLimit-Policy` and `RateLimit`.
    Ietf,
    /// A field each for limit, remaining and reset, as the Go service sends them.
    #[strum(serialize = "draft-03")]
    Draft03,
}

/// Names of fields: those of draft-ietf-httpapi-ratelimit-headers-03 (2022) by default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvoyHeaderNames {
    /// `limit`: requests in a window.
    pub limit: String,
    /// `remaining`: requests left.
    pub remaining: String,
    /// `reset`: seconds until the window ends.
    pub reset: String,
}

impl Default for EnvoyHeaderNames {
    fn default() -> Self {
        Self {
            limit: "RateLimit-Limit".to_owned(),
            remaining: "RateLimit-Remaining".to_owned(),
            reset: "RateLimit-Reset".to_owned(),
        }
    }
}

/// The body of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum EnvoyBody {
    /// Envoy's own body, which is empty.
    #[default]
    Off,
    /// The limit's `response`, as at the other listeners: a problem document by default.
    Limit,
}
