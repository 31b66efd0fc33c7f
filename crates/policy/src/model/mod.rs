//! The policy as it decides: no file, no diagnostic and no field of the language is known here.
//!
//! The names that most files use are exported here, and the files take them from the crate.

pub(crate) mod client;
pub(crate) mod keys;
pub(crate) mod matching;
pub(crate) mod policy;
pub(crate) mod rules;
pub(crate) mod settings;

pub use client::claims::Claims;
pub use client::geo::{Asn, Country, Geo, GeoFile};
pub use client::tokens::Tokens;
pub use keys::by_hand::{ByHand, HandAct, HandEntry, HandTable, MAX_BY_HAND};
pub use keys::key_bytes::KeyBytes;
pub use keys::key_part::KeyPart;
pub use keys::key_share::KeyShare;
pub use keys::overrides::Override;
pub(crate) use keys::plan::PlanSource;
pub use keys::plan::Plans;
pub use keys::variants::{Allowance, Held, HeldBy, Variant, Variants};
pub(crate) use matching::body::BodyValue;
pub use matching::body::{BodyField, BodyFields, ResponseReader};
pub use matching::descriptor::{Descriptor, EntryName, Numbers};
pub use matching::facts::Facts;
pub(crate) use matching::glob::{Glob, GlobPiece};
pub use matching::matcher::{Exemption, Matcher};
pub(crate) use matching::pattern::is_token;
pub use matching::pattern::{Field, Pattern};
pub use matching::patterns::Patterns;
pub(crate) use matching::request::RequestFacts;
pub use policy::{Charges, Entry, NoCharge, Policy, Uncharged};
pub use rules::Rules;
pub use rules::active::{Active, WallTime};
pub use rules::alert::Alert;
pub use rules::calendar;
pub use rules::correction::{Corrected, Correction, CostSource, Report, ResultSet};
pub use rules::cost::{Cost, Price, PriceList};
pub use rules::describe::{Description, Millis, Returned, Together, WorstCase};
pub use rules::priority::Priority;
pub use rules::rule::{MissingKey, Role, Rule, RuleMode};
pub use rules::signal::{Gate, LOAD, Signal, UpstreamMeasure, upstream_signal};
pub(crate) use rules::zone::Zone;
pub use settings::envoy::{EnvoyBody, EnvoyDoor, EnvoyFiles, EnvoyHeaderNames, EnvoyHeaders};
pub use settings::proxy::{
    AccessLogSettings, AdaptiveBounds, HealthCheck, LoggedResponses, ProxySettings, Route,
};
pub use settings::upstream_url::{UpstreamScheme, UpstreamTls, UpstreamUrl};
pub use settings::{
    AdminWrites, AlertSettings, Listen, LogDenials, MetricSettings, NodeName, OtlpSettings,
    PortUse, RedisSettings, RevealKeys, Secret, SentinelSettings, Settings, StoreTls, Tls,
    WebhookSettings,
};
