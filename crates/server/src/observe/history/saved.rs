//! Saving and restoring the history: a restart leaves empty minutes, and loses none.

use std::collections::BTreeMap;

use ratekeeper_core::Limit;
use serde::{Deserialize, Serialize};

use super::{Cell, History, MAX_LIMITS, MINUTES, Track, push};

/// The second since 1970 at which it was saved, and the minutes of each limit and of [`ALL`].
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct SavedHistory(u64, BTreeMap<String, Vec<Cell>>);

/// Name of the service itself, which no limit can have.
const ALL: &str = "";

impl History {
    /// Returns the minutes of the service and of these limits, the current one as the last.
    pub(crate) fn saved<'l>(
        &self,
        unix_second: u64,
        limits: impl Iterator<Item = &'l Limit>,
    ) -> SavedHistory {
        let minutes =
            |limit: &Limit| Some((limit.name.to_string(), self.recent(limit.id)?.minutes));
        let all = (ALL.to_owned(), self.total().minutes);
        let each = limits.filter_map(minutes).chain([all]);
        SavedHistory(unix_second, each.collect())
    }

    /// Sets the minutes before the first reading of the service and of these limits.
    pub(crate) fn restore<'l>(
        &self,
        SavedHistory(saved_at, mut saved): SavedHistory,
        unix_second: u64,
        limits: impl Iterator<Item = &'l Limit>,
    ) {
        let passed = (unix_second / 60).saturating_sub(saved_at / 60);
        let mut track = |name: &str| {
            let mut track = Track::default();
            let empty = (0..passed.min(MINUTES as u64)).map(|_| Cell::default());
            for cell in saved.remove(name)?.into_iter().chain(empty) {
                push(&mut track.minutes, MINUTES, cell);
            }
            track.minute = track.minutes.pop_back().unwrap_or_default();
            Some(track)
        };
        let mut recorded = self.0.lock();
        recorded.total = track(ALL).unwrap_or_default();
        for limit in limits.take(MAX_LIMITS) {
            if let Some(track) = track(&limit.name) {
                recorded.limits.insert(limit.id, track);
            }
        }
    }
}
