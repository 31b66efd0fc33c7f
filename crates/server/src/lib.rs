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
//! # Speed
//!
//! Processor time of the service for each request, one limit by address in memory, `wrk`
//! (Debian's package) on the same two-core machine, which was busy with other work:
//!
//! ```text
//!                              POST /v1/check      GET /v1/auth
//!   connections                  16       64        16       64
//!   worker each, one write     11.2     10.3       9.1      8.8   us; 6.6 in the kernel
//!   worker each, writev        11.7     11.0       9.4      9.0
//!   one shared runtime         13.0     12.5       9.7      9.5
//! ```
//!
//! Measured so: `ratekeeper run POLICY` (release build); before and after `wrk -t1 -c64 -d8s`
//! (with `-s` a script that posts a check of a varying address) read user and system time
//! from `/proc/PID/stat`; their difference over the requests that `wrk` counted.
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
