//! Recent responses: how fast an upstream responded in the last seconds, and how often it failed.
//!
//! ```text
//!   second    3    4    5  ...  12 = now     each second holds: responses, the sum of their times,
//!            [ ]  [ ]  [ ]      [ ]          requests that ended and that failed, and requests that
//!             \_________________/            began and still wait
//!              the last 10 seconds
//! ```
//!
//! The latency is the mean time of the responses. Requests without a response can only raise it:
//! one that still waits, failed or was given up counts with the time that it has waited, if that is
//! more than the mean. So an upstream that fails at once does not look fast, and one that hangs
//! does not look as fast as before. Without any response there is no latency.
//!
//! It is a mean because that takes two numbers for each second. A percentile would take a
//! histogram, and its buckets would decide the result.

use std::sync::atomic::{AtomicBool, Ordering};

use http::StatusCode;
use parking_lot::Mutex;
use ratekeeper_core::{Nanos, Time};
use tokio::time::Instant;

use crate::error::ForwardError;
use crate::gateway::Forwarded;
use crate::upload::Upload;

/// Seconds that count, the current one among them.
const SPAN: u64 = SLOTS as u64;
const SLOTS: usize = 10;

/// How an upstream responded in the last 10 s.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecentLevels {
    /// Mean time to the head of a response; `None` without one.
    pub latency: Option<Nanos>,
    /// Failed requests in a million that ended, rounded up; `None` if none ended.
    pub failed_ppm: Option<u32>,
}

/// How a request ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    Responded,
    /// Before the request was sent, so the time is its client's.
    Early,
    Failed,
    /// By its client: it says nothing of the upstream but that it had not responded.
    GivenUp,
}

impl Ended {
    /// Returns how a request ended for the upstream; `None` if its client did not send all of it.
    /// `took` is `None` while the body is being sent.
    pub(crate) fn of(
        result: &Result<Forwarded, ForwardError>,
        took: Option<Nanos>,
    ) -> Option<Self> {
        let status = match result {
            Ok(Forwarded::Response(response)) => response.status(),
            Ok(Forwarded::Upgraded(..)) => StatusCode::SWITCHING_PROTOCOLS,
            Err(ForwardError::Upstream(_) | ForwardError::Tls(_)) => return Some(Self::Failed),
            // Its client is at fault.
            Err(_) => return None,
        };
        Some(
            if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
                Self::Failed
            } else if took.is_none() {
                Self::Early
            } else {
                Self::Responded
            },
        )
    }
}

/// The responses of an upstream in the last 10 s. Nothing is counted before the first call of
/// [`levels`](Self::levels), so an upstream that no limit names costs one load a request.
#[derive(Debug)]
pub struct RecentResponses {
    start: Instant,
    /// True once the levels were read.
    is_read: AtomicBool,
    seconds: Mutex<Seconds>,
}

/// A request that waits for the head of its response; given up if it is dropped.
pub(crate) struct Waiting<'a> {
    recent: &'a RecentResponses,
    since: Instant,
    has_body: bool,
}

#[derive(Debug, Default)]
struct Seconds {
    ring: [Second; SLOTS],
    /// Requests that wait and began before all seconds of the ring.
    older: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Second {
    number: u64,
    /// Requests that began in it, and still wait.
    waiting: u64,
    responses: Times,
    /// Requests without a response that took longer than the responses.
    others: Times,
    ended: u64,
    failed: u64,
}

/// The time of requests together, and their number.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    nanos: u128,
    count: u64,
}

impl Times {
    fn of(each: Nanos, count: u64) -> Self {
        let nanos = u128::from(each.as_nanos()) * u128::from(count);
        Self { nanos, count }
    }

    fn add(&mut self, other: Self) {
        self.nanos += other.nanos;
        self.count += other.count;
    }

    /// Returns true if the mean is above the mean of `other`.
    fn exceed(self, other: Self) -> bool {
        self.nanos * u128::from(other.count) > other.nanos * u128::from(self.count)
    }
}

impl RecentResponses {
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            is_read: AtomicBool::new(false),
            seconds: Mutex::default(),
        }
    }

    /// Counts a request from `since` on, which is now; one with a body is counted when it ends, because it may wait
    /// for its client. Returns `None` if the levels were never read.
    pub(crate) fn wait(&self, body: Option<&Upload>, since: Instant) -> Option<Waiting<'_>> {
        if !self.is_read.load(Ordering::Relaxed) {
            return None;
        }
        if body.is_none() {
            self.seconds.lock().begin(self.time_of(since));
        }
        Some(Waiting {
            recent: self,
            since,
            has_body: body.is_some(),
        })
    }

    /// Counts a request that was not sent, because the upstream bears no more.
    pub(crate) fn refuse(&self) {
        if !self.is_read.load(Ordering::Relaxed) {
            return;
        }
        let now = self.time_of(Instant::now());
        self.seconds.lock().count(Nanos::ZERO, now, Ended::Failed);
    }

    /// Returns the levels of the last 10 s, without requests that began before the first call.
    pub fn levels(&self) -> RecentLevels {
        self.is_read.store(true, Ordering::Relaxed);
        let now = self.time_of(Instant::now());
        self.seconds.lock().levels(now)
    }

    fn time_of(&self, moment: Instant) -> Time {
        Time::ZERO + Nanos::from(moment.saturating_duration_since(self.start))
    }
}

impl Waiting<'_> {
    /// Ends the wait, now, which began when the body was sent, if there is one.
    pub(crate) fn end(mut self, sent: Option<Instant>, ended: Ended, now: Instant) {
        self.since = sent.unwrap_or(self.since);
        self.count(ended, now);
        std::mem::forget(self); // it was not given up
    }

    fn count(&self, ended: Ended, now: Instant) {
        let recent = self.recent;
        let (since, now) = (recent.time_of(self.since), recent.time_of(now));
        let mut seconds = recent.seconds.lock();
        if !self.has_body {
            seconds.end(since, now);
        }
        let waited = match ended {
            Ended::Early => Nanos::ZERO,
            _ => now.since(since),
        };
        seconds.count(waited, now, ended);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        // How long a body was waited for is not known.
        if !self.has_body {
            self.count(Ended::GivenUp, Instant::now());
        }
    }
}

impl Seconds {
    /// Returns the second of `now`, and forgets those that are no longer of the span.
    fn at(&mut self, now: Time) -> &mut Second {
        let number = second_of(now);
        for second in &mut self.ring {
            if second.number + SPAN <= number {
                self.older += second.waiting;
                *second = Second::default();
            }
        }
        let second = &mut self.ring[slot(number)];
        second.number = second.number.max(number); // times of threads are in no order
        second
    }

    fn begin(&mut self, now: Time) {
        self.at(now).waiting += 1;
    }

    /// Forgets a request that began at `start` and waited.
    fn end(&mut self, start: Time, now: Time) {
        self.at(now); // moves the requests of seconds before the span to `older`
        let number = second_of(start);
        let waiting = if number + SPAN <= second_of(now) {
            &mut self.older
        } else {
            &mut self.ring[slot(number)].waiting
        };
        *waiting = waiting.saturating_sub(1);
    }

    fn levels(&mut self, now: Time) -> RecentLevels {
        self.at(now);
        let latency = self.latency(now);
        let sum = |of: fn(&Second) -> u64| self.ring.iter().map(of).sum::<u64>();
        let (ended, failed) = (sum(|it| it.ended), sum(|it| it.failed));
        // Both up, so that no level is taken for a lower one.
        let share = (ended > 0).then(|| failed.saturating_mul(1_000_000).div_ceil(ended));
        let nanos = (latency.count > 0).then(|| latency.nanos.div_ceil(u128::from(latency.count)));
        RecentLevels {
            latency: nanos.map(|nanos| Nanos::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))),
            failed_ppm: share.map(|share| u32::try_from(share).unwrap_or(u32::MAX)),
        }
    }

    fn count(&mut self, waited: Nanos, now: Time, ended: Ended) {
        let mean = self.responses();
        let second = self.at(now);
        if ended != Ended::GivenUp {
            second.ended += 1;
            second.failed += u64::from(ended == Ended::Failed);
        }
        let time = Times::of(waited, 1);
        if ended == Ended::Responded {
            second.responses.add(time);
        } else if time.exceed(mean) {
            second.others.add(time);
        }
    }

    /// Returns the times of the responses.
    fn responses(&self) -> Times {
        let mut sum = Times::default();
        self.ring
            .iter()
            .for_each(|second| sum.add(second.responses));
        sum
    }

    /// Adds the requests without a response that raise the mean. One that waits counts with the
    /// least time that it has waited.
    fn latency(&self, now: Time) -> Times {
        let mut sum = self.responses();
        let mut raise = |times: Times| {
            if times.exceed(sum) {
                sum.add(times);
            }
        };
        raise(Times::of(Nanos::from_secs(SPAN), self.older));
        for second in &self.ring {
            let end = Time::ZERO + Nanos::from_secs(second.number + 1);
            raise(second.others);
            raise(Times::of(now.since(end), second.waiting));
        }
        sum
    }
}

/// Returns the place of a second in the ring.
const fn slot(second: u64) -> usize {
    (second % SPAN) as usize
}

const fn second_of(time: Time) -> u64 {
    time.as_nanos() / Nanos::SECOND.as_nanos()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Nanos::from_millis(millis)
    }

    /// Begins and ends a request.
    fn ask(seconds: &mut Seconds, (start, end): (u64, u64), ended: Ended) {
        seconds.begin(at(start));
        seconds.end(at(start), at(end));
        seconds.count(Nanos::from_millis(end - start), at(end), ended);
    }

    fn latency(seconds: &mut Seconds, millis: u64) -> Option<u64> {
        seconds
            .levels(at(millis))
            .latency
            .map(Nanos::as_millis_ceil)
    }

    #[test]
    fn a_mean_of_the_last_ten_seconds() {
        let mut seconds = Seconds::default();
        assert_eq!(latency(&mut seconds, 0), None, "no request");
        ask(&mut seconds, (100, 200), Ended::Responded);
        ask(&mut seconds, (2_000, 2_300), Ended::Responded);
        assert_eq!(latency(&mut seconds, 2_300), Some(200));
        assert_eq!(latency(&mut seconds, 9_999), Some(200));
        assert_eq!(latency(&mut seconds, 10_000), Some(300), "second 0 is old");
        assert_eq!(latency(&mut seconds, 12_000), None, "all are old");
    }

    #[test]
    fn an_upstream_that_refuses_at_once_does_not_look_fast() {
        let mut seconds = Seconds::default();
        ask(&mut seconds, (0, 1), Ended::Failed);
        assert_eq!(latency(&mut seconds, 1), None);
        ask(&mut seconds, (100, 500), Ended::Responded);
        for ended in [Ended::Failed, Ended::GivenUp] {
            for _ in 0..100 {
                ask(&mut seconds, (600, 601), ended);
            }
            assert_eq!(latency(&mut seconds, 601), Some(400), "{ended:?}");
        }
        ask(&mut seconds, (600, 1_800), Ended::GivenUp);
        assert_eq!(latency(&mut seconds, 1_800), Some(800), "but a slow one");
    }

    #[test]
    fn an_upstream_that_hangs_looks_slow_before_it_responds() {
        let mut seconds = Seconds::default();
        ask(&mut seconds, (0, 100), Ended::Responded);
        seconds.begin(at(900));
        assert_eq!(latency(&mut seconds, 1_050), Some(100), "it just began");
        assert_eq!(latency(&mut seconds, 2_000), Some(550), "1 s at least");
        ask(&mut seconds, (9_000, 9_100), Ended::Responded);
        assert_eq!(latency(&mut seconds, 12_000), Some(5_050), "10 s at most");
        seconds.end(at(900), at(12_000));
        seconds.count(Nanos::from_millis(11_100), at(12_000), Ended::Responded);
        assert_eq!(latency(&mut seconds, 12_000), Some(5_600));
    }

    #[test]
    fn failures_are_a_share_of_the_requests_that_ended() {
        let mut seconds = Seconds::default();
        let failed = |seconds: &mut Seconds, millis| seconds.levels(at(millis)).failed_ppm;
        seconds.begin(at(0));
        ask(&mut seconds, (0, 100), Ended::GivenUp);
        assert_eq!(failed(&mut seconds, 100), None, "none ended");
        ask(&mut seconds, (0, 100), Ended::Responded);
        ask(&mut seconds, (0, 100), Ended::Early);
        assert_eq!(failed(&mut seconds, 100), Some(0));
        ask(&mut seconds, (0, 5_000), Ended::Failed);
        assert_eq!(failed(&mut seconds, 5_000), Some(333_334), "rounded up");
        assert_eq!(failed(&mut seconds, 10_000), Some(1_000_000));
        assert_eq!(failed(&mut seconds, 15_000), None);
    }

    proptest! {
        /// No level is below that of the responses alone, and requests that end are forgotten.
        #[test]
        fn no_request_lowers_the_mean_of_responses(
            asks in prop::collection::vec((0..3_000_u64, 0..15_000_u64, 0..4_u8), 1..60),
        ) {
            let mut seconds = Seconds::default();
            // The begins and ends of all requests, in the order of time.
            let (mut events, mut now) = (Vec::new(), 0);
            for (index, (pause, wait, _)) in asks.iter().enumerate() {
                now += pause;
                events.push((now, index, None));
                events.push((now + wait, index, Some(now)));
            }
            events.sort_unstable();
            let mut responses: Vec<(u64, u64)> = Vec::new();
            for (now, index, began) in events {
                let Some(began) = began else {
                    seconds.begin(at(now));
                    continue;
                };
                let ended = match asks[index].2 {
                    0 | 1 => Ended::Responded,
                    2 => Ended::Failed,
                    _ => Ended::GivenUp,
                };
                seconds.end(at(began), at(now));
                seconds.count(Nanos::from_millis(now - began), at(now), ended);
                if ended == Ended::Responded {
                    responses.push((now, now - began));
                }
                let recent = responses.iter().filter(|(end, _)| end / 1_000 + SPAN > now / 1_000);
                let (count, sum) = recent.fold((0, 0), |(count, sum), (_, wait)| (count + 1, sum + wait));
                let least = Nanos::from_millis(sum).as_nanos().checked_div(count).map(Nanos::from_nanos);
                prop_assert!(seconds.levels(at(now)).latency >= least);
            }
            let waiting = seconds.ring.iter().map(|second| second.waiting).sum::<u64>();
            prop_assert_eq!((waiting, seconds.older), (0, 0));
        }
    }
}
