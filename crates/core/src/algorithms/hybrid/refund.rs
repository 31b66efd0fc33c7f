//! Refund: permits go back to the window, or to the bucket, that was charged.

use super::{Empty, Hybrid, HybridPhase, HybridState};
use crate::algorithm::{Algorithm as _, Refund};
use crate::{Nanos, Permits, Receipt, Time};

impl Refund for Hybrid {
    /// Exact for the last charge: the key returns to the mode that it was in before.
    /// To the window of the charge, or to the bucket that was charged, there the unpaid part.
    fn give_back_late(&self, state: &mut HybridState, now: Time, cost: Permits, receipt: Receipt) {
        let Receipt { made, paid, .. } = receipt;
        if let HybridPhase::Bursty { opened, left } = state.0 {
            if made >= opened && now < self.end_of(opened) {
                // One permit of the charge that opened the window stays while there are others.
                let others = self.permits - left > cost.get();
                let stays = made == opened && others;
                self.refund(state, now, cost - Permits::new(stays.into()));
            }
            return;
        }
        let (gone, part) = self.time_of(receipt.returned.get(), 0);
        // Down: `paid` and the time of the returned permits may lack a part of a nanosecond.
        let parts = u64::from(part > 0) + u64::from(!self.per.is_multiple_of(self.permits));
        let unpaid = paid.since(now);
        let unpaid = unpaid.saturating_sub(gone + Nanos::from_nanos(parts));
        // A bucket is never below empty: the charge that took the last permit of a window was.
        if paid - Nanos::from_nanos(self.per) > made + Nanos::from_nanos(1) {
            return;
        }
        let (price, price_part) = self.time_of(cost.get(), 0);
        if (price, price_part) <= (unpaid, 0) {
            self.refund(state, now, cost);
        } else if let HybridPhase::Smooth { at, part } = state.0 {
            let at = at - unpaid;
            state.0 = Empty { at, part }.into();
        }
    }

    fn refund(&self, state: &mut HybridState, now: Time, cost: Permits) {
        if cost == Permits::ZERO || now >= self.expires_at(state, now) {
            return; // nothing is owed
        }
        if cost.get() >= self.permits {
            *state = HybridState::default();
            return;
        }
        *state = HybridState(match state.0 {
            HybridPhase::Bursty { opened, left } if now < self.end_of(opened) => {
                match left + cost.get() {
                    left if left >= self.permits => HybridPhase::Fresh,
                    left => HybridPhase::Bursty { opened, left },
                }
            }
            phase => match self.plain(phase) {
                HybridPhase::Smooth { at, part } => self.before(Empty { at, part }, cost).into(),
                over => over,
            },
        });
    }
}
