//! The policy language, and the policy that it compiles to: the limits that a request must pass.
//!
//! ```text
//!   text --config--> Policy --charges(facts, wall)--> [ (limit, key, cost, mode), ... ]
//!            |
//!            +--> diagnostics: every error at once, with line, caret and hint
//! ```
//!
//! Pure: no I/O, no clock.

pub mod config;
pub mod envoy;
pub mod import;
mod model;
mod nginx_part;

pub use model::client::claims::Claims;
pub use model::client::geo::{Asn, Country, Geo, GeoFile};
pub use model::client::identify::{ClientIp, SocketTrust};
pub use model::client::tokens::Tokens;
pub use model::error::ValueError;
pub use model::keys::by_hand::{ByHand, HandAct, HandEntry, HandTable, MAX_BY_HAND};
pub use model::keys::key_bytes::KeyBytes;
pub use model::keys::key_part::KeyPart;
pub use model::keys::key_share::KeyShare;
pub use model::keys::overrides::Override;
pub use model::keys::plan::Plans;
pub use model::keys::variants::{Allowance, Held, HeldBy, Variant, Variants};
pub use model::matching::body::{BodyField, BodyFields, ResponseReader};
pub use model::matching::descriptor::{Descriptor, EntryName, Numbers};
pub use model::matching::exemption::Exemption;
pub use model::matching::facts::Facts;
pub use model::matching::matcher::Matcher;
pub use model::matching::path::{PathCase, normal_path};
pub use model::matching::pattern::{Field, Pattern, network};
pub use model::matching::patterns::Patterns;
pub use model::policy::{Charges, Entry, NoCharge, Policy, Uncharged};
pub use model::rules::Rules;
pub use model::rules::active::{Active, WallTime};
pub use model::rules::alert::Alert;
pub use model::rules::calendar;
pub use model::rules::correction::{Corrected, Correction, CostSource, Report, ResultSet};
pub use model::rules::cost::{Cost, Price, PriceList};
pub use model::rules::describe::{Description, Millis, Returned, Together, WorstCase};
pub use model::rules::priority::Priority;
pub use model::rules::refusal::{Body, Refusal};
pub use model::rules::role::Role;
pub use model::rules::rule::{MissingKey, Rule, RuleMode};
pub use model::rules::signal::{Gate, LOAD, Signal, UpstreamMeasure, upstream_signal};
pub use model::rules::unit::Unit;
pub use model::settings::access_log::{AccessLogSettings, LoggedResponses};
pub use model::settings::adaptive_bounds::AdaptiveBounds;
pub use model::settings::health_check::HealthCheck;
pub use model::settings::port_use::PortUse;
pub use model::settings::route::Route;
pub use model::settings::secret::Secret;
pub use model::settings::telemetry::{MetricSettings, OtlpSettings};
pub use model::settings::upstream_url::{UpstreamScheme, UpstreamTls, UpstreamUrl};
pub use model::settings::{
    AdminWrites, AlertSettings, EnvoyBody, EnvoyDoor, EnvoyFiles, EnvoyHeaderNames, EnvoyHeaders,
    HeaderStyle, Listen, LogDenials, NodeName, ProxySettings, RedisSettings, RevealKeys,
    SentinelSettings, Settings, StoreTls, Tls, WebhookSettings,
};
