//! Alerts: keys that stay above a part of their limit, reported at their start and their end.
//!
//! ```text
//!   decision --note--> watch of its limit: at most 1,000 keys --look, once a second--> notices
//!                                                                                        |
//!                               log, metrics, GET /v1/alerts, webhook (a queue of 1,000) <
//! ```
//!
//! When a key is above, and for how long, is defined by [`ratekeeper_policy::Alert`].
//!
//! * Each process watches its own decisions. With a shared store the usage is that of all
//!   processes, so each of them reports the key; the id of an alert is the same for those that
//!   found the key above within the same `for` (see [`Identity`]).
//! * A key below the level costs a comparison and one load while its limit watches nothing. Only
//!   while a key of the limit is watched do decisions take its lock, for one look-up.
//! * Memory: a watched key takes about 250 bytes and twice the length of the key, which is at
//!   most 1,040 bytes. 10,000 keys of the whole process are watched at most: 3 MB with short keys,
//!   24 MB with the longest. Decisions above the level that find no place are counted.
//! * Nothing is kept across a restart: a key must be above for all of `for` again. A stop ends
//!   all alerts; a crash does not.

mod identity;
pub(crate) mod message;
mod notice;
mod watch;
pub(crate) mod webhook;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use ratekeeper::Answer;
use ratekeeper_core::Time;
use ratekeeper_policy::{Alert, AlertSettings, Policy, RuleMode};

pub(crate) use self::identity::{HASH_BYTES, Identity};
pub use self::notice::{AlertChange, AlertEnd, AlertNotice};
use self::watch::LimitWatch;
use self::webhook::Webhook;
use super::by_limit::{self, LimitValues};
use crate::StartError;
use crate::counter::Counter;

/// Maximum number of keys of one limit that are watched.
pub(crate) const MAX_WATCHED: usize = 1_000;
/// Maximum number of keys of all limits that are watched.
const MAX_WATCHED_IN_ALL: usize = 10_000;
/// The watched keys of all limits with an `alert`.
#[derive(Debug)]
pub(crate) struct Alerts {
    /// True if a limit of the policy has an `alert`.
    any: AtomicBool,
    watches: ArcSwap<LimitValues<LimitWatch>>,
    /// Number of watched keys of all limits.
    watched: Arc<AtomicUsize>,
    /// Held while changes are found and reported, so that an end never overtakes its start.
    reporting: Mutex<()>,
    pub(crate) identity: Identity,
    reveal_keys: bool,
    pub(crate) webhook: Option<Arc<Webhook>>,
}

/// The counts of one limit with an `alert`.
#[derive(Clone, Debug)]
pub(crate) struct AlertCounts {
    pub(crate) limit: Arc<str>,
    pub(crate) active: u64,
    pub(crate) started: u64,
    pub(crate) unwatched: u64,
}

impl Alerts {
    /// Creates alerts, whose messages go to the webhook if there is one.
    ///
    /// # Errors
    /// [`StartError::Alerts`] if the system gives no random bytes.
    pub(crate) fn new(
        settings: &AlertSettings,
        webhook: Option<Webhook>,
    ) -> Result<Self, StartError> {
        let identity = Identity::new(webhook.as_ref().map(|webhook| &webhook.key))?;
        Ok(Self {
            any: AtomicBool::new(false),
            watches: ArcSwap::default(),
            watched: Arc::default(),
            reporting: Mutex::new(()),
            identity,
            reveal_keys: settings.reveal_keys,
            webhook: webhook.map(Arc::new),
        })
    }

    /// Watches the limits of `policy`. A limit with the `alert`, mode and key that it had keeps its
    /// watched keys; the alerts of all others end.
    pub(crate) fn install(&self, policy: &Policy, report: impl FnMut(AlertNotice)) {
        let _reporting = self.reporting.lock();
        let old = self.watches.load_full();
        let watches = by_limit::renewed(&old, &policy.rules, |rule, known| {
            let alert = rule.alert.filter(|_| rule.mode != RuleMode::Off)?;
            let kept = known.filter(|watch| watch.is_of(rule, alert)).cloned();
            Some(kept.unwrap_or_else(|| LimitWatch::new(rule, alert, &self.watched, known)))
        });
        self.any.store(!watches.is_empty(), Ordering::Relaxed);
        let goes_on = |watch: &Arc<LimitWatch>| {
            let new = by_limit::of(&watches, watch.limit);
            new.is_some_and(|new| Arc::ptr_eq(new, watch))
        };
        let gone = old.iter().flatten().filter(|watch| !goes_on(watch));
        let gone: Vec<_> = gone.cloned().collect();
        self.watches.store(Arc::new(watches));
        self.end(&gone, AlertEnd::Removed, report);
    }

    /// Ends all alerts, because the service stops.
    pub(crate) fn close(&self, report: impl FnMut(AlertNotice)) {
        let _reporting = self.reporting.lock();
        self.any.store(false, Ordering::Relaxed);
        let all = self.watches.swap(Arc::default());
        let all: Vec<_> = all.iter().flatten().cloned().collect();
        self.end(&all, AlertEnd::Stopped, report);
    }

    fn end(&self, watches: &[Arc<LimitWatch>], why: AlertEnd, mut report: impl FnMut(AlertNotice)) {
        for watch in watches {
            for notice in watch.close(why) {
                report(self.revealed(notice));
            }
        }
    }

    /// Notes the decisions of an answer.
    #[inline]
    pub(crate) fn note(&self, answer: &Answer) {
        if self.any.load(Ordering::Relaxed) {
            self.note_limits(answer);
        }
    }

    fn note_limits(&self, answer: &Answer) {
        let watches = self.watches.load();
        for outcome in answer
            .outcomes()
            .filter(|outcome| outcome.rule.alert.is_some())
        {
            if let Some(watch) = by_limit::of(&watches, outcome.rule.limit.id) {
                watch.note(&outcome, answer.decided_at());
            }
        }
    }

    /// Reports the alerts that have started or ended by `now`.
    pub(crate) fn look(
        &self,
        now: Time,
        wall: impl Fn(Time) -> u64,
        mut report: impl FnMut(AlertNotice),
    ) {
        let _reporting = self.reporting.lock();
        for watch in self.watches.load_full().iter().flatten() {
            let name = |key: &[u8], since: Time| {
                let span = wall(since) / watch.alert.hold.as_nanos().max(1);
                self.identity.id(&watch.name, key, span)
            };
            for notice in watch.look(now, name) {
                report(self.revealed(notice));
            }
        }
    }

    /// Removes the key of an alert, unless keys are revealed.
    fn revealed(&self, notice: AlertNotice) -> AlertNotice {
        AlertNotice {
            key: notice.key.filter(|_| self.reveal_keys),
            ..notice
        }
    }

    /// Returns the active alerts, with their keys, those that began first at the front.
    pub(crate) fn active(&self) -> Vec<AlertNotice> {
        let watches = self.watches.load_full();
        let each = watches.iter().flatten();
        let mut active: Vec<_> = each.flat_map(|watch| watch.active()).collect();
        active.sort_by_key(|notice| notice.since);
        active
    }

    /// Returns the counts of each limit with an `alert`.
    pub(crate) fn counts(&self) -> Vec<AlertCounts> {
        let watches = self.watches.load_full();
        watches
            .iter()
            .flatten()
            .map(|watch| watch.counts())
            .collect()
    }
}

#[cfg(test)]
mod tests;
