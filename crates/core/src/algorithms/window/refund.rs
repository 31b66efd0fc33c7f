//! Refund: permits go back to the counters that they came from.

use super::{Counters, Window, WindowState};
use crate::algorithm::Refund;
use crate::{Permits, Receipt, Time};

impl<C: Counters> Refund for Window<C> {
    /// Takes from the counter of the moment while it is in sight, then from newer ones, where the
    /// charge is if the clock was behind.
    fn give_back_late(
        &self,
        state: &mut WindowState<C>,
        now: Time,
        cost: Permits,
        receipt: Receipt,
    ) {
        let charged = self.anchor.sight(0, receipt.made, self.width).index;
        let back = self.anchor.windows_between(charged, state.index);
        let seen = self.seen(state, now);
        let back = usize::try_from(back).ok().filter(|&back| back < seen);
        if let (true, Some(back)) = (charged <= state.index, back) {
            self.take_from(state, cost, (0..=back).rev());
        }
    }

    /// Takes from the newest counter first.
    fn refund(&self, state: &mut WindowState<C>, now: Time, cost: Permits) {
        let seen = self.seen(state, now);
        self.take_from(state, cost, 0..seen);
    }
}

impl<C: Counters> Window<C> {
    /// Returns the number of the state's counters that are in sight.
    fn seen(&self, state: &WindowState<C>, now: Time) -> usize {
        let shift = usize::try_from(self.sight(state, now).shift).unwrap_or(usize::MAX);
        self.in_sight().saturating_sub(shift)
    }

    /// Takes `cost` from the counters at these places, in this order.
    fn take_from(
        &self,
        state: &mut WindowState<C>,
        cost: Permits,
        places: impl Iterator<Item = usize>,
    ) {
        if state.counts.as_slice().is_empty() {
            return;
        }
        let mut back = cost.get();
        state.counts.change(self.whole() + 1, |slots| {
            for place in places {
                let given = back.min(slots[place]);
                slots[place] -= given;
                back -= given;
            }
        });
        let mut in_sight = state.counts.as_slice().iter().take(self.in_sight());
        if in_sight.all(|&count| count == 0) {
            *state = WindowState::default();
        }
    }
}
