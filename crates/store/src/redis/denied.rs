//! Denied: requests that were refused a moment ago are refused here, without a call.
//!
//! ```text
//!   denied, retry_after 300 ms      asked again at +40 ms     at +300 ms
//!   |------------------------------ refused here ------------|  asks the store
//! ```
//!
//! Only a refund or a reset can end a denial sooner. Those of this process take effect at once
//! unless they cross the denial on the network, others within a second, because no denial is
//! kept for longer. `remaining` is that of the refusal, and a charge of this process forgets it.
//! Denials are kept for limits with free denials and a retry time that is exact whatever other
//! requests do: GCRA and logs; and for keys that are banned.

use std::collections::HashMap;
use std::time::Duration;

use foldhash::quality::RandomState;
use parking_lot::Mutex;
use ratekeeper_core::{
    Algorithm as _, AnyAlgorithm, Decision, Denials, Mode, Nanos, Permits, Time, Verdict,
};
use smallvec::smallvec;
use tokio::time::Instant;

use super::settle::Item;
use crate::Decisions;

/// Maximum time that a denial is remembered, whatever its `retry_after`.
const LONGEST: Duration = Duration::from_secs(1);
/// Maximum number of keys that are remembered. When it is reached, denials that are over are
/// removed, at most once in [`LONGEST`]; while that makes no room, no more are remembered.
const MAX_DENIED: usize = 65_536;
/// Shorter waits are not remembered, because the call takes as long.
const SHORTEST: Nanos = Nanos::from_millis(1);

/// The denials of the last second.
#[derive(Debug, Default)]
pub(super) struct DenialCache {
    table: Mutex<DenialTable>,
}

#[derive(Debug, Default)]
struct DenialTable {
    keys: HashMap<Box<[u8]>, Denial, RandomState>,
    /// Time of the last search for denials that are over.
    swept: Option<Instant>,
}

impl DenialTable {
    /// Returns true if one more denial fits at `now`.
    fn has_room(&mut self, now: Instant) -> bool {
        let is_due = |swept: Instant| now.saturating_duration_since(swept) >= LONGEST;
        if self.keys.len() >= MAX_DENIED && self.swept.is_none_or(is_due) {
            self.keys.retain(|_, denial| denial.until > now);
            self.swept = Some(now);
        }
        self.keys.len() < MAX_DENIED
    }
}

#[derive(Clone, Copy, Debug)]
struct Denial {
    cost: Permits,
    decision: Decision,
    at: Instant,
    until: Instant,
    /// Version of the limit that decided.
    version: u32,
}

impl DenialCache {
    /// Returns the denial of the same request, if one is remembered and not over.
    pub(super) fn recall(&self, items: &[Item], now: Instant) -> Option<Decisions> {
        let [item] = items else {
            return None;
        };
        let denial = *self.table.lock().keys.get(&item.name)?;
        // Another cost has another wait, which only the store knows.
        let same = item.cost == denial.cost && item.limit.version == denial.version;
        if !same || now >= denial.until {
            return None;
        }
        let passed = Nanos::from(now.duration_since(denial.at));
        let decision = denial.decision;
        let wait = decision.verdict.retry_after()?.saturating_sub(passed);
        let decision = Decision {
            verdict: decision.verdict.with_retry_after(wait),
            reset_after: decision.reset_after.saturating_sub(passed),
            more_after: decision.more_after.saturating_sub(passed),
            ..decision
        };
        Some(Decisions {
            admitted: item.mode == Mode::Shadow,
            each: smallvec![decision],
            made: Time::ZERO, // nothing was charged
            mark: None,
            without_store: false,
        })
    }

    /// Remembers a denial that will hold for a while. Its wait is counted from `sent`, before
    /// the store decided, so that it is over here no later than in the store. A charge makes the
    /// numbers of a denial of its key too good: that is forgotten.
    pub(super) fn note(&self, items: &[Item], decisions: &Decisions, sent: Instant) {
        if decisions.admitted {
            let mut table = self.table.lock();
            for item in items {
                table.keys.remove(&item.name);
            }
        }
        let ([item], [decision]) = (items, &*decisions.each) else {
            return;
        };
        let retry_after = decision.verdict.retry_after().unwrap_or_default();
        if retry_after < SHORTEST || !lasts(&item.limit.algorithm, decision.verdict) {
            return;
        }
        let mut table = self.table.lock();
        if !table.has_room(sent) {
            return;
        }
        let denial = Denial {
            cost: item.cost,
            decision: *decision,
            at: sent,
            until: sent + Duration::from(retry_after).min(LONGEST),
            version: item.limit.version,
        };
        table.keys.insert(item.name.clone(), denial);
    }

    /// Forgets the denial of a key that may have been refunded or reset.
    pub(super) fn forget(&self, name: &[u8]) {
        self.table.lock().keys.remove(name);
    }
}

/// Returns true if a denial stands until its wait is over, whatever other callers do. A ban does;
/// other denials of a limit with bans must reach the store, because each is a strike.
fn lasts(algorithm: &AnyAlgorithm, verdict: Verdict) -> bool {
    if algorithm.counts_strikes() {
        return matches!(verdict, Verdict::Banned { .. });
    }
    let only_time_heals = matches!(algorithm, AnyAlgorithm::Gcra(_) | AnyAlgorithm::Log(_));
    only_time_heals && algorithm.denials() == Denials::Free
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_table_is_searched_once_a_second() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let denial = |until| Denial {
            cost: Permits::ONE,
            decision: Decision {
                verdict: Verdict::Allow,
                remaining: Permits::ZERO,
                reset_after: Nanos::ZERO,
                more_after: Nanos::ZERO,
            },
            at: start,
            until,
            version: 0,
        };
        let mut table = DenialTable::default();
        for key in 0..MAX_DENIED {
            let name = key.to_le_bytes();
            let until = if key < 2 { at(10) } else { at(900) };
            table.keys.insert(Box::new(name), denial(until));
        }
        assert!(!table.has_room(at(5)), "no denial is over");
        assert!(
            !table.has_room(at(20)),
            "and the table is not searched again"
        );
        assert!(table.has_room(at(1_005)));
        assert!(table.keys.is_empty());
    }
}
