//! Judging a request against its windows: does it fit, if not when, and what remains.
//!
//! ```text
//!         n(m)   n(m-1) ...  n1      n0    +1      +2
//!   ----+------+------+----+------+--*---+------+------+--> time
//!                                   now  |      |
//!                                        |      n(m-2) slides out, n(m-1) is gone
//!                                        n(m-1) slides out, n(m) is gone
//! ```
//!
//! The wait is found by walking on, window by window, until what still counts leaves room
//! for the cost: at most `m + 2` steps. Within a window only a weighted edge changes; how
//! much of it may be in sight is a division.

use super::anchor::Sight;
use super::counters::Seen;
use super::{Counters, Edge, Window, WindowState};
use crate::algorithm::Denials;
use crate::{Decision, Nanos, Permits, Time, Verdict};

/// How a request was judged, and what that writes.
pub(super) struct Judged {
    pub(super) decision: Decision,
    pub(super) sight: Sight,
    /// Added to the newest counter; 0 writes nothing.
    pub(super) charge: u32,
}

impl<C: Counters> Window<C> {
    /// What `decide` answers, and what it writes.
    #[inline]
    pub(super) fn judge(&self, state: &WindowState<C>, now: Time, cost: Permits) -> Judged {
        let sight = self.sight(state, now);
        let counts = state.counts.as_slice();
        let mut seen = Seen {
            counts,
            shift: sight.shift,
            extra: 0,
        };
        let (limit, cost) = (u64::from(self.permits), u64::from(cost.get()));
        let sum = seen.sum(self.whole());
        let used = sum + self.share(seen.at(self.whole()), sight.left);

        let fits = used + cost <= limit;
        let charge = match self.denials {
            _ if fits => cost,
            _ if cost > limit => 0,
            Denials::Free => 0,
            // Up to one further quota.
            Denials::Counted => cost
                .min((2 * limit).saturating_sub(sum))
                .min(u64::from(u32::MAX) - seen.at(0)),
        };
        seen.extra = charge;
        let verdict = if fits {
            Verdict::Allow
        } else if cost > limit {
            Verdict::DenyForever
        } else {
            Verdict::Deny {
                retry_after: self.retry_after(seen, sight, cost),
            }
        };
        let decision = Decision {
            verdict,
            remaining: Permits::saturating_from(limit.saturating_sub(used + charge)),
            reset_after: self.reset_after(seen, sight),
        };
        Judged {
            decision,
            sight,
            charge: u32::try_from(charge).unwrap_or(u32::MAX),
        }
    }
}

impl<C> Window<C> {
    /// What `oldest`, of which `left` nanoseconds are in sight, still counts for.
    #[inline]
    fn share(&self, oldest: u64, left: u64) -> u64 {
        match self.edge {
            Edge::Drop => 0,
            Edge::Full => oldest,
            // Up: a part of a permit counts as one.
            Edge::Weighted => scale(oldest, left, self.width, Rounding::Up),
        }
    }

    /// The wait after which `cost` fits, given that it does not now. At most `m + 2` steps.
    fn retry_after(&self, seen: Seen<'_>, sight: Sight, cost: u64) -> Nanos {
        let (limit, whole) = (u64::from(self.permits), self.whole());
        let mut used = seen.sum(whole);
        for ahead in 0..=whole {
            // In the window `ahead` of the current one, `used` counts in full and `oldest`
            // slides out: how much of it, in nanoseconds, may be in sight?
            if let Some(room) = limit.checked_sub(used + cost) {
                let oldest = seen.at(whole - ahead);
                let visible = match self.edge {
                    Edge::Full if oldest > room => None,
                    Edge::Weighted if oldest > room => {
                        // Down: a little less in sight is surely enough.
                        Some(scale(room, self.width, oldest, Rounding::Down))
                    }
                    _ => Some(self.width),
                };
                if let Some(visible) = visible {
                    return self.wait(sight, ahead, visible);
                }
            }
            if ahead < whole {
                used -= seen.at(whole - 1 - ahead);
            }
        }
        self.wait(sight, whole + 1, self.width)
    }

    /// The time until only `visible` nanoseconds are left of the window `ahead` of this one.
    fn wait(&self, sight: Sight, ahead: usize, visible: u64) -> Nanos {
        let wait = u128::from(sight.ahead)
            + u128::from(sight.left)
            + ahead as u128 * u128::from(self.width);
        let wait = wait.saturating_sub(u128::from(visible));
        Nanos::from_nanos(u64::try_from(wait).unwrap_or(u64::MAX))
    }

    /// The time until nothing in sight counts.
    fn reset_after(&self, seen: Seen<'_>, sight: Sight) -> Nanos {
        match seen.newest(self.in_sight()) {
            None => Nanos::ZERO,
            Some(back) => self.wait(sight, self.in_sight() - back, self.width),
        }
    }
}

/// Which way a quotient goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Rounding {
    Up,
    Down,
}

/// `count x part / whole`, exact up to the rounding asked for; saturating.
#[inline]
pub(super) fn scale(count: u64, part: u64, whole: u64, rounding: Rounding) -> u64 {
    let product = u128::from(count) * u128::from(part);
    match (u64::try_from(product), rounding) {
        // Products that fit a word, which is nearly all of them, divide ten times faster.
        (Ok(product), Rounding::Up) => product.div_ceil(whole),
        (Ok(product), Rounding::Down) => product / whole,
        (Err(_), Rounding::Up) => narrow(product.div_ceil(u128::from(whole))),
        (Err(_), Rounding::Down) => narrow(product / u128::from(whole)),
    }
}

fn narrow(wide: u128) -> u64 {
    u64::try_from(wide).unwrap_or(u64::MAX)
}
