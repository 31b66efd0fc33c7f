//! Bans in a shared store: the ban, the strikes, and the state of the limit.
//!
//! ```text
//!   b | end, 8 bytes | length, 8 | number of strikes, 1 | strike, 8 bytes | .. | limit's state
//! ```
//!
//! After a ban by hand, the number of strikes is [`BY_HAND`] more, and the end of the last ban that
//! strikes began follows it, in 8 bytes.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::{BanRecord, BanState, Banning, MAX_STRIKES};
use crate::stored_form::{KeptValue, StateReader, StoredForm, fingerprint};
use crate::{AnyState, LogState, Nanos, Time, UnixMicros};

/// Added to the number of strikes, which is at most [`MAX_STRIKES`].
const BY_HAND: u8 = 0x80;

/// Place of the number of strikes in a value.
const MARK: usize = 1 + 2 * size_of::<u64>();
/// A value with neither a ban, nor a strike, nor usage.
const CLEAN: [u8; MARK + 1] = {
    let mut value = [0; MARK + 1];
    value[0] = Banning::TAG;
    value
};

impl StoredForm for Banning {
    const TAG: u8 = b'b';

    fn read(&self, bytes: &[u8], now: UnixMicros) -> Option<BanState<AnyState>> {
        let mut reader = StateReader::of(Self::TAG, bytes)?;
        let ends = Time::from_nanos(reader.u64()?);
        let length = Nanos::from_nanos(reader.u64()?);
        let marked = reader.byte()?;
        let struck_out_until = if marked & BY_HAND == 0 {
            ends
        } else {
            Time::from_nanos(reader.u64()?)
        };
        let count = marked & !BY_HAND;
        if u32::from(count) > MAX_STRIKES {
            return None;
        }
        let mut moments = VecDeque::with_capacity(count.into());
        for _ in 0..count {
            moments.push_back(Time::from_nanos(reader.u64()?));
        }
        let used = match reader.rest() {
            [] => AnyState::default(),
            used => self.limit.read(used, now)?,
        };
        Some(BanState(Some(Box::new(BanRecord {
            used,
            strikes: LogState::of_moments(moments)?,
            ends,
            struck_out_until: if length == Nanos::ZERO {
                Time::ZERO
            } else {
                struck_out_until
            },
            length,
        }))))
    }

    fn succeed_writer(&mut self, value: &[u8], now: UnixMicros) {
        if let Some(used) = limit_start(value).and_then(|start| value.get(start..)) {
            self.limit.succeed_writer(used, now);
        }
    }

    fn write(&self, state: &BanState<AnyState>, now: UnixMicros, out: &mut Vec<u8>) {
        let Some(record) = &state.0 else { return };
        let start = out.len();
        out.push(Self::TAG);
        out.extend_from_slice(&record.ends.as_nanos().to_le_bytes());
        out.extend_from_slice(&record.length.as_nanos().to_le_bytes());
        let strikes = record.strikes.moments();
        let count = u8::try_from(strikes.len()).unwrap_or(u8::MAX); // at most MAX_STRIKES
        if record.length > Nanos::ZERO && record.struck_out_until != record.ends {
            out.push(count | BY_HAND);
            out.extend_from_slice(&record.struck_out_until.as_nanos().to_le_bytes());
        } else {
            out.push(count);
        }
        for moment in strikes {
            out.extend_from_slice(&moment.as_nanos().to_le_bytes());
        }
        let empty = out.len();
        self.limit.write(&record.used, now, out);
        let is_fresh = out.len() == empty && record.is_clean();
        if is_fresh {
            out.truncate(start);
        }
    }

    fn keep_beyond(&self, kept: &mut KeptValue, found: &[u8], now: UnixMicros) {
        let Some(used) = limit_start(found).and_then(|start| found.get(start..)) else {
            return;
        };
        if kept.bytes.is_empty() {
            kept.bytes = CLEAN.to_vec();
        }
        let Some(start) = limit_start(&kept.bytes).filter(|&start| start <= kept.bytes.len())
        else {
            return;
        };
        let after = kept.bytes.split_off(start);
        let record = core::mem::replace(&mut kept.bytes, after);
        self.limit.keep_beyond(kept, used, now);
        if !(kept.bytes.is_empty() && record == CLEAN) {
            kept.bytes.splice(0..0, record);
        }
    }

    /// That of the limit: the ban and the strikes mean the same under any.
    fn shape(&self) -> u64 {
        fingerprint(&[self.limit.tag().into(), self.limit.shape()])
    }
}

/// Returns where the state of the limit starts in a value.
fn limit_start(value: &[u8]) -> Option<usize> {
    let marked = *value.get(MARK)?;
    let by_hand = usize::from(marked & BY_HAND != 0);
    let strikes = usize::from(marked & !BY_HAND);
    Some(MARK + 1 + (by_hand + strikes) * size_of::<u64>())
}

impl BanRecord<AnyState> {
    /// Returns true if it has neither a ban nor a strike.
    fn is_clean(&self) -> bool {
        self.ends == Time::ZERO && self.length == Nanos::ZERO && self.strikes.moments().len() == 0
    }
}
