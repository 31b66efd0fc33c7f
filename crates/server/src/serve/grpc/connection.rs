//! Connection: HTTP/2 from its preface to its last frame.
//!
//! ```text
//!   accept, until the socket has no more --> serve each, in turn --> one write
//!      ^                                                               |
//!      +---------------------------------------------------------------+
//!
//!   silent: PING --no answer--> closed         no call for long: GOAWAY
//!   stopping: GOAWAY, calls in flight finish
//! ```

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Builder, Connection, SendResponse};
use h2::{Ping, Reason, RecvStream};
use http::Request;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::GrpcCall;
use crate::byte_budget::ByteBudget;
use crate::serve::listener::Spans;
use crate::serve::pulse::{Pulse, TICK};

/// Maximum number of calls in flight on one connection.
pub(crate) const MAX_STREAMS: u32 = 100;
/// Maximum number of bytes of a call's header fields.
const MAX_HEADER_BYTES: u32 = 16 << 10;
/// Bytes that a caller may send before we have read them: of one call, and of all together.
const STREAM_WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;
/// Maximum number of bytes of answers that wait for a slow reader, for each stream.
const MAX_SEND_BYTES: usize = 64 << 10;
/// Maximum number of streams reset by the caller before they were served; more end the connection.
/// A caller with [`MAX_STREAMS`] in flight and a time-out of 20 ms resets that many in a stall of
/// 200 ms.
const MAX_RESET_STREAMS: usize = 1_000;
/// How long the handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Ticks of silence after which a ping is sent.
const PING_TICKS: u32 = 6;
/// Ticks of silence after which the connection is closed.
const DEAD_TICKS: u32 = 10;
/// Ticks after which a connection that has brought no call is closed: 30 s.
const FIRST_CALL_TICKS: u32 = 6;

/// Serves the calls of a connection.
pub(crate) trait ServeCalls: Send + Sync + 'static {
    /// Maximum number of bytes of a message.
    const MAX_MESSAGE_BYTES: usize;

    /// Returns the budget of unfinished calls.
    fn bodies(&self) -> &Arc<ByteBudget>;

    /// Serves one call. Polled once where the connection is read; a call that is not done by then
    /// becomes a task.
    fn serve(self: Arc<Self>, call: GrpcCall) -> impl Future<Output = ()> + Send + 'static;
}

/// Serves a connection until it ends.
pub(crate) async fn serve<S: ServeCalls>(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    pulse: Arc<Pulse>,
    server: Arc<S>,
    spans: Spans,
    mut closing: watch::Receiver<bool>,
) {
    let handshake = timeout(HANDSHAKE, bounded().handshake(stream));
    let Ok(mut connection) = (tokio::select! {
        shaken = handshake => shaken.unwrap_or_else(|_| Err(Reason::SETTINGS_TIMEOUT.into())),
        () = pulse.closed() => return,
    }) else {
        return; // not HTTP/2, or too slow to say so
    };
    let mut pings = connection.ping_pong();
    let mut closing = pin!(lingered(&mut closing, spans.linger)); // health says so first
    let mut batch = CallBatch {
        calls: Vec::new(),
        server,
        pulse: Arc::clone(&pulse),
    };
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tick.reset();
    let mut quiet = Quiet::new(spans.ticks.idle);
    let mut stopping = false;
    loop {
        tokio::select! {
            biased;
            () = std::future::poll_fn(|context| batch.poll(&mut connection, context)) => return,
            () = &mut closing, if !stopping => {
                stopping = true;
                connection.graceful_shutdown();
            }
            () = pulse.closed() => return,
            _ = tick.tick() => match quiet.tick(&pulse) {
                Sign::Alive => {}
                Sign::Silent => {
                    if let Some(pings) = &mut pings {
                        // Takes the answer to the last one, which makes room for the next.
                        let _ = pings.poll_pong(&mut Context::from_waker(Waker::noop()));
                        let _ = pings.send_ping(Ping::opaque()); // an error: one is on its way
                    }
                }
                Sign::Idle => connection.graceful_shutdown(),
                Sign::Dead => return,
            }
        }
    }
}

/// Returns `linger` after the service begins to stop, so that watchers can learn of it first.
pub(crate) async fn lingered(closing: &mut watch::Receiver<bool>, linger: Duration) {
    let _ = closing.wait_for(|closing| *closing).await; // an error: the sender is gone
    sleep(linger).await;
}

fn bounded() -> Builder {
    let mut builder = h2::server::Builder::new();
    builder
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEADER_BYTES)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buffer_size(MAX_SEND_BYTES)
        .max_pending_accept_reset_streams(MAX_RESET_STREAMS)
        .max_concurrent_reset_streams(MAX_RESET_STREAMS);
    builder
}

/// The calls that arrived together.
struct CallBatch<S> {
    calls: Vec<(Request<RecvStream>, SendResponse<Bytes>)>,
    server: Arc<S>,
    pulse: Arc<Pulse>,
}

impl<S: ServeCalls> CallBatch<S> {
    /// Ready when the connection has ended. Accepting also writes what waits to be written,
    /// so all calls are taken before the first is served.
    fn poll<T: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        connection: &mut Connection<T, Bytes>,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        loop {
            let ended = loop {
                match connection.poll_accept(context) {
                    Poll::Ready(Some(Ok(call))) => self.calls.push(call),
                    // Errors are the caller's: it left, or broke the protocol and got the reason.
                    Poll::Ready(Some(Err(_)) | None) => break true,
                    Poll::Pending => break false,
                }
            };
            if ended {
                return Poll::Ready(());
            }
            if self.calls.is_empty() {
                return Poll::Pending;
            }
            for (request, respond) in self.calls.drain(..) {
                let held = self.server.bodies().hold();
                let (pulse, max) = (&self.pulse, S::MAX_MESSAGE_BYTES);
                let mut call = GrpcCall::new(request, respond, pulse, held, max);
                if !call.plausible() {
                    continue;
                }
                let mut served = Box::pin(Arc::clone(&self.server).serve(call));
                if served.as_mut().poll(context).is_pending() {
                    tokio::spawn(served);
                }
            }
        }
    }
}

/// The meaning of a connection's silence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sign {
    Alive,
    Silent,
    Idle,
    Dead,
}

/// How long a connection has been silent, and without a call.
#[derive(Debug)]
struct Quiet {
    /// Ticks without a call after which a connection is closed in good order.
    most: u32,
    silent: u32,
}

impl Quiet {
    fn new(most: u32) -> Self {
        Self { most, silent: 0 }
    }

    /// Called every [`TICK`].
    fn tick(&mut self, pulse: &Pulse) -> Sign {
        let seen = pulse.look();
        self.silent = if seen.moved { 0 } else { self.silent + 1 };
        let idle = match pulse.quiet.load(Ordering::Relaxed) {
            _ if seen.asked || seen.in_flight => 0,
            before => before + 1,
        };
        pulse.quiet.store(idle, Ordering::Relaxed);
        let never_asked = seen.begun == 0 && idle >= FIRST_CALL_TICKS;
        if self.silent >= DEAD_TICKS || never_asked {
            Sign::Dead
        } else if idle == self.most {
            Sign::Idle
        } else if idle > self.most + DEAD_TICKS {
            Sign::Dead // it was asked to go and does not
        } else if self.silent == PING_TICKS {
            Sign::Silent
        } else {
            Sign::Alive
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value for these tests.
    const IDLE_TICKS: u32 = 60;

    /// Returns the signs of a connection on which nothing happens, except in the ticks of `calls`.
    fn signs(ticks: u32, calls: &[u32]) -> Vec<(u32, Sign)> {
        let (pulse, mut quiet) = (Pulse::default(), Quiet::new(IDLE_TICKS));
        let mut signs = Vec::new();
        pulse.begin();
        pulse.end();
        for tick in 1..=ticks {
            if calls.contains(&tick) {
                pulse.begin();
                pulse.end();
            }
            let sign = quiet.tick(&pulse);
            if sign != Sign::Alive {
                signs.push((tick, sign));
            }
        }
        signs
    }

    #[test]
    fn a_silent_connection_is_pinged_and_then_closed() {
        let (asked, dead) = (PING_TICKS, DEAD_TICKS);
        assert_eq!(
            signs(dead, &[]),
            [(asked, Sign::Silent), (dead, Sign::Dead)]
        );
    }

    #[test]
    fn pings_alone_keep_no_connection_open_for_ever() {
        let (pulse, mut quiet) = (Pulse::default(), Quiet::new(IDLE_TICKS));
        let sign = |quiet: &mut Quiet| {
            pulse.note();
            quiet.tick(&pulse)
        };
        // One call, so that the deadline of the first does not apply.
        pulse.begin();
        pulse.end();
        assert_eq!(sign(&mut quiet), Sign::Alive);
        let alive = (1..IDLE_TICKS).map(|_| sign(&mut quiet));
        assert!(alive.into_iter().all(|sign| sign == Sign::Alive));
        assert_eq!(sign(&mut quiet), Sign::Idle);
        let after = (0..=DEAD_TICKS).map(|_| sign(&mut quiet)).last();
        assert_eq!(
            after,
            Some(Sign::Dead),
            "an idle connection is closed in the end"
        );
    }

    #[test]
    fn pings_do_not_count_as_the_first_call() {
        let (pulse, mut quiet) = (Pulse::default(), Quiet::new(10 * FIRST_CALL_TICKS));
        for tick in 1..=FIRST_CALL_TICKS {
            pulse.note();
            let is_dead = quiet.tick(&pulse) == Sign::Dead;
            assert_eq!(is_dead, tick == FIRST_CALL_TICKS, "{tick}");
        }
    }

    #[test]
    fn a_connection_with_a_call_in_flight_is_not_idle() {
        let (pulse, mut quiet) = (Pulse::default(), Quiet::new(IDLE_TICKS));
        pulse.begin();
        for _ in 0..10 * IDLE_TICKS {
            pulse.note();
            assert_eq!(quiet.tick(&pulse), Sign::Alive);
        }
        pulse.end();
    }
}
