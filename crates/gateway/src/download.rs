//! Download: the body of a response on its way to the client. At its end, the connection to the
//! upstream is idle again; a body that is dropped before closes it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep, sleep};

use crate::address::ConnectionLease;
use crate::counts::Passage;
use crate::error::UpstreamFailure;

/// The body of a response. Boxed, because responses are passed on several times.
#[derive(Debug)]
pub struct DownloadBody(Box<Download>);

#[derive(Debug)]
struct Download {
    body: Incoming,
    lease: Option<ConnectionLease>,
    passage: Passage,
    idle: Duration,
    /// Started when the upstream is waited for.
    timer: Option<Pin<Box<Sleep>>>,
    is_waiting: bool,
}

/// Why the body of a response broke off.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DownloadError {
    /// The connection to the upstream broke.
    #[error("the response of the upstream broke off: {0}")]
    Broken(hyper::Error),
    /// The upstream sent nothing for too long.
    #[error("{}", UpstreamFailure::BodyTimeout)]
    Idle,
}

impl DownloadBody {
    pub(crate) fn new(
        body: Incoming,
        lease: Option<ConnectionLease>,
        passage: Passage,
        idle: Duration,
    ) -> Self {
        let mut download = Box::new(Download {
            body,
            lease,
            passage,
            idle,
            timer: None,
            is_waiting: false,
        });
        download.give_back_at_end();
        Self(download)
    }
}

impl Download {
    fn give_back_at_end(&mut self) {
        if self.body.is_end_stream()
            && let Some(lease) = self.lease.take()
        {
            lease.give_back();
        }
    }

    /// Returns true if the upstream has sent nothing for too long.
    fn is_idle(&mut self, context: &mut Context<'_>) -> bool {
        let idle = self.idle;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(idle)));
        if !std::mem::replace(&mut self.is_waiting, true) {
            timer.as_mut().reset(Instant::now() + idle);
        }
        timer.as_mut().poll(context).is_ready()
    }
}

impl Body for DownloadBody {
    type Data = Bytes;
    type Error = DownloadError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, DownloadError>>> {
        let it = &mut *self.0;
        let Poll::Ready(frame) = Pin::new(&mut it.body).poll_frame(context) else {
            if it.is_idle(context) {
                it.lease = None;
                it.passage.break_off(UpstreamFailure::BodyTimeout);
                return Poll::Ready(Some(Err(DownloadError::Idle)));
            }
            return Poll::Pending;
        };
        it.is_waiting = false;
        match &frame {
            Some(Ok(frame)) => {
                it.passage.received(frame.data_ref().map_or(0, Bytes::len));
                it.give_back_at_end();
            }
            Some(Err(_)) => {
                it.lease = None;
                it.passage.break_off(UpstreamFailure::BodyBroken);
            }
            None => {
                if let Some(lease) = it.lease.take() {
                    lease.give_back();
                }
            }
        }
        Poll::Ready(frame.map(|frame| frame.map_err(DownloadError::Broken)))
    }

    fn is_end_stream(&self) -> bool {
        self.0.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.body.size_hint()
    }
}
