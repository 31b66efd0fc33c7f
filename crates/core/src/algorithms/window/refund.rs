//! Refund: permits go back to the counters that they came from, the newest first.

use super::{Counters, Window, WindowState};
use crate::algorithm::Refund;
use crate::{Permits, Time};

impl<C: Counters> Refund for Window<C> {
    /// Takes from the newest counter first: a charge and its refund at once undo each other.
    fn refund(&self, state: &mut WindowState<C>, now: Time, cost: Permits) {
        if state.counts.as_slice().is_empty() {
            return;
        }
        let shift = usize::try_from(self.sight(state, now).shift).unwrap_or(usize::MAX);
        let mut back = cost.get();
        state.counts.change(self.whole() + 1, |slots| {
            for count in slots.iter_mut().take(self.in_sight().saturating_sub(shift)) {
                let given = back.min(*count);
                *count -= given;
                back -= given;
            }
        });
        let mut in_sight = state.counts.as_slice().iter().take(self.in_sight());
        if in_sight.all(|&count| count == 0) {
            *state = WindowState::default();
        }
    }
}
