//! Top keys: the busiest and the most refused keys of each limit, in bounded memory.
//!
//! ```text
//!   decision --note--> keys of its limit (two windows) --GET /v1/top--> ratekeeper top
//! ```
//!
//! * Each process counts its own decisions, whatever the store.
//! * Counts are kept for each limit in [`distinct::PARTS`] parts of [`sketch::COUNTERS`] counters.
//!   A decision takes the lock of its part for some searches of 128 bytes, and waits for no I/O.
//!   It allocates when a key gets a counter, and nothing for a key that has one.
//! * Memory: [`REQUEST_BYTES`] for the busiest keys and [`DENIED_BYTES`] for the refused ones, of
//!   all limits together. It is allocated as keys come, and freed as windows end. A request that
//!   finds no room is counted as `uncounted` of its limit. The two budgets are separate, so that
//!   allowed requests take no room from refused ones.
//! * A request that is refused because a part of its key is missing, or because the limit allows
//!   its key nothing, has no key: it counts for its limit alone.

mod distinct;
mod found;
mod limit;
mod reveal;
mod sketch;

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use ratekeeper::{Answer, Outcome};
use ratekeeper_core::{LimitId, Permits, Time, Verdict};
use ratekeeper_policy::Policy;

pub(crate) use self::distinct::ERROR_PERCENT;
pub(crate) use self::found::TopKeysFound;
use self::limit::{LimitTopKeys, NoKey, Note};
pub(crate) use self::limit::{TopOrder, TopWindow};
pub(crate) use self::reveal::{KeyReveal, is_hashed};
use self::sketch::HashedKey;
use super::by_limit::{self, LimitValues};
use super::denial_log::{LimitLog, LoggedDenial};
use crate::byte_budget::ByteBudget;
use crate::counter::Counter;

/// Memory for the counts of all requests.
const REQUEST_BYTES: usize = 9 << 19;
/// Memory for the counts of refused requests.
const DENIED_BYTES: usize = 15 << 19;

/// The counted keys of all limits.
#[derive(Debug)]
pub(crate) struct TopKeys {
    limits: ArcSwap<LimitValues<LimitPlace>>,
    budgets: Budgets,
}

/// The place of a limit: its keys are counted from its first request.
#[derive(Debug, Default)]
struct LimitPlace {
    keys: OnceLock<Box<LimitTopKeys>>,
    uncounted: Counter,
    log: LimitLog,
}

#[derive(Debug)]
struct Budgets {
    requests: Arc<ByteBudget>,
    denied: Arc<ByteBudget>,
}

impl Default for TopKeys {
    fn default() -> Self {
        Self::with_bytes(REQUEST_BYTES, DENIED_BYTES)
    }
}

impl TopKeys {
    /// Maximum memory of all counts.
    pub(crate) const MAX_BYTES: usize = REQUEST_BYTES + DENIED_BYTES;

    fn with_bytes(requests: usize, denied: usize) -> Self {
        Self {
            limits: ArcSwap::default(),
            budgets: Budgets {
                requests: ByteBudget::new(requests),
                denied: ByteBudget::new(denied),
            },
        }
    }

    /// Makes places for the limits of `policy`. A limit with the key that it had keeps its counts.
    pub(crate) fn install(&self, policy: &Policy) {
        let places = by_limit::renewed(&self.limits.load(), &policy.rules, |rule, known| {
            let keys = known.and_then(|place| place.keys.get());
            let is_kept = keys.is_some_and(|keys| keys.is_of(rule));
            Some(known.filter(|_| is_kept).cloned().unwrap_or_default())
        });
        self.limits.store(Arc::new(places));
    }

    /// Notes a decision of an answer; `hash` is that of its key. `log` receives a denial, also of
    /// a limit that another let pass.
    pub(crate) fn note(
        &self,
        answer: &Answer,
        outcome: &Outcome<'_>,
        hash: u64,
        log: impl Fn(LoggedDenial<'_>, &LimitLog),
    ) {
        let limits = self.limits.load();
        let Some(place) = by_limit::of(&limits, outcome.rule.limit.id) else {
            return;
        };
        // As the metrics count it.
        let denies = !outcome.decision.verdict.allows() && outcome.covered_by.is_none();
        let key = HashedKey {
            hash,
            bytes: outcome.key.as_bytes(),
        };
        let at = answer.decided_at();
        let wait = || outcome.decision.verdict.retry_after();
        let note = Note {
            key,
            at,
            denied_until: denies.then(|| wait().map_or(Time::MAX, |wait| at + wait)),
            is_banned: denies && outcome.decision.verdict.is_ban(),
        };
        let count = self.count(place, outcome, note);
        let is_let_pass = outcome.shadow_denies() || outcome.diverts_to().is_some();
        if outcome.refuses() || is_let_pass || outcome.covered_by.is_some() && answer.allowed() {
            log(LoggedDenial { outcome, count }, &place.log);
        }
    }

    /// Counts a decision; returns the number of denials of its key in this minute, if it is one
    /// and they are counted.
    fn count(&self, place: &LimitPlace, outcome: &Outcome<'_>, note: Note<'_>) -> Option<u64> {
        let keys = place.keys.get().or_else(|| {
            let budgets = &self.budgets;
            let budget = if note.denied_until.is_some() {
                &budgets.denied
            } else {
                &budgets.requests
            };
            let new = LimitTopKeys::new(outcome.rule, note.at, budget)?;
            Some(place.keys.get_or_init(|| new))
        });
        let is_forever = outcome.decision.verdict == Verdict::DenyForever;
        if let Some(keys) = keys.filter(|_| is_forever && outcome.cost == Permits::ZERO) {
            let why = if outcome.key_missing {
                NoKey::Missing
            } else {
                NoKey::Blocked
            };
            keys.note_no_key(note.at, why);
            return None;
        }
        let noted = keys.map(|keys| keys.note(note, &self.budgets));
        if !noted.is_some_and(|noted| noted.is_counted) {
            place.uncounted.add(1);
        }
        noted?.denials
    }

    /// Returns the keys of a limit with the highest counts; an empty list if no request of it
    /// was counted.
    pub(crate) fn top(
        &self,
        limit: LimitId,
        by: TopOrder,
        window: TopWindow,
        count: usize,
        now: Time,
    ) -> TopKeysFound {
        let limits = self.limits.load();
        let keys = by_limit::of(&limits, limit).and_then(|place| place.keys.get());
        let found = keys.map(|keys| keys.top(by, window, count, now));
        found.unwrap_or_else(|| TopKeysFound::none(now))
    }

    /// Returns the denials of a limit in this minute and the one before it, with the most denied key.
    pub(crate) fn most_denied(&self, limit: LimitId, now: Time) -> TopKeysFound {
        self.top(limit, TopOrder::Denied, TopWindow::Minute, 1, now)
    }

    /// Returns the number of requests of a limit that found no room in memory.
    pub(crate) fn uncounted(&self, limit: LimitId) -> u64 {
        let limits = self.limits.load();
        let place = by_limit::of(&limits, limit);
        place.map_or(0, |place| place.uncounted.count())
    }

    /// Returns the number of bytes of all counts.
    pub(crate) fn bytes(&self) -> usize {
        self.budgets.requests.bytes() + self.budgets.denied.bytes()
    }

    /// Drops the periods that have ended, of limits that decide no more.
    pub(crate) fn sweep(&self, now: Time) {
        for place in self.limits.load_full().iter().flatten() {
            if let Some(keys) = place.keys.get() {
                keys.sweep(now);
            }
        }
    }
}

#[cfg(test)]
mod tests;
