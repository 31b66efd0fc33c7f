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
//! seconds. Only the servers can judge a password: a wrong one shows as a store that fails,
//! with their answer.

use std::sync::Arc;
use std::time::Duration;

use ratekeeper_core::Origin;
use ratekeeper_policy::{RedisSettings, Secret};
use ratekeeper_store::{RedisConfig, RedisServers, RedisStore, RedisTls, StoreError};
use tokio::time::{MissedTickBehavior, interval};

use super::redis_config;
use crate::StoreSettings;
use crate::context::ServiceContext;

/// How often the files are checked.
const LOOK: Duration = Duration::from_secs(5);

/// The settings that name the files, and the last contents of the files.
#[derive(derive_more::Debug)]
pub(crate) struct StoreSecrets {
    settings: StoreSettings,
    #[debug(skip)]
    servers: RedisServers,
    #[debug(skip)]
    tls: RedisTls,
}

impl StoreSecrets {
    /// Returns the secrets in the files of these settings, last read as `read`; `None` if no secret
    /// or certificate in use is in a file.
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

    /// Reads the files, gives new contents to the store, and returns a line about each. Refused
    /// contents are not judged again until they change.
    fn refresh(&mut self, store: &RedisStore) -> Vec<String> {
        // The files may be in the middle of being replaced: the next look decides.
        let Ok(now) = redis_config(&self.settings, Origin::UNIX) else {
            return Vec::new();
        };
        let mut notices = Vec::new();
        if now.servers != self.servers {
            let renewed = store.renew_logins(&now.servers);
            notices.push(notice_of("passwords", renewed));
            self.servers = now.servers;
        }
        if now.tls != self.tls {
            let renewed = store.renew_tls(&now.tls);
            notices.push(notice_of("certificates", renewed));
            self.tls = now.tls;
        }
        notices
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

fn notice_of(what: &str, renewed: Result<(), StoreError>) -> String {
    let why = match renewed {
        Ok(()) => return format!("new connections to the store use the new {what}"),
        Err(StoreError::Misconfigured(why)) => why,
        Err(other) => other.to_string(),
    };
    format!("the store is still reached by the old {what}; the new ones are invalid: {why}")
}

/// Reads the secrets again whenever they change, until the service ends.
pub(crate) async fn keep_fresh(shared: Arc<ServiceContext>, secrets: Option<StoreSecrets>) {
    let mut secrets = secrets;
    let mut tick = interval(LOOK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while let Some(mut known) = secrets.take() {
        tick.tick().await;
        let look = shared.apart(move |shared| {
            let store = shared.keeper.store().shared()?;
            let notices = known.refresh(store.main());
            Some((known, notices))
        });
        let Some(Some((known, notices))) = look.await else {
            return;
        };
        secrets = Some(known);
        shared.sink.notices(notices);
    }
}
