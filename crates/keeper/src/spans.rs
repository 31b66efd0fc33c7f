//! Spans of the crate `tracing`, around what takes time: waiting in a queue, a call of a store, and
//! a request that a layer holds back.
//!
//! ```text
//!   request     a layer waits for a queue or a store     outcome, delay_ms
//!     '-- wait      acquire: until the caller's turn     cost, outcome, waited_ms
//!     '-- store     one call of a `Traced` store         act, limits, outcome
//! ```
//!
//! They have the level `DEBUG` and the target `ratekeeper`, and hold no key. A decision in memory,
//! which neither waits nor calls a server, has no span. A span without an outcome belongs to a
//! caller that gave up.

use std::future::Future;
use std::time::Duration;

use ratekeeper_core::{Limit, Origin, Time};
use ratekeeper_store::{ActAnswer as _, ActItem as _, Store, StoreAct, StoreError};
use tracing::field::Empty;
use tracing::{Instrument as _, Span, debug_span};

use crate::WaitError;
use crate::observe::name_of;

/// A store, each call of which has a span of `tracing` with the name `store`: its act, the names
/// of the limits, and its outcome (`allowed`, `refused`, `done`, `failed`).
///
/// ```
/// use ratekeeper::store::{MemoryConfig, MemoryStore};
/// use ratekeeper::{Limits, SystemClock, Traced, at_once};
/// // In place of memory a store behind a network: its calls are worth a span.
/// let store = Traced::new(MemoryStore::new(MemoryConfig::default()));
/// let limits = Limits::new(store, SystemClock::new());
/// let logins = limits.token_bucket("logins", "5/1m".parse()?)?;
/// assert!(at_once(logins.check("ann")).is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Traced<S>(S);

impl<S: Store> Traced<S> {
    /// The same store, with spans.
    pub const fn new(store: S) -> Self {
        Self(store)
    }

    /// Returns the store.
    pub const fn store(&self) -> &S {
        &self.0
    }
}

impl<S: Store> Store for Traced<S> {
    fn answers_at_once(&self) -> bool {
        self.0.answers_at_once()
    }

    fn set_origin(&self, origin: Origin) {
        self.0.set_origin(origin);
    }

    fn adopt<'l>(&self, limits: &(impl Iterator<Item = &'l Limit> + Clone), now: Time) {
        self.0.adopt(limits, now);
    }

    async fn settle<A: StoreAct>(
        &self,
        act: A,
        items: &[A::Item<'_>],
        now: Time,
    ) -> Result<A::Answer, StoreError> {
        let span = debug_span!(
            target: "ratekeeper",
            "store",
            act = act.kind().name(),
            limits = Empty,
            outcome = Empty
        );
        if span.is_disabled() {
            return self.0.settle(act, items, now).await;
        }
        let names: Vec<_> = items
            .iter()
            .map(|item| name_of(&item.charge()).to_owned())
            .collect();
        span.record("limits", names.join(" "));
        let settling = self.0.settle(act, items, now).instrument(span.clone());
        let answer = settling.await;
        let outcome = match &answer {
            Err(_) => "failed",
            Ok(answer) => match answer.decisions() {
                None => "done",
                Some(decisions) if decisions.admitted => "allowed",
                Some(_) => "refused",
            },
        };
        span.record("outcome", outcome);
        answer
    }
}

/// The span of a caller that waits for `cost` permits.
pub(crate) fn wait_span(cost: u64) -> Span {
    debug_span!(target: "ratekeeper", "wait", cost, outcome = Empty, waited_ms = Empty)
}

/// Records the end of waiting.
pub(crate) fn waited(span: &Span, result: &Result<Option<Duration>, WaitError>) {
    let outcome = match result {
        Ok(Some(waited)) => {
            span.record("waited_ms", millis(*waited));
            "served"
        }
        Ok(None) => "too-late",
        Err(_) => "useless",
    };
    span.record("outcome", outcome);
}

/// Waits inside a span.
pub(crate) async fn waiting(
    cost: u64,
    wait: impl Future<Output = Result<Option<Duration>, WaitError>>,
) -> Result<Option<Duration>, WaitError> {
    let span = wait_span(cost);
    let result = wait.instrument(span.clone()).await;
    waited(&span, &result);
    result
}

/// The span of a request that a layer cannot answer at once.
#[cfg(feature = "tower")]
pub(crate) fn request_span() -> Span {
    debug_span!(target: "ratekeeper", "request", outcome = Empty, delay_ms = Empty)
}

/// Returns milliseconds, rounded down.
pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(feature = "tokio")]
#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};
    use std::task::{Context, Waker};

    use ratekeeper_core::{Gcra, Nanos, Quota};
    use ratekeeper_store::{MemoryConfig, MemoryStore};
    use tracing_subscriber::fmt::format::FmtSpan;

    use super::*;
    use crate::{KeyedLimiter, Limiter, Limits, ManualClock, at_once};

    /// A log in memory.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Returns the spans that `act` closes, with their fields.
    fn spans(level: tracing::Level, act: impl FnOnce()) -> Vec<String> {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_writer(move || writer.clone())
            .with_span_events(FmtSpan::CLOSE)
            .without_time()
            .with_ansi(false)
            .finish();
        tracing::subscriber::with_default(subscriber, act);
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        let lines = text.lines().map(|line| {
            let (span, _) = line.split_once(": ratekeeper: close").unwrap_or((line, ""));
            span.trim().to_owned()
        });
        lines.collect()
    }

    fn limiter() -> Limiter<Gcra, Arc<ManualClock>> {
        Limiter::with_clock(Gcra::spacing(Nanos::SECOND).unwrap(), Arc::default())
    }

    #[test]
    fn a_wait_has_a_span_and_a_call_that_is_served_at_once_has_none() {
        let limiter = limiter();
        let waits = || {
            let mut context = Context::from_waker(Waker::noop());
            assert!(limiter.check().is_ok());
            let mut waiter = std::pin::pin!(limiter.acquire());
            assert!(waiter.as_mut().poll(&mut context).is_pending());
            limiter.clock().advance(Nanos::SECOND);
            assert!(waiter.poll(&mut context).is_ready());
            limiter.acquire_blocking().unwrap();
            let late = limiter.try_acquire(1, Duration::from_millis(1));
            assert!(std::pin::pin!(late).poll(&mut context).is_ready());
            limiter.clock().advance(Nanos::SECOND);
            let at_once = limiter.acquire();
            assert!(std::pin::pin!(at_once).poll(&mut context).is_ready());
            let given_up = Box::pin(limiter.acquire_n(1));
            let mut given_up = given_up;
            assert!(given_up.as_mut().poll(&mut context).is_pending());
        };
        let found = spans(tracing::Level::DEBUG, waits);
        assert_eq!(
            found,
            [
                r#"DEBUG wait{cost=1 waited_ms=1000 outcome="served"}"#,
                r#"DEBUG wait{cost=1 waited_ms=1000 outcome="served"}"#,
                r#"DEBUG wait{cost=1 outcome="too-late"}"#,
                "DEBUG wait{cost=1}",
            ]
        );
    }

    #[test]
    fn a_key_that_waits_is_in_no_span() {
        let memory = MemoryConfig::default();
        let bucket = Gcra::spacing(Nanos::SECOND).unwrap();
        let limiter = KeyedLimiter::with_clock(bucket, memory, Arc::new(ManualClock::default()));
        let found = spans(tracing::Level::TRACE, || {
            assert!(limiter.check("ann").is_ok());
            limiter.key("ann").acquire_blocking().unwrap();
        });
        assert_eq!(
            found,
            [r#"DEBUG wait{cost=1 waited_ms=1000 outcome="served"}"#]
        );
    }

    #[test]
    fn a_call_of_a_store_has_a_span_if_the_level_is_on() {
        let ask = || {
            let store = Traced::new(MemoryStore::new(MemoryConfig::default()));
            let limits = Limits::new(store, ManualClock::default());
            let logins = limits.token_bucket("logins", Quota::per_hour(1)).unwrap();
            let mails = limits.token_bucket("mails", Quota::per_hour(9)).unwrap();
            let grant = at_once(limits.check(&[logins.of("ann"), mails.of("ann")])).unwrap();
            assert!(at_once(logins.check("ann")).is_err());
            at_once(limits.settle(grant.used(&mails, 2))).unwrap();
        };
        assert_eq!(
            spans(tracing::Level::DEBUG, ask),
            [
                r#"DEBUG store{act="decide" limits="logins mails" outcome="allowed"}"#,
                r#"DEBUG store{act="decide" limits="logins" outcome="refused"}"#,
                r#"DEBUG store{act="settle" limits="mails" outcome="done"}"#,
            ]
        );
        assert!(spans(tracing::Level::INFO, ask).is_empty());
    }

    #[cfg(feature = "tower")]
    #[test]
    fn a_request_that_a_layer_holds_back_has_a_span_around_its_wait() {
        use std::convert::Infallible;

        use http::{Request, Response};
        use tower_layer::Layer as _;
        use tower_service::Service;

        use crate::tower::RateLimitLayer;

        #[derive(Clone)]
        struct Page;

        impl Service<Request<()>> for Page {
            type Response = Response<http_body_util::Empty<bytes::Bytes>>;
            type Error = Infallible;
            type Future = std::future::Ready<Result<Self::Response, Infallible>>;

            fn poll_ready(
                &mut self,
                _: &mut Context<'_>,
            ) -> std::task::Poll<Result<(), Infallible>> {
                std::task::Poll::Ready(Ok(()))
            }

            fn call(&mut self, _: Request<()>) -> Self::Future {
                std::future::ready(Ok(Response::default()))
            }
        }

        let limiter = limiter();
        let clock = Arc::clone(limiter.clock());
        let layer = RateLimitLayer::new(limiter).queue(Nanos::from_secs(1));
        let found = spans(tracing::Level::DEBUG, || {
            let mut context = Context::from_waker(Waker::noop());
            let mut service = layer.layer(Page);
            let mut ask = || Box::pin(service.call(Request::new(())));
            assert!(ask().as_mut().poll(&mut context).is_ready());
            let (mut second, mut third) = (ask(), ask());
            assert!(second.as_mut().poll(&mut context).is_pending());
            assert!(third.as_mut().poll(&mut context).is_ready(), "too late");
            clock.advance(Nanos::SECOND);
            assert!(second.as_mut().poll(&mut context).is_ready());
        });
        assert_eq!(
            found,
            [
                r#"DEBUG request:wait{cost=1 outcome="too-late"}"#,
                r#"DEBUG request{outcome="refused"}"#,
                r#"DEBUG request:wait{cost=1 waited_ms=1000 outcome="served"}"#,
                r#"DEBUG request{delay_ms=0 outcome="passed"}"#,
            ]
        );
    }
}
