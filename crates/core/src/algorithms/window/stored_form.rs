//! Windows in a shared store: the number of the newest window and the counters, as bytes.
//!
//! ```text
//!   w | index, 8 bytes | count, 4 or 8 bytes | count | ...     newest first
//! ```

use alloc::vec;
use alloc::vec::Vec;

use super::{Anchor, Counters, Edge, Window, WindowState};
use crate::UnixMicros;
use crate::algorithm::Denials;
use crate::stored_form::{
    CountWidth, LuaTwin, SHORTEST_STEP, StateReader, StoredForm, double, fingerprint,
    micros_and_nanos,
};

/// Whole numbers below are exact in the doubles of a script.
const EXACT: f64 = 9_007_199_254_740_992.0;

impl<C: Counters> StoredForm for Window<C> {
    const TAG: u8 = b'w';

    fn read(&self, bytes: &[u8], _now: UnixMicros) -> Option<WindowState<C>> {
        let mut reader = StateReader::of(Self::TAG, bytes)?;
        let mut state = WindowState {
            index: reader.u64()?,
            counts: C::default(),
        };
        let width = CountWidth::filling(reader.left(), self.whole() + 1)?;
        let mut complete = true;
        state.counts.change(self.whole() + 1, |slots| {
            for slot in slots {
                let count = reader.count(width);
                complete &= count.is_some();
                *slot = count.unwrap_or(0);
            }
        });
        reader.end(state).filter(|_| complete)
    }

    fn write(&self, state: &WindowState<C>, _now: UnixMicros, out: &mut Vec<u8>) {
        let counts = state.counts.as_slice();
        if counts.iter().all(|&count| count == 0) {
            return;
        }
        out.push(Self::TAG);
        out.extend_from_slice(&state.index.to_le_bytes());
        let width = CountWidth::of(counts);
        for &count in counts {
            width.write(count, out);
        }
    }

    /// The width, number and anchor of the windows.
    fn shape(&self) -> u64 {
        let (kind, phase) = match &self.anchor {
            Anchor::Grid { phase } => (1, phase.as_nanos()),
            Anchor::Calendar(calendar) => (3, name_of(calendar.name())),
        };
        fingerprint(&[self.width, u64::from(self.buckets), kind, phase])
    }

    /// `None` for calendars, because the store does not know their zones, and for windows too
    /// short.
    fn twin(&self) -> Option<LuaTwin> {
        let Anchor::Grid { phase } = &self.anchor else {
            return None;
        };
        if self.width < SHORTEST_STEP.as_nanos() {
            return None;
        }
        let edge = match self.edge {
            Edge::Drop => 0.0,
            Edge::Full => 1.0,
            Edge::Weighted => 2.0,
        };
        let counted = f64::from(u8::from(self.denials == Denials::Counted));
        let (permits, buckets) = (double(self.permits), f64::from(self.buckets));
        let mut numbers = vec![permits, buckets, edge, counted];
        numbers.extend(micros_and_nanos(phase.as_nanos()));
        numbers.extend(micros_and_nanos(self.width));
        Some(LuaTwin::unnamed(include_str!("../window.lua"), numbers))
    }

    /// `None` unless the width and the phase are of whole microseconds, and no product of the
    /// weighted estimate reaches 2^53.
    fn short_twin(&self) -> Option<LuaTwin> {
        let numbers = self.twin()?.numbers;
        let [
            permits,
            buckets,
            edge,
            counted,
            phase,
            phase_nanos,
            width,
            width_nanos,
        ] = <[f64; 8]>::try_from(&*numbers).ok()?;
        let whole = phase_nanos == 0.0 && width_nanos == 0.0;
        let exact = self.edge != Edge::Weighted || (permits + 1.0) * width < EXACT;
        (whole && exact).then(|| {
            LuaTwin::unnamed(
                include_str!("short.lua"),
                [permits, buckets, edge, counted, phase, width],
            )
        })
    }
}

fn name_of(name: &str) -> u64 {
    name.bytes()
        .fold(0, |hash, byte| fingerprint(&[hash, u64::from(byte)]))
}
