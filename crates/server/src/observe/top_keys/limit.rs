//! Limit: the counts of the keys of one limit, in the last minute and the last hour.
//!
//! ```text
//!   key --hash--> one of 8 parts, with a lock:   minute  [previous][current]    each: requests,
//!                                                hour    [previous][current]          denials
//! ```
//!
//! A window is the current period and the previous one, counted as they were: between one and two
//! minutes, or hours. The start is stated with the counts. A period that ends becomes the previous
//! one, and the one before it is dropped, with its memory.
//!
//! All counts of a key are in one part, so the answer of a limit is that of its parts side by side.

use std::sync::Arc;

use parking_lot::Mutex;
use ratekeeper_core::{Nanos, Time};
use ratekeeper_policy::{KeyPart, Rule};
use strum::EnumString;

use super::Budgets;
use super::distinct::{DistinctKeys, PARTS, part};
use super::found::{TopKey, TopKeysFound};
use super::sketch::{COUNTERS, Estimate, HashedKey, KeySketch};
use crate::byte_budget::{ByteBudget, HeldBytes};

/// The order of a list of keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, EnumString)]
#[strum(serialize_all = "lowercase")]
pub(crate) enum TopOrder {
    /// By the number of refusals.
    #[default]
    Denied,
    /// By the number of requests.
    Requests,
}

/// The time that counts cover.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum TopWindow {
    #[default]
    Minute,
    Hour,
}

impl TopWindow {
    const ALL: [Self; 2] = [Self::Minute, Self::Hour];

    const fn width(self) -> Nanos {
        match self {
            Self::Minute => Nanos::from_secs(60),
            Self::Hour => Nanos::from_secs(3_600),
        }
    }

    /// Returns the number of the period that `at` is in.
    const fn period(self, at: Time) -> u64 {
        at.as_nanos() / self.width().as_nanos()
    }
}

/// A request, as its limit decided it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Note<'a> {
    pub(super) key: HashedKey<'a>,
    pub(super) at: Time,
    /// Time at which a refused key may pass again; `None` if the limit allows.
    pub(super) denied_until: Option<Time>,
    /// True if it is refused because the key is banned.
    pub(super) is_banned: bool,
}

/// The reason why a refused request has no key.
#[derive(Clone, Copy, Debug)]
pub(super) enum NoKey {
    /// A part of the key is missing.
    Missing,
    /// The limit allows the key nothing.
    Blocked,
}

/// The counts that a request was noted in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Noted {
    /// False if the budgets had no room for a count of it.
    pub(super) is_counted: bool,
    /// Number of denials of the key in this minute that are surely its own; `None` if it is not
    /// denied, or not counted.
    pub(super) denials: Option<u64>,
}

/// The keys of one limit.
#[derive(Debug)]
pub(super) struct LimitTopKeys {
    key_parts: Vec<KeyPart>,
    since: Time,
    parts: [Mutex<Part>; PARTS],
    _share: HeldBytes,
}

/// A part of the keys: the minute and the hour.
#[derive(Debug, Default)]
struct Part([Window; 2]);

#[derive(Debug, Default)]
struct Window {
    /// Number of the current period.
    period: u64,
    current: Period,
    previous: Period,
}

/// The counts of a period.
#[derive(Debug, Default)]
struct Period {
    requests: Option<Box<KeySketch>>,
    denied: Option<DeniedKeys>,
    /// Refusals by bans.
    banned: u64,
    /// Refusals of requests without a key, by [`NoKey`].
    no_key: [u64; 2],
}

#[derive(Debug)]
struct DeniedKeys {
    sketch: Box<KeySketch>,
    /// By counter of the sketch.
    spans: Box<[DeniedSpan; COUNTERS]>,
}

/// When the key of a counter was refused.
#[derive(Clone, Copy, Debug, Default)]
struct DeniedSpan {
    /// Time of the first refusal of the run: in each period since then the key was refused. Later
    /// if the key lost its counter to others meanwhile.
    first: Time,
    /// Time at which the key may pass again; [`Time::MAX`] for never.
    free_at: Time,
}

impl LimitTopKeys {
    /// Creates the counts of the keys of `rule`; `None` if the budget has no room for them.
    pub(super) fn new(rule: &Rule, at: Time, budget: &Arc<ByteBudget>) -> Option<Box<Self>> {
        let share = budget.take(size_of::<Self>())?;
        Some(Box::new(Self {
            key_parts: rule.key.clone(),
            since: at,
            parts: Default::default(),
            _share: share,
        }))
    }

    /// Returns true if they are counts of keys of that form.
    pub(super) fn is_of(&self, rule: &Rule) -> bool {
        self.key_parts == rule.key
    }

    /// Counts a request.
    pub(super) fn note(&self, note: Note<'_>, budgets: &Budgets) -> Noted {
        let mut part = self.parts[part(note.key.hash)].lock();
        part.roll(note.at);
        let [minute, hour] = &mut part.0;
        let noted = minute.current.note(note, &minute.previous, budgets);
        let in_hour = hour.current.note(note, &hour.previous, budgets);
        Noted {
            is_counted: in_hour.is_counted && noted.is_counted,
            ..noted
        }
    }

    /// Counts a refusal of a request without a key.
    pub(super) fn note_no_key(&self, at: Time, why: NoKey) {
        let mut part = self.parts[0].lock();
        part.roll(at);
        for window in &mut part.0 {
            window.current.no_key[why as usize] += 1;
        }
    }

    /// Drops the periods that have ended.
    pub(super) fn sweep(&self, now: Time) {
        for part in &self.parts {
            part.lock().roll(now);
        }
    }

    /// Returns the `count` keys with the highest counts.
    pub(super) fn top(
        &self,
        by: TopOrder,
        window: TopWindow,
        count: usize,
        now: Time,
    ) -> TopKeysFound {
        let started = window.period(now).saturating_sub(1) * window.width().as_nanos();
        let mut found = TopKeysFound::none(Time::from_nanos(started).max(self.since));
        // Of all requests, of the denials, and of the denials in the previous period.
        let mut distinct = [[DistinctKeys::new(); PARTS]; 3];
        for (index, part) in self.parts.iter().enumerate() {
            let mut part = part.lock();
            part.roll(now);
            let window = &part.0[window as usize];
            let Window {
                current, previous, ..
            } = window;
            for (merged, period, order) in [
                (0, current, TopOrder::Requests),
                (0, previous, TopOrder::Requests),
                (1, current, TopOrder::Denied),
                (1, previous, TopOrder::Denied),
                (2, previous, TopOrder::Denied),
            ] {
                if let Some(sketch) = period.sketch(order) {
                    distinct[merged][index].merge(sketch.distinct());
                }
            }
            window.read(by, &mut found);
        }
        let [all, denied, before] = distinct.map(|parts| DistinctKeys::estimate(&parts));
        (found.distinct, found.distinct_denied) = (all, denied);
        found.first_denied = denied.saturating_sub(before);
        let keys = &mut found.keys;
        let rank = |key: &TopKey| match by {
            TopOrder::Denied => (key.denied.count, key.requests.count),
            TopOrder::Requests => (key.requests.count, key.denied.count),
        };
        found.most_denied = keys.iter().map(|key| key.denied.count).max().unwrap_or(0);
        keys.sort_by(|a, b| rank(b).cmp(&rank(a)).then_with(|| a.key.cmp(&b.key)));
        if let Some(next) = keys.get(count) {
            found.unlisted_at_most = found.unlisted_at_most.max(rank(next).0);
        }
        keys.truncate(count);
        found
    }
}

impl Part {
    /// Begins the periods that `at` is in. One that lies before the current period is counted in
    /// it, because an answer may have been held back.
    fn roll(&mut self, at: Time) {
        for (window, kind) in self.0.iter_mut().zip(TopWindow::ALL) {
            let period = kind.period(at);
            if period <= window.period {
                continue;
            }
            let ended = std::mem::take(&mut window.current);
            window.previous = if period == window.period + 1 {
                ended
            } else {
                Period::default()
            };
            window.period = period;
        }
    }
}

impl Window {
    fn read(&self, by: TopOrder, found: &mut TopKeysFound) {
        let periods = [&self.previous, &self.current];
        let mut floor = 0;
        for period in periods {
            let total = |order| period.sketch(order).map_or(0, KeySketch::total);
            found.requests += total(TopOrder::Requests);
            found.denied += total(TopOrder::Denied);
            found.banned += period.banned;
            for (count, more) in found.no_key.iter_mut().zip(period.no_key) {
                *count += more;
                found.requests += more;
                found.denied += more;
            }
            floor += period.sketch(by).map_or(0, KeySketch::floor);
        }
        found.unlisted_at_most = found.unlisted_at_most.max(floor);
        let estimate = |order, key| {
            let each = periods.iter().filter_map(|period| period.sketch(order));
            let each = each.map(|sketch| sketch.estimate(key));
            each.fold(Estimate::default(), std::ops::Add::add)
        };
        for (index, period) in periods.iter().enumerate() {
            for key in period.sketch(by).into_iter().flat_map(KeySketch::keys) {
                let is_known = index > 0
                    && periods[0]
                        .sketch(by)
                        .is_some_and(|sketch| sketch.find(key).is_some());
                if is_known {
                    continue;
                }
                let spans = || {
                    let denied = periods.iter().filter_map(|period| period.denied.as_ref());
                    denied.filter_map(move |denied| denied.span(key))
                };
                found.keys.push(TopKey {
                    key: key.bytes.to_vec(),
                    requests: estimate(TopOrder::Requests, key),
                    denied: estimate(TopOrder::Denied, key),
                    denied_since: spans().next().map(|span| span.first),
                    free_at: spans().next_back().map(|span| span.free_at),
                });
            }
        }
    }
}

impl Period {
    fn sketch(&self, order: TopOrder) -> Option<&KeySketch> {
        match order {
            TopOrder::Requests => self.requests.as_deref(),
            TopOrder::Denied => self.denied.as_ref().map(|denied| &*denied.sketch),
        }
    }

    fn note(&mut self, note: Note<'_>, previous: &Self, budgets: &Budgets) -> Noted {
        let requests = made(&mut self.requests, || KeySketch::new(&budgets.requests));
        let requests = requests.and_then(|keys| keys.add(note.key));
        let mut noted = Noted {
            is_counted: requests.is_some(),
            denials: None,
        };
        let Some(until) = note.denied_until else {
            return noted;
        };
        let denied = made(&mut self.denied, || DeniedKeys::new(&budgets.denied));
        let run = || previous.denied.as_ref()?.span(note.key);
        noted.denials = denied.and_then(|denied| denied.add(note.key, note.at, until, run));
        noted.is_counted &= noted.denials.is_some();
        self.banned += u64::from(note.is_banned && noted.denials.is_some());
        noted
    }
}

/// Returns the value in `place`, made if there is none.
fn made<T>(place: &mut Option<T>, make: impl FnOnce() -> Option<T>) -> Option<&mut T> {
    if place.is_none() {
        *place = make();
    }
    place.as_mut()
}

impl DeniedKeys {
    fn new(budget: &Arc<ByteBudget>) -> Option<Self> {
        let mut sketch = KeySketch::new(budget)?;
        let spans = [DeniedSpan::default(); COUNTERS];
        sketch.reserve(size_of_val(&spans)).then(|| Self {
            sketch,
            spans: Box::new(spans),
        })
    }

    /// Counts a refusal; returns the number of those that are surely of the key. `run` returns its
    /// refusals in the previous period.
    fn add(
        &mut self,
        key: HashedKey<'_>,
        at: Time,
        free_at: Time,
        run: impl FnOnce() -> Option<DeniedSpan>,
    ) -> Option<u64> {
        let counted = self.sketch.add(key)?;
        let span = self.spans.get_mut(counted.index)?;
        if counted.sure == 1 {
            span.first = run().map_or(at, |run| run.first);
        }
        span.free_at = free_at;
        Some(counted.sure)
    }

    fn span(&self, key: HashedKey<'_>) -> Option<DeniedSpan> {
        let index = self.sketch.find(key)?;
        self.spans.get(index).copied()
    }
}
