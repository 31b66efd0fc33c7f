//! Post-paid limiters in a shared store. No twin: prices are floats of many roundings.
//!
//! ```text
//!   u | stored, 8 bytes, a float | paid for at, 8 bytes, in microseconds
//! ```

use alloc::vec::Vec;

use super::{WarmUp, WarmUpState, WarmUpTicket};
use crate::UnixMicros;
use crate::stored_form::{StateReader, StoredForm, fingerprint};

impl StoredForm for WarmUp {
    const TAG: u8 = b'u';

    fn read(&self, bytes: &[u8], _now: UnixMicros) -> Option<WarmUpState> {
        let mut reader = StateReader::of(Self::TAG, bytes)?;
        let ticket = WarmUpTicket {
            stored: f64::from_bits(reader.u64()?),
            next_us: reader.u64()?,
        };
        let sound = ticket.stored >= 0.0; // not if it is no number
        reader.end(WarmUpState(Some(ticket))).filter(|_| sound)
    }

    fn write(&self, state: &WarmUpState, _now: UnixMicros, out: &mut Vec<u8>) {
        let Some(ticket) = state.0 else { return };
        out.push(Self::TAG);
        out.extend_from_slice(&ticket.stored.to_bits().to_le_bytes());
        out.extend_from_slice(&ticket.next_us.to_le_bytes());
    }

    /// The effect of rest: cooling or saving.
    fn shape(&self) -> u64 {
        fingerprint(&[u64::from(self.line.cools())])
    }
}
