//! Saving and restoring the history: a restart leaves empty minutes, and loses none.

use std::collections::BTreeMap;

use ratekeeper_core::Limit;

use super::{Cell, History, MAX_LIMITS, MINUTES, Track, push};

/// The second since 1970 at which it was saved, and the minutes of each limit.
pub(crate) type SavedHistory = (u64, BTreeMap<String, Vec<Cell>>);

impl History {
    /// Returns the minutes of these limits, the current one as the last.
    pub(crate) fn saved<'l>(
        &self,
        unix_second: u64,
        limits: impl Iterator<Item = &'l Limit>,
    ) -> SavedHistory {
        let minutes =
            |limit: &Limit| Some((limit.name.to_string(), self.recent(limit.id)?.minutes));
        (unix_second, limits.filter_map(minutes).collect())
    }

    /// Sets the minutes before the first reading of these limits.
    pub(crate) fn restore<'l>(
        &self,
        (saved_at, mut saved): SavedHistory,
        unix_second: u64,
        limits: impl Iterator<Item = &'l Limit>,
    ) {
        let passed = (unix_second / 60).saturating_sub(saved_at / 60);
        let mut recorded = self.0.lock();
        for limit in limits.take(MAX_LIMITS) {
            let Some(minutes) = saved.remove(&*limit.name) else {
                continue;
            };
            let mut track = Track::default();
            let empty = (0..passed.min(MINUTES as u64)).map(|_| Cell::default());
            for cell in minutes.into_iter().chain(empty) {
                push(&mut track.minutes, MINUTES, cell);
            }
            track.minute = track.minutes.pop_back().unwrap_or_default();
            recorded.limits.insert(limit.id, track);
        }
    }
}
