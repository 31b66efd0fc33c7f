//! Quota reset in a shared store.
//!
//! ```text
//!   q | opened, microseconds since 1970: 8 bytes | used, 4 or 8 bytes
//! ```

use alloc::vec::Vec;

use super::{QuotaReset, QuotaResetState};
use crate::UnixMicros;
use crate::algorithm::Denials;
use crate::stored_form::{
    CountWidth, LuaTwin, StateReader, StoredForm, double, fingerprint, micros_and_nanos,
};

impl QuotaReset {
    /// N, whether denials are counted, and the window in microseconds and nanoseconds.
    fn numbers(&self) -> [f64; 4] {
        let counted = f64::from(u8::from(self.denials == Denials::Counted));
        let [width, nanos] = micros_and_nanos(self.per.as_nanos());
        [double(self.permits), counted, width, nanos]
    }
}

impl StoredForm for QuotaReset {
    const TAG: u8 = b'q';

    fn read(&self, bytes: &[u8], _now: UnixMicros) -> Option<QuotaResetState> {
        let mut reader = StateReader::of(Self::TAG, bytes)?;
        let state = QuotaResetState {
            opened: UnixMicros::new(reader.u64()?).time(),
            used: reader.count(CountWidth::filling(reader.left(), 1)?)?,
        };
        reader.end(state)
    }

    /// Windows open at readings of the store's clock, which are whole microseconds. Another
    /// moment is rounded up, so that no window ends early.
    fn write(&self, state: &QuotaResetState, _now: UnixMicros, out: &mut Vec<u8>) {
        if state.used == 0 {
            return;
        }
        let opened = state.opened.as_nanos().div_ceil(1_000);
        out.push(Self::TAG);
        out.extend_from_slice(&opened.to_le_bytes());
        CountWidth::of(&[state.used]).write(state.used, out);
    }

    /// The length of the windows.
    fn shape(&self) -> u64 {
        fingerprint(&[self.per.as_nanos()])
    }

    fn twin(&self) -> Option<LuaTwin> {
        Some(LuaTwin::unnamed(
            include_str!("../quota_reset.lua"),
            self.numbers(),
        ))
    }

    /// `None` unless the window is of whole microseconds.
    fn short_twin(&self) -> Option<LuaTwin> {
        let [permits, counted, width, nanos] = self.numbers();
        (nanos == 0.0)
            .then(|| LuaTwin::unnamed(include_str!("short.lua"), [permits, counted, width]))
    }
}
