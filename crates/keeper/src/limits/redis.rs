//! Redis: limits that any number of processes hold together, in one call.

use std::num::NonZeroU32;

use ratekeeper_store::{Fallback, RedisConfig, RedisStore, StoreError};

use super::Limits;
use crate::SystemClock;

/// A Redis or Valkey server, and the memory of this process while it is away.
///
/// ```
/// use ratekeeper::{Limits, NamedLimit, SharedStore};
///
/// struct Service {
///     logins: NamedLimit<SharedStore>,
/// }
/// let limits = Limits::redis("redis://127.0.0.1:6379")?; // connects when it is first used
/// let service = Service { logins: limits.token_bucket("logins", "5/1m".parse()?)? };
/// assert_eq!(&**service.logins.name(), "logins");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type SharedStore = Fallback<RedisStore>;

impl Limits<SharedStore> {
    /// No limits yet, counted in the Redis or Valkey server at `url`, exactly, by any number of
    /// processes together: `redis://HOST:PORT`, `rediss://HOST:PORT` for TLS (feature `redis-tls`),
    /// `unix:///PATH`. It connects when it is first used, and needs a Tokio runtime.
    ///
    /// Nothing has to be kept running: requests detect when the server is away and when it is
    /// back. Meanwhile, and for a call that takes longer than 100 ms, each limit decides as
    /// [`NamedLimit::on_outage`](super::NamedLimit::on_outage) says: by default this process holds
    /// the whole limit alone, and its charges are debited once the server is back. If several
    /// processes must admit no more than one limit meanwhile, set their number by
    /// [`Limits::redis_for`].
    ///
    /// ```no_run
    /// # async fn ask() -> Result<(), Box<dyn std::error::Error>> {
    /// use ratekeeper::Limits;
    /// use ratekeeper::core::Quota;
    ///
    /// let limits = Limits::redis("redis://127.0.0.1:6379")?;
    /// let logins = limits.token_bucket("logins", Quota::per_minute(5))?;
    /// logins.check("ann").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`] for an invalid URL. An unreachable server is no error.
    pub fn redis(url: &str) -> Result<Self, StoreError> {
        Self::redis_for(NonZeroU32::MIN, RedisConfig::new(url))
    }

    /// Like [`redis`](Self::redis), for that many processes, with any configuration: a cluster,
    /// sentinels, a prefix, a deadline. While the server is away, each process holds its share of a
    /// limit, so that all together admit no more than the limit.
    ///
    /// ```no_run
    /// use ratekeeper::Limits;
    /// use ratekeeper::store::RedisConfig;
    /// let mut config = RedisConfig::new("redis://127.0.0.1:6379");
    /// config.prefix = "checkout".into();
    /// let limits = Limits::redis_for(6.try_into()?, config)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`] for an invalid URL, certificate or prefix.
    pub fn redis_for(processes: NonZeroU32, config: RedisConfig) -> Result<Self, StoreError> {
        let store = SharedStore::shared_by(processes, config)?;
        Ok(Self::new(store, SystemClock::new()))
    }
}
