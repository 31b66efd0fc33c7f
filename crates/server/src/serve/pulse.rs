//! Pulse: signs of life of one connection, so that silent ones can be closed.
//!
//! ```text
//!   opened ------------> first byte ----> head complete ----> answered
//!     |<--- at most MaxTicks::head ticks --->|                   |
//!                                          no byte either way,   |
//!                                          or nothing asked: a bounded time
//! ```
//!
//! Reading a clock on every byte would cost too much, so the connection notes the events,
//! and a slow tick reads the notes.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

/// How often a connection is checked.
pub(crate) const TICK: Duration = Duration::from_secs(5);
/// Maximum number of requests of a connection between two looks at the other sockets of its thread.
const TURN: u32 = 64;
/// A request in flight may be stuck in one direction for 75 s.
const STUCK_TICKS: u32 = 15;

/// The notes of a connection.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    /// True if bytes went either way since the last tick.
    pub(crate) moved: AtomicBool,
    /// True if bytes came in that no request has claimed yet.
    pub(crate) unclaimed: AtomicBool,
    /// True if bytes wait to be written.
    pub(crate) unsent: AtomicBool,
    /// True for HTTP/2: frames that are no requests come in at any time.
    h2: AtomicBool,
    /// Number of requests begun since the start; wraps.
    begun: AtomicU32,
    in_flight: AtomicU32,
    /// Number of requests with answers held back.
    held: AtomicU32,
    /// Ticks without a request, ticks for which a head has been awaited, and `begun` at the last
    /// tick. Only the task of the connection writes them.
    pub(crate) quiet: AtomicU32,
    head: AtomicU32,
    begun_at_tick: AtomicU32,
    /// Index among the connections of its peer, which only their table writes.
    pub(crate) place: AtomicUsize,
    /// Responses before that of the request in flight.
    pub(crate) interim: crate::serve::interim::Interim,
    /// Notified when the connection has to make room for another.
    closing: Notify,
}

/// A request with an answer held back; dropping it ends that.
#[derive(Debug)]
pub(crate) struct HeldBack(Arc<Pulse>);

impl Drop for HeldBack {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A request in flight, to the end of its response.
#[derive(Debug)]
pub(crate) struct InFlight(Arc<Pulse>);

impl InFlight {
    pub(crate) fn begin(pulse: &Arc<Pulse>) -> Self {
        pulse.begin();
        Self(Arc::clone(pulse))
    }

    /// As [`Pulse::hold_back`].
    pub(crate) fn hold_back(&self) -> HeldBack {
        self.0.hold_back()
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// How long a connection has had no request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Idle {
    /// A request is in flight.
    InUse,
    /// Number of ticks without a request.
    Ticks(u32),
}

/// The notes since the last tick.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PulseReading {
    /// True if bytes went either way.
    pub(crate) moved: bool,
    /// True if a request has begun.
    pub(crate) asked: bool,
    pub(crate) in_flight: bool,
    /// Number of requests begun since the start; wraps.
    pub(crate) begun: u32,
}

/// Numbers of ticks after which a connection is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MaxTicks {
    /// Without a whole head of a request, after its first byte or the opening.
    pub(crate) head: u32,
    /// Without a request.
    pub(crate) idle: u32,
}

impl Pulse {
    /// Notes that a request has begun.
    pub(crate) fn begin(&self) {
        self.unclaimed.store(false, Ordering::Relaxed);
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns true if the next request lets the other connections of its thread go first: it came
    /// together with the one before it. A client that sends requests without waiting for their
    /// answers, which all are refused, would else be the only one that is served.
    pub(crate) fn gives_way(&self) -> bool {
        let came_alone = self.unclaimed.load(Ordering::Relaxed);
        !came_alone || self.begun.load(Ordering::Relaxed) % TURN == TURN - 1
    }

    /// Notes that a request has been answered, or given up by its client.
    pub(crate) fn end(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    /// Notes that an answer is held back from now on: silence is no sign of death, and a client of
    /// HTTP/1 that closes the connection is noticed.
    pub(crate) fn hold_back(self: &Arc<Self>) -> HeldBack {
        self.held.fetch_add(1, Ordering::Relaxed);
        HeldBack(Arc::clone(self))
    }

    /// Returns true while an answer is held back.
    pub(crate) fn holds_back(&self) -> bool {
        self.held.load(Ordering::Relaxed) > 0
    }

    /// Notes that the client speaks HTTP/2.
    pub(crate) fn set_h2(&self) {
        self.h2.store(true, Ordering::Relaxed);
    }

    /// Closes the connection, whatever its state.
    pub(crate) fn close(&self) {
        self.closing.notify_one();
    }

    /// Returns when the connection has to close.
    pub(crate) fn closed(&self) -> impl Future<Output = ()> + Send + '_ {
        self.closing.notified()
    }

    /// Returns how long the connection has had no request.
    pub(crate) fn idle(&self) -> Idle {
        if self.in_flight.load(Ordering::Relaxed) > 0 {
            return Idle::InUse;
        }
        let asked = self.begun.load(Ordering::Relaxed);
        if asked != self.begun_at_tick.load(Ordering::Relaxed) {
            return Idle::Ticks(0);
        }
        Idle::Ticks(self.quiet.load(Ordering::Relaxed))
    }

    /// Returns true if nothing is on its way in or out, and nothing has been since the last tick.
    pub(crate) fn is_quiet(&self) -> bool {
        let on_its_way = self.unclaimed.load(Ordering::Relaxed)
            || self.unsent.load(Ordering::Relaxed)
            || self.in_flight.load(Ordering::Relaxed) > 0;
        let begun = self.begun.load(Ordering::Relaxed);
        !on_its_way && begun == self.begun_at_tick.load(Ordering::Relaxed)
    }

    /// Returns true if the client speaks HTTP/2.
    pub(crate) fn is_h2(&self) -> bool {
        self.h2.load(Ordering::Relaxed)
    }

    /// Reads the notes; called every [`TICK`].
    pub(crate) fn look(&self) -> PulseReading {
        let begun = self.begun.load(Ordering::Relaxed);
        PulseReading {
            moved: self.moved.swap(false, Ordering::Relaxed),
            asked: self.begun_at_tick.swap(begun, Ordering::Relaxed) != begun,
            in_flight: self.in_flight.load(Ordering::Relaxed) > 0,
            begun,
        }
    }

    /// Returns true if the connection has been silent too long; called every [`TICK`].
    pub(crate) fn expired(&self, max: MaxTicks) -> bool {
        let seen = self.look();
        let count = |ticks: &AtomicU32, goes_on| {
            let counted = if goes_on {
                ticks.load(Ordering::Relaxed) + 1
            } else {
                0
            };
            ticks.store(counted, Ordering::Relaxed);
            counted
        };
        // A head is awaited from the first byte, or from the opening of the connection.
        let has_bytes = !self.is_h2() && self.unclaimed.load(Ordering::Relaxed);
        let awaits_head = seen.begun == 0 || (!seen.in_flight && has_bytes);
        let head = count(&self.head, awaits_head && !seen.asked);
        let (is_alive, most) = if seen.in_flight {
            (seen.moved || self.holds_back(), STUCK_TICKS)
        } else {
            (seen.asked, max.idle)
        };
        count(&self.quiet, !is_alive) >= most || head >= max.head
    }
}

#[cfg(test)]
impl Pulse {
    /// Notes that bytes went by.
    pub(crate) fn note(&self) {
        self.moved.store(true, Ordering::Relaxed);
    }

    /// Returns true, once, if the connection has to close.
    pub(crate) fn is_closing(&self) -> bool {
        let mut notified = std::pin::pin!(self.closing.notified());
        notified.as_mut().enable()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values for these tests.
    const HEAD_TICKS: u32 = 2;
    const IDLE_TICKS: u32 = 12;
    const MAX: MaxTicks = MaxTicks {
        head: HEAD_TICKS,
        idle: IDLE_TICKS,
    };

    /// Returns the tick at which a pulse expires when nothing more happens.
    fn lives(pulse: &Pulse) -> u32 {
        (1..1000).find(|_| pulse.expired(MAX)).unwrap()
    }

    fn read(pulse: &Pulse) {
        pulse.moved.store(true, Ordering::Relaxed);
        pulse.unclaimed.store(true, Ordering::Relaxed);
    }

    #[test]
    fn a_connection_without_a_request_is_closed_soon() {
        assert_eq!(lives(&Pulse::default()), HEAD_TICKS);
    }

    #[test]
    fn a_connection_with_a_slow_head_is_closed_soon() {
        let pulse = Pulse::default();
        pulse.begin();
        pulse.end();
        assert!(!pulse.expired(MAX));
        read(&pulse);
        assert!(!pulse.expired(MAX));
        read(&pulse);
        assert!(
            pulse.expired(MAX),
            "bytes alone do not keep the connection open"
        );
    }

    #[test]
    fn a_connection_may_idle_after_a_request() {
        let pulse = Pulse::default();
        pulse.begin();
        pulse.end();
        assert!(!pulse.expired(MAX));
        assert_eq!(lives(&pulse), IDLE_TICKS);
    }

    #[test]
    fn a_request_in_flight_stays_open_while_bytes_move() {
        let pulse = Pulse::default();
        pulse.begin();
        for _ in 0..100 {
            read(&pulse);
            assert!(!pulse.expired(MAX));
        }
        assert_eq!(lives(&pulse), STUCK_TICKS);
        pulse.end();
    }

    #[test]
    fn a_delayed_answer_keeps_the_connection_open() {
        let pulse = Arc::new(Pulse::default());
        pulse.begin();
        let held = pulse.hold_back();
        for _ in 0..10 * IDLE_TICKS {
            assert!(!pulse.expired(MAX));
        }
        drop(held);
        assert_eq!(lives(&pulse), STUCK_TICKS);
        pulse.end();
    }

    #[test]
    fn http2_frames_do_not_count_as_heads() {
        let pulse = Pulse::default();
        pulse.h2.store(true, Ordering::Relaxed);
        pulse.begin();
        pulse.end();
        for _ in 0..IDLE_TICKS {
            assert!(!pulse.expired(MAX));
            read(&pulse);
        }
        assert!(
            pulse.expired(MAX),
            "pings alone do not keep the connection open"
        );
    }
}
