//! Denied: requests that were refused a moment ago are refused here, without a call.
//!
//! ```text
//!   denied, retry_after 300 ms      asked again at +40 ms     at +300 ms
//!   |------------------------------ refused here ------------|  asks the store
//! ```
//!
//! Only a refund or a reset can end a denial sooner. Those of this process take effect at once
//! unless they cross the denial on the network, others within a second, because no denial is
//! kept for longer. `remaining` is that of the refusal, and a charge of this process forgets it. Denials are kept for limits with free
//! denials and a retry time that is exact whatever other requests do: GCRA and logs; and for keys
//! that are banned.

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
/// removed; if that makes no room, no more are remembered.
const MAX_DENIED: usize = 65_536;
/// Shorter waits are not remembered, because the call takes as long.
const SHORTEST: Nanos = Nanos::from_millis(1);

/// The denials of the last second.
#[derive(Debug, Default)]
pub(super) struct DenialCache {
    keys: Mutex<HashMap<Box<[u8]>, Denial, RandomState>>,
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
        let denial = *self.keys.lock().get(&item.name)?;
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
            without_store: false,
        })
    }

    /// Remembers a denial that will hold for a while. Its wait is counted from `sent`, before
    /// the store decided, so that it is over here no later than in the store. A charge makes the
    /// numbers of a denial of its key too good: that is forgotten.
    pub(super) fn note(&self, items: &[Item], decisions: &Decisions, sent: Instant) {
        if decisions.admitted {
            let mut keys = self.keys.lock();
            for item in items {
                keys.remove(&item.name);
            }
        }
        let ([item], [decision]) = (items, &*decisions.each) else {
            return;
        };
        let retry_after = decision.verdict.retry_after().unwrap_or_default();
        if retry_after < SHORTEST || !lasts(&item.limit.algorithm, decision.verdict) {
            return;
        }
        let mut keys = self.keys.lock();
        if keys.len() >= MAX_DENIED {
            keys.retain(|_, denial| denial.until > sent);
            if keys.len() >= MAX_DENIED {
                return;
            }
        }
        let denial = Denial {
            cost: item.cost,
            decision: *decision,
            at: sent,
            until: sent + Duration::from(retry_after).min(LONGEST),
            version: item.limit.version,
        };
        keys.insert(item.name.clone(), denial);
    }

    /// Forgets the denial of a key that may have been refunded or reset.
    pub(super) fn forget(&self, name: &[u8]) {
        self.keys.lock().remove(name);
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
