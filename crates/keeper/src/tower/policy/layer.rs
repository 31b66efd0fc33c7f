//! Layer: the limits of a policy in front of a service, also from a text in one call.

use std::net::SocketAddr;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use ratekeeper_store::{Store, StoreError};

use super::by_policy::ByPolicy;
use super::inspect::InspectLayer;
use crate::engine::policy_text::{PolicyText, memory_of};
use crate::tower::RateLimitLayer;
use crate::tower::head::RequestHead;
use crate::tower::key_source::peer::PeerSource;
use crate::{Keeper, SystemClock, Timer};

impl<S: Store + 'static, C: Timer + 'static> RateLimitLayer<ByPolicy<S, C>> {
    /// All limits of a policy that match a request, all together or none. The keeper may be shared
    /// with other front ends; [`policy_text`](RateLimitLayer::policy_text) makes one.
    ///
    /// Limits of concurrency lend for the life of the response body, and are renewed meanwhile; a
    /// limit with a `queue` holds requests back.
    pub fn policy(keeper: impl Into<Arc<Keeper<S, C>>>) -> Self {
        Self::made(ByPolicy::new(keeper.into()))
    }

    /// Sets the extension of a request that is the address of its peer: axum's
    /// `ConnectInfo<SocketAddr>`, with `into_make_service_with_connect_info`. By default it is
    /// [`Peer`](crate::tower::Peer) or a `SocketAddr`.
    ///
    /// A limit that counts a request by address refuses it with 500 if it has none, unless
    /// `missing_key` is set in the policy.
    #[must_use]
    pub fn peer_in<T>(mut self) -> Self
    where
        T: Deref<Target = SocketAddr> + Send + Sync + 'static,
    {
        self.gate.peer = PeerSource::of::<T>();
        self
    }

    /// Like [`peer_in`](Self::peer_in), for an extension with the address inside: tonic's
    /// `.peer_from(TcpConnectInfo::remote_addr)`.
    #[must_use]
    pub fn peer_from<T: Send + Sync + 'static>(
        mut self,
        address: impl Fn(&T) -> Option<SocketAddr> + Send + Sync + 'static,
    ) -> Self {
        self.gate.peer = PeerSource::from(address);
        self
    }

    /// Sets the application's attributes of a request, for keys and matches by `attr:NAME`: the
    /// user that an outer layer has found, a plan.
    #[must_use]
    pub fn attributes(
        mut self,
        attributes: impl Fn(RequestHead<'_>) -> Vec<(&'static str, String)> + Send + Sync + 'static,
    ) -> Self {
        self.gate.attributes = Some(Arc::new(attributes));
        self
    }

    /// Returns a layer to be put around this one, for limits that count by values of the body:
    /// `form:NAME`, `json:/POINTER`. It reads at most 64 KiB of the body of a request, if a limit that
    /// applies needs it, and hands on the same content. Without it, such values are missing, unless
    /// [`attributes`](Self::attributes) has them (`"form:user"`).
    ///
    /// Call it last: it uses the layer as it is now, so that settings made afterwards (the peer, the
    /// attributes) do not reach it.
    ///
    /// The time that a client takes is bounded by the time limits of the server, as for any service
    /// that reads bodies. A body that breaks off counts as one that cannot be read, and the service
    /// inside receives the error.
    ///
    /// ```
    /// use ratekeeper::tower::RateLimitLayer;
    /// use tower_layer::{Layer, Stack};
    ///
    /// # fn my_service() {}
    /// let limits = RateLimitLayer::policy_text(
    ///     r#"
    ///     version = 1
    ///     [[limit]]
    ///     name  = "logins"
    ///     key   = ["form:username"]
    ///     limit = "10/1h"
    ///     missing_key = "deny"
    ///     "#,
    /// )?;
    /// let bodies = limits.inspect_bodies().max_inspected_body(16 << 10);
    /// let service = Stack::new(limits, bodies).layer(my_service());
    /// # Ok::<(), ratekeeper::tower::PolicyError>(())
    /// ```
    pub fn inspect_bodies(&self) -> InspectLayer<S, C> {
        InspectLayer::new(self.gate.clone())
    }

    /// Calls `callback` with every error of the store; the `on_store_error` of each limit decides about
    /// the request.
    #[must_use]
    pub fn on_store_error(
        mut self,
        callback: impl Fn(&StoreError) + Send + Sync + 'static,
    ) -> Self {
        self.gate.on_store_error = Some(Arc::new(callback));
        self
    }

    /// Returns the keeper.
    pub fn keeper(&self) -> &Arc<Keeper<S, C>> {
        &self.gate.keeper
    }
}

/// Why a text is not a policy for a layer.
///
/// ```
/// use ratekeeper::tower::{PolicyError, RateLimitLayer};
/// let Err(PolicyError::Invalid(findings)) = RateLimitLayer::policy_text("version = 2") else {
///     panic!("there is no version 2")
/// };
/// assert!(findings.contains("--> policy:1:"), "{findings}");
/// ```
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// The file cannot be read.
    #[error("the policy `{path}` cannot be read: {reason}")]
    Unreadable {
        /// Its path.
        path: String,
        /// The error of the system.
        reason: String,
    },
    /// It has errors: all are listed, each with its line and a hint.
    #[error("{}", .0.trim_end())]
    Invalid(String),
    /// It keeps its counters in a shared store, which a layer does not open.
    #[error(
        "the policy keeps its counters in `[store.redis]`, which a layer does not open; \
         hint: open it by `Keeper::open` (feature `redis`), and hand that to \
         `RateLimitLayer::policy`"
    )]
    Shared,
}

impl RateLimitLayer<ByPolicy> {
    /// The limits of a policy, counted in memory. The text's settings of the service (its
    /// addresses, its files for Envoy) do not apply to a layer, and have no effect.
    ///
    /// ```
    /// use ratekeeper::tower::RateLimitLayer;
    ///
    /// let layer = RateLimitLayer::policy_text(
    ///     r#"
    ///     version = 1
    ///     [[limit]]
    ///     name  = "per-ip"
    ///     key   = ["ip"]
    ///     limit = "100/1m"
    ///     "#,
    /// )?;
    /// assert_eq!(layer.keeper().policy().rules.len(), 1);
    ///
    /// let error = RateLimitLayer::policy_text("version = 2").unwrap_err();
    /// assert!(error.to_string().contains("RK0110"), "{error}");
    /// # Ok::<(), ratekeeper::tower::PolicyError>(())
    /// ```
    ///
    /// # Errors
    /// [`PolicyError`], for errors in the text and for settings that a layer does not support.
    pub fn policy_text(text: &str) -> Result<Self, PolicyError> {
        open(&PolicyText::new(text))
    }

    /// Like [`policy_text`](Self::policy_text), with the text of a file. It is read once; to change
    /// the policy, [`install`](Keeper::install) another.
    ///
    /// # Errors
    /// The errors of [`policy_text`](Self::policy_text), and an unreadable file.
    pub fn policy_file(path: impl AsRef<Path>) -> Result<Self, PolicyError> {
        let text = PolicyText::read(path.as_ref());
        let text = text.map_err(|error| PolicyError::Unreadable {
            path: path.as_ref().display().to_string(),
            reason: error.to_string(),
        })?;
        open(&text)
    }
}

fn open(text: &PolicyText) -> Result<RateLimitLayer<ByPolicy>, PolicyError> {
    let clock = SystemClock::new();
    let policy = text.load(&clock).map_err(PolicyError::Invalid)?;
    if policy.settings.redis.is_some() {
        return Err(PolicyError::Shared);
    }
    let store = memory_of(&policy);
    Ok(RateLimitLayer::policy(Keeper::new(policy, store, clock)))
}
