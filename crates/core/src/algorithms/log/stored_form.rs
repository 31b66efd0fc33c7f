//! Sliding logs in a shared store: the moments, oldest first.
//!
//! ```text
//!   l | moment, 8 bytes | moment | ...
//! ```

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use super::{Log, LogState, MAX_PERMITS};
use crate::algorithm::Denials;
use crate::stored_form::{LuaTwin, StateReader, StoredForm, fingerprint, micros_and_nanos};
use crate::{Time, UnixMicros};

impl StoredForm for Log {
    const TAG: u8 = b'l';

    fn read(&self, bytes: &[u8], _now: UnixMicros) -> Option<LogState> {
        let mut reader = StateReader::of(Self::TAG, bytes)?;
        let count = reader.left() / size_of::<u64>();
        if count > MAX_PERMITS as usize {
            return None;
        }
        let mut moments = VecDeque::with_capacity(count);
        for _ in 0..count {
            moments.push_back(Time::from_nanos(reader.u64()?));
        }
        reader.end(LogState::of_moments(moments)?)
    }

    fn write(&self, logged: &LogState, _now: UnixMicros, out: &mut Vec<u8>) {
        if logged.0.is_empty() {
            return;
        }
        out.push(Self::TAG);
        for moment in &logged.0 {
            out.extend_from_slice(&moment.as_nanos().to_le_bytes());
        }
    }

    /// The span, because a shorter one has dropped moments that a longer one needs.
    fn shape(&self) -> u64 {
        fingerprint(&[self.per.as_nanos()])
    }

    fn twin(&self) -> Option<LuaTwin> {
        let counted = f64::from(u8::from(self.denials == Denials::Counted));
        let mut numbers = vec![f64::from(self.permits), counted];
        numbers.extend(micros_and_nanos(self.per.as_nanos()));
        numbers.extend(micros_and_nanos(self.gap.as_nanos()));
        Some(LuaTwin::unnamed(include_str!("../log.lua"), numbers))
    }

    /// `None` unless the span and the gap are of whole microseconds.
    fn short_twin(&self) -> Option<LuaTwin> {
        let numbers = self.twin()?.numbers;
        let [permits, counted, span, span_nanos, gap, gap_nanos] =
            <[f64; 6]>::try_from(&*numbers).ok()?;
        (span_nanos == 0.0 && gap_nanos == 0.0)
            .then(|| LuaTwin::unnamed(include_str!("short.lua"), [permits, counted, span, gap]))
    }
}
