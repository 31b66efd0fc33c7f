//! Balance in a shared store.
//!
//! ```text
//!   c | credits, 4 or 8 bytes | id of a grant, 8 bytes | .. oldest first
//! ```

use alloc::vec::Vec;

use super::{Balance, BalanceState, GrantId, MAX_GRANTS_KNOWN};
use crate::UnixMicros;
use crate::stored_form::{CountWidth, LuaTwin, StateReader, StoredForm, double};

impl StoredForm for Balance {
    const TAG: u8 = b'c';

    fn read(&self, bytes: &[u8], _now: UnixMicros) -> Option<BalanceState> {
        let mut reader = StateReader::of(Self::TAG, bytes)?;
        let bytes = reader.left().checked_sub(1)? % size_of::<GrantId>() + 1; // the rest are ids
        let credits = Some(reader.count(CountWidth::filling(bytes, 1)?)?);
        let mut grants = Vec::new();
        while reader.left() > 0 {
            if grants.len() == MAX_GRANTS_KNOWN {
                return None;
            }
            grants.push(GrantId(reader.u64()?));
        }
        Some(BalanceState { credits, grants })
    }

    fn write(&self, state: &BalanceState, _now: UnixMicros, out: &mut Vec<u8>) {
        let Some(credits) = state.credits else { return };
        out.push(Self::TAG);
        CountWidth::of(&[credits]).write(credits, out);
        for GrantId(id) in &state.grants {
            out.extend_from_slice(&id.to_le_bytes());
        }
    }

    /// Credits mean the same under any numbers.
    fn shape(&self) -> u64 {
        0
    }

    fn twin(&self) -> Option<LuaTwin> {
        Some(LuaTwin::unnamed(
            include_str!("../balance.lua"),
            [self.start, self.max].map(double),
        ))
    }
}
