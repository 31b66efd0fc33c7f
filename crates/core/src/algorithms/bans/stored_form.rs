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
use crate::stored_form::{StateReader, StoredForm, fingerprint};
use crate::{AnyState, LogState, Nanos, Time, UnixMicros};

/// Added to the number of strikes, which is at most [`MAX_STRIKES`].
const BY_HAND: u8 = 0x80;

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

    /// That of the limit: the ban and the strikes mean the same under any.
    fn shape(&self) -> u64 {
        fingerprint(&[self.limit.tag().into(), self.limit.shape()])
    }
}

impl BanRecord<AnyState> {
    /// Returns true if it has neither a ban nor a strike.
    fn is_clean(&self) -> bool {
        self.ends == Time::ZERO && self.length == Nanos::ZERO && self.strikes.moments().len() == 0
    }
}
