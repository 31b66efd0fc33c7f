//! TAT: the state of GCRA, one moment.

use super::FARTHEST_TICKS;
use super::grid::Moment;
use crate::algorithm::WordState;

/// The theoretical arrival time, in ticks of 1/64 ns since the clock's zero, modulo 2^64 (9.1
/// years); 0 for a key never seen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Tat(pub(super) u64);

impl Tat {
    /// The moment `ticks` after `now`.
    #[inline]
    pub(super) fn after(now: Moment, ticks: u64) -> Self {
        // 0 would be read as a key never seen, so that moment is a tick later.
        match now.ticks.wrapping_add(ticks) {
            0 => Self(u64::from(ticks > 0)),
            word => Self(word),
        }
    }

    /// Ticks from `now` to this moment; zero if it has passed.
    #[inline]
    pub(super) fn ahead(self, now: Moment) -> u64 {
        match self.0.wrapping_sub(now.ticks) {
            ahead if self.0 > 0 && ahead <= FARTHEST_TICKS => ahead,
            _ => 0,
        }
    }
}

impl WordState for Tat {
    fn to_word(self) -> u64 {
        self.0
    }
    fn from_word(word: u64) -> Self {
        Self(word)
    }
}
