//! Service: one call, from its deadline to its last attempt.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{HeaderMap, HeaderValue, StatusCode};
use ratekeeper_core::{Nanos, Time};
use tower_service::Service;

use super::clock;
use super::error::CallError;
use super::message::{Answered, Outgoing};
use super::retry_if::FailedAnswer;
use super::settings::{CallContext, CallSettings, Guard, Propagate};
use crate::{
    AdaptiveConcurrency, AdaptivePermit, Attempts, CallPermit, Deadline, Effect, End, Failure,
    Hints, ServerWait, SplitMix, Throttle,
};

/// A client that retries within a budget, and stops in time; see the [module](crate::tower).
#[derive(Clone, Debug)]
pub struct Resilient<S> {
    inner: S,
    shared: Arc<CallContext>,
}

impl<S> Resilient<S> {
    pub(super) fn new(inner: S, shared: Arc<CallContext>) -> Self {
        Self { inner, shared }
    }

    /// Returns the same client with other settings; it shares budget and guard with this one.
    /// For single calls, too: a request of reqwest cannot carry a setting.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use ratekeeper_core::Nanos;
    /// use ratekeeper_resilience::tower::{CallSettings, ResilienceLayer, RetryIf};
    /// use ratekeeper_resilience::{Budget, BudgetSettings};
    /// use tower_layer::Layer;
    ///
    /// # #[derive(Clone)] struct Client;
    /// # let client = Client;
    /// let budget = Arc::new(Budget::new(BudgetSettings::default())?);
    /// let client = ResilienceLayer::new(CallSettings::default(), budget).layer(client);
    /// let patient = client.with(|settings| settings.within = Nanos::from_secs(60));
    /// # let _ = patient;
    /// # Ok::<(), ratekeeper_resilience::Error>(())
    /// ```
    #[must_use]
    pub fn with(&self, change: impl FnOnce(&mut CallSettings)) -> Self
    where
        S: Clone,
    {
        let mut settings = self.shared.settings.clone();
        change(&mut settings);
        let budget = Arc::clone(&self.shared.budget);
        Self {
            inner: self.inner.clone(),
            shared: Arc::new(CallContext { settings, budget }),
        }
    }
}

impl<S, Q> Service<Q> for Resilient<S>
where
    S: Service<Q> + Clone + Send + 'static,
    S::Response: Answered,
    S::Future: Send,
    S::Error: Send,
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
        let (inner, shared) = (self.inner.clone(), Arc::clone(&self.shared));
        Box::pin(async move { make(&shared, inner, request).await })
    }
}

/// Makes a call: attempts, until one is good enough or the last.
async fn make<S, Q>(
    shared: &CallContext,
    mut inner: S,
    mut request: Q,
) -> Result<S::Response, CallError<S::Error>>
where
    S: Service<Q>,
    S::Response: Answered,
    Q: Outgoing,
{
    let settings = &shared.settings;
    let mut random = SplitMix::seeded();
    let began = clock::now();
    let within = request.within().map_or(settings.within, |span| span.0);
    let deadline = Deadline::within(began, within);
    let borne = borne(&settings.propagate, request.headers(), began);
    let deadline = borne.map_or(deadline, |borne| deadline.cut(borne));
    let key = request.headers().get("idempotency-key");
    let effect = Effect::of_http(
        request.method().as_str(),
        key.and_then(|key| key.to_str().ok()),
    );
    let method = request.method().clone();
    let mut attempts = settings.backoff.attempts();
    loop {
        let again = request.again();
        let result = attempt(
            shared,
            &mut inner,
            request,
            deadline,
            &attempts,
            &mut random,
        )
        .await;
        let failure = match &result {
            Ok(answer)
                if !answer.status().is_client_error() && !answer.status().is_server_error() =>
            {
                return result;
            }
            Ok(answer) => settings.retry_if.failure(FailedAnswer {
                method: &method,
                status: answer.status(),
                headers: answer.headers(),
            }),
            Err(CallError::Inner(_)) => Failure::Unknown,
            Err(_) => Failure::Final,
        };
        if !failure.permits(effect) {
            return result;
        }
        let now = clock::now();
        let headers = result.as_ref().ok().map(Answered::headers);
        let wait = next_wait(shared, headers, now, &mut attempts, &mut random)
            .filter(|&wait| deadline.allows(now, wait, settings.typical));
        match (again, wait) {
            (Some(again), Some(wait)) if shared.budget.withdraw(now) => {
                drop(result); // its connection is free while this call waits
                tokio::time::sleep(wait.into()).await;
                request = again;
            }
            _ => return result,
        }
    }
}

/// Returns the wait before the next attempt, if there is one.
fn next_wait(
    shared: &CallContext,
    headers: Option<&HeaderMap>,
    now: Time,
    attempts: &mut Attempts,
    random: &mut SplitMix,
) -> Option<Nanos> {
    let rules = &shared.settings.retry_after;
    let last = |name: &str| headers?.get_all(name).iter().next_back()?.to_str().ok();
    let rate_limit = headers.and_then(|headers| {
        let lines = headers.get_all("ratelimit").iter().map(HeaderValue::to_str);
        let lines: Result<Vec<_>, _> = lines.collect();
        Some(lines.ok()?.join(","))
    });
    let hints = Hints {
        retry_after: last("retry-after"),
        rate_limit: rate_limit.as_deref(),
        remaining: last("ratelimit-remaining").or_else(|| last("x-ratelimit-remaining")),
        reset: last("ratelimit-reset").or_else(|| last("x-ratelimit-reset")),
        date: last("date"),
    };
    match rules.parse(hints, now, clock::origin()) {
        ServerWait::Wait(wait) => attempts.next_after(rules.spread(wait, random)),
        ServerWait::Beyond(_) => None,
        ServerWait::Nothing => attempts.next_wait(random),
    }
}

/// Makes one attempt, if there is time and the guard agrees, and reports it to the guard.
async fn attempt<S, Q>(
    shared: &CallContext,
    inner: &mut S,
    mut request: Q,
    deadline: Deadline,
    attempts: &Attempts,
    random: &mut SplitMix,
) -> Result<S::Response, CallError<S::Error>>
where
    S: Service<Q>,
    S::Response: Answered,
    Q: Outgoing,
{
    let settings = &shared.settings;
    let in_time = |now| deadline.allows(now, Nanos::ZERO, settings.typical);
    let now = clock::now();
    if !in_time(now) {
        return Err(CallError::Deadline);
    }
    let leave = pass(&settings.guard, now, random)?;
    let result = match before(deadline, poll_fn(|context| inner.poll_ready(context))).await {
        Ok(()) => {
            let now = clock::now();
            if !in_time(now) {
                return Err(CallError::Deadline);
            }
            if attempts.made() == 1 {
                shared.budget.deposit(now); // and not sooner: a request that is not sent pays nothing
            }
            let headers = request.headers_mut();
            propagate(
                &settings.propagate,
                headers,
                now,
                deadline,
                settings.typical,
            );
            before(deadline, inner.call(request)).await
        }
        // Nothing was sent, so nothing is reported to the guard.
        Err(CallError::Deadline) => return Err(CallError::Deadline),
        Err(error) => Err(error),
    };
    report(leave, clock::now(), &result);
    result
}

/// Waits for `work` until the deadline.
async fn before<T, E>(
    deadline: Deadline,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, CallError<E>> {
    let left = deadline.time().since(clock::now());
    match tokio::time::timeout(left.into(), work).await {
        Ok(result) => result.map_err(CallError::Inner),
        Err(_) => Err(CallError::Deadline),
    }
}

/// Permission of the guard to make an attempt.
enum AttemptLeave<'a> {
    /// No report is needed.
    Given,
    Breaker(CallPermit<'a>),
    Adaptive(AdaptivePermit<&'a AdaptiveConcurrency>),
    Throttle(&'a Throttle),
}

/// Asks the guard.
fn pass<'a, E>(
    guard: &'a Guard,
    now: Time,
    random: &mut SplitMix,
) -> Result<AttemptLeave<'a>, CallError<E>> {
    match guard {
        Guard::Without => Ok(AttemptLeave::Given),
        Guard::Breaker(breaker) => {
            let permit = breaker.try_pass(now);
            permit.map(AttemptLeave::Breaker).map_err(CallError::Open)
        }
        Guard::Adaptive(limit) => match limit.try_acquire(now) {
            Some(permit) => Ok(AttemptLeave::Adaptive(permit)),
            None => Err(CallError::AtWork {
                limit: limit.limit(),
            }),
        },
        Guard::Throttle(throttle) if throttle.try_send(now, random) => {
            Ok(AttemptLeave::Throttle(throttle))
        }
        Guard::Throttle(_) => Err(CallError::Throttled),
    }
}

/// Reports to the guard how an attempt ended.
fn report<R: Answered, E>(leave: AttemptLeave<'_>, now: Time, result: &Result<R, CallError<E>>) {
    let status = result.as_ref().ok().map(Answered::status);
    let works = status.is_some_and(|status| !status.is_server_error());
    match leave {
        AttemptLeave::Given => {}
        AttemptLeave::Breaker(permit) if works => permit.success(now),
        AttemptLeave::Breaker(permit) => permit.failure(now),
        AttemptLeave::Adaptive(permit) => permit.end(end(status, result), now),
        AttemptLeave::Throttle(throttle) => {
            if works && status != Some(StatusCode::TOO_MANY_REQUESTS) {
                throttle.accepted(now);
            }
        }
    }
}

/// Returns the end of an attempt for the limit: one that took until the deadline was too slow.
/// The time of a connection that failed is ignored.
fn end<R, E>(status: Option<StatusCode>, result: &Result<R, CallError<E>>) -> End {
    match (status, result) {
        (Some(status), _) => End::of_http(status.as_u16()),
        (None, Err(CallError::Deadline)) => End::Dropped,
        (None, _) => End::Ignored,
    }
}

/// Returns the deadline that the request carries already, in the field of `manner`.
fn borne(manner: &Propagate, headers: &HeaderMap, now: Time) -> Option<Deadline> {
    let value = |name: &str| headers.get(name)?.to_str().ok();
    match manner {
        Propagate::Nothing => None,
        Propagate::GrpcTimeout => Deadline::from_grpc_timeout(now, value("grpc-timeout")?),
        Propagate::Millis(name) => Deadline::from_header_ms(now, value(name.as_str())?),
    }
}

/// Writes the remaining time into the request.
fn propagate(
    manner: &Propagate,
    headers: &mut HeaderMap,
    now: Time,
    deadline: Deadline,
    typical: crate::Typical,
) {
    match manner {
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
