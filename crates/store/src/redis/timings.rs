//! Timings: how long calls took, by how they ended.
//!
//! ```text
//!   call --> answered           ok
//!        --> refused, lost      error
//!        --> nothing in time    timeout
//!        --> others first       crowded
//! ```
//!
//! A call is the part of a request that goes to one slot: time in queues, on the network and
//! in retries is included. A request that is refused from memory makes no call.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ratekeeper_core::Nanos;

use super::trouble::Trouble;
use crate::ActKind;

/// How a call ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CallOutcome {
    Ok,
    Error,
    Timeout,
    Crowded,
}

impl CallOutcome {
    /// Returns how a call ended: in a timeout, if it failed after `patience` or later.
    pub(super) fn of<T>(answer: &Result<T, Trouble>, took: Duration, patience: Duration) -> Self {
        match answer {
            Ok(_) => Self::Ok,
            Err(Trouble::Crowded) => Self::Crowded,
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
    /// Requests that were refused, because too many others of their keys were before them.
    pub crowded: CallTime,
}

/// How long calls took, of those with the same end.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CallTime {
    /// Number of calls that took at most as long as the edge of the same index, and longer than
    /// the one before; the last bucket has no edge.
    pub buckets: [u64; Self::EDGES_MICROS.len() + 1],
    /// Sum of all times.
    pub sum: Nanos,
}

impl CallTime {
    /// Upper edges of the buckets, in microseconds.
    pub const EDGES_MICROS: [u64; 12] = [
        100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000,
    ];
}

/// The counters of [`CallTimes`], by act and by how calls ended.
#[derive(Debug, Default)]
pub(super) struct Timings([[Times; 4]; ActKind::NAMES.len()]);

#[derive(Debug, Default)]
struct Times {
    buckets: [AtomicU64; CallTime::EDGES_MICROS.len() + 1],
    sum: AtomicU64,
}

impl Timings {
    pub(super) fn note(&self, act: ActKind, ended: CallOutcome, took: Duration) {
        let took = Nanos::from(took);
        let times = &self.0[act.index()][ended as usize];
        let bucket = CallTime::EDGES_MICROS.iter();
        let bucket = bucket.take_while(|edge| Nanos::from_micros(**edge) < took);
        times.buckets[bucket.count()].fetch_add(1, Ordering::Relaxed);
        times.sum.fetch_add(took.as_nanos(), Ordering::Relaxed);
    }

    /// Returns the times of each act, in the order of [`ActKind::NAMES`].
    pub(super) fn read(&self) -> [CallTimes; ActKind::NAMES.len()] {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let read = |times: &Times| CallTime {
            buckets: times.buckets.each_ref().map(load),
            sum: Nanos::from_nanos(load(&times.sum)),
        };
        let of_act = |[ok, error, timeout, crowded]: &[Times; 4]| CallTimes {
            ok: read(ok),
            error: read(error),
            timeout: read(timeout),
            crowded: read(crowded),
        };
        self.0.each_ref().map(of_act)
    }
}

#[cfg(test)]
mod tests {
    use ratekeeper_core::Lend;

    use super::*;

    #[test]
    fn who_was_waited_for_in_vain_is_late() {
        let ended = |answer: Result<(), Trouble>, millis| {
            let patience = Duration::from_millis(44);
            CallOutcome::of(&answer, Duration::from_millis(millis), patience)
        };
        let failed = || Err(Trouble::Lost(String::new()));
        assert_eq!(ended(Ok(()), 60), CallOutcome::Ok);
        assert_eq!(ended(failed(), 43), CallOutcome::Error);
        assert_eq!(ended(failed(), 44), CallOutcome::Timeout);
    }

    #[test]
    fn calls_fall_into_the_bucket_that_holds_them() {
        let timings = Timings::default();
        let decide = ActKind::Decide(Lend::Unnamed);
        for micros in [0, 100, 101, 1_000, 2_000_000] {
            timings.note(decide, CallOutcome::Ok, Duration::from_micros(micros));
        }
        timings.note(decide, CallOutcome::Timeout, Duration::from_millis(50));
        timings.note(ActKind::Look, CallOutcome::Ok, Duration::from_micros(100));
        let [times, looks, others @ ..] = timings.read();
        assert_eq!(times.ok.buckets, [2, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(times.ok.sum, Nanos::from_micros(2_001_201));
        assert_eq!(times.timeout.buckets[8], 1);
        assert_eq!(times.error, CallTime::default());
        assert!(others.iter().all(|act| *act == CallTimes::default()));
        assert_eq!(looks.ok.buckets[0], 1);
    }
}
