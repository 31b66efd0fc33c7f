//! Service: HTTP calls, made by the rules of [`retry`](crate::retry).

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{HeaderMap, HeaderValue, StatusCode};
use ratekeeper_core::Time;
use tower_service::Service;

use super::message::{Answered, Outgoing};
use super::retry_if::FailedAnswer;
use super::settings::{HttpSettings, Propagate};
use crate::retry::call::{AttemptLeave, OngoingCall, Shown, is_timeout};
use crate::retry::clock::now;
use crate::{Backoff, CallError, Deadline, Effect, End, Failure, ServerWait};

/// A client that retries within a budget, and stops in time; see the [module](crate::tower).
#[derive(Clone, Debug)]
pub struct Resilient<S> {
    inner: S,
    settings: Arc<HttpSettings>,
}

impl<S> Resilient<S> {
    pub(super) fn new(inner: S, settings: Arc<HttpSettings>) -> Self {
        Self { inner, settings }
    }

    /// Returns the same client with other settings, for single calls too: a request of reqwest
    /// cannot carry [`CallOptions`](super::CallOptions). It shares budget and guard with this one.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ratekeeper_resilience::tower::ResilienceLayer;
    /// use tower_layer::Layer;
    ///
    /// # #[derive(Clone)] struct Client;
    /// # let client = Client;
    /// let client = ResilienceLayer::default().layer(client);
    /// let patient = client.with(|settings| settings.calls.within = Duration::from_secs(60));
    /// let once = client.with(|settings| settings.calls.backoff.attempts_max = 1);
    /// # let _ = (patient, once);
    /// ```
    #[must_use]
    pub fn with(&self, change: impl FnOnce(&mut HttpSettings)) -> Self
    where
        S: Clone,
    {
        let mut settings = HttpSettings::clone(&self.settings);
        change(&mut settings);
        Self::new(self.inner.clone(), Arc::new(settings))
    }
}

#[cfg(feature = "reqwest")]
impl<S> Resilient<S>
where
    S: Service<reqwest::Request, Response = reqwest::Response> + Clone,
    S::Error: From<reqwest::Error> + 'static,
{
    /// Sends a request in place of its own `send`. The request goes through this client, not
    /// through the one that began to build it.
    ///
    /// ```no_run
    /// use ratekeeper_resilience::tower::ResilienceLayer;
    /// use tower_layer::Layer;
    ///
    /// # async fn get() -> Result<(), Box<dyn std::error::Error>> {
    /// let http = reqwest::Client::new();
    /// let client = ResilienceLayer::default().layer(http.clone());
    /// let answer = client.send(http.get("http://localhost:3000/")).await?;
    /// assert_eq!(answer.status(), 200);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`CallError::Inner`] if the request cannot be built, or for the error of the last attempt;
    /// the other errors if the guard or the deadline ended the call.
    pub async fn send(
        &self,
        request: reqwest::RequestBuilder,
    ) -> Result<reqwest::Response, CallError<S::Error>> {
        let request = request.build();
        let request = request.map_err(|error| CallError::Inner(error.into()))?;
        make(&self.settings, self.inner.clone(), request).await
    }
}

impl<S, Q> Service<Q> for Resilient<S>
where
    S: Service<Q> + Clone + Send + 'static,
    S::Response: Answered,
    S::Future: Send,
    S::Error: Send + 'static,
    Q: Outgoing,
{
    type Response = S::Response;
    type Error = CallError<S::Error>;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, Self::Error>> + Send>>;

    /// Always ready: the service inside is asked before each attempt.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Q) -> Self::Future {
        let (inner, settings) = (self.inner.clone(), Arc::clone(&self.settings));
        Box::pin(async move { make(&settings, inner, request).await })
    }
}

/// Makes a call: attempts, until one is good enough or the last.
async fn make<S, Q>(
    settings: &HttpSettings,
    mut inner: S,
    mut request: Q,
) -> Result<S::Response, CallError<S::Error>>
where
    S: Service<Q>,
    S::Response: Answered,
    S::Error: 'static,
    Q: Outgoing,
{
    let calls = &settings.calls;
    let options = request.options().cloned().unwrap_or_default();
    let began = now();
    let deadline = Deadline::within(began, options.within.unwrap_or(calls.within));
    let carried = carried(&settings.propagate, request.headers(), began);
    let deadline = carried.map_or(deadline, |carried| deadline.cut(carried));
    let backoff = Backoff {
        attempts_max: options.attempts_max.unwrap_or(calls.backoff.attempts_max),
        ..calls.backoff
    };
    let retry_if = options.retry_if.as_ref().unwrap_or(&settings.retry_if);
    let method = request.method().clone();
    let effect = options.effect.or(settings.effect).unwrap_or_else(|| {
        let key = request.headers().get("idempotency-key");
        Effect::of_http(method.as_str(), key.and_then(|key| key.to_str().ok()))
    });
    let mut call = OngoingCall::new(calls, deadline, backoff.attempts());
    loop {
        let again = request.again();
        let (result, leave) = attempt(settings, &mut call, &mut inner, request).await?;
        let failure = match &result {
            Ok(answer) if answer.status().as_u16() < 400 => None,
            Ok(answer) => Some(retry_if.answer(FailedAnswer {
                method: &method,
                status: answer.status(),
                headers: answer.headers(),
            })),
            Err(CallError::Inner(error)) => Some(retry_if.error(error)),
            Err(_) => Some(Failure::Final),
        };
        let (shown, end) = shown(&result, failure);
        leave.report(shown, end);
        let Some(failure) = failure else {
            return result;
        };
        let Some(again) = again.filter(|_| failure.permits(effect)) else {
            return result;
        };
        let stated = match &result {
            Ok(answer) => calls.retry_after.of_headers(answer.headers()),
            Err(_) => ServerWait::Nothing,
        };
        let Some(wait) = call.next_wait(stated) else {
            return result;
        };
        drop(result); // its connection is free while this call waits
        tokio::time::sleep(wait.into()).await;
        request = again;
    }
}

/// The result of an attempt, and the permission to report it.
type Attempted<'a, R, E> = (Result<R, CallError<E>>, AttemptLeave<'a>);

/// Makes one attempt, if there is time and the guard agrees; without time nothing is sent, so that
/// nothing is reported to the guard.
async fn attempt<'a, S, Q>(
    settings: &HttpSettings,
    call: &mut OngoingCall<'a>,
    inner: &mut S,
    mut request: Q,
) -> Result<Attempted<'a, S::Response, S::Error>, CallError<S::Error>>
where
    S: Service<Q>,
    Q: Outgoing,
{
    let leave = call.begin()?;
    let result = match call.cut(poll_fn(|context| inner.poll_ready(context))).await {
        Ok(()) => {
            let now = call.sent()?;
            propagate(settings, request.headers_mut(), now, call.deadline);
            call.cut(inner.call(request)).await
        }
        Err(CallError::Deadline) => return Err(CallError::Deadline),
        Err(error) => Err(error),
    };
    Ok((result, leave))
}

/// Returns the state of the server that an attempt shows: one that took too long was too slow. The
/// time of a connection that failed is ignored.
fn shown<R: Answered, E: 'static>(
    result: &Result<R, CallError<E>>,
    failure: Option<Failure>,
) -> (Shown, End) {
    let status = match result {
        _ if failure == Some(Failure::TimedOut) => return (Shown::Failed, End::Dropped),
        Ok(answer) => answer.status(),
        Err(CallError::Deadline) => return (Shown::Failed, End::Dropped),
        Err(CallError::Inner(error)) if is_timeout(error) => return (Shown::Failed, End::Dropped),
        Err(_) => return (Shown::Failed, End::Ignored),
    };
    let shown = match status {
        StatusCode::TOO_MANY_REQUESTS => Shown::Refused,
        status if status.is_server_error() => Shown::Failed,
        _ => Shown::Accepted,
    };
    (shown, End::of_http(status.as_u16()))
}

/// Returns the deadline that the request carries already, in the field of `manner`.
fn carried(manner: &Propagate, headers: &HeaderMap, now: Time) -> Option<Deadline> {
    let value = |name: &str| headers.get(name)?.to_str().ok();
    match manner {
        Propagate::Nothing => None,
        Propagate::GrpcTimeout => Deadline::from_grpc_timeout(now, value("grpc-timeout")?),
        Propagate::Millis(name) => Deadline::from_header_ms(now, value(name.as_str())?),
    }
}

/// Writes the remaining time into the request.
fn propagate(settings: &HttpSettings, headers: &mut HeaderMap, now: Time, deadline: Deadline) {
    let typical = settings.calls.typical;
    match &settings.propagate {
        Propagate::Nothing => {}
        Propagate::GrpcTimeout => {
            // Digits and a letter are always a value.
            if let Ok(value) = HeaderValue::from_str(&deadline.grpc_timeout(now, typical)) {
                headers.insert("grpc-timeout", value);
            }
        }
        Propagate::Millis(name) => {
            let millis = HeaderValue::from(deadline.header_ms(now, typical));
            headers.insert(name, millis);
        }
    }
}
