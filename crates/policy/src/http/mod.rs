//! What a server of HTTP needs without a policy: the address of a client, one spelling of a path,
//! and the form of a refusal.

pub(crate) mod client_ip;
pub(crate) mod forwarded;
pub(crate) mod header_style;
pub(crate) mod network;
pub(crate) mod octets;
pub(crate) mod path;
pub(crate) mod refusal;
pub(crate) mod unit;
pub(crate) mod value_error;
