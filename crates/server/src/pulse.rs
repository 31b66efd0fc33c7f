//! Pulse: signs of life of one connection, so that silent ones can be closed.
//!
//! ```text
//!   opened ------------> first byte ----> head complete ----> answered
//!     |<---- at most HEAD_TICKS ticks ---->|                     |
//!                                          no byte either way,   |
//!                                          or nothing asked: at most IDLE_TICKS
//! ```
//!
//! Reading a clock on every byte would cost more than it is worth: the connection notes
//! what happened, and a slow tick looks at the notes.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// How often a connection is looked at.
pub(crate) const TICK: Duration = Duration::from_secs(5);
/// A request head must be complete after 10 s: within 2 whole ticks.
const HEAD_TICKS: u32 = 2;
/// A connection may be idle, or stuck in one direction, for 75 s.
const IDLE_TICKS: u32 = 15;

/// What is read of a connection that is closed anyway.
const LAST_BYTES: usize = 4096;

/// What a connection notes.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    /// Bytes went either way since the last tick.
    moved: AtomicBool,
    /// Bytes came in that no request has claimed yet.
    unclaimed: AtomicBool,
    /// HTTP/2: frames that are no requests come in at any time.
    h2: AtomicBool,
    /// Requests begun since the start; wraps.
    begun: AtomicU32,
    in_flight: AtomicU32,
    /// Requests whose answers are held back.
    held: AtomicU32,
}

/// A request whose answer is held back; dropping it ends that.
#[derive(Debug)]
pub(crate) struct HeldBack(Arc<Pulse>);

impl Drop for HeldBack {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a look at the notes shows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// Bytes went either way since the last look.
    pub(crate) moved: bool,
    /// Requests begun since the start; wraps.
    pub(crate) begun: u32,
    pub(crate) in_flight: bool,
}

/// What a tick remembers.
#[derive(Debug, Default)]
pub(crate) struct Ticks {
    begun: u32,
    head: u32,
    quiet: u32,
}

impl Pulse {
    /// A request has begun.
    pub(crate) fn begin(&self) {
        self.unclaimed.store(false, Ordering::Relaxed);
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    /// A request has been answered, or given up by its client.
    pub(crate) fn end(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    /// From now on an answer is held back: silence is no sign of death, and a client of HTTP/1
    /// that closes the connection is noticed.
    pub(crate) fn hold_back(self: &Arc<Self>) -> HeldBack {
        self.held.fetch_add(1, Ordering::Relaxed);
        HeldBack(Arc::clone(self))
    }

    fn holds_back(&self) -> bool {
        self.held.load(Ordering::Relaxed) > 0
    }

    /// Whether the client speaks HTTP/2.
    pub(crate) fn is_h2(&self) -> bool {
        self.h2.load(Ordering::Relaxed)
    }

    /// What happened since the last look.
    pub(crate) fn look(&self) -> Seen {
        Seen {
            moved: self.moved.swap(false, Ordering::Relaxed),
            begun: self.begun.load(Ordering::Relaxed),
            in_flight: self.in_flight.load(Ordering::Relaxed) > 0,
        }
    }

    /// Whether the connection has been silent too long; called every [`TICK`].
    pub(crate) fn expired(&self, ticks: &mut Ticks) -> bool {
        let moved = self.moved.swap(false, Ordering::Relaxed);
        let begun = self.begun.load(Ordering::Relaxed);
        let asked = begun != ticks.begun;
        ticks.begun = begun;
        let idle = self.in_flight.load(Ordering::Relaxed) == 0;
        let h2 = self.is_h2();
        // A head is awaited from the first byte, or from the opening of the connection.
        let awaits_head = begun == 0 || (idle && !h2 && self.unclaimed.load(Ordering::Relaxed));
        ticks.head = if awaits_head && !asked {
            ticks.head + 1
        } else {
            0
        };
        let alive = if idle {
            asked
        } else {
            moved || self.holds_back()
        };
        ticks.quiet = if alive { 0 } else { ticks.quiet + 1 };
        ticks.head >= HEAD_TICKS || ticks.quiet >= IDLE_TICKS
    }
}

/// A stream that notes its bytes.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) stream: TcpStream,
    pub(crate) pulse: Arc<Pulse>,
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let read = &buffer.filled()[before..];
        if !read.is_empty() {
            self.pulse.moved.store(true, Ordering::Relaxed);
            self.pulse.unclaimed.store(true, Ordering::Relaxed);
            // The preface of HTTP/2 begins so, and no method of HTTP/1 does.
            if self.pulse.begun.load(Ordering::Relaxed) == 0 && read.starts_with(b"PRI * ") {
                self.pulse.h2.store(true, Ordering::Relaxed);
            }
        }
        result
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if result.is_ready() {
            self.pulse.moved.store(true, Ordering::Relaxed);
        }
        result
    }

    /// Called whenever the connection is looked at. While an answer is held back, nothing is
    /// read that would show that the client has left: so it is looked for here. A client that
    /// closes only its own direction is taken for gone, as proxies do.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.pulse.holds_back() && !self.pulse.is_h2() && self.client_left(cx) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_shutdown(cx);
        if result.is_ready() {
            // Bytes that came and were not read would make the close a reset, which can cost
            // the client the answer that says what was wrong with them.
            let _ = self.stream.try_read(&mut [0; LAST_BYTES]);
        }
        result
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        if result.is_ready() {
            self.pulse.moved.store(true, Ordering::Relaxed);
        }
        result
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

impl Watched {
    /// Whether the client has closed the connection; wakes the connection when it does, unless
    /// the client has sent more before that.
    fn client_left(&self, cx: &mut Context<'_>) -> bool {
        let mut byte = [0];
        let peeked = self.stream.poll_peek(cx, &mut ReadBuf::new(&mut byte));
        matches!(peeked, Poll::Ready(Ok(0) | Err(_)))
    }
}

#[cfg(test)]
impl Pulse {
    /// Bytes went by.
    pub(crate) fn note(&self) {
        self.moved.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tick at which a pulse expires when nothing more happens.
    fn lives(pulse: &Pulse, ticks: &mut Ticks) -> u32 {
        (1..1000).find(|_| pulse.expired(ticks)).unwrap()
    }

    fn read(pulse: &Pulse) {
        pulse.moved.store(true, Ordering::Relaxed);
        pulse.unclaimed.store(true, Ordering::Relaxed);
    }

    #[test]
    fn a_connection_that_never_asks_is_closed_soon() {
        assert_eq!(lives(&Pulse::default(), &mut Ticks::default()), HEAD_TICKS);
    }

    #[test]
    fn a_head_that_drips_is_closed_soon() {
        let (pulse, mut ticks) = (Pulse::default(), Ticks::default());
        pulse.begin();
        pulse.end();
        assert!(!pulse.expired(&mut ticks));
        read(&pulse);
        assert!(!pulse.expired(&mut ticks));
        read(&pulse);
        assert!(pulse.expired(&mut ticks), "bytes alone are no life");
    }

    #[test]
    fn a_connection_that_asked_may_idle() {
        let (pulse, mut ticks) = (Pulse::default(), Ticks::default());
        pulse.begin();
        pulse.end();
        assert!(!pulse.expired(&mut ticks));
        assert_eq!(lives(&pulse, &mut ticks), IDLE_TICKS);
    }

    #[test]
    fn a_request_in_flight_lives_by_its_bytes() {
        let (pulse, mut ticks) = (Pulse::default(), Ticks::default());
        pulse.begin();
        for _ in 0..100 {
            read(&pulse);
            assert!(!pulse.expired(&mut ticks));
        }
        assert_eq!(lives(&pulse, &mut ticks), IDLE_TICKS);
        pulse.end();
    }

    #[test]
    fn an_answer_that_is_held_back_keeps_the_connection_open() {
        let (pulse, mut ticks) = (Arc::new(Pulse::default()), Ticks::default());
        pulse.begin();
        let held = pulse.hold_back();
        for _ in 0..10 * IDLE_TICKS {
            assert!(!pulse.expired(&mut ticks));
        }
        drop(held);
        assert_eq!(lives(&pulse, &mut ticks), IDLE_TICKS);
        pulse.end();
    }

    #[test]
    fn frames_of_http2_are_no_heads() {
        let (pulse, mut ticks) = (Pulse::default(), Ticks::default());
        pulse.h2.store(true, Ordering::Relaxed);
        pulse.begin();
        pulse.end();
        for _ in 0..IDLE_TICKS {
            assert!(!pulse.expired(&mut ticks));
            read(&pulse);
        }
        assert!(pulse.expired(&mut ticks), "pings alone keep nothing open");
    }
}
