//! Kept: a request with permits, which keeps them while the application works on it, even if its
//! client has left.
//!
//! ```text
//!   client leaves --> not sent: dropped, and its permits come back
//!                '--> sent: head of the response, or the end of `longest` --> permits come back
//! ```
//!
//! An application does not stop because a connection closes, so permits that came back at once would
//! bound the patience of clients, not the work.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http::Version;
use ratekeeper::Answer;
use ratekeeper::tower::RequestGuard;
use ratekeeper_gateway::{
    ForwardError, ForwardRequest, Forwarded, Gateway, InterimReceiver, RequestProgress,
};
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::context::ServiceContext;
use crate::doors::hold;
use crate::observe::metrics::Process;
use crate::serve::listener::Caller;
use crate::serve::pulse::Pulse;

type Response = Pin<Box<dyn Future<Output = Result<Forwarded, ForwardError>> + Send>>;

/// A request that has passed its limits.
pub(super) struct Forwarding<'a> {
    pub(super) gateway: Arc<Gateway>,
    pub(super) version: Version,
    pub(super) request: Box<ForwardRequest>,
    /// The answer of its limits; `None` for a preflight.
    pub(super) answer: Option<&'a Answer>,
    pub(super) guard: Option<RequestGuard>,
}

impl Forwarding<'_> {
    /// Forwards a request, and passes its interim responses on before it returns. One with permits
    /// keeps them while the application is at work. One that was not sent is charged nothing, even
    /// if its client leaves.
    pub(super) async fn send(
        self,
        caller: Caller<'_>,
        shared: &Arc<ServiceContext>,
    ) -> (Result<Forwarded, ForwardError>, Option<RequestGuard>) {
        let Self {
            gateway,
            version,
            mut request,
            answer,
            guard,
        } = self;
        let progress = request.progress.clone();
        let mut unsent = UnsentCharges {
            shared,
            answer,
            progress: &progress,
        };
        let lease = shortest_lease(answer);
        request.interim = interim(caller.pulse, version).await;
        let waits = caller.pulse.hold_back();
        let forwarded = if lease.is_some() || gateway.concurrency().is_some() {
            let response = gateway.response_timeout();
            request.is_kept = true;
            let kept = Kept {
                forwarding: Some(Box::pin(async move { gateway.forward(request).await })),
                request: progress.clone(),
                guard,
                longest: lease.map_or(response, |lease| lease.min(response)),
                process: Arc::clone(&shared.observers.metrics.process),
            };
            kept.response().await
        } else {
            (gateway.forward(request).await, guard)
        };
        unsent.answer = None;
        if let (Err(error), Some(answer)) = (&forwarded.0, answer)
            && !(error.was_sent() && progress.was_sent())
        {
            hold::give_back(shared, answer).await;
        }
        drop(waits);
        caller.pulse.interim.end().await;
        forwarded
    }
}

/// Returns the shortest lease of the permits of a request.
fn shortest_lease(answer: Option<&Answer>) -> Option<Duration> {
    let permits = answer.into_iter().flat_map(Answer::permits);
    permits.map(|(_, lease)| lease.into()).min()
}

/// Returns the receiver of interim responses. Clients of HTTP/1.0 know none, and hyper has no way
/// to send them by HTTP/2.
async fn interim(pulse: &Arc<Pulse>, version: Version) -> Option<InterimReceiver> {
    if version != Version::HTTP_11 {
        return None;
    }
    Some(InterimReceiver {
        request: pulse.interim.begin().await,
        taker: Arc::clone(pulse) as _,
    })
}

/// The charges of a request, which are given back if it is dropped before it is sent.
struct UnsentCharges<'a> {
    shared: &'a Arc<ServiceContext>,
    /// `None` once the request has ended.
    answer: Option<&'a Answer>,
    progress: &'a RequestProgress,
}

impl Drop for UnsentCharges<'_> {
    fn drop(&mut self) {
        let is_sent = self.progress.is_at_work() || self.progress.was_sent();
        if let Some(answer) = self.answer.filter(|_| !is_sent) {
            hold::give_back_left(self.shared, answer);
        }
    }
}

/// A request on its way. Dropped, it goes on by itself while the application is at work.
struct Kept {
    /// `None` once it has ended.
    forwarding: Option<Response>,
    request: RequestProgress,
    guard: Option<RequestGuard>,
    /// Maximum time that it goes on.
    longest: Duration,
    process: Arc<Process>,
}

impl Kept {
    /// Returns the response, and the permits.
    async fn response(mut self) -> (Result<Forwarded, ForwardError>, Option<RequestGuard>) {
        let response = poll_fn(|context| {
            let forwarding = self.forwarding.as_mut().expect("polled once to its end");
            forwarding.as_mut().poll(context)
        })
        .await;
        self.forwarding = None;
        (response, self.guard.take())
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let Some(mut forwarding) = self.forwarding.take() else {
            return;
        };
        let request = self.request.clone();
        if let (true, Ok(runtime)) = (request.is_at_work(), Handle::try_current()) {
            self.process.abandoned.add(1);
            let (guard, longest) = (self.guard.take(), self.longest);
            runtime.spawn(async move {
                let ended = poll_fn(|context| {
                    let polled = forwarding.as_mut().poll(context);
                    // It is not sent again for a client that has left.
                    let is_over = polled.is_ready() || !request.is_at_work();
                    if is_over {
                        Poll::Ready(())
                    } else {
                        Poll::Pending
                    }
                });
                let _ = timeout(longest, ended).await; // late: the lease ends
                drop(guard); // without a response the charges stay
            });
        }
    }
}
