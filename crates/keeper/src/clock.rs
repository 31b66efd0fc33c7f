//! Clock: the only place where time is read.
//!
//! A clock's zero is the start of the process: it is monotonic, so that setting the wall clock
//! never gives permits away. Its [`Origin`] holds the position of that zero in Unix time, for
//! limits that follow the wall clock; it is read once.

#![expect(clippy::disallowed_methods, reason = "clocks are read only here")]

mod coarse;
mod manual;
#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
mod processor;
mod runtime;
mod sleep;
#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
mod system;
#[cfg(feature = "tokio")]
mod tokio;
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
mod web;

pub use coarse::CoarseClock;
pub use manual::ManualClock;
pub use ratekeeper_core::Clock;
pub use runtime::RuntimeClock;
pub use sleep::{Block, Timer};
#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
pub use system::SystemClock;
#[cfg(feature = "tokio")]
pub use tokio::TokioClock;
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
pub use web::SystemClock;

#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
use std::time::{SystemTime, UNIX_EPOCH};
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use web_time::{SystemTime, UNIX_EPOCH};

use ratekeeper_core::{Nanos, Origin};

/// Returns the wall clock's time, in nanoseconds since 1970.
fn unix_nanos() -> u64 {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH);
    Nanos::from(unix.unwrap_or_default()).as_nanos()
}

/// Returns this moment in Unix time.
fn today() -> Origin {
    Origin::from_unix_nanos(unix_nanos())
}
