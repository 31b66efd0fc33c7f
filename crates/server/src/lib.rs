//! The ratekeeper service: doors that parse, check and render; everything else decides.
//!
//! ```text
//!   proxy, application    Envoy      operator, Prometheus        policy file
//!          |                |                 |                       |
//!     http door        grpc door         admin door              watch, SIGHUP
//!   /v1/check /v1/auth  ShouldRateLimit  /metrics /readyz /v1/keys    |
//!          |                |                 |                    reload
//!          +----------------+--> Keeper <-----+-----------------------+
//!                 (policy, memory store, clock)
//! ```
//!
//! One thread accepts connections, serves the admin door and listens for signals; one
//! worker thread for each core decides. A connection stays on the worker it was given to,
//! so a decision crosses no thread.
//!
//! # Speed
//!
//! Processor time of the service for each answer, `wrk -t1 -c32` on the same two-core
//! machine, which was busy with other work; medians of two runs:
//!
//! ```text
//!   floor: reads and writes as many bytes, no HTTP          7.3 -  7.4 us
//!   floor: hyper, answers a constant                        8.2 -  8.8
//!   GET /v1/auth, one limit, allowed; refused        8.9 -  9.1;  9.7 - 10.0
//!   POST /v1/check, one limit, allowed; refused      9.9 - 10.3; 10.0 - 10.1
//!   POST /v1/check, two limits, allowed; refused    10.7 - 11.3; 10.7 - 11.0
//! ```
//!
//! `cargo run --release -p ratekeeper-benches -- http` prints this table. Measured once,
//! against an older build: one runtime for all workers cost about 2 us more, `writev`
//! instead of one copy 0.5.
//!
//! # Examples
//!
//! ```
//! use ratekeeper_server::{Config, Door, Service};
//!
//! let directory = tempfile::tempdir().unwrap();
//! let policy = directory.path().join("ratekeeper.toml");
//! std::fs::write(&policy, "version = 1\n[[limit]]\nname = \"all\"\nkey = [\"all\"]\nlimit = \"10/1h\"\n").unwrap();
//!
//! let config = Config::new(&policy).listen("http=127.0.0.1:0")?.listen("admin=off")?;
//! let service = Service::start(&config)?;
//! assert!(service.address(Door::Http).is_some());
//! assert!(service.address(Door::Admin).is_none());
//! service.shutdown();
//! # Ok::<(), ratekeeper_server::StartError>(())
//! ```

mod addresses;
mod admin;
mod background;
mod byte_budget;
mod capacity;
mod clock;
mod config;
mod context;
mod counter;
mod doors;
mod notices;
mod observe;
mod opening;
mod percent;
mod readiness;
mod regular_file;
mod serve;
mod service;
mod signals;
mod source;
mod state;
mod store;

pub use admin::ADMIN_ROUTES;
pub use config::{Config, Door, ExplainLimit, StartError};
pub use doors::problem::{PROBLEMS, ProblemKind, explain_problem};
pub use doors::routes::ListenerRoute;
pub use doors::{HTTP_ROUTES, Right};
pub use notices::{explain_notice, notice_titles};
pub use observe::alerts::{AlertChange, AlertEnd, AlertNotice};
pub use observe::event::{Event, OverrideAct, Trigger};
pub use observe::otlp::EventExport;
#[doc(hidden)]
pub use observe::watching::{WatchedKeys, Watchers};
pub use serve::door_address::DoorAddress;
pub use serve::log_writer::LogWriter;
pub use service::Service;
pub use source::envoy_files::{EnvoyFile, read_envoy_files};
pub use source::policy_file::writable_by_all;
pub use store::choice::{StoreAddress, StoreChoice, StoreSettings};
pub use store::redis_config;
