//! No TLS: in builds without TLS, its use is an error.

use std::future::{Ready, ready};
use std::io;

use tokio::net::TcpStream;

use crate::StoreError;
use crate::redis::config::RedisTls;

/// Settings of encrypted connections, which this build cannot make.
#[derive(Clone, Default, Debug)]
pub(crate) struct ServerTls {
    _none: (),
}

impl ServerTls {
    /// Always fails.
    pub(crate) fn new(_config: &RedisTls) -> Result<Self, StoreError> {
        let why = "TLS to the store needs the feature `redis-tls`";
        Err(StoreError::Misconfigured(why.into()))
    }

    /// Does nothing, because there is nothing to renew.
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "like tls.rs")]
    pub(crate) const fn renew(&self, _config: &RedisTls) -> Result<(), StoreError> {
        Ok(())
    }

    #[expect(clippy::unused_self, reason = "like tls.rs")]
    pub(crate) fn shake_hands(&self, _: TcpStream, _host: &str) -> Ready<io::Result<TcpStream>> {
        ready(Err(io::Error::other("TLS is not built in")))
    }
}
