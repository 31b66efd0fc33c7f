//! Pace: requests for a hot key are held back for a moment, so that they share calls.
//!
//! ```text
//!   requests   a  b c d e f g h i j k l m n o p     of one key, while a call of it is under way
//!   calls      a--+       |       |       |         or its next one is not due
//!                 b c d e-+ f g h i + ..  one each GAP, but for the first BURST of them
//! ```
//!
//! Requests that arrive while a call of their key is in progress share the next one. If that
//! goes on, calls of the key are sent at most once each [`GAP`], which bounds the calls a second
//! that a hot key costs, and the added wait of its callers. A caller that asks only when answered
//! is never held back, nor is a request because of another key.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use foldhash::quality::RandomState;
use tokio::time::Instant;

/// Time between two calls of a hot key: 1,600 calls a second at most.
const GAP: Duration = Duration::from_micros(600);
/// Calls that may be sent sooner, before a key counts as hot.
const BURST: u32 = 16;
/// Number of known keys up to which those at rest are not removed.
const MAX_AT_REST: usize = 1_024;

/// Keys with calls in progress or sent a moment ago, and the requests that are held back.
#[derive(Debug)]
pub(super) struct KeyPace<T> {
    keys: HashMap<Box<[u8]>, Beat<T>, RandomState>,
    /// Number of known keys at which those at rest are removed.
    crowd: usize,
}

impl<T> Default for KeyPace<T> {
    fn default() -> Self {
        Self {
            keys: HashMap::default(),
            crowd: MAX_AT_REST,
        }
    }
}

#[derive(Debug)]
struct Beat<T> {
    /// Requests of the key that have been sent or are about to be.
    gone: usize,
    held: VecDeque<T>,
    /// When the shared calls so far are made up for, at one each `GAP`.
    even: Instant,
    /// True if the call that was sent last is counted in `even`.
    is_counted: bool,
    /// True if a wake-up is scheduled.
    is_woken: bool,
}

/// The next step for the requests of a key.
#[derive(Debug)]
pub(super) struct PaceStep<T> {
    /// Requests to send now, in one batch.
    pub(super) go: VecDeque<T>,
    /// When [`KeyPace::wakes`] is to be called.
    pub(super) wake: Option<Instant>,
}

impl<T> PaceStep<T> {
    fn nothing() -> Self {
        Self {
            go: VecDeque::new(),
            wake: None,
        }
    }
}

impl<T> Beat<T> {
    fn is_at_rest(&self, now: Instant) -> bool {
        self.gone == 0 && self.held.is_empty() && self.even <= now
    }

    /// Returns when the next call is due.
    fn due(&self) -> Instant {
        self.even.checked_sub(GAP * BURST).unwrap_or(self.even)
    }

    /// Counts a shared call, which is to be made up for by waiting. Even after calls that were
    /// sent because they were full, that takes one gap at most.
    fn count(&mut self, now: Instant) {
        self.even = (self.even.max(now) + GAP).min(now + GAP * (BURST + 1));
    }

    /// Releases the requests held back if a call is due; otherwise asks for a wake-up.
    fn next(&mut self, now: Instant) -> PaceStep<T> {
        if self.held.is_empty() {
            return PaceStep::nothing();
        }
        let due = self.due();
        if now < due {
            let first = !std::mem::replace(&mut self.is_woken, true);
            return PaceStep {
                go: VecDeque::new(),
                wake: first.then_some(due),
            };
        }
        self.leave(now)
    }

    fn leave(&mut self, now: Instant) -> PaceStep<T> {
        let go = std::mem::take(&mut self.held);
        self.gone += go.len();
        self.is_counted = go.len() > 1;
        if self.is_counted {
            self.count(now);
        }
        PaceStep { go, wake: None }
    }
}

impl<T> KeyPace<T> {
    /// Handles an arriving request. Once `most` are held back they are sent, whatever the pace.
    pub(super) fn arrives(
        &mut self,
        key: &[u8],
        request: T,
        most: usize,
        now: Instant,
    ) -> PaceStep<T> {
        let Some(beat) = self.keys.get_mut(key) else {
            self.make_room(now);
            let beat = Beat {
                gone: 1,
                held: VecDeque::new(),
                even: now,
                is_counted: false,
                is_woken: false,
            };
            self.keys.insert(key.into(), beat);
            let go = VecDeque::from([request]);
            return PaceStep { go, wake: None };
        };
        beat.held.push_back(request);
        if beat.held.len() >= most {
            return beat.leave(now);
        }
        if beat.gone > 0 {
            return PaceStep::nothing();
        }
        beat.next(now)
    }

    /// Handles the end of a request that was sent: it was answered, or given up.
    pub(super) fn lands(&mut self, key: &[u8], now: Instant) -> PaceStep<T> {
        let Some(beat) = self.keys.get_mut(key) else {
            return PaceStep::nothing();
        };
        beat.gone = beat.gone.saturating_sub(1);
        if beat.gone > 0 {
            return PaceStep::nothing();
        }
        if beat.held.is_empty() {
            if beat.is_at_rest(now) {
                self.keys.remove(key);
            }
            return PaceStep::nothing();
        }
        if !std::mem::replace(&mut beat.is_counted, true) {
            beat.count(now);
        }
        beat.next(now)
    }

    /// Handles the wake-up at the time of [`PaceStep::wake`].
    pub(super) fn wakes(&mut self, key: &[u8], now: Instant) -> PaceStep<T> {
        let Some(beat) = self.keys.get_mut(key) else {
            return PaceStep::nothing();
        };
        beat.is_woken = false;
        if beat.gone > 0 {
            return PaceStep::nothing();
        }
        beat.next(now)
    }

    fn make_room(&mut self, now: Instant) {
        if self.keys.len() >= self.crowd {
            self.keys.retain(|_, beat| !beat.is_at_rest(now));
            self.crowd = MAX_AT_REST.max(2 * self.keys.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &[u8] = b"ada";
    const MOST: usize = 128;
    const MICRO: Duration = Duration::from_micros(1);

    /// Simulates requests that arrive each `every`, with calls that take `trip`; returns the
    /// number of calls, and the maximum time that a request was held back.
    fn play(every: Duration, trip: Duration, requests: u32) -> (u32, Duration) {
        let start = Instant::now();
        let mut pace = KeyPace::<Instant>::default();
        let (mut calls, mut longest) = (0, Duration::ZERO);
        let mut landing = VecDeque::<(Instant, usize)>::new();
        let mut waking = None;
        let mut coming = (0..requests)
            .map(|number| start + every * number)
            .peekable();
        let mut now = start;
        while coming.peek().is_some() || !landing.is_empty() || waking.is_some() {
            let mut next = Vec::new();
            if let Some((_, count)) = landing.pop_front_if(|(at, _)| *at <= now) {
                next.extend((0..count).map(|_| pace.lands(KEY, now)));
            }
            if waking.take_if(|at| *at <= now).is_some() {
                next.push(pace.wakes(KEY, now));
            }
            if let Some(came) = coming.next_if(|at| *at <= now) {
                next.push(pace.arrives(KEY, came, MOST, now));
            }
            for PaceStep { go, wake } in next {
                waking = wake.or(waking);
                if !go.is_empty() {
                    calls += 1;
                    landing.push_back((now + trip, go.len()));
                    let waited = go.iter().map(|came| now.duration_since(*came));
                    longest = longest.max(waited.max().unwrap());
                }
            }
            now += MICRO;
        }
        assert!(pace.keys.values().all(|beat| beat.held.is_empty()));
        (calls, longest)
    }

    #[test]
    fn a_hot_key_costs_so_many_calls_and_so_long_a_wait() {
        for (every_micros, trip_micros) in [(50, 100), (5, 100), (100, 250), (1, 40)] {
            let every = Duration::from_micros(every_micros);
            let trip = Duration::from_micros(trip_micros);
            let requests = u32::try_from(500_000 / every_micros).unwrap(); // half a second
            let (calls, longest) = play(every, trip, requests.min(50_000));
            let span = every * requests.min(50_000);
            let most = span.as_micros() / GAP.as_micros() + u128::from(BURST) + 2;
            // Full calls are sent whatever the pace.
            let full = requests.min(50_000) / u32::try_from(MOST).unwrap();
            assert!(
                u128::from(calls) <= most + u128::from(full),
                "{calls} > {most}"
            );
            assert!(longest <= GAP + trip + MICRO, "{longest:?}");
        }
    }

    #[test]
    fn a_caller_who_asks_when_answered_is_not_held_back() {
        let every = Duration::from_micros(101);
        let (calls, longest) = play(every, Duration::from_micros(100), 2_000);
        assert_eq!((calls, longest), (2_000, Duration::ZERO));
    }

    #[test]
    fn keys_at_rest_are_forgotten() {
        let mut pace = KeyPace::default();
        let now = Instant::now();
        for number in 0..10_000_u32 {
            let key = number.to_le_bytes();
            let then = now + Duration::from_micros(u64::from(number) * 100);
            let next = pace.arrives(&key, (), MOST, then);
            assert_eq!(next.go.len(), 1);
            pace.arrives(&key, (), MOST, then);
            assert_eq!(
                pace.lands(&key, then).go.len(),
                1,
                "the second is in the burst"
            );
            pace.lands(&key, then);
            assert!(pace.keys.len() <= 2 * MAX_AT_REST, "{}", pace.keys.len());
        }
    }
}
