//! Interval buckets in a shared store.
//!
//! ```text
//!   i | missing, 4 bytes | next stroke, 8 bytes
//! ```

use alloc::vec::Vec;

use super::{Interval, Missing, Strokes};
use crate::shared::{Reader, Shared, fingerprint};
use crate::{Time, UnixMicros};

impl Shared for Interval {
    const TAG: u8 = b'i';

    fn read(&self, bytes: &[u8], _now: UnixMicros) -> Option<Missing> {
        let mut reader = Reader::of(Self::TAG, bytes)?;
        let missing = Missing {
            permits: reader.u32()?,
            next: Time::from_nanos(reader.u64()?),
        };
        reader.end(missing)
    }

    fn write(&self, missing: &Missing, _now: UnixMicros, out: &mut Vec<u8>) {
        if missing.permits == 0 {
            return;
        }
        out.push(Self::TAG);
        out.extend_from_slice(&missing.permits.to_le_bytes());
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
}
