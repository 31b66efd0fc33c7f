//! Import: limits on descriptors as a native policy; [`crate::import`] has those of proxies.

mod limitador;
mod ratelimit;

pub use limitador::limitador;
pub use ratelimit::ratelimit;
