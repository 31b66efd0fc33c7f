//! Counters: numbers that many threads add to, and the gate that counts suppressed lines of the log.

use std::sync::atomic::{AtomicU64, Ordering};

use ratekeeper_core::Time;

/// Counts since the start.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Subtracts `count`, for values that may decrease.
    pub(crate) fn subtract(&self, count: u64) {
        self.0.fetch_sub(count, Ordering::Relaxed);
    }

    /// Returns the count, and begins again at zero.
    pub(crate) fn take(&self) -> u64 {
        self.0.swap(0, Ordering::Relaxed)
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Lets one line a second into the log, and counts the rest.
#[derive(Debug, Default)]
pub(crate) struct LogGate {
    /// The second of the last line, from 1; 0 if there is none yet.
    second: AtomicU64,
    suppressed: Counter,
}

impl LogGate {
    /// Returns the number of lines suppressed since the last one, if one may be written now.
    pub(crate) fn opens(&self, now: Time) -> Option<u64> {
        let second = now.as_nanos() / 1_000_000_000 + 1;
        let last = &self.second;
        let is_new = last.load(Ordering::Relaxed) < second; // most lines write nothing here
        if is_new && last.fetch_max(second, Ordering::Relaxed) < second {
            return Some(self.suppressed.take());
        }
        self.suppressed.add(1);
        None
    }
}

#[cfg(test)]
mod tests {
    use ratekeeper_core::Nanos;

    use super::*;

    #[test]
    fn one_denial_a_second_is_logged() {
        let gate = LogGate::default();
        let at = |millis| Time::ZERO + Nanos::from_millis(millis);
        assert_eq!(gate.opens(at(0)), Some(0));
        assert_eq!(gate.opens(at(1)), None);
        assert_eq!(gate.opens(at(999)), None);
        assert_eq!(gate.opens(at(1000)), Some(2));
        assert_eq!(
            gate.opens(at(500)),
            None,
            "no denial is logged when the clock steps back"
        );
    }
}
