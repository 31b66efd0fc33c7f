//! Access logs, decided again by a policy: how many requests would a limit have refused, and of
//! which clients?
//!
//! ```text
//!   files --RequestLog--> records in order of time --Replay--> answers, counts --> ReplayReport
//! ```
//!
//! [`RequestLog`] reads files of nginx, Apache, Caddy, `HAProxy`, Envoy and JSON lines; [`Replay`]
//! decides their requests as the service would, with an example; [`report`] has the counts.

mod clients;
mod escapes;
mod format;
mod input;
mod json_lines;
mod log;
mod record;
mod replay;
pub mod report;
mod tally;
mod template;
mod timestamp;
mod unpack;

pub use format::LogFormat;
pub use log::{LogError, LogOptions, RequestLog};
pub use record::Record;
pub use replay::{ORIGIN, Replay};
