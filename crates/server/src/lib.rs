//! The ratekeeper service: doors that parse, check and render; everything else decides.
//!
//! ```text
//!   proxy, application          operator, Prometheus          policy file
//!          |                            |                          |
//!     http door                    admin door                 watch, SIGHUP
//!   /v1/check /v1/auth      /metrics /readyz /v1/keys              |
//!          |                            |                       reload
//!          +----------> Keeper <--------+--------------------------+
//!                 (policy, memory store, clock)
//! ```
//!
//! One thread accepts connections, serves the admin door and listens for signals; one
//! worker thread for each core decides. A connection stays on the worker it was given to,
//! so a decision crosses no thread.
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

mod admin;
mod config;
mod doors;
mod event;
mod listener;
mod metrics;
mod pulse;
mod reload;
mod service;
mod shared;
mod watch;
mod workers;

pub use config::{Config, Door, Listen, StartError};
pub use doors::problem::{PROBLEMS, ProblemKind};
pub use event::{Event, Trigger};
pub use service::Service;
