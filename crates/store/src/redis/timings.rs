//! Timings: how long calls took, by how they ended.
//!
//! ```text
//!   call --> answered           ok
//!        --> refused, lost      error
//!        --> nothing in time    timeout
//! ```
//!
//! A call is the part of a request that goes to one slot: time in queues, on the network and
//! in retries is included. A request that is refused from memory makes no call.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ratekeeper_core::Nanos;

use super::trouble::Trouble;

/// How a call ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ended {
    Ok,
    Error,
    Timeout,
}

impl Ended {
    /// Returns how a call ended: in a timeout, if it failed after `patience` or later.
    pub(super) fn of<T>(answer: &Result<T, Trouble>, took: Duration, patience: Duration) -> Self {
        match answer {
            Ok(_) => Self::Ok,
            Err(_) if took >= patience => Self::Timeout,
            Err(_) => Self::Error,
        }
    }
}

/// How long the calls of a store took since it was made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CallTimes {
    /// Calls that were answered.
    pub ok: CallTime,
    /// Calls that were refused, or found no server.
    pub error: CallTime,
    /// Calls that were given up at the deadline.
    pub timeout: CallTime,
}

/// How long calls took, of those with the same end.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CallTime {
    /// Number of calls that took at most as long as the edge of the same index, and longer than
    /// the one before; the last bucket has no edge.
    pub buckets: [u64; Self::EDGES.len() + 1],
    /// Sum of all times.
    pub sum: Nanos,
}

impl CallTime {
    /// Upper edges of the buckets.
    pub const EDGES: [Nanos; 12] = [
        Nanos::from_micros(100),
        Nanos::from_micros(250),
        Nanos::from_micros(500),
        Nanos::from_millis(1),
        Nanos::from_micros(2_500),
        Nanos::from_millis(5),
        Nanos::from_millis(10),
        Nanos::from_millis(25),
        Nanos::from_millis(50),
        Nanos::from_millis(100),
        Nanos::from_millis(250),
        Nanos::from_secs(1),
    ];
}

/// The counters of [`CallTimes`].
#[derive(Debug, Default)]
pub(super) struct Timings([Times; 3]);

#[derive(Debug, Default)]
struct Times {
    buckets: [AtomicU64; CallTime::EDGES.len() + 1],
    sum: AtomicU64,
}

impl Timings {
    pub(super) fn note(&self, ended: Ended, took: Duration) {
        let took = Nanos::from(took);
        let times = &self.0[ended as usize];
        let bucket = CallTime::EDGES.iter().take_while(|edge| **edge < took);
        times.buckets[bucket.count()].fetch_add(1, Ordering::Relaxed);
        times.sum.fetch_add(took.as_nanos(), Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> CallTimes {
        let read = |times: &Times| CallTime {
            buckets: times
                .buckets
                .each_ref()
                .map(|count| count.load(Ordering::Relaxed)),
            sum: Nanos::from_nanos(times.sum.load(Ordering::Relaxed)),
        };
        let [ok, error, timeout] = &self.0;
        CallTimes {
            ok: read(ok),
            error: read(error),
            timeout: read(timeout),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_waited_for_in_vain_is_late() {
        let ended = |answer: Result<(), Trouble>, millis| {
            let patience = Duration::from_millis(44);
            Ended::of(&answer, Duration::from_millis(millis), patience)
        };
        let failed = || Err(Trouble::Lost(String::new()));
        assert_eq!(ended(Ok(()), 60), Ended::Ok);
        assert_eq!(ended(failed(), 43), Ended::Error);
        assert_eq!(ended(failed(), 44), Ended::Timeout);
    }

    #[test]
    fn calls_fall_into_the_bucket_that_holds_them() {
        let timings = Timings::default();
        for micros in [0, 100, 101, 1_000, 2_000_000] {
            timings.note(Ended::Ok, Duration::from_micros(micros));
        }
        timings.note(Ended::Timeout, Duration::from_millis(50));
        let times = timings.read();
        assert_eq!(times.ok.buckets, [2, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(times.ok.sum, Nanos::from_micros(2_001_201));
        assert_eq!(times.timeout.buckets[8], 1);
        assert_eq!(times.error, CallTime::default());
    }
}
