//! Exponential counters in a shared store. No twin: the logarithm of a wait is a loop.
//!
//! ```text
//!   e | level in units of the limit, 8 bytes | when it was so, 8 bytes
//! ```

use alloc::vec::Vec;

use super::{Exponential, ExponentialState, MAX_UNITS_LOG2};
use crate::stored_form::{StateReader, StoredForm, fingerprint};
use crate::{Time, UnixMicros};

impl StoredForm for Exponential {
    const TAG: u8 = b'e';

    fn read(&self, bytes: &[u8], _now: UnixMicros) -> Option<ExponentialState> {
        let mut reader = StateReader::of(Self::TAG, bytes)?;
        let level = ExponentialState {
            units: reader.u64()?,
            at: Time::from_nanos(reader.u64()?),
        };
        reader.end(level)
    }

    fn write(&self, level: &ExponentialState, _now: UnixMicros, out: &mut Vec<u8>) {
        if level.units == 0 {
            return;
        }
        out.push(Self::TAG);
        out.extend_from_slice(&level.units.to_le_bytes());
        out.extend_from_slice(&level.at.as_nanos().to_le_bytes());
    }

    /// The time constant: how fast levels fade; and the units, if they are not the usual ones.
    fn shape(&self) -> u64 {
        match self.units_log2 {
            MAX_UNITS_LOG2 => fingerprint(&[self.tau]),
            units_log2 => fingerprint(&[self.tau, units_log2.into()]),
        }
    }
}
