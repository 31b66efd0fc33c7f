//! Top: who is refused in a running service, as a table or a screen.
//!
//! ```text
//!   service --poll--> answers of GET /v1/top --Board--> table (`--once`), JSON, screen
//! ```

mod board;
mod live;
mod row;
mod screen;
mod table;
mod trend;

pub(crate) use board::{Board, TopRequest};
pub(crate) use live::live;
pub(crate) use table::table;
