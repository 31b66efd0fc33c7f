//! Serve: bytes of connections, without policy: listeners, their connections, TLS, frames, workers,
//! and the writer of the log.

pub(crate) mod accept_queue;
pub(crate) mod connection_state;
pub(crate) mod connections;
pub(crate) mod door_address;
pub(crate) mod grpc;
pub(crate) mod http_receiver;
pub(crate) mod interim;
pub(crate) mod listener;
pub(crate) mod log_writer;
pub(crate) mod proxy_header;
pub(crate) mod pulse;
pub(crate) mod request_body;
pub(crate) mod tls;
pub(crate) mod watched;
pub(crate) mod within;
mod woken;
pub(crate) mod workers;
