//! Throttle: refuses locally the share of requests that the server would refuse.
//!
//! A refusal costs the server too. A client that counts its requests and those accepted can
//! spare the server most of the requests that would be refused, and still send enough to notice
//! when it recovers.
//!
//! ```text
//!   share refused locally
//!      1 |.
//!        |   .            p = max(0, (requests - K x accepts) / (requests + 1))
//!        |      .
//!        |         .      K = 2: for each request granted, one more is tried
//!      0 +-----------.============
//!        0          1/K           1   share the server accepts
//! ```
//!
//! * Defaults: K = 2 (the server sees at most twice the requests that it accepts; larger notices recovery
//!   sooner and costs the server more), two minutes (longer than any time-out: a request is
//!   counted *before* it is sent, so a server that hangs is noticed as one that refuses).
//! * A request that is refused locally is counted too; otherwise the share would fall as
//!   soon as it acts.
//! * Trade-off: a client that starts with many requests at once has no answer to any of them,
//!   which looks like a server that hangs. `head_start` is a number of requests left out of
//!   account; the default is the published formula, with none.
//! * Does what a [breaker](crate::breaker) does, more smoothly; do not run both.
//! * Cost: ten loads and one compare-exchange a request, no lock.
//! * Source: Google, "Site Reliability Engineering" (2016), chapter 21, "Client-side
//!   throttling".

use std::time::Duration;

use ratekeeper_core::Time;

use crate::Error;
use crate::random::Random;
use crate::tally::{MarkedCount, RecentTally};

/// When a [`Throttle`] refuses; see the [module](self) for the reasons of the defaults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ThrottleSettings {
    /// K in percent: how many requests pass for each that the server accepts; at least 100.
    /// Default 200.
    pub multiplier_percent: u32,
    /// How long requests are remembered: no shorter than the longest time-out, at least
    /// 10 ns. Default two minutes.
    pub window: Duration,
    /// Requests of the window that may stay unanswered without being held against the
    /// server. Default 0.
    pub head_start: u32,
}

impl Default for ThrottleSettings {
    fn default() -> Self {
        Self {
            multiplier_percent: 200,
            window: Duration::from_secs(120),
            head_start: 0,
        }
    }
}

/// An adaptive client throttle, shared by threads; see the [module](self) for figure and
/// formula.
///
/// ```
/// use ratekeeper_core::Time;
/// use ratekeeper_resilience::{SplitMix, Throttle, ThrottleSettings};
///
/// let throttle = Throttle::new(ThrottleSettings::default()).unwrap();
/// let (now, mut random) = (Time::ZERO, SplitMix::seeded());
/// assert!(throttle.try_send(now, &mut random), "nothing speaks against it");
/// throttle.accepted(now); // the server served the request
/// assert!(throttle.refusing(now) <= 0.0);
/// ```
#[derive(Debug)]
pub struct Throttle {
    /// Marked: accepted by the server.
    requests: RecentTally,
    settings: ThrottleSettings,
}

impl Throttle {
    /// Creates a throttle that has seen no requests.
    ///
    /// # Errors
    /// [`Error::Window`] or [`Error::Multiplier`] for settings outside their bounds.
    pub fn new(settings: ThrottleSettings) -> Result<Self, Error> {
        if settings.multiplier_percent < 100 {
            return Err(Error::Multiplier);
        }
        let requests = RecentTally::new(settings.window.into()).ok_or(Error::Window)?;
        Ok(Self { requests, settings })
    }

    /// Counts a request and returns true if it may be sent, false if it is refused locally.
    #[must_use = "send only if this returns true"]
    pub fn try_send(&self, now: Time, random: &mut impl Random) -> bool {
        let refusing = self.refusing(now);
        self.requests.add(now, MarkedCount { all: 1, marked: 0 });
        refusing <= 0.0 || random.unit() >= refusing
    }

    /// Records a request that the server carried out. Refusals and failures are not reported.
    pub fn accepted(&self, now: Time) {
        self.requests.add(now, MarkedCount { all: 0, marked: 1 });
    }

    /// Takes back the request that was counted at `sent`: its caller gave it up before the server
    /// answered, which shows nothing of the server. One that took too long is not taken back.
    pub fn given_up(&self, sent: Time) {
        self.requests.take_back(sent);
    }

    /// Returns the share of requests refused locally at `now`, 0 to below 1.
    #[expect(clippy::cast_precision_loss, reason = "counts stay below 2^24")]
    pub fn refusing(&self, now: Time) -> f64 {
        let seen = self.requests.sum(now);
        let multiplier = f64::from(self.settings.multiplier_percent) / 100.0;
        let expected = multiplier * seen.marked as f64 + f64::from(self.settings.head_start);
        ((seen.all as f64 - expected) / (seen.all as f64 + 1.0)).max(0.0)
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::SplitMix;
    use ratekeeper_core::Nanos;

    fn secs(secs: u64) -> Time {
        Time::ZERO + Nanos::from_secs(secs)
    }

    fn throttle() -> Throttle {
        Throttle::new(ThrottleSettings::default()).unwrap()
    }

    /// A client that asks 100 times a second of a server that accepts one of `one_in`;
    /// requests sent and accepted in the last of five minutes.
    fn play(one_in: u64) -> (u64, u64) {
        let (throttle, mut random) = (throttle(), SplitMix::new(1));
        let (mut sent, mut accepted, mut arrived) = (0, 0, 0_u64);
        for tick in 0..300 * 100 {
            let now = Time::ZERO + Nanos::from_millis(tick * 10);
            let counts = u64::from(tick >= 240 * 100);
            if throttle.try_send(now, &mut random) {
                sent += counts;
                arrived += 1;
                // `one_in` of 0 accepts none.
                if arrived.checked_rem(one_in) == Some(0) {
                    throttle.accepted(now);
                    accepted += counts;
                }
            }
        }
        (sent, accepted)
    }

    #[test]
    fn a_healthy_server_is_asked_for_everything() {
        assert_eq!(play(1), (6_000, 6_000));
    }

    #[test]
    fn all_calls_are_sent_if_half_are_accepted() {
        // The edge: K x accepts = requests. Chance alone refuses a few.
        let (sent, _) = play(2);
        assert!(sent > 5_500, "{sent}");
    }

    #[test]
    fn a_dead_server_is_left_nearly_alone() {
        let (sent, accepted) = play(0);
        // p = n / (n + 1) with n near 12,000 requests in two minutes: one in two minutes.
        assert!(sent <= 5 && accepted == 0, "{sent}");
    }

    #[test]
    fn a_limited_server_sees_twice_what_it_accepts() {
        // 20 a second are accepted of 100: 40 a second are sent.
        let (throttle, mut random) = (throttle(), SplitMix::new(1));
        let (mut sent, mut accepted) = (0_u64, 0_u64);
        for second in 0..600 {
            let mut left = 20;
            for tick in 0..100 {
                let now = secs(second) + Nanos::from_millis(tick * 10);
                if throttle.try_send(now, &mut random) {
                    let counts = u64::from(second >= 300);
                    sent += counts;
                    if left > 0 {
                        left -= 1;
                        throttle.accepted(now);
                        accepted += counts;
                    }
                }
            }
        }
        assert_eq!(accepted, 300 * 20);
        let share = sent * 100 / accepted;
        assert!((190..=210).contains(&share), "{share} %");
    }

    #[test]
    fn it_forgets_after_the_window() {
        let (throttle, mut random) = (throttle(), SplitMix::new(1));
        for _ in 0..1_000 {
            let _ = throttle.try_send(secs(0), &mut random);
        }
        assert!(throttle.refusing(secs(0)) > 0.99);
        assert!(throttle.refusing(secs(107)) > 0.99);
        assert!(throttle.refusing(secs(120)) <= 0.0);
    }

    #[test]
    fn a_request_that_is_given_up_leaves_no_trace() {
        let (throttle, mut random) = (throttle(), SplitMix::new(1));
        for at in [0, 50, 119, 300] {
            for _ in 0..100 {
                assert!(throttle.try_send(secs(at), &mut random));
                throttle.given_up(secs(at));
            }
        }
        assert!(throttle.try_send(secs(300), &mut random));
        let refusing = throttle.refusing(secs(301));
        throttle.given_up(secs(0)); // too late to matter
        assert!(refusing > 0.0);
        assert!((throttle.refusing(secs(301)) - refusing).abs() < f64::EPSILON);
    }

    #[test]
    fn a_head_start_is_not_held_against_the_server() {
        let settings = ThrottleSettings {
            head_start: 50,
            ..ThrottleSettings::default()
        };
        let (throttle, mut random) = (Throttle::new(settings).unwrap(), SplitMix::new(1));
        for _ in 0..51 {
            assert!(throttle.try_send(secs(0), &mut random));
        }
        assert!(throttle.refusing(secs(0)) > 0.0);
    }
}
