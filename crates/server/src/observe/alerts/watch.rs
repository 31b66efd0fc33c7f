//! Watch: the keys of one limit that are above, or were at the last look.
//!
//! ```text
//!              above             above for `for`            no longer above
//!   (no entry) -----> waiting -------------------> active ------------------> (no entry)
//!                        |                                                      ^
//!                        +------------------ no longer above -------------------+
//! ```
//!
//! Decisions move the end of the time for which a key is above; the looks, once a second, find
//! starts and ends. An active key that falls and rises again between two looks stays active; one
//! that was above for `for` and has fallen since the last look starts and ends.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use ratekeeper::Outcome;
use ratekeeper_core::{LimitId, Nanos, Time, Verdict};
use ratekeeper_policy::{KeyPart, Rule};

use super::{
    Alert, AlertChange, AlertCounts, AlertEnd, AlertNotice, Counter, MAX_WATCHED,
    MAX_WATCHED_IN_ALL, RuleMode,
};

/// The watched keys of a limit.
#[derive(Debug)]
pub(super) struct LimitWatch {
    pub(super) limit: LimitId,
    pub(super) name: Arc<str>,
    pub(super) alert: Alert,
    pub(super) mode: RuleMode,
    parts: Vec<KeyPart>,
    /// Number of watched keys, so that a decision below the level needs no lock to find none.
    len: AtomicUsize,
    /// Number of watched keys of all limits.
    in_all: Arc<AtomicUsize>,
    keys: Mutex<WatchedKeys>,
    started: Arc<Counter>,
    /// Decisions above the level whose key could not be watched.
    unwatched: Arc<Counter>,
}

#[derive(Debug, Default)]
struct WatchedKeys {
    /// True once a newer policy watches in its place.
    is_closed: bool,
    by_key: HashMap<Box<[u8]>, WatchedKey>,
}

#[derive(Debug)]
struct WatchedKey {
    /// The key in words.
    words: Vec<String>,
    since: Time,
    /// The key is above before this time, and not from it on.
    until: Time,
    /// Time of the last decision.
    decided_at: Time,
    usage_percent: u8,
    /// Id of its alert; `None` before the alert starts.
    id: Option<Arc<str>>,
}

impl LimitWatch {
    /// Watches in the place of `before`, and goes on with its counts.
    pub(super) fn new(
        rule: &Rule,
        alert: Alert,
        in_all: &Arc<AtomicUsize>,
        before: Option<&Arc<Self>>,
    ) -> Arc<Self> {
        let counts = before.map(|it| (Arc::clone(&it.started), Arc::clone(&it.unwatched)));
        let (started, unwatched) = counts.unwrap_or_default();
        Arc::new(Self {
            limit: rule.limit.id,
            name: Arc::clone(&rule.limit.name),
            alert,
            mode: rule.mode,
            parts: rule.key.clone(),
            len: AtomicUsize::new(0),
            in_all: Arc::clone(in_all),
            keys: Mutex::default(),
            started,
            unwatched,
        })
    }

    /// Returns true if it watches what that rule asks for.
    pub(super) fn is_of(&self, rule: &Rule, alert: Alert) -> bool {
        self.alert == alert && self.mode == rule.mode && self.parts == rule.key
    }

    /// Notes a decision. One with numbers of the caller is about another counter, and one that
    /// refuses forever shows nothing about the usage: neither is noted.
    pub(super) fn note(&self, outcome: &Outcome<'_>, at: Time) {
        if outcome.numbers.is_some() || outcome.decision.verdict == Verdict::DenyForever {
            return;
        }
        let above_for = self.alert.above_for(outcome.quota(), &outcome.decision);
        if above_for == Nanos::ZERO && self.len.load(Ordering::Relaxed) == 0 {
            return;
        }
        let usage_percent = Alert::usage_percent(outcome.quota(), &outcome.decision);
        let mut keys = self.keys.lock();
        if let Some(known) = keys.by_key.get_mut(outcome.key.as_bytes()) {
            return known.decide(at, above_for, usage_percent);
        }
        if above_for == Nanos::ZERO || keys.is_closed {
            return;
        }
        if !self.takes_place(keys.by_key.len()) {
            return self.unwatched.add(1);
        }
        let new = WatchedKey {
            words: outcome.rule.describe_key(outcome.key).collect(),
            since: at,
            until: at + above_for,
            decided_at: at,
            usage_percent,
            id: None,
        };
        keys.by_key.insert(outcome.key.as_bytes().into(), new);
        self.len.store(keys.by_key.len(), Ordering::Relaxed);
    }

    /// Takes a place for one more key, if there is one.
    fn takes_place(&self, watched: usize) -> bool {
        let one_more = |all: usize| (all < MAX_WATCHED_IN_ALL).then_some(all + 1);
        let in_all = &self.in_all;
        watched < MAX_WATCHED
            && in_all
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
                .is_ok()
    }

    /// Returns the alerts that have started or ended by `now`; `name` gives a new one its id.
    pub(super) fn look(
        &self,
        now: Time,
        name: impl Fn(&[u8], Time) -> Arc<str>,
    ) -> Vec<AlertNotice> {
        let mut changes = Vec::new();
        if self.len.load(Ordering::Relaxed) == 0 {
            return changes;
        }
        let mut keys = self.keys.lock();
        let before = keys.by_key.len();
        keys.by_key.retain(|key, watched| {
            let above_for = watched.until.min(now).since(watched.since);
            if watched.id.is_none() && above_for >= self.alert.hold {
                watched.id = Some(name(key, watched.since));
                self.started.add(1);
                changes.extend(self.notice(watched, AlertChange::Started));
            }
            if watched.until <= now {
                changes.extend(self.notice(watched, AlertChange::Ended(AlertEnd::Fell)));
            }
            watched.until > now
        });
        self.gave_up(before - keys.by_key.len(), &keys);
        changes
    }

    /// Watches no more, and returns the alerts that end by that.
    pub(super) fn close(&self, why: AlertEnd) -> Vec<AlertNotice> {
        let mut keys = self.keys.lock();
        keys.is_closed = true;
        let all = std::mem::take(&mut keys.by_key);
        self.gave_up(all.len(), &keys);
        let ended = |key: &WatchedKey| self.notice(key, AlertChange::Ended(why));
        all.values().filter_map(ended).collect()
    }

    fn gave_up(&self, places: usize, keys: &WatchedKeys) {
        self.in_all.fetch_sub(places, Ordering::Relaxed);
        self.len.store(keys.by_key.len(), Ordering::Relaxed);
    }

    /// Returns the active alerts.
    pub(super) fn active(&self) -> Vec<AlertNotice> {
        let keys = self.keys.lock();
        let active = |key: &WatchedKey| self.notice(key, AlertChange::Started);
        keys.by_key.values().filter_map(active).collect()
    }

    /// Returns the alert of a key, with the key; `None` if none has started.
    fn notice(&self, key: &WatchedKey, change: AlertChange) -> Option<AlertNotice> {
        Some(AlertNotice {
            change,
            id: Arc::clone(key.id.as_ref()?),
            limit: Arc::clone(&self.name),
            mode: self.mode,
            key: Some(key.words.clone()),
            alert: self.alert,
            usage_percent: key.usage_percent,
            since: key.since,
        })
    }

    pub(super) fn counts(&self) -> AlertCounts {
        let keys = self.keys.lock();
        let active = keys.by_key.values().filter(|key| key.id.is_some());
        AlertCounts {
            limit: Arc::clone(&self.name),
            active: active.count() as u64,
            started: self.started.count(),
            unwatched: self.unwatched.count(),
        }
    }
}

impl WatchedKey {
    /// Notes a decision, unless a later one has been noted: an answer may have been held back.
    fn decide(&mut self, at: Time, above_for: Nanos, usage_percent: u8) {
        if at < self.decided_at {
            return;
        }
        if self.id.is_none() && self.until <= at {
            self.since = at;
        }
        self.decided_at = at;
        self.until = at + above_for;
        self.usage_percent = usage_percent;
    }
}
