//! Upload: the body of a request on its way to the upstream, and its progress.

use std::error::Error;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderName;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use strum::FromRepr;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep, sleep};

use crate::connection::Stream;
use crate::counts::UpstreamCounts;
use crate::{forwarded, hop};

/// The body of a request on its way; `None` for a request without one. Boxed, because requests are
/// moved from task to task.
#[derive(Default)]
pub(crate) struct UploadBody(Option<Box<UploadSource>>);

struct UploadSource {
    body: ClientBody,
    upload: Arc<Upload>,
    on_break: OnBreak,
    /// Maximum number of bytes that may still come.
    left: u64,
    counts: Arc<UpstreamCounts>,
    /// Why it broke off, until that ends the request.
    broken: Option<(UploadError, Pin<Box<Sleep>>)>,
}

/// What happens when the client breaks the body off.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OnBreak {
    /// The request ends.
    End,
    /// The connection stays open for this time, because an upstream that has the head may be at
    /// work, and shows the end of its work by a response only.
    Wait(Duration),
}

/// Why a body is not sent to its end.
type UploadError = Box<dyn Error + Send + Sync>;

/// The body of a request as its client sends it.
pub type ClientBody = Pin<Box<dyn Body<Data = Bytes, Error = hyper::Error> + Send>>;

/// The progress of the body of a request.
#[derive(Debug, Default)]
pub(crate) struct Upload {
    /// When the last frame went by.
    moved: Mutex<Option<Instant>>,
    stage: AtomicU8,
    /// A field that is removed from trailers, with those that no client may send.
    address_field: Option<HeaderName>,
    /// When the last byte went by.
    sent: OnceLock<Instant>,
    /// Its place on an HTTP/2 connection, if the response has ended before the request.
    place: Mutex<Option<(Stream, OwnedSemaphorePermit)>>,
}

/// The side that the body waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromRepr)]
#[repr(u8)]
pub(crate) enum Stage {
    /// The upstream, which does not read.
    Upstream,
    /// The client, which does not send.
    Client,
    /// Nothing: it was sent.
    Sent,
    /// Nothing: it is longer than a body may be.
    TooLarge,
    /// Nothing: the client broke it off.
    Broken,
}

impl UploadBody {
    /// Returns the body of a request, and its progress; `None` for a request without a body.
    pub(crate) fn new(
        body: Option<ClientBody>,
        address_field: Option<HeaderName>,
        on_break: OnBreak,
        max_body: u64,
        counts: &Arc<UpstreamCounts>,
    ) -> (Self, Option<Arc<Upload>>) {
        let Some(body) = body.filter(|body| !body.is_end_stream()) else {
            return (Self(None), None);
        };
        let upload = Arc::new(Upload {
            address_field,
            ..Upload::default()
        });
        let source = UploadSource {
            body,
            upload: Arc::clone(&upload),
            on_break,
            left: max_body,
            counts: Arc::clone(counts),
            broken: None,
        };
        (Self(Some(Box::new(source))), Some(upload))
    }
}

impl Upload {
    pub(crate) fn stage(&self) -> Stage {
        let stage = self.stage.load(Ordering::Relaxed);
        Stage::from_repr(stage).unwrap_or(Stage::Broken)
    }

    /// Returns when the last byte went by.
    pub(crate) fn sent(&self) -> Option<Instant> {
        self.sent.get().copied()
    }

    /// Keeps the place of a request until its body is sent or given up.
    pub(crate) fn keep(&self, stream: Stream, room: OwnedSemaphorePermit) {
        *self.place.lock() = Some((stream, room));
    }

    fn set(&self, stage: Stage) {
        if stage == Stage::Sent {
            let _ = self.sent.set(Instant::now()); // the first time counts
        }
        self.stage.store(stage as u8, Ordering::Relaxed);
    }
}

impl Body for UploadBody {
    type Data = Bytes;
    type Error = UploadError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        let Some(source) = &mut self.0 else {
            return Poll::Ready(None);
        };
        if let Some((_, pause)) = &mut source.broken {
            ready!(pause.as_mut().poll(context));
            return Poll::Ready(source.broken.take().map(|(error, _)| Err(error)));
        }
        let UploadSource {
            body,
            upload,
            left,
            counts,
            ..
        } = &mut **source;
        upload.set(Stage::Client);
        let mut frame = ready!(body.as_mut().poll_frame(context));
        if let Some(Ok(frame)) = &mut frame
            && let Some(trailers) = frame.trailers_mut()
        {
            forwarded::remove_invented(upload.address_field.as_ref(), trailers);
            hop::remove(trailers, &[]);
        }
        if let Some(Ok(frame)) = &frame {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            let Some(rest) = left.checked_sub(bytes as u64) else {
                upload.set(Stage::TooLarge);
                return Poll::Ready(Some(Err("the body is too large".into())));
            };
            *left = rest;
            counts.sent(bytes);
        }
        *upload.moved.lock() = Some(Instant::now());
        upload.set(match &frame {
            Some(Err(_)) => Stage::Broken,
            Some(Ok(_)) if !body.is_end_stream() => Stage::Upstream,
            _ => Stage::Sent,
        });
        if let (Some(Err(_)), OnBreak::Wait(longest)) = (&frame, source.on_break) {
            let error = frame.and_then(Result::err);
            source.broken = error.map(|error| (error.into(), Box::pin(sleep(longest))));
            return self.poll_frame(context);
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|it| it.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let own = self.0.as_ref().map(|it| it.body.size_hint());
        own.unwrap_or(SizeHint::with_exact(0))
    }
}

impl fmt::Debug for UploadBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let upload = self.0.as_ref().map(|it| &it.upload);
        f.debug_tuple("UploadBody").field(&upload).finish()
    }
}

/// Waits for a response until `end`, and at most `patience` from each part of the upload. Returns
/// `None` afterwards. The timer is one of earlier requests, because to move it costs less than to
/// begin another.
pub(crate) async fn in_time<T>(
    mut response: Pin<&mut impl Future<Output = T>>,
    mut timer: Pin<&mut Sleep>,
    upload: Option<&Upload>,
    mut end: Instant,
    patience: Duration,
) -> Option<T> {
    timer.as_mut().reset(end);
    poll_fn(|context| {
        loop {
            if let Poll::Ready(response) = response.as_mut().poll(context) {
                return Poll::Ready(Some(response));
            }
            ready!(timer.as_mut().poll(context));
            let moved = upload.and_then(|upload| *upload.moved.lock());
            let Some(later) = moved.map(|moved| moved + patience).filter(|it| *it > end) else {
                return Poll::Ready(None);
            };
            end = later;
            timer.as_mut().reset(end);
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;

    /// The last part counts, not the moment at which the service looks.
    #[tokio::test(start_paused = true)]
    async fn an_upload_that_stalls_is_given_up_in_time_after_its_last_part() {
        let start = Instant::now();
        let upload = Upload::default();
        let patience = Duration::from_secs(2);
        let client = async {
            for millis in [400, 1_900, 1_100] {
                sleep(Duration::from_millis(millis)).await;
                *upload.moved.lock() = Some(Instant::now());
            }
            std::future::pending::<()>().await;
        };
        let mut timer = pin!(sleep(Duration::ZERO));
        let client = pin!(client);
        let came = in_time(
            client,
            timer.as_mut(),
            Some(&upload),
            Instant::now() + patience,
            patience,
        );
        assert_eq!(came.await, None);
        assert_eq!(start.elapsed(), Duration::from_millis(3_400 + 2_000));
        let soon = pin!(sleep(patience / 2));
        let came = in_time(
            soon,
            timer.as_mut(),
            Some(&upload),
            Instant::now() + patience,
            patience,
        );
        assert_eq!(came.await, Some(()));
        let late = pin!(sleep(patience * 2));
        assert_eq!(
            in_time(late, timer, None, Instant::now() + patience, patience).await,
            None
        );
    }
}
