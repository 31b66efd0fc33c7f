//! The policy language, and the policy that it compiles to: the limits that a request must pass.
//!
//! ```text
//!   text --config--> Policy --charges(facts, wall)--> [ (limit, key, cost, mode), ... ]
//!            |
//!            +--> diagnostics: every error at once, with line, caret and hint
//! ```
//!
//! Pure: no I/O, no clock.

mod active;
mod adaptive_bounds;
mod alert;
mod body;
pub mod calendar;
mod chain;
mod claims;
mod common_part;
pub mod config;
mod correction;
mod cost;
mod describe;
mod descriptor;
mod descriptor_index;
pub mod envoy;
mod error;
mod exemption;
mod facts;
mod forwarded;
mod geo;
mod glob;
mod health_check;
mod identify;
pub mod import;
mod key_bytes;
mod key_part;
mod key_share;
mod keys;
mod matcher;
mod nginx_part;
mod octets;
mod overrides;
mod part_index;
mod path;
mod path_pattern;
mod pattern;
mod patterns;
mod plan;
mod policy;
mod priority;
mod refusal;
mod request;
mod request_index;
mod role;
mod route;
mod rule;
mod rules;
mod secret;
mod settings;
mod signal;
mod stated;
mod telemetry;
#[cfg_attr(not(feature = "jwt"), path = "no_tokens.rs")]
mod tokens;
mod unit;
mod upstream_url;
mod value;
mod variants;
mod zone;

pub use active::{Active, WallTime};
pub use adaptive_bounds::AdaptiveBounds;
pub use alert::Alert;
pub use body::{BodyField, BodyFields, ResponseReader};
pub use claims::Claims;
pub use correction::{Corrected, Correction, CostSource, Report, ResultSet};
pub use cost::Cost;
pub use describe::{Description, Millis, Returned, Together, WorstCase};
pub use descriptor::{Descriptor, EntryName, Numbers};
pub use error::ValueError;
pub use exemption::Exemption;
pub use facts::Facts;
pub use geo::{Asn, Country, Geo, GeoFile};
pub use health_check::HealthCheck;
pub use identify::{ClientIp, SocketTrust};
pub use key_bytes::KeyBytes;
pub use key_part::KeyPart;
pub use key_share::KeyShare;
pub use matcher::Matcher;
pub use overrides::Override;
pub use path::{PathCase, normal_path};
pub use pattern::{Field, Pattern, network};
pub use patterns::Patterns;
pub use plan::Plans;
pub use policy::{Charges, Entry, NoCharge, Policy, Uncharged};
pub use priority::Priority;
pub use refusal::{Body, Refusal};
pub use role::Role;
pub use route::Route;
pub use rule::{MissingKey, Rule, RuleMode};
pub use rules::Rules;
pub use secret::Secret;
pub use settings::{
    AdminWrites, AlertSettings, EnvoyBody, EnvoyDoor, EnvoyFiles, EnvoyHeaderNames, EnvoyHeaders,
    HeaderStyle, Listen, LogDenials, NodeName, ProxySettings, RedisSettings, RevealKeys,
    SentinelSettings, Settings, StoreTls, Tls, WebhookSettings,
};
pub use signal::{Gate, LOAD, Signal, UpstreamMeasure, upstream_signal};
pub use telemetry::{MetricSettings, OtlpSettings};
pub use tokens::Tokens;
pub use unit::Unit;
pub use upstream_url::{UpstreamScheme, UpstreamTls, UpstreamUrl};
pub use variants::{Allowance, Held, HeldBy, Variant, Variants};
