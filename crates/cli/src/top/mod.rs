//! Top: who is refused, in one or several running services, as a table or a screen.
//!
//! ```text
//!   servers --poll--> answers of GET /v1/top --Board--> table (`--once`), JSON, screen
//! ```

mod act;
mod board;
mod live;
mod poller;
mod row;
mod screen;
mod table;
mod times;
mod trend;

pub(crate) use board::{Board, TopRequest};
pub(crate) use live::live;
pub(crate) use table::table;
