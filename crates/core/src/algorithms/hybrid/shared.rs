//! Hybrids in a shared store.
//!
//! ```text
//!   h | phase, 1 byte: 1 bursty, 2 smooth | opened, or empty at: 8 bytes | left, or part: 4
//! ```

use alloc::vec::Vec;

use super::{Allowance, Hybrid, Phase};
use crate::shared::{Reader, Shared, fingerprint};
use crate::{Time, UnixMicros};

const BURSTY: u8 = 1;
const SMOOTH: u8 = 2;

impl Shared for Hybrid {
    const TAG: u8 = b'h';

    fn read(&self, bytes: &[u8], _now: UnixMicros) -> Option<Allowance> {
        let mut reader = Reader::of(Self::TAG, bytes)?;
        let (phase, at, number) = (reader.byte()?, reader.u64()?, reader.u32()?);
        let at = Time::from_nanos(at);
        let phase = match phase {
            BURSTY if (1..=self.permits).contains(&number) => Phase::Bursty {
                opened: at,
                left: number,
            },
            SMOOTH if number < self.permits => Phase::Smooth { at, part: number },
            _ => return None,
        };
        reader.end(Allowance(phase))
    }

    fn write(&self, state: &Allowance, _now: UnixMicros, out: &mut Vec<u8>) {
        let (phase, at, number) = match state.0 {
            Phase::Fresh => return,
            Phase::Bursty { opened, left } => (BURSTY, opened, left),
            Phase::Smooth { at, part } => (SMOOTH, at, part),
        };
        out.extend_from_slice(&[Self::TAG, phase]);
        out.extend_from_slice(&at.as_nanos().to_le_bytes());
        out.extend_from_slice(&number.to_le_bytes());
    }

    /// All its numbers.
    fn shape(&self) -> u64 {
        fingerprint(&[u64::from(self.permits), self.per])
    }
}
