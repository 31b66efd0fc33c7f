//! Hybrids in a shared store.
//!
//! ```text
//!   h | phase, 1 byte: 1 bursty, 2 smooth | opened, or empty at: 8 bytes | left, or part: 4 or 8
//! ```

use alloc::vec;
use alloc::vec::Vec;

use super::{Hybrid, HybridPhase, HybridState};
use crate::stored_form::{
    CountWidth, LuaTwin, StateReader, StoredForm, double, fingerprint, micros_and_nanos,
};
use crate::{Nanos, Permits, Time, UnixMicros};

const BURSTY: u8 = 1;
const SMOOTH: u8 = 2;
/// Limits of fewer permits have a short twin, which multiplies two numbers below.
const SHORT_PERMITS: u64 = 1 << 26;

impl StoredForm for Hybrid {
    const TAG: u8 = b'h';

    fn read(&self, bytes: &[u8], _now: UnixMicros) -> Option<HybridState> {
        let mut reader = StateReader::of(Self::TAG, bytes)?;
        let (phase, at) = (reader.byte()?, Time::from_nanos(reader.u64()?));
        let number = reader.count(CountWidth::filling(reader.left(), 1)?)?;
        let phase = match phase {
            BURSTY if number <= self.permits => HybridPhase::Bursty {
                opened: at,
                left: number,
            },
            SMOOTH if number < self.permits => HybridPhase::Smooth { at, part: number },
            _ => return None,
        };
        reader.end(HybridState(phase))
    }

    fn write(&self, state: &HybridState, _now: UnixMicros, out: &mut Vec<u8>) {
        let (phase, at, number) = match state.0 {
            HybridPhase::Fresh => return,
            HybridPhase::Bursty { opened, left } => (BURSTY, opened, left),
            HybridPhase::Smooth { at, part } => (SMOOTH, at, part),
        };
        out.extend_from_slice(&[Self::TAG, phase]);
        out.extend_from_slice(&at.as_nanos().to_le_bytes());
        CountWidth::of(&[number]).write(number, out);
    }

    /// All its numbers.
    fn shape(&self) -> u64 {
        fingerprint(&[self.permits, self.per])
    }

    fn twin(&self) -> Option<LuaTwin> {
        let opened = Time::ZERO + Nanos::from_nanos(self.per);
        let bucket = self.bucket_of(opened, 1);
        let mut numbers = vec![double(self.permits)];
        numbers.extend(micros_and_nanos(self.per));
        // The bucket of a window that was opened one span after zero lies after it.
        numbers.extend(micros_and_nanos(bucket.at.since(opened).as_nanos()));
        numbers.push(double(bucket.part));
        Some(LuaTwin::unnamed(include_str!("../hybrid.lua"), numbers))
    }

    fn price(&self, cost: Permits) -> [f64; 4] {
        let permits = cost.as_f64();
        if cost.get() > self.permits {
            return [permits, 0.0, 0.0, 0.0]; // denied in any state
        }
        let (whole, part) = self.time_of(cost.get(), 0);
        let [micros, nanos] = micros_and_nanos(whole.as_nanos());
        [permits, micros, nanos, double(part)]
    }

    /// `None` unless the span is of whole microseconds, and no product of a cost and a part of a
    /// nanosecond reaches 2^53.
    fn short_twin(&self) -> Option<LuaTwin> {
        let numbers = self.twin()?.numbers;
        let [permits, span, nanos, gap @ ..] = <[f64; 6]>::try_from(&*numbers).ok()?;
        let [_, one @ ..] = self.price(Permits::ONE);
        (nanos == 0.0 && self.permits < SHORT_PERMITS).then(|| {
            LuaTwin::unnamed(
                include_str!("short.lua"),
                [&[permits, span][..], &gap, &one].concat(),
            )
        })
    }
}
