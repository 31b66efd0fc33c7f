//! Store TLS: the certificates by which the shared store is reached, read again while it is in
//! use.
//!
//! ```text
//!   files --read--> same bytes? --> nothing
//!               --> good?       --> the next connection uses them; open ones go on
//!               --> bad?        --> the old ones stay, one line in the log
//! ```
//!
//! As with the certificates of the gRPC door, files are compared by their content, every few
//! seconds.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ratekeeper::Clock;
use ratekeeper_policy::{RedisSettings, StoreTls};
use ratekeeper_store::{RedisStore, RedisTls, StoreError};
use tokio::time::{MissedTickBehavior, interval};

use crate::Event;
use crate::shared::Shared;
use crate::store::tls_files;

/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(5);

/// The files, and what was in them last.
pub(crate) struct Certificates {
    files: StoreTls,
    seen: RedisTls,
}

/// Keys are nobody's business.
impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates")
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}

impl Certificates {
    /// The files of these settings, of which this has been read; none if there is none, or no
    /// server is reached by TLS.
    pub(crate) fn of(settings: &RedisSettings, seen: &RedisTls) -> Option<Self> {
        let encrypted = |url: &String| url.starts_with("rediss:") || url.starts_with("valkeys:");
        let is_used = settings.urls.iter().any(encrypted);
        (is_used && (seen.ca.is_some() || seen.identity.is_some())).then(|| Self {
            files: settings.tls.clone(),
            seen: seen.clone(),
        })
    }

    /// What is in them now, if that is something else. What was refused once is not judged
    /// again until it changes.
    fn changed(&mut self) -> Option<&RedisTls> {
        // In the middle of being replaced, maybe: the next look tells.
        let now = tls_files(&self.files).ok()?;
        if now == self.seen {
            return None;
        }
        self.seen = now;
        Some(&self.seen)
    }

    /// Looks, and lets the store have what is new; says how that went.
    fn refresh(&mut self, store: &RedisStore) -> Option<String> {
        let renewed = store.renew_tls(self.changed()?);
        Some(match renewed {
            Ok(()) => "further connections to the store are made by new certificates".to_owned(),
            Err(StoreError::Misconfigured(why)) => kept(&why),
            Err(other) => kept(&other.to_string()),
        })
    }
}

fn kept(why: &str) -> String {
    format!("the store is reached by the old certificates, the new ones are bad: {why}")
}

/// Reads them again whenever they change, until the service ends.
pub(crate) async fn keep_fresh<C: Clock + 'static>(
    shared: Arc<Shared<C>>,
    certificates: Option<Certificates>,
) {
    let mut certificates = certificates;
    let mut tick = interval(LOOK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while let Some(mut known) = certificates.take() {
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
        certificates = Some(known);
        if let Some(said) = said {
            shared.sink.emit(&Event::Notice(said));
        }
    }
}
