//! Layer: the limits in front of a service, and their settings.

use std::sync::Arc;

use ratekeeper_core::{AnyAlgorithm, Mode, Nanos, Permits};
use ratekeeper_policy::{Body, HeaderStyle};
use tower_layer::Layer;

use super::denial::Denial;
use super::described::Described;
use super::gate::Gate;
use super::gate::counted::Counted;
use super::gate::keyed::Keyed;
use super::gate::single::Single;
use super::gate::together::Together;
use super::head::RequestHead;
use super::key_source::KeySource;
use super::ledger::Ledger;
use super::service::{LayerContext, RateLimited};
use super::settle::{Counts, GateSettings};
use super::shown::Limited;
use crate::limiter::LimiterAlgorithm;
use crate::{KeyedLimiter, Limiter, Timer};

/// Puts services behind limits; see the [module](crate::tower).
///
/// The layer, its clones, and all services made by them share the same counts: a server may
/// clone a service for each connection, and a router wrap each of its routes.
///
/// ```
/// use ratekeeper::Limiter;
/// use ratekeeper::tower::RateLimitLayer;
///
/// let layer = RateLimitLayer::new(Limiter::per("100/1s")?).named("everybody");
/// # Ok::<(), ratekeeper::core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct RateLimitLayer<G> {
    pub(super) gate: G,
    settings: GateSettings,
}

impl<A, C> RateLimitLayer<Single<A, C>>
where
    A: LimiterAlgorithm<State: Send> + Clone + Into<AnyAlgorithm> + 'static,
    C: Timer + 'static,
{
    /// One limit for all requests. The program may keep the limiter in an `Arc`, to read and change
    /// it.
    ///
    /// A limit of concurrency lends for the life of the response body, and for its lease at most:
    /// [`in_flight`](RateLimitLayer::in_flight) has no lease.
    pub fn new(limiter: impl Into<Arc<Limiter<A, C>>>) -> Self {
        let limiter = limiter.into();
        let algorithm = limiter.show(|algorithm| algorithm.clone().into());
        let gate = Single {
            described: Described::new("default", Limited::By(algorithm)),
            limiter,
        };
        Self::made(gate)
    }
}

impl<K, A, C> RateLimitLayer<Keyed<K, A, C>>
where
    K: KeySource,
    A: Into<AnyAlgorithm> + 'static,
    C: Timer + 'static,
{
    /// A limit for each key that `source` finds: a user, a token, an address. See [`KeySource`] for
    /// the ready ones, and for requests without a key.
    ///
    /// Under a limit of concurrency, each key has that number of requests at work at once, to the
    /// end of the response bodies; leases are renewed meanwhile.
    ///
    /// ```
    /// use ratekeeper::KeyedLimiter;
    /// use ratekeeper::tower::{RateLimitLayer, RequestHead, by_header};
    /// use http::HeaderName;
    ///
    /// let token = by_header(HeaderName::from_static("x-api-key"));
    /// let layer = RateLimitLayer::keyed(KeyedLimiter::per("100/1m")?, token).named("per-token");
    ///
    /// // Requests for which a function returns `None` share one count.
    /// let host = |head: RequestHead<'_>| Some(head.uri.host()?.to_owned());
    /// let layer = RateLimitLayer::keyed(KeyedLimiter::per("100/1m")?, host).named("per-host");
    /// # Ok::<(), ratekeeper::core::Error>(())
    /// ```
    pub fn keyed(limiter: impl Into<Arc<KeyedLimiter<A, C>>>, source: K) -> Self {
        let limiter = limiter.into();
        let gate = Keyed {
            described: Described::new("default", Limited::By(limiter.algorithm())),
            ledger: Ledger::new(Arc::clone(&limiter)),
            limiter,
            source,
        };
        Self::made(gate)
    }
}

impl<G> RateLimitLayer<G> {
    pub(super) fn made(gate: G) -> Self {
        let settings = GateSettings::default();
        Self { gate, settings }
    }

    /// Refuses no request and lets none wait: a request that would be refused passes, with
    /// `x-ratekeeper-shadow` in its response, and is counted. A line (`queue` of a layer) counts
    /// requests that would wait as refused; the `queue` of a policy's limit has room for them as
    /// usual. To try single limits of a policy, write `mode = "shadow"` there.
    #[must_use]
    pub fn shadow(mut self) -> Self {
        self.settings.mode = Mode::Shadow;
        self
    }

    /// Calls `callback` for each request that passes although a limit in shadow mode, or in a
    /// layer in [`shadow`](Self::shadow) mode, denies it.
    #[must_use]
    pub fn on_shadow(mut self, callback: impl Fn(&Denial) + Send + Sync + 'static) -> Self {
        self.settings.on_shadow = Some(Arc::new(callback));
        self
    }

    /// Calls `callback` for each request that is refused.
    #[must_use]
    pub fn on_refused(mut self, callback: impl Fn(&Denial) + Send + Sync + 'static) -> Self {
        self.settings.on_refused = Some(Arc::new(callback));
        self
    }

    /// Sets the cost of a request, 1 permit by default; in a policy, under limits without a cost of
    /// their own.
    #[must_use]
    pub fn cost<N: Into<Permits>>(
        mut self,
        cost: impl Fn(RequestHead<'_>) -> N + Send + Sync + 'static,
    ) -> Self {
        self.settings.cost = Some(Arc::new(move |head: RequestHead<'_>| cost(head).into()));
        self
    }

    /// Returns the numbers of requests decided so far, by all services of this layer and its
    /// clones.
    pub fn counts(&self) -> Counts {
        self.settings.counts()
    }
}

/// The queue and the appearance of a limit without a policy.
impl<G: OneLimit> RateLimitLayer<G> {
    /// Lets requests that would be refused wait for at most `longest`, in order of arrival; under a
    /// limit for each key, in the order of that key. A request that cannot be served in time is
    /// refused at once, and so is one that finds the maximum number of waiters: choose that number,
    /// because each waiter holds a connection. A client that goes away leaves the line.
    ///
    /// The maximum is the limiter's ([`with_most_waiting`](Limiter::with_most_waiting)), or
    /// that of [`most_waiting`](Self::most_waiting) for concurrent requests.
    ///
    /// Where permits come back when work is done, it is not known when a turn comes, so a waiter is
    /// refused only when `longest` has passed. Keep it short: a queue fills gaps, and makes nothing
    /// faster. Under a limit that counts denials, or bans, a request that must wait may count as a
    /// denial. The delay of a leaky queue is served out, whatever `longest` is.
    ///
    /// ```
    /// use ratekeeper::Limiter;
    /// use ratekeeper::tower::RateLimitLayer;
    /// use std::time::Duration;
    ///
    /// let limiter = Limiter::per("100/1s")?.with_most_waiting(50);
    /// let layer = RateLimitLayer::new(limiter).queue(Duration::from_millis(500));
    /// # Ok::<(), ratekeeper::core::Error>(())
    /// ```
    #[must_use]
    pub fn queue(mut self, longest: impl Into<Nanos>) -> Self {
        self.settings.patience = longest.into();
        self
    }

    /// Sets the name that clients see: up to 40 lower-case letters, digits and `-`; other
    /// characters become `-`.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.gate.described().set_name(name);
        self
    }
}

/// The appearance of limits without a policy.
impl<G: WithoutPolicy> RateLimitLayer<G> {
    /// Sets status and body of a refusal, by default 429 with a problem document (503 for an
    /// [adaptive](RateLimitLayer::adaptive) limit); a status that is no refusal (400 to 599)
    /// becomes 429. gRPC has its own form: `UNAVAILABLE` for 503, else `RESOURCE_EXHAUSTED`.
    #[must_use]
    pub fn refusal(mut self, status: u16, body: Body) -> Self {
        let all = self.gate.all_described();
        let bodies = std::iter::repeat_n(body, all.len());
        for (described, body) in all.iter_mut().zip(bodies) {
            described.set_refusal(status, body);
        }
        self
    }

    /// Sets which header fields show the limit to clients.
    #[must_use]
    pub fn headers(mut self, style: HeaderStyle) -> Self {
        for described in self.gate.all_described() {
            described.set_headers(style);
        }
        self
    }
}

impl<S, G: Gate> Layer<S> for RateLimitLayer<G> {
    type Service = RateLimited<S, G>;

    fn layer(&self, inner: S) -> RateLimited<S, G> {
        let mut settings = self.settings.clone();
        if settings.mode == Mode::Shadow {
            settings.patience = Nanos::ZERO;
        }
        let gate = self.gate.clone();
        RateLimited::new(inner, LayerContext { gate, settings })
    }
}

use without_policy::{OneLimit, WithoutPolicy};

mod without_policy {
    use std::slice;

    use super::{Counted, Described, Keyed, LimiterAlgorithm, Single, Together};

    /// Gates of limits without a policy.
    #[expect(unnameable_types, reason = "gates are made in this module only")]
    pub trait WithoutPolicy {
        /// Returns the appearance of each limit.
        fn all_described(&mut self) -> &mut [Described];
    }

    /// Gates of one limit without a policy.
    #[expect(unnameable_types, reason = "gates are made in this module only")]
    pub trait OneLimit {
        /// Returns its appearance.
        fn described(&mut self) -> &mut Described;
    }

    impl<G: OneLimit> WithoutPolicy for G {
        fn all_described(&mut self) -> &mut [Described] {
            slice::from_mut(self.described())
        }
    }

    impl<S, C> WithoutPolicy for Together<S, C> {
        fn all_described(&mut self) -> &mut [Described] {
            &mut self.described
        }
    }

    impl<A: LimiterAlgorithm, C> OneLimit for Single<A, C> {
        fn described(&mut self) -> &mut Described {
            &mut self.described
        }
    }

    impl<K, A, C> OneLimit for Keyed<K, A, C> {
        fn described(&mut self) -> &mut Described {
            &mut self.described
        }
    }

    impl<P> OneLimit for Counted<P> {
        fn described(&mut self) -> &mut Described {
            &mut self.described
        }
    }
}
