//! No TLS: in builds without TLS, its use is an error.

use std::future::{Ready, ready};
use std::io;

use tokio::net::TcpStream;

use super::config::RedisTls;
use crate::StoreError;

/// Settings of encrypted connections, which this build cannot make.
#[derive(Clone, Default, Debug)]
pub(super) struct Tls {
    _none: (),
}

impl Tls {
    /// Always fails.
    pub(super) fn new(_config: &RedisTls) -> Result<Self, StoreError> {
        let why = "TLS to the store needs the feature `redis-tls`";
        Err(StoreError::Misconfigured(why.into()))
    }

    /// Does nothing, because there is nothing to renew.
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "like tls.rs")]
    pub(super) const fn renew(&self, _config: &RedisTls) -> Result<(), StoreError> {
        Ok(())
    }

    #[expect(clippy::unused_self, reason = "like tls.rs")]
    pub(super) fn shake_hands(&self, _: TcpStream, _host: &str) -> Ready<io::Result<TcpStream>> {
        ready(Err(io::Error::other("TLS is not built in")))
    }
}
