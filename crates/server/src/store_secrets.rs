//! Store secrets: the passwords and certificates by which the shared store is reached, read
//! again while it is in use.
//!
//! ```text
//!   files --read--> same bytes? --> nothing
//!               --> good?       --> the next connection uses them; open ones go on
//!               --> bad?        --> the old ones stay, one line in the log
//! ```
//!
//! As with the certificates of the gRPC door, files are compared by their content, every few
//! seconds. Whether a password is good only the servers can tell: one that is not shows as a
//! store that fails, with what they say.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ratekeeper::Clock;
use ratekeeper_core::Origin;
use ratekeeper_policy::{RedisSettings, Secret};
use ratekeeper_store::{RedisConfig, RedisServers, RedisStore, RedisTls, StoreError};
use tokio::time::{MissedTickBehavior, interval};

use crate::context::ServiceContext;
use crate::redis_config::redis_config;
use crate::{Event, StoreSettings};

/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(5);

/// What names the files, and what was in them last.
pub(crate) struct StoreSecrets {
    settings: StoreSettings,
    servers: RedisServers,
    tls: RedisTls,
}

/// Secrets are nobody's business.
impl fmt::Debug for StoreSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreSecrets")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl StoreSecrets {
    /// The files of these settings, of which this has been read; none if nothing that is used
    /// is in a file.
    pub(crate) fn of(settings: &StoreSettings, read: &RedisConfig) -> Option<Self> {
        let redis = &settings.redis;
        let encrypted = |url: &String| url.starts_with("rediss:") || url.starts_with("valkeys:");
        let certificates = (read.tls.ca.is_some() || read.tls.identity.is_some())
            && redis.urls.iter().any(encrypted);
        let in_files = certificates || has_secret_files(redis);
        in_files.then(|| Self {
            settings: settings.clone(),
            servers: read.servers.clone(),
            tls: read.tls.clone(),
        })
    }

    /// Looks, and lets the store have what is new; says how that went. What was refused once is
    /// not judged again until it changes.
    fn refresh(&mut self, store: &RedisStore) -> Vec<String> {
        // In the middle of being replaced, maybe: the next look tells.
        let Ok(now) = redis_config(&self.settings, Origin::UNIX) else {
            return Vec::new();
        };
        let mut said = Vec::new();
        if now.servers != self.servers {
            let renewed = store.renew_logins(&now.servers);
            said.push(told("passwords", renewed));
            self.servers = now.servers;
        }
        if now.tls != self.tls {
            let renewed = store.renew_tls(&now.tls);
            said.push(told("certificates", renewed));
            self.tls = now.tls;
        }
        said
    }
}

fn has_secret_files(redis: &RedisSettings) -> bool {
    let sentinel = redis.sentinel.as_ref();
    let secrets = [
        redis.username.as_ref(),
        redis.password.as_ref(),
        sentinel.and_then(|sentinel| sentinel.username.as_ref()),
        sentinel.and_then(|sentinel| sentinel.password.as_ref()),
    ];
    let in_file = |secret: &Secret| matches!(secret, Secret::File(_));
    secrets.into_iter().flatten().any(in_file)
}

fn told(what: &str, renewed: Result<(), StoreError>) -> String {
    let why = match renewed {
        Ok(()) => return format!("further connections to the store are made by new {what}"),
        Err(StoreError::Misconfigured(why)) => why,
        Err(other) => other.to_string(),
    };
    format!("the store is reached by the old {what}, the new ones are bad: {why}")
}

/// Reads them again whenever they change, until the service ends.
pub(crate) async fn keep_fresh<C: Clock + 'static>(
    shared: Arc<ServiceContext<C>>,
    secrets: Option<StoreSecrets>,
) {
    let mut secrets = secrets;
    let mut tick = interval(LOOK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while let Some(mut known) = secrets.take() {
        tick.tick().await;
        let of_store = Arc::clone(&shared);
        let look = tokio::task::spawn_blocking(move || {
            let store = of_store.keeper.store().shared()?;
            let said = known.refresh(store.main());
            Some((known, said))
        });
        let Ok(Some((known, said))) = look.await else {
            return;
        };
        secrets = Some(known);
        for notice in said {
            shared.sink.emit(&Event::Notice(notice));
        }
    }
}
