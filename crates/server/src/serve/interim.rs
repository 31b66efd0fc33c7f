//! Interim: responses before the response to a request, which hyper's server does not send.
//!
//! ```text
//!   request begins --> upstream: 103 --> queue --wakes the connection--> client: 103
//!                      upstream: 200 --> the queue is sent, and closed --> hyper: 200
//! ```
//!
//! They never come inside another message. Their bytes are written when hyper flushes the stream,
//! which it does after the last byte that it has; and the queue is open only while a request of the
//! connection waits for its response, so hyper has neither that response nor, because it answers
//! requests one by one, any other. An interim response that has been begun is written to its end
//! before hyper writes again (`100 Continue`). A request that is over adds nothing to that of the
//! next one.
//!
//! A connection of HTTP/2 has several requests at a time, and no such queue.
//!
//! * Source: RFC 9110, "HTTP Semantics" (2022), section 15.2.

use std::future::poll_fn;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker, ready};

use parking_lot::Mutex;
use ratekeeper_gateway::TakeInterim;

use super::pulse::Pulse;

/// Maximum number of bytes that wait for a client; further interim responses are left out.
const MAX_BYTES: usize = 16 << 10;

/// The interim responses of one connection.
#[derive(Default, derive_more::Debug)]
#[debug("Interim")]
pub(crate) struct Interim {
    /// True if there are bytes, so that a connection without any looks no further.
    waits: AtomicBool,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    /// Number of the request that has them; requests that are over have lower numbers.
    request: u64,
    is_open: bool,
    bytes: Vec<u8>,
    sent: usize,
    /// The task of the connection, which serves its requests too.
    connection: Option<Waker>,
}

impl TakeInterim for Pulse {
    /// Adds the head of an interim response.
    fn take(&self, request: u64, head: &[u8]) {
        let mut queue = self.interim.queue.lock();
        let is_current = queue.is_open && queue.request == request;
        if is_current && queue.bytes.len() + head.len() <= MAX_BYTES {
            queue.bytes.extend_from_slice(head);
            self.interim.waits.store(true, Ordering::Relaxed); // read by the task that is woken
            if let Some(connection) = &queue.connection {
                connection.wake_by_ref();
            }
        }
    }
}

impl Interim {
    /// Opens the queue for a request of the connection that is polled, and returns its number.
    pub(crate) async fn begin(&self) -> u64 {
        poll_fn(|context| {
            let mut queue = self.queue.lock();
            queue.request += 1;
            queue.is_open = true;
            match &mut queue.connection {
                Some(connection) => connection.clone_from(context.waker()),
                none => *none = Some(context.waker().clone()),
            }
            Poll::Ready(queue.request)
        })
        .await
    }

    /// Closes the queue, and returns when its bytes are sent.
    pub(crate) async fn end(&self) {
        poll_fn(|_| {
            let mut queue = self.queue.lock();
            queue.is_open = false;
            // The flush that follows in this turn sends the rest, and wakes this task at its end.
            if queue.bytes.is_empty() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    /// Returns true if there are bytes for the client.
    pub(crate) fn waits(&self) -> bool {
        self.waits.load(Ordering::Relaxed)
    }

    /// Returns true if a part of the bytes is sent.
    pub(crate) fn has_begun(&self) -> bool {
        self.waits() && self.queue.lock().sent > 0
    }

    /// Sends the bytes by `write`, which returns how many it has written.
    pub(crate) fn poll_send(
        &self,
        mut write: impl FnMut(&[u8]) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<()>> {
        let mut queue = self.queue.lock();
        while queue.sent < queue.bytes.len() {
            let written = ready!(write(&queue.bytes[queue.sent..]))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            queue.sent += written;
        }
        (queue.bytes, queue.sent) = (Vec::new(), 0); // few connections have more of them
        self.waits.store(false, Ordering::Relaxed);
        if let Some(connection) = queue.connection.as_ref().filter(|_| !queue.is_open) {
            connection.wake_by_ref();
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// Writes up to `most` bytes.
    fn write_to<'a>(
        sent: &'a mut Vec<u8>,
        most: &'a mut usize,
    ) -> impl FnMut(&[u8]) -> Poll<io::Result<usize>> {
        |bytes| {
            let count = bytes.len().min(*most);
            if count == 0 {
                return Poll::Pending;
            }
            *most -= count;
            sent.extend_from_slice(&bytes[..count]);
            Poll::Ready(Ok(count))
        }
    }

    #[tokio::test]
    async fn what_was_begun_is_sent_to_its_end_before_the_response() {
        let pulse = Arc::new(Pulse::default());
        let request = pulse.interim.begin().await;
        assert!(!pulse.interim.waits());
        pulse.take(request, b"103 a");
        pulse.take(request, b"103 b");
        let mut sent = Vec::new();
        let poll = pulse.interim.poll_send(write_to(&mut sent, &mut 7));
        assert!(poll.is_pending() && pulse.interim.has_begun());
        let mut end = Box::pin(pulse.interim.end());
        let mut context = std::task::Context::from_waker(Waker::noop());
        assert!(end.as_mut().poll(&mut context).is_pending());
        let poll = pulse.interim.poll_send(write_to(&mut sent, &mut 9));
        assert!(poll.is_ready() && !pulse.interim.waits());
        assert!(end.as_mut().poll(&mut context).is_ready());
        assert_eq!(sent, b"103 a103 b");
    }

    #[tokio::test]
    async fn a_request_that_is_over_adds_nothing() {
        let pulse = Arc::new(Pulse::default());
        let first = pulse.interim.begin().await;
        pulse.interim.end().await;
        pulse.take(first, b"late");
        assert!(!pulse.interim.waits(), "no request waits");
        let second = pulse.interim.begin().await;
        pulse.take(first, b"late");
        assert!(!pulse.interim.waits(), "another request waits");
        pulse.take(second, &[b'x'; MAX_BYTES]);
        pulse.take(second, b"x");
        let (mut sent, mut most) = (Vec::new(), usize::MAX);
        let poll = pulse.interim.poll_send(write_to(&mut sent, &mut most));
        assert!(poll.is_ready() && sent.len() == MAX_BYTES);
    }
}
