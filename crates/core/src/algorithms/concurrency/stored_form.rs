//! Permits on loan in a shared store. No twin: a list of names is walked.
//!
//! ```text
//!   c | ends, 8 bytes | permits, 4 bytes | kind, 1 byte: 0          an anonymous batch
//!     | ends, 8 bytes | permits, 4 bytes | kind 1 | name, 16 bytes  a lease
//!     | until, 8      | releases, 4      | kind 2 | held, 8         hold times: last, if any
//! ```

use alloc::vec::Vec;

use super::leases::{ConcurrencyState, HoldTimes, Lease, LeaseId, MAX_BATCHES};
use super::{Concurrency, MAX_LEASES};
use crate::stored_form::{StateReader, StoredForm};
use crate::{Time, UnixMicros};

/// Maximum number of leases and batches that are read.
const MAX_RECORDS: usize = MAX_LEASES as usize + MAX_BATCHES;

const BATCH: u8 = 0;
const LEASE: u8 = 1;
const HELD: u8 = 2;

impl StoredForm for Concurrency {
    const TAG: u8 = b'c';

    fn read(&self, bytes: &[u8], _now: UnixMicros) -> Option<ConcurrencyState> {
        let mut reader = StateReader::of(Self::TAG, bytes)?;
        let mut leases = ConcurrencyState::default();
        while reader.left() > 0 {
            let (ends, permits) = (Time::from_nanos(reader.u64()?), reader.u32()?);
            let holder = match reader.byte()? {
                BATCH => None,
                LEASE => Some(LeaseId::from_bytes(reader.bytes()?)),
                HELD => {
                    leases.held = HoldTimes {
                        nanos: reader.u64()?,
                        releases: permits,
                        until: ends,
                    };
                    let valid = permits < HoldTimes::HALVED_AT && reader.left() == 0;
                    return valid.then_some(leases);
                }
                _ => return None,
            };
            let lease = Lease {
                ends,
                holder,
                permits,
            };
            let key = |lease: &Lease| (lease.ends, lease.holder);
            let in_order = leases
                .by_end
                .last()
                .is_none_or(|last| key(last) < key(&lease));
            if !in_order || lease.permits == 0 || leases.by_end.len() == MAX_RECORDS {
                return None;
            }
            leases.sum += u64::from(lease.permits);
            leases.by_end.push(lease);
        }
        Some(leases)
    }

    fn write(&self, leases: &ConcurrencyState, now: UnixMicros, out: &mut Vec<u8>) {
        let held = &leases.held;
        if leases.by_end.is_empty() && held.until <= now.time() {
            return;
        }
        out.push(Self::TAG);
        for lease in &leases.by_end {
            out.extend_from_slice(&lease.ends.as_nanos().to_le_bytes());
            out.extend_from_slice(&lease.permits.to_le_bytes());
            match &lease.holder {
                None => out.push(BATCH),
                Some(id) => {
                    out.push(LEASE);
                    out.extend_from_slice(id.as_bytes());
                }
            }
        }
        if held.nanos > 0 || held.releases > 0 {
            out.extend_from_slice(&held.until.as_nanos().to_le_bytes());
            out.extend_from_slice(&held.releases.to_le_bytes());
            out.push(HELD);
            out.extend_from_slice(&held.nanos.to_le_bytes());
        }
    }

    /// 0, because a permit on loan is one under any numbers.
    fn shape(&self) -> u64 {
        0
    }
}
