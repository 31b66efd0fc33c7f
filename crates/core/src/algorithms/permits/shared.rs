//! Permits on loan in a shared store. No twin: a list of names is walked.
//!
//! ```text
//!   c | ends, 8 bytes | permits, 4 bytes | named, 1 byte: 0 or 1 | name, 16 bytes | ...
//! ```

use alloc::vec::Vec;

use super::leases::{Lease, LeaseId, Leases, MAX_BATCHES};
use super::{Concurrency, MAX_LEASES};
use crate::shared::{Reader, Shared};
use crate::{Time, UnixMicros};

/// The most leases and batches that are read.
const MOST: usize = MAX_LEASES as usize + MAX_BATCHES;

impl Shared for Concurrency {
    const TAG: u8 = b'c';

    fn read(&self, bytes: &[u8], _now: UnixMicros) -> Option<Leases> {
        let mut reader = Reader::of(Self::TAG, bytes)?;
        let mut leases = Leases::default();
        while reader.left() > 0 {
            let lease = Lease {
                ends: Time::from_nanos(reader.u64()?),
                permits: reader.u32()?,
                holder: match reader.byte()? {
                    0 => None,
                    1 => Some(LeaseId::from_bytes(reader.bytes()?)),
                    _ => return None,
                },
            };
            let key = |lease: &Lease| (lease.ends, lease.holder);
            let in_order = leases
                .by_end
                .last()
                .is_none_or(|last| key(last) < key(&lease));
            if !in_order || lease.permits == 0 || leases.by_end.len() == MOST {
                return None;
            }
            leases.sum += u64::from(lease.permits);
            leases.by_end.push(lease);
        }
        Some(leases)
    }

    fn write(&self, leases: &Leases, _now: UnixMicros, out: &mut Vec<u8>) {
        if leases.by_end.is_empty() {
            return;
        }
        out.push(Self::TAG);
        for lease in &leases.by_end {
            out.extend_from_slice(&lease.ends.as_nanos().to_le_bytes());
            out.extend_from_slice(&lease.permits.to_le_bytes());
            out.push(u8::from(lease.holder.is_some()));
            if let Some(id) = &lease.holder {
                out.extend_from_slice(id.as_bytes());
            }
        }
    }

    /// A permit on loan is one, whatever the numbers.
    fn shape(&self) -> u64 {
        0
    }
}
