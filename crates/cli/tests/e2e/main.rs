//! End to end: visitors in front of a real nginx, Caddy, HAProxy or Envoy, `ratekeeper run` beside
//! it, an application behind. The proxies run the snippets that users receive.
//!
//! A proxy that is not installed skips its tests with a printed line, unless `CI=true`, which makes
//! them fail.

mod access_logs;
mod alerts;
mod bans;
mod book;
mod browser;
mod caddy;
#[path = "../../../core/tests/algorithms/cases.rs"]
mod cases;
mod chains;
mod counting;
mod credits;
mod dashboard;
mod dashboard_charts;
mod dashboard_pictures;
mod dashboard_streams;
mod described;
mod doctor;
mod envoy;
mod every_proxy;
mod exchanges;
mod ext_authz;
mod faults;
mod founding;
mod gateway;
mod gateway_applications;
mod gateway_browser;
mod gateway_edges;
mod gateway_idle;
mod gateway_random;
mod gateway_tls;
mod gateway_unsent;
mod gateway_websocket;
mod geo;
mod guide;
mod harness;
mod imports;
mod incidents;
mod languages;
#[path = "../../../policy/tests/mmdb/mod.rs"]
mod mmdb;
mod openapi;
mod outage;
mod password;
mod paths;
mod permits;
mod phases;
#[path = "../../../server/tests/service/promtool.rs"]
mod promtool;
mod readings;
mod readme;
mod recipes;
mod reload;
mod replay_page;
mod reports;
mod sentinel;
mod soak;
mod state;
mod store;
mod store_faults;
mod telemetry;
mod tls;
mod tokens;
mod top;
mod trials;
mod upgrade;
mod worked_examples;
mod writes;
