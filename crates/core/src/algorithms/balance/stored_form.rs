//! Balance in a shared store.
//!
//! ```text
//!   c | credits, 4 bytes | id of a grant, 8 bytes | .. oldest first
//! ```

use alloc::vec::Vec;

use super::{Balance, BalanceState, GrantId, MAX_GRANTS_KNOWN};
use crate::UnixMicros;
use crate::stored_form::{LuaTwin, StateReader, StoredForm};

impl StoredForm for Balance {
    const TAG: u8 = b'c';

    fn read(&self, bytes: &[u8], _now: UnixMicros) -> Option<BalanceState> {
        let mut reader = StateReader::of(Self::TAG, bytes)?;
        let credits = Some(reader.u32()?);
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
        out.extend_from_slice(&credits.to_le_bytes());
        for GrantId(id) in &state.grants {
            out.extend_from_slice(&id.to_le_bytes());
        }
    }

    /// Credits mean the same under any numbers.
    fn shape(&self) -> u64 {
        0
    }

    fn twin(&self) -> Option<LuaTwin> {
        Some(LuaTwin {
            source: include_str!("../balance.lua"),
            numbers: [self.start.into(), self.max.into()].into(),
        })
    }
}
