//! Signal: a level, such as the load of the machine, that opens and closes elastic limits.
//!
//! ```text
//!   load 40 % until 12:00:05     elastic while load is below 70 %   open
//!   load 80 % until 12:00:05                                        closed
//!   pushed never, or 12:00:05 has passed                            closed
//! ```
//!
//! A level and its end are one word, so a decision reads one atomic, and no reader sees parts of
//! two levels.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ratekeeper_core::Nanos;

use crate::WallTime;

/// Name of the signal that the service sets by itself: the load of its machine.
pub const LOAD: &str = "load";

/// A measurement of an upstream by the proxy listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UpstreamMeasure {
    /// Mean time to the head of a response.
    Latency,
    /// Share of the requests that failed.
    Errors,
}

/// Returns the route and the measure of a signal that the proxy listener sets by itself:
/// `upstream.latency`, `upstream.errors`, or `upstream.ROUTE.latency`. The route of `upstream`
/// itself is empty.
pub fn upstream_signal(name: &str) -> Option<(&str, UpstreamMeasure)> {
    let (upstream, measure) = name.rsplit_once('.')?;
    let measure = match measure {
        "latency" => UpstreamMeasure::Latency,
        "errors" => UpstreamMeasure::Errors,
        _ => return None,
    };
    match upstream.split_once('.') {
        None if upstream == "upstream" => Some(("", measure)),
        Some(("upstream", route)) if !route.is_empty() => Some((route, measure)),
        _ => None,
    }
}

/// A signal that a policy names. Its level is a share, in parts per million (1,000,000 are 100 %),
/// or a latency, in microseconds.
#[derive(Debug)]
pub struct Signal {
    name: Box<str>,
    /// The level in the upper 24 bits, and the tick since 1970 at which it ends in the others.
    level: AtomicU64,
}

/// Milliseconds of a tick: 40 bits of ticks last until 2109.
const TICK_MILLIS: u64 = 4;
const TICK_BITS: u32 = 40;
/// Maximum level that is kept: above every `below` of a policy.
const MAX_LEVEL: u64 = u64::MAX >> TICK_BITS;

impl Signal {
    /// A signal without a level.
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            level: AtomicU64::new(0),
        }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets the level for a time from `now` on, to 4 ms; no level if the time is unknown. A level
    /// above 16,777,215 is kept as that.
    pub fn set(&self, level: u32, now: WallTime, lasts: impl Into<Nanos>) {
        let lasts = lasts.into().as_nanos() / 1_000_000;
        let until = now.unix_millis().map(|now| (now + lasts) / TICK_MILLIS); // none lasts longer
        let until = until.filter(|until| until >> TICK_BITS == 0);
        let level = u64::from(level).min(MAX_LEVEL);
        let word = until.map_or(0, |until| level << TICK_BITS | until);
        self.level.store(word, Ordering::Relaxed);
    }

    /// Forgets the level.
    pub fn clear(&self) {
        self.level.store(0, Ordering::Relaxed);
    }

    /// Returns the level; `None` if it was never set, or has ended.
    #[inline]
    pub fn level(&self, now: WallTime) -> Option<u32> {
        let word = self.level.load(Ordering::Relaxed);
        let until = (word & (u64::MAX >> (64 - TICK_BITS))) * TICK_MILLIS;
        let lasts = now.unix_millis().is_some_and(|now| now < until);
        lasts.then_some((word >> TICK_BITS) as u32)
    }

    /// Returns the level in words: `14.5 %`, or `140 ms` for a latency; `None` as for
    /// [`level`](Self::level).
    pub fn words(&self, now: WallTime) -> Option<String> {
        let level = f64::from(self.level(now)?);
        Some(match upstream_signal(&self.name) {
            Some((_, UpstreamMeasure::Latency)) => format!("{} ms", level / 1_000.0),
            _ => format!("{} %", level / f64::from(PPM_OF_PERCENT)),
        })
    }
}

/// `while` of an elastic limit: a signal, and the level below which it is open.
#[derive(Clone, Debug)]
pub struct Gate {
    pub(crate) signal: Arc<Signal>,
    /// In the unit of the signal.
    pub(crate) below: u32,
    /// The same as written.
    pub(crate) text: Box<str>,
}

impl Gate {
    /// Returns true if the level of the signal is known and low enough.
    #[inline]
    pub fn is_open(&self, now: WallTime) -> bool {
        let level = self.signal.level(now);
        level.is_some_and(|level| level < self.below)
    }

    /// Returns the signal.
    pub fn signal(&self) -> &Signal {
        &self.signal
    }

    /// Returns the level below which it is open, as written: `70%`, or `200ms` for a latency.
    pub fn below(&self) -> &str {
        &self.text
    }
}

/// Parts per million of one percent.
pub(crate) const PPM_OF_PERCENT: u32 = 10_000;

#[cfg(test)]
mod tests {
    use ratekeeper_core::{Origin, Time};

    use super::*;

    #[test]
    fn names_of_upstreams() {
        use UpstreamMeasure::{Errors, Latency};
        for (name, expected) in [
            ("upstream.latency", Some(("", Latency))),
            ("upstream.errors", Some(("", Errors))),
            ("upstream.spare.errors", Some(("spare", Errors))),
            ("upstream.latency.latency", Some(("latency", Latency))),
            ("upstream.a.b.errors", Some(("a.b", Errors))), // no route has the name
            ("upstream..errors", None),
            ("upstream", None),
            ("upstream.load", None),
            ("latency", None),
            ("load.errors", None),
        ] {
            assert_eq!(upstream_signal(name), expected, "{name}");
        }
    }

    #[test]
    fn a_latency_is_a_time_and_all_else_a_share() {
        let now = WallTime::new(Origin::UNIX, Time::from_nanos(1_800_000_000_000_000_000));
        for (name, level, words) in [
            ("upstream.latency", 140_000, "140 ms"),
            ("upstream.spare.latency", 2_500, "2.5 ms"),
            ("upstream.errors", 145_000, "14.5 %"),
            (LOAD, 1_000_000, "100 %"),
        ] {
            let signal = Signal::new(name);
            assert_eq!(signal.words(now), None);
            signal.set(level, now, Nanos::from_secs(5));
            assert_eq!(signal.words(now).as_deref(), Some(words), "{name}");
        }
    }

    #[test]
    fn a_gate_is_open_while_a_low_level_lasts() {
        let at_ms = |millis: u64| WallTime::new(Origin::UNIX, Time::from_nanos(millis * 1_000_000));
        let at = |seconds: u64| at_ms(seconds * 1_000);
        let five = Nanos::from_secs(5);
        let signal = Arc::new(Signal::new(LOAD));
        let gate = Gate {
            signal: Arc::clone(&signal),
            below: 70 * PPM_OF_PERCENT,
            text: "70%".into(),
        };
        let now = 1_800_000_000;
        assert!(!gate.is_open(at(now)), "never set");
        signal.set(699_999, at_ms(now * 1_000 + 900), Nanos::from_millis(1_500));
        assert!(
            gate.is_open(at_ms(now * 1_000 + 2_396)),
            "it does not end with a second"
        );
        assert!(!gate.is_open(at_ms(now * 1_000 + 2_400)));
        signal.set(699_999, at(now), five);
        assert!(gate.is_open(at(now)) && gate.is_open(at(now + 4)));
        assert!(!gate.is_open(at(now + 5)), "ended");
        assert!(!gate.is_open(WallTime::UNKNOWN), "the time is not known");
        for level in [700_000, 2_000_000, u32::MAX] {
            signal.set(level, at(now), five);
            assert!(!gate.is_open(at(now)), "{level}");
        }
        signal.set(0, at(now), Nanos::from_secs(u64::from(u32::MAX)));
        assert!(!gate.is_open(at(now)), "an end after 2109 is no end");
        signal.set(0, WallTime::UNKNOWN, five);
        assert!(!gate.is_open(at(now)), "set at an unknown time");
        signal.set(0, at(now), five);
        signal.clear();
        assert!(!gate.is_open(at(now)), "cleared");
    }
}
