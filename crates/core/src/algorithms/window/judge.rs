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
//! The wait is found by counting back from now, window by window, until what counts leaves
//! no room for the cost: the window that is too much must slide out, or, of a weighted edge,
//! be in sight by no more than a division says.

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
            Edge::Weighted if oldest == 0 => 0,
            // Up: a part of a permit counts as one.
            Edge::Weighted => scale(oldest, left, self.width, Rounding::Up),
        }
    }

    /// The wait after which `cost` fits, given that it does not now. At most `m` steps.
    fn retry_after(&self, seen: Seen<'_>, sight: Sight, cost: u64) -> Nanos {
        // How many of the newest windows leave room for the cost, and how much.
        let (whole, mut stay) = (self.whole(), 0);
        let mut room = u64::from(self.permits).saturating_sub(cost);
        while stay < whole {
            let Some(rest) = room.checked_sub(seen.at(stay)) else {
                break;
            };
            (room, stay) = (rest, stay + 1);
        }
        // The one behind them is too much as a whole: it must be out of full sight,
        let ahead = whole - stay;
        match self.edge {
            Edge::Drop => self.wait(sight, ahead, self.width),
            // out of sight,
            Edge::Full => self.wait(sight, ahead + 1, self.width),
            // or in sight by no more than there is room. Down: a little less is enough.
            Edge::Weighted => {
                let too_much = seen.at(stay).max(1);
                let visible = scale(room, self.width, too_much, Rounding::Down);
                self.wait(sight, ahead, visible)
            }
        }
    }

    /// The time until only `visible` nanoseconds are left of the window `ahead` of this one.
    fn wait(&self, sight: Sight, ahead: usize, visible: u64) -> Nanos {
        // Below 2^63: all windows in sight are.
        let whole = sight.left + ahead as u64 * self.width;
        Nanos::from_nanos(sight.ahead.saturating_add(whole.saturating_sub(visible)))
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
