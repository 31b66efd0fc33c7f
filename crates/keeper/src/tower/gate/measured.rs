//! Measured: a request under an adaptive limit, from its permit to the judgement of its end.
//!
//! ```text
//!   permit --> head of the answer --> bytes --> trailers --> end      done: its time counts
//!     |          |  503, 504, 429: dropped         |  UNAVAILABLE: dropped
//!     |          '  other 4xx and 5xx: ignored     '
//!     |-- the service fails: dropped
//!     |-- panics: ignored
//!     '-- the client goes away: after a second without a head, it gave up: dropped
//!                               before that, or in the middle of the body: ignored
//! ```
//!
//! A body with an announced length ends with its last byte, because servers do not ask for more.

use std::sync::Arc;

use http::{HeaderMap, StatusCode, header};
use ratekeeper_core::{Nanos, Time};
use ratekeeper_resilience::{AdaptiveConcurrency, AdaptivePermit, End};

/// State shared by the requests of a layer.
pub(crate) trait MeasuredCourse: Send + Sync {
    fn now(&self) -> Time;
    /// Judges a response by its status, and the fields of its head or of its trailers.
    fn judge(&self, status: StatusCode, fields: &HeaderMap) -> End;
    /// Returns the time without a head after which a client that goes away has given up.
    fn given_up_after(&self) -> Nanos;
    /// Called when a permit came back.
    fn came_back(&self);
}

/// A request at work.
#[expect(unnameable_types, reason = "gates are made in this module only")]
pub struct Measured {
    /// `None` when it was returned.
    permit: Option<AdaptivePermit<Arc<AdaptiveConcurrency>>>,
    course: Arc<dyn MeasuredCourse>,
    head: ResponseHead,
    /// True if no more bytes are to be sent.
    whole: bool,
    /// Remaining bytes of the body, if their number was announced.
    left: Option<u64>,
}

/// The head of the answer.
enum ResponseHead {
    Awaited,
    Came {
        status: StatusCode,
        end: End,
    },
    /// There is none, because the service failed.
    Failed,
}

impl Measured {
    pub(crate) fn new(
        permit: AdaptivePermit<Arc<AdaptiveConcurrency>>,
        course: Arc<dyn MeasuredCourse>,
    ) -> Self {
        Self {
            permit: Some(permit),
            course,
            head: ResponseHead::Awaited,
            whole: false,
            left: None,
        }
    }

    /// Called when the service has answered.
    pub(crate) fn answered(&mut self, status: StatusCode, fields: &HeaderMap) {
        let end = self.course.judge(status, fields);
        self.head = ResponseHead::Came { status, end };
        self.left = announced_length(fields);
    }

    /// Called when the service has failed.
    pub(crate) fn failed(&mut self) {
        self.head = ResponseHead::Failed;
    }

    /// Called when `bytes` bytes were sent.
    pub(crate) fn sent(&mut self, bytes: usize) {
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(bytes as u64);
            self.whole |= *left == 0;
        }
    }

    pub(crate) fn trailers(&mut self, fields: &HeaderMap) {
        if let ResponseHead::Came { status, end } = &mut self.head {
            *end = self.course.judge(*status, fields);
        }
    }

    /// Called when no more bytes are to be sent.
    pub(crate) fn whole(&mut self) {
        self.whole = true;
    }

    /// Returns the judgement if the request ends now.
    fn end(&self, took: Nanos) -> End {
        match self.head {
            ResponseHead::Awaited if std::thread::panicking() => End::Ignored,
            ResponseHead::Awaited if took >= self.course.given_up_after() => End::Dropped,
            ResponseHead::Failed => End::Dropped,
            // A dropped request stays dropped, even if the client does not read the whole response.
            ResponseHead::Came { end, .. } if self.whole || end == End::Dropped => end,
            ResponseHead::Awaited | ResponseHead::Came { .. } => End::Ignored,
        }
    }
}

/// Returns the length that a response announces: servers do not ask its body for more.
pub(crate) fn announced_length(fields: &HeaderMap) -> Option<u64> {
    let length = fields.get(header::CONTENT_LENGTH)?;
    length.to_str().ok()?.parse().ok()
}

impl Drop for Measured {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take() {
            let now = self.course.now();
            let end = self.end(now.since(permit.began()));
            permit.end(end, now);
            self.course.came_back();
        }
    }
}
