//! History: how many requests each limit allowed and refused, in the last minute and the last day.
//!
//! ```text
//!   counters --each second--> 60 seconds --each minute--> 1,440 minutes
//! ```
//!
//! Nothing is added to the path of a request: the counters of the metrics are read once a second.
//! A limit takes [`LIMIT_BYTES`] and at most [`MAX_LIMITS`] limits, the first of the policy, have
//! a history, so that a policy of 100,000 limits takes no more than one of 256.

use std::collections::{BTreeMap, VecDeque};

use parking_lot::Mutex;
use ratekeeper_core::{Limit, LimitId};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::metrics::Tally;

/// Maximum number of limits with a history: 4.4 MiB in all.
pub(crate) const MAX_LIMITS: usize = 256;
/// Number of seconds kept.
const SECONDS: usize = 60;
/// Number of minutes kept: a day.
const MINUTES: usize = 24 * 60;
/// Memory of the history of one limit.
const LIMIT_BYTES: usize = (SECONDS + MINUTES) * size_of::<Cell>() + SECONDS;
const _: () = assert!(LIMIT_BYTES == 18_060, "stated in docs/guide/dashboard.md");
/// Maximum memory, with the history of the service itself.
pub(crate) const MAX_BYTES: usize = (MAX_LIMITS + 1) * LIMIT_BYTES;

/// Requests of one second or minute: allowed, refused, and the third count of [`Tally`].
pub(crate) type Cell = [u32; 3];

/// The history of the limits and of the service.
#[derive(Debug, Default)]
pub(crate) struct History(Mutex<Recorded>);

#[derive(Debug, Default)]
struct Recorded {
    /// Seconds since the start, at the last reading; `None` before the first.
    second: Option<u64>,
    total: Track,
    limits: BTreeMap<LimitId, Track>,
}

/// The history of one limit.
#[derive(Debug)]
struct Track {
    last: Tally,
    seconds: VecDeque<Cell>,
    /// Highest share of the limit that a key had spent, in percent, by second.
    highest: VecDeque<u8>,
    minutes: VecDeque<Cell>,
    /// Requests of the current minute.
    minute: Cell,
}

impl Default for Track {
    fn default() -> Self {
        Self {
            last: Tally::default(),
            seconds: VecDeque::with_capacity(SECONDS),
            highest: VecDeque::with_capacity(SECONDS),
            minutes: VecDeque::with_capacity(MINUTES),
            minute: Cell::default(),
        }
    }
}

impl History {
    /// Begins the history of limits that count from zero now.
    pub(crate) fn begin(&self, limits: impl Iterator<Item = LimitId>) {
        let mut recorded = self.0.lock();
        for limit in limits {
            recorded.limits.entry(limit).or_default().last = Tally::default();
        }
    }

    /// Notes the counts at a second; limits that are not among them are forgotten.
    pub(crate) fn note(&self, second: u64, total: Tally, limits: BTreeMap<LimitId, Tally>) {
        let mut recorded = self.0.lock();
        let last = recorded.second.replace(second);
        let passed = Passed::between(last.unwrap_or(second), second);
        recorded.total.advance(passed, total);
        recorded.limits.retain(|id, _| limits.contains_key(id));
        for (id, tally) in limits {
            // One that was not among the first: requests from before are left out, because their
            // second is unknown.
            let begin = || Track {
                last: tally,
                ..Track::default()
            };
            let track = recorded.limits.entry(id).or_insert_with(begin);
            track.advance(passed, tally);
        }
    }

    /// Returns the last cells of all requests.
    pub(crate) fn total(&self) -> Recent {
        self.0.lock().total.recent()
    }

    /// Returns the last cells of a limit; `None` if it has no history.
    pub(crate) fn recent(&self, limit: LimitId) -> Option<Recent> {
        self.0.lock().limits.get(&limit).map(Track::recent)
    }

    /// Returns the highest share of a limit that a key had spent in the last minute, in percent;
    /// `None` if it has no history.
    pub(crate) fn highest(&self, limit: LimitId) -> Option<u8> {
        let recorded = self.0.lock();
        let track = recorded.limits.get(&limit)?;
        Some(track.highest.iter().copied().max().unwrap_or_default())
    }

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

/// The last cells of a limit, or of all requests, the newest last.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Recent {
    /// The last minute by second.
    pub(crate) seconds: Vec<Cell>,
    /// The last day by minute, the current one included.
    pub(crate) minutes: Vec<Cell>,
}

impl Recent {
    /// Returns the last minute, hour and day, each in `most` spans at most, so that little data
    /// has short spans: the number of cells of a span, and their sums.
    pub(crate) fn ranges(&self, most: usize) -> Value {
        let spans = |cells: &[Cell], last: usize| {
            let cells = &cells[cells.len().saturating_sub(last)..];
            let step = cells.len().div_ceil(most).max(1);
            let sum = |span: &[Cell], index: usize| -> u64 {
                span.iter().map(|cell| u64::from(cell[index])).sum()
            };
            let spans = cells.rchunks(step).rev();
            let spans = spans.map(|span| std::array::from_fn(|index| sum(span, index)));
            json!({ "step": step, "spans": spans.collect::<Vec<[u64; 3]>>() })
        };
        json!({
            "1m": spans(&self.seconds, SECONDS),
            "1h": spans(&self.minutes, 60),
            "24h": spans(&self.minutes, MINUTES),
        })
    }
}

/// The time between two readings.
#[derive(Clone, Copy)]
struct Passed {
    seconds: u64,
    minutes: u64,
}

impl Passed {
    fn between(last: u64, now: u64) -> Self {
        Self {
            seconds: now.saturating_sub(last),
            minutes: (now / 60).saturating_sub(last / 60),
        }
    }
}

impl Track {
    fn recent(&self) -> Recent {
        let current = std::iter::once(self.minute);
        Recent {
            seconds: self.seconds.iter().copied().collect(),
            minutes: self.minutes.iter().copied().chain(current).collect(),
        }
    }

    /// Adds the requests since the last reading to the present second and minute. A late reading
    /// leaves empty cells for the seconds that it missed.
    fn advance(&mut self, passed: Passed, tally: Tally) {
        let since =
            |now: u64, last: u64| u32::try_from(now.saturating_sub(last)).unwrap_or(u32::MAX);
        let cell = [
            since(tally.allowed, self.last.allowed),
            since(tally.denied, self.last.denied),
            since(tally.other, self.last.other),
        ];
        self.last = tally;
        for _ in 0..passed.seconds.min(SECONDS as u64) {
            push(&mut self.seconds, SECONDS, Cell::default());
            push(&mut self.highest, SECONDS, 0);
        }
        if let (Some(second), Some(highest)) = (self.seconds.back_mut(), self.highest.back_mut()) {
            add(second, cell);
            *highest = tally.highest.max(*highest);
        }
        for _ in 0..passed.minutes.min(MINUTES as u64) {
            push(&mut self.minutes, MINUTES, std::mem::take(&mut self.minute));
        }
        add(&mut self.minute, cell);
    }
}

fn push<T>(cells: &mut VecDeque<T>, most: usize, cell: T) {
    if cells.len() == most {
        cells.pop_front();
    }
    cells.push_back(cell);
}

fn add(to: &mut Cell, cell: Cell) {
    for (to, count) in to.iter_mut().zip(cell) {
        *to = to.saturating_add(count);
    }
}

/// The second since 1970 at which it was saved, and the minutes of each limit and of [`ALL`].
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct SavedHistory(u64, BTreeMap<String, Vec<Cell>>);

/// Name of the service itself, which no limit can have.
const ALL: &str = "";

#[cfg(test)]
mod tests {
    use super::*;
    use ratekeeper_core::{Gcra, LimitKeys, LimitScope, Outage};

    const API: LimitId = LimitId::new(0);

    fn tally(allowed: u64, denied: u64) -> Tally {
        Tally {
            allowed,
            denied,
            other: 0,
            highest: 0,
        }
    }

    fn note(history: &History, second: u64, counts: Tally) {
        history.note(second, counts, BTreeMap::from([(API, counts)]));
    }

    #[test]
    fn seconds_become_minutes() {
        let history = History::default();
        for second in 0..=121 {
            note(&history, second, tally(second * 2, second));
        }
        let seconds = history.recent(API).unwrap().seconds;
        assert_eq!(seconds, [[2, 1, 0]; 60]);
        let minutes = history.recent(API).unwrap().minutes;
        assert_eq!(minutes, [[118, 59, 0], [120, 60, 0], [4, 2, 0]]);
    }

    #[test]
    fn a_limit_that_begins_misses_no_request() {
        let history = History::default();
        note(&history, 0, tally(7, 0));
        history.begin([API, LimitId::new(1)].into_iter()); // the first one came back
        let counts = tally(2, 1);
        let all = (0..3).map(|id| (LimitId::new(id), counts));
        history.note(1, counts, all.collect());
        let last = |id| history.recent(LimitId::new(id)).unwrap().seconds.pop();
        let whole = Some([2, 1, 0]);
        assert_eq!([0, 1, 2].map(last), [whole, whole, Some([0; 3])]);
    }

    #[test]
    fn spans_grow_with_the_data_and_the_newest_is_whole() {
        let recent = |cells: usize| Recent {
            seconds: vec![[1, 0, 2]; cells.min(SECONDS)],
            minutes: vec![[1, 0, 2]; cells],
        };
        let ranges = recent(7).ranges(4);
        let twos = [[1, 0, 2], [2, 0, 4], [2, 0, 4], [2, 0, 4]];
        assert_eq!(ranges["1m"], json!({ "step": 2, "spans": twos }));
        assert_eq!(recent(0).ranges(4)["1h"], json!({ "step": 1, "spans": [] }));
        let ranges = recent(MINUTES + 1).ranges(144);
        let tens = vec![[10, 0, 20]; 144];
        assert_eq!(ranges["24h"], json!({ "step": 10, "spans": tens }));
        assert_eq!(ranges["1h"]["spans"].as_array().unwrap().len(), 60);
    }

    #[test]
    fn the_highest_share_is_that_of_the_last_minute() {
        let history = History::default();
        assert_eq!(history.highest(API), None);
        for (second, highest, expected) in [
            (0, 90, 0), // from before the first reading
            (1, 40, 40),
            (1, 10, 40),
            (2, 70, 70),
            (61, 0, 70),
            (62, 5, 5),
        ] {
            let counts = Tally {
                highest,
                ..tally(0, 0)
            };
            note(&history, second, counts);
            assert_eq!(history.highest(API), Some(expected), "at {second}");
        }
    }

    #[test]
    fn a_late_reading_leaves_empty_seconds_and_loses_no_request() {
        let history = History::default();
        note(&history, 0, tally(0, 0));
        note(&history, 1, tally(5, 0));
        note(&history, 1, tally(6, 0));
        note(&history, 4, tally(9, 0));
        let expected = [[6, 0, 0], [0; 3], [0; 3], [3, 0, 0]];
        assert_eq!(history.recent(API).unwrap().seconds, expected);
        note(&history, 1_000_000, tally(10, 0));
        assert_eq!(history.recent(API).unwrap().seconds.len(), SECONDS);
        assert_eq!(history.recent(API).unwrap().minutes.len(), MINUTES + 1);
    }

    #[test]
    fn a_restart_leaves_empty_minutes() {
        let limit = Limit {
            name: "api".into(),
            id: API,
            version: 1,
            outage: Outage::Local,
            scope: LimitScope::Cluster,
            keys: LimitKeys::All,
            algorithm: Gcra::token_bucket("1/1s".parse().unwrap()).unwrap().into(),
        };
        let before = History::default();
        note(&before, 0, tally(0, 0));
        note(&before, 70, tally(5, 1));
        note(&before, 130, tally(6, 2));
        let saved = before.saved(600, [&limit].into_iter());
        let after = History::default();
        after.restore(saved.clone(), 725, [&limit].into_iter());
        note(&after, 0, tally(3, 0));
        let expected = [[0; 3], [5, 1, 0], [1, 1, 0], [0; 3], [3, 0, 0]];
        assert_eq!(after.recent(API).unwrap().minutes, expected);
        assert_eq!(after.total().minutes, expected);
        after.restore(saved, u64::MAX, [&limit].into_iter());
        let minutes = after.recent(API).unwrap().minutes;
        assert_eq!(minutes.len(), MINUTES);
        assert!(minutes.iter().all(|minute| *minute == [0; 3]));
    }

    #[test]
    fn a_limit_that_left_the_policy_is_forgotten() {
        let history = History::default();
        note(&history, 0, tally(0, 0));
        history.note(1, tally(1, 0), BTreeMap::new());
        assert_eq!(history.recent(API), None);
        note(&history, 2, tally(7, 0));
        note(&history, 3, tally(8, 0));
        let cells = history.recent(API).unwrap().seconds;
        assert_eq!(cells.iter().map(|cell| cell[0]).sum::<u32>(), 1);
    }

    #[test]
    fn the_cells_of_a_limit_keep_their_bound() {
        let mut track = Track::default();
        let passed = Passed {
            seconds: 60,
            minutes: 1,
        };
        for _ in 0..2 * MINUTES {
            track.advance(passed, tally(0, 0));
        }
        let cells = track.seconds.capacity() + track.minutes.capacity();
        let bytes = cells * size_of::<Cell>() + track.highest.capacity();
        assert_eq!(bytes, LIMIT_BYTES);
    }
}
