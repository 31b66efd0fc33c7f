//! Open: a keeper from the text of a policy, with the policy's store.
//!
//! ```text
//!   [store.memory]   counters in this process
//!   [store.redis]    counters in Redis; while it fails, what each limit chose
//! ```

use std::path::Path;

use ratekeeper_store::{AnyStore, Fallback, RedisStore, StoreError};

use super::policy_text::{PolicyText, memory_of};
use crate::{Clock, Keeper, SystemClock, redis_config};

/// Why a keeper cannot be opened.
///
/// ```
/// use ratekeeper::{Keeper, OpenError};
/// let Err(OpenError::Invalid(findings)) = Keeper::open("version = 1\n[[limit]]\nbrust = 40") else {
///     panic!("`brust` is no field")
/// };
/// assert!(findings.contains("--> policy:3:1"), "{findings}");
/// ```
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The file cannot be read.
    #[error("the policy `{path}` cannot be read: {reason}")]
    Unreadable {
        /// Its path.
        path: String,
        /// The error of the system.
        reason: String,
    },
    /// The policy has errors: all are listed, each with its line and a hint.
    #[error("{}", .0.trim_end())]
    Invalid(String),
    /// Its store is misconfigured: a password, a certificate, an address.
    #[error(transparent)]
    Store(StoreError),
}

impl Keeper<AnyStore, SystemClock> {
    /// Creates a keeper of the policy in `text`, with its counters in the policy's store: in the
    /// memory of this process, or with `[store.redis]` in Redis or Valkey, shared by all processes.
    /// Redis is first contacted by the first request, inside a Tokio runtime; while it does not
    /// answer, each limit follows its `on_store_error`, and requests find out when it is back.
    ///
    /// The text's settings of the service (its addresses, its files for Envoy) have no effect here.
    ///
    /// ```
    /// use ratekeeper::policy::Facts;
    /// use ratekeeper::{Keeper, Scope};
    ///
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let keeper = Keeper::open(
    ///     r#"
    ///     version = 1
    ///     [store.redis]
    ///     url = "redis://127.0.0.1:1"    # nothing listens there: this process decides alone
    ///     [[limit]]
    ///     name  = "all"
    ///     key   = ["all"]
    ///     limit = "2/1h"
    ///     "#,
    /// )?;
    /// for expected in [true, true, false] {
    ///     let answer = keeper.check(&Facts::default(), Scope::All).await.unwrap();
    ///     assert_eq!(answer.allowed(), expected);
    /// }
    /// # Ok::<(), ratekeeper::OpenError>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`OpenError`], for errors in the text, and for an invalid password, certificate or address.
    /// An unreachable Redis is not an error.
    pub fn open(text: &str) -> Result<Self, OpenError> {
        Self::open_with_clock(text, SystemClock::new())
    }

    /// Like [`open`](Self::open), with the text of a file; it is read once. Its paths are relative
    /// to the file.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open), and an unreadable file.
    pub fn open_file(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        let text = PolicyText::read(path.as_ref());
        let text = text.map_err(|error| OpenError::Unreadable {
            path: path.as_ref().display().to_string(),
            reason: error.to_string(),
        })?;
        made(&text, SystemClock::new())
    }
}

impl<C: Clock> Keeper<AnyStore, C> {
    /// Like [`open`](Keeper::open), on any clock.
    ///
    /// # Errors
    /// The errors of [`open`](Keeper::open).
    pub fn open_with_clock(text: &str, clock: C) -> Result<Self, OpenError> {
        made(&PolicyText::new(text), clock)
    }
}

fn made<C: Clock>(text: &PolicyText, clock: C) -> Result<Keeper<AnyStore, C>, OpenError> {
    let policy = text.load(&clock).map_err(OpenError::Invalid)?;
    let memory = memory_of(&policy);
    let store = match &policy.settings.redis {
        None => AnyStore::Memory(memory),
        Some(redis) => {
            let config = redis_config(&redis.clone().at_home(&text.home), None);
            let main = config.and_then(RedisStore::new).map_err(OpenError::Store)?;
            AnyStore::Redis(Box::new(Fallback::new(main, memory, redis.nodes)))
        }
    };
    Ok(Keeper::new(policy, store, clock))
}
