//! Interval buckets in a shared store.
//!
//! ```text
//!   i | missing, 4 or 8 bytes | next stroke, 8 bytes
//! ```

use alloc::vec;
use alloc::vec::Vec;

use super::{Interval, IntervalState, Strokes};
use crate::stored_form::{
    CountWidth, LuaTwin, SHORTEST_STEP, StateReader, StoredForm, double, fingerprint,
    micros_and_nanos,
};
use crate::{Time, UnixMicros};

impl StoredForm for Interval {
    const TAG: u8 = b'i';

    fn read(&self, bytes: &[u8], _now: UnixMicros) -> Option<IntervalState> {
        let mut reader = StateReader::of(Self::TAG, bytes)?;
        let bytes = reader.left().checked_sub(size_of::<u64>())?;
        let missing = IntervalState {
            permits: reader.count(CountWidth::filling(bytes, 1)?)?,
            next: Time::from_nanos(reader.u64()?),
        };
        reader.end(missing)
    }

    fn write(&self, missing: &IntervalState, _now: UnixMicros, out: &mut Vec<u8>) {
        if missing.permits == 0 {
            return;
        }
        out.push(Self::TAG);
        CountWidth::of(&[missing.permits]).write(missing.permits, out);
        out.extend_from_slice(&missing.next.as_nanos().to_le_bytes());
    }

    /// The strokes.
    fn shape(&self) -> u64 {
        let (kind, phase) = match self.strokes {
            Strokes::Grid(phase) => (1, phase),
            Strokes::FirstTake => (2, 0),
        };
        fingerprint(&[self.every, kind, phase])
    }

    /// `None` for strokes that come too fast.
    fn twin(&self) -> Option<LuaTwin> {
        if self.every < SHORTEST_STEP.as_nanos() {
            return None;
        }
        let (first, phase) = match self.strokes {
            Strokes::Grid(phase) => (0.0, phase),
            Strokes::FirstTake => (1.0, 0),
        };
        let mut numbers = vec![double(self.most), double(self.refill), first];
        numbers.extend(micros_and_nanos(phase));
        numbers.extend(micros_and_nanos(self.every));
        Some(LuaTwin::unnamed(include_str!("../interval.lua"), numbers))
    }

    /// `None` unless the interval and the phase are of whole microseconds.
    fn short_twin(&self) -> Option<LuaTwin> {
        let numbers = self.twin()?.numbers;
        let [most, refill, first, phase, phase_nanos, every, nanos] =
            <[f64; 7]>::try_from(&*numbers).ok()?;
        (phase_nanos == 0.0 && nanos == 0.0).then(|| {
            LuaTwin::unnamed(
                include_str!("short.lua"),
                [most, refill, first, phase, every],
            )
        })
    }
}
