//! Observe: what sees decisions and events, and decides nothing: metrics, top keys, alerts, bans,
//! history, the recorder, and what is sent to other servers.

pub(crate) mod alerts;
pub(crate) mod changes;
pub(crate) mod country_hours;
pub(crate) mod denial_log;
pub(crate) mod event;
pub(crate) mod history;
pub(crate) mod metrics;
pub(crate) mod otlp;
pub(crate) mod recorder;
pub(crate) mod standing_bans;
pub(crate) mod top_keys;
#[cfg(feature = "proxy")]
pub(crate) mod upstreams;
pub(crate) mod watching;
