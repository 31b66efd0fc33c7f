//! Interval buckets in a shared store.
//!
//! ```text
//!   i | missing, 4 or 8 bytes | next stroke, 8 bytes [| missing beyond, 8 bytes | M, 8 bytes]
//! ```
//!
//! A limit reads at most its M, or its R if that is larger. Permits beyond, which a process with a
//! higher one still counts, are kept with the M of the writer, and come back after the rest.

use alloc::vec;
use alloc::vec::Vec;

use super::{Interval, IntervalState, Strokes};
use crate::stored_form::{
    CountWidth, KeptValue, LuaTwin, SHORTEST_STEP, StateReader, StoredForm, double, fingerprint,
    micros_and_nanos,
};
use crate::{Time, UnixMicros};

/// Bytes of the longest value without an end.
const LONGEST_PLAIN: usize = 1 + 2 * size_of::<u64>();
/// Bytes of the end of a value: the permits beyond, and M.
const END: usize = 2 * size_of::<u64>();

/// The missing permits of a value.
struct StoredMissing {
    permits: u64,
    beyond: u64,
    next: Time,
}

impl Interval {
    /// Reads a value of any M.
    fn missing(&self, bytes: &[u8]) -> Option<StoredMissing> {
        let mut reader = StateReader::of(Self::TAG, bytes)?;
        let end = if bytes.len() > LONGEST_PLAIN { END } else { 0 };
        let count = reader.left().checked_sub(size_of::<u64>() + end)?;
        let permits = reader.count(CountWidth::filling(count, 1)?)?;
        let next = Time::from_nanos(reader.u64()?);
        let (mut beyond, mut most) = (0, 0);
        if end > 0 {
            (beyond, most) = (reader.count(CountWidth::Eight)?, reader.u64()?);
        }
        let all = permits + beyond;
        let permits = if most == self.most {
            permits
        } else {
            all.min(self.most.max(self.refill)) // of R more, all come back at the next stroke
        };
        reader.end(StoredMissing {
            permits,
            beyond: all - permits,
            next,
        })
    }
}

impl StoredForm for Interval {
    const TAG: u8 = b'i';

    fn read(&self, bytes: &[u8], _now: UnixMicros) -> Option<IntervalState> {
        let missing = self.missing(bytes)?;
        Some(IntervalState {
            permits: missing.permits,
            next: missing.next,
        })
    }

    fn write(&self, missing: &IntervalState, _now: UnixMicros, out: &mut Vec<u8>) {
        if missing.permits == 0 {
            return;
        }
        out.push(Self::TAG);
        CountWidth::of(&[missing.permits]).write(missing.permits, out);
        out.extend_from_slice(&missing.next.as_nanos().to_le_bytes());
    }

    fn keep_beyond(&self, kept: &mut KeptValue, found: &[u8], now: UnixMicros) {
        let Some(missing) = self.missing(found) else {
            return;
        };
        let at_now = |permits| {
            let next = missing.next;
            self.refilled(&IntervalState { permits, next }, now.time())
        };
        let all = at_now(missing.permits + missing.beyond);
        let beyond = all.permits - at_now(missing.permits).permits;
        if beyond == 0 {
            return;
        }
        if kept.bytes.is_empty() {
            kept.bytes.extend([Self::TAG, 0, 0, 0, 0]);
            kept.bytes.extend(all.next.as_nanos().to_le_bytes());
        }
        kept.bytes.extend(beyond.to_le_bytes());
        kept.bytes.extend(self.most.to_le_bytes());
        let refills = beyond.div_ceil(self.refill).saturating_add(1); // the first may be to come
        let paid_after = self.strokes(refills).as_nanos() / 1_000;
        kept.micros = kept.micros.saturating_add(paid_after);
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
