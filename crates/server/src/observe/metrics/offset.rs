//! Offset: how far a shared store's clock is from this process's, once it is known.
//!
//! ```text
//!   before --- the store reads its clock --- after      offset = reading - middle
//! ```

use std::sync::atomic::{AtomicI64, Ordering};

/// Stands for an unknown offset, because no clock is 292 years behind.
const UNKNOWN: i64 = i64::MIN;

/// Nanoseconds that the store is ahead.
#[derive(Debug)]
pub(crate) struct Offset(AtomicI64);

impl Default for Offset {
    fn default() -> Self {
        Self(AtomicI64::new(UNKNOWN))
    }
}

impl Offset {
    /// Returns the number of nanoseconds ahead, if known.
    pub(crate) fn load(&self) -> Option<i64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|nanos| *nanos != UNKNOWN)
    }

    pub(crate) fn store(&self, nanos: i64) {
        self.0.store(nanos, Ordering::Relaxed);
    }
}

/// Returns how many nanoseconds a clock is ahead that showed `there` between two readings of
/// another, all in nanoseconds since 1970.
pub(crate) fn ahead(before: u64, there: u64, after: u64) -> i64 {
    let middle = before + after.saturating_sub(before) / 2; // down: half a nanosecond is nothing
    let ahead = i128::from(there) - i128::from(middle);
    let clamped = ahead.clamp(i128::from(UNKNOWN + 1), i128::from(i64::MAX));
    i64::try_from(clamped).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_compared_with_the_middle_of_the_call() {
        assert_eq!(ahead(1_000, 1_300, 1_100), 250);
        assert_eq!(ahead(1_000, 400, 1_100), -650);
        assert_eq!(ahead(1_000, 1_000, 900), 0, "a clock that steps back");
        assert_eq!(ahead(0, u64::MAX, 0), i64::MAX);
        assert_eq!(ahead(u64::MAX, 0, u64::MAX), i64::MIN + 1);
    }

    #[test]
    fn an_unknown_offset_is_not_shown() {
        let offset = Offset::default();
        assert_eq!(offset.load(), None);
        offset.store(-5);
        assert_eq!(offset.load(), Some(-5));
    }
}
