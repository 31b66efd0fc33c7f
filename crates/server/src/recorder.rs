//! Recorder: the requests of the last hour under each limit, for `GET /v1/whatif`.
//!
//! ```text
//!   decision --note--> ring of its limit:  | key's hash 8 | time 4 | cost 4 | ..   an hour at most
//!                                 full: every second key is left out, from then on and before
//! ```
//!
//! * A request is noted if no other limit refuses it: the number of this limit decides about it.
//! * Keys are sampled whole, by their hash: the record of a sampled key is complete, so that it
//!   can be decided again exactly. With too few keys to leave out half of them, the oldest
//!   requests are left out instead.
//! * Memory: [`TOTAL_BYTES`] for all limits, of which the first [`MAX_LIMITS`] have equal shares.
//!   A note takes one lock for some nanoseconds; the pass over a full ring takes it once for each
//!   halving.

use std::collections::{HashSet, VecDeque};
use std::hash::BuildHasher as _;
use std::sync::Arc;

use arc_swap::ArcSwap;
use foldhash::quality::RandomState;
use parking_lot::Mutex;
use ratekeeper::{Answer, Outcome};
use ratekeeper_core::{LimitId, Nanos, Time};
use ratekeeper_policy::{KeyPart, Policy};

/// Memory of all records.
const TOTAL_BYTES: usize = 8 << 20;
/// Number of limits, the first of the policy, with a record.
const MAX_LIMITS: usize = 256;
/// Maximum number of records of one limit: they are decided again within a fraction of a second.
const MAX_RECORDS: usize = 1 << 17;
/// Maximum age of a record.
const SPAN: Nanos = Nanos::from_secs(3_600);
/// Keys are left out as long as at least so many stay.
const MIN_KEYS: usize = 64;

/// A request of one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RecordedRequest {
    /// Hash of its key.
    pub(crate) key: u64,
    /// Microseconds on the clock, modulo 2^32: more than an hour.
    at_micros: u32,
    /// Its cost, or the largest number.
    pub(crate) cost: u32,
}
const _: () = assert!(size_of::<RecordedRequest>() == 16, "stated in the guide");

impl RecordedRequest {
    /// Returns the time of the request; `now` is at most an hour later.
    pub(crate) fn at(self, now: Time) -> Time {
        now - Nanos::from_micros(age_micros(self, now))
    }
}

/// Records of all limits.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    /// By [`LimitId`].
    limits: ArcSwap<Vec<Option<Arc<LimitRecord>>>>,
    hasher: RandomState,
}

#[derive(Debug)]
struct LimitRecord {
    key: Vec<KeyPart>,
    ring: Mutex<Ring>,
}

/// The requests of one limit in the last hour, and how they were sampled.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    pub(crate) requests: Vec<RecordedRequest>,
    /// Start of the record.
    pub(crate) since: Time,
    /// One key in 2 to this power is in it.
    pub(crate) halvings: u32,
}

impl Recorder {
    /// Maximum memory of all records.
    pub(crate) const MAX_BYTES: usize = TOTAL_BYTES;

    /// Makes room for the limits of `policy`. A limit with the key that it had keeps its record.
    pub(crate) fn install(&self, policy: &Policy) {
        let old = self.limits.load();
        let limits = policy.rules.len().clamp(1, MAX_LIMITS).next_power_of_two();
        let most = TOTAL_BYTES / size_of::<RecordedRequest>() / limits;
        let mut records = Vec::new();
        for rule in policy.rules.iter().take(MAX_LIMITS) {
            let index = rule.limit.id.index();
            if records.len() <= index {
                records.resize(index + 1, None);
            }
            let known = old.get(index).and_then(Option::as_ref);
            let kept = known.filter(|record| record.key == rule.key);
            let record = kept.cloned().unwrap_or_else(|| {
                Arc::new(LimitRecord {
                    key: rule.key.clone(),
                    ring: Mutex::default(),
                })
            });
            record.ring.lock().resize(most.min(MAX_RECORDS));
            records[index] = Some(record);
        }
        self.limits.store(Arc::new(records));
    }

    /// Notes the request of an answer under each limit whose number decides about it.
    pub(crate) fn note(&self, answer: &Answer) {
        let limits = self.limits.load();
        let refusing = answer.outcomes().filter(Outcome::refuses).count();
        for outcome in answer.outcomes() {
            let others = refusing - usize::from(outcome.refuses());
            let own_numbers = outcome.variant.is_none() && outcome.numbers.is_none();
            let cost = outcome.cost.get();
            if others > 0 || !own_numbers || !outcome.is_asked || outcome.key_missing || cost == 0 {
                continue;
            }
            let record = limits.get(outcome.rule.limit.id.index());
            if let Some(Some(record)) = record {
                let key = self.hasher.hash_one(outcome.key.as_bytes());
                let cost = u32::try_from(cost).unwrap_or(u32::MAX);
                record.ring.lock().push(key, cost, answer.decided_at());
            }
        }
    }

    /// Returns the record of a limit; `None` if it has none.
    pub(crate) fn recorded(&self, limit: LimitId, now: Time) -> Option<Recorded> {
        let limits = self.limits.load_full();
        let record = limits.get(limit.index())?.as_ref()?;
        let mut ring = record.ring.lock();
        ring.forget(now);
        Some(Recorded {
            requests: ring.requests.iter().copied().collect(),
            since: ring.since.unwrap_or(now).max(now - SPAN),
            halvings: ring.halvings,
        })
    }

    /// Returns the number of bytes of all records.
    pub(crate) fn bytes(&self) -> usize {
        let limits = self.limits.load_full();
        let each = limits.iter().flatten();
        let requests: usize = each.map(|it| it.ring.lock().requests.capacity()).sum();
        requests * size_of::<RecordedRequest>()
    }

    /// Forgets old records, and gives their memory back, of limits that decide no more.
    pub(crate) fn sweep(&self, now: Time) {
        for record in self.limits.load_full().iter().flatten() {
            let mut ring = record.ring.lock();
            ring.forget(now);
            let used = ring.requests.len();
            if used < ring.requests.capacity() / 4 {
                ring.requests.shrink_to(used * 2);
            }
        }
    }
}

/// The record of one limit.
#[derive(Debug, Default)]
struct Ring {
    requests: VecDeque<RecordedRequest>,
    /// Maximum number of requests.
    most: usize,
    /// Start of the record; `None` while it is empty.
    since: Option<Time>,
    /// The latest time noted.
    latest: Time,
    /// Keys are recorded if so many of the upper bits of their hash are 0.
    halvings: u32,
}

impl Ring {
    fn push(&mut self, key: u64, cost: u32, at: Time) {
        self.forget(at);
        self.since.get_or_insert(at);
        self.latest = self.latest.max(at);
        if !is_sampled(key, self.halvings) {
            return;
        }
        if self.requests.len() >= self.most && !self.make_room(at, key) {
            return;
        }
        self.requests.push_back(RecordedRequest {
            key,
            at_micros: micros(at),
            cost,
        });
    }

    fn resize(&mut self, most: usize) {
        self.most = most;
        while self.requests.len() > most && self.make_room(self.latest, 0) {}
        self.requests.shrink_to(most);
    }

    /// Drops requests that are older than an hour. Without any, all keys are recorded again.
    fn forget(&mut self, now: Time) {
        if now.since(self.latest) >= SPAN {
            self.requests.clear(); // their times may have wrapped
        }
        let is_old = |request: &RecordedRequest| age_micros(*request, now) >= SPAN_MICROS;
        while self.requests.front().is_some_and(is_old) {
            self.requests.pop_front();
        }
        if self.requests.is_empty() && self.since.is_some_and(|since| now.since(since) >= SPAN) {
            self.since = None;
            self.halvings = 0;
        }
    }

    /// Leaves out every second key, or the older half if few keys would stay. Returns true if `key`
    /// is still recorded.
    fn make_room(&mut self, now: Time, key: u64) -> bool {
        let halvings = self.halvings + 1;
        let mut stays = HashSet::with_capacity(MIN_KEYS);
        let keys = self.requests.iter().map(|request| request.key);
        let enough = keys
            .filter(|key| is_sampled(*key, halvings))
            .any(|key| stays.insert(key) && stays.len() == MIN_KEYS);
        if enough {
            self.halvings = halvings;
            self.requests
                .retain(|request| is_sampled(request.key, halvings));
        } else {
            let half = self.requests.len().div_ceil(2);
            self.requests.drain(..half);
            let first = self.requests.front();
            self.since = Some(first.map_or(now, |first| first.at(now)));
        }
        is_sampled(key, self.halvings)
    }
}

/// Returns true if a key is among those that are recorded after so many halvings.
const fn is_sampled(key: u64, halvings: u32) -> bool {
    key.leading_zeros() >= halvings
}

const SPAN_MICROS: u64 = SPAN.as_nanos() / 1_000;

#[expect(clippy::cast_possible_truncation, reason = "modulo 2^32")]
const fn micros(at: Time) -> u32 {
    (at.as_nanos() / 1_000) as u32
}

/// Returns the age of a request; 0 if another thread has noted it with a later time.
fn age_micros(request: RecordedRequest, now: Time) -> u64 {
    let age = micros(now).wrapping_sub(request.at_micros);
    let is_later = age > u32::MAX - LATER_MICROS;
    if is_later { 0 } else { age.into() }
}

/// Maximum time by which a request may be noted ahead of another one.
const LATER_MICROS: u32 = 60_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(most: usize) -> Ring {
        Ring {
            most,
            ..Ring::default()
        }
    }

    fn seconds(count: u64) -> Time {
        Time::ZERO + Nanos::from_secs(count)
    }

    /// Hashes of keys, spread like those of a hasher.
    fn hash(key: u64) -> u64 {
        key.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    #[test]
    fn a_sampled_key_is_recorded_whole() {
        let mut ring = ring(4_000);
        let mut noted = Vec::new();
        for number in 0..40_000_u64 {
            let (key, at) = (hash(number % 3_000), Time::from_nanos(number * 10_000_000));
            ring.push(key, 2, at);
            noted.push((key, at));
        }
        assert!((3..=5).contains(&ring.halvings), "{}", ring.halvings);
        noted.retain(|(key, _)| is_sampled(*key, ring.halvings));
        let (_, now) = noted[noted.len() - 1];
        let found = ring.requests.iter().map(|it| (it.key, it.at(now)));
        assert_eq!(found.collect::<Vec<_>>(), noted);
        assert_eq!(ring.since, Some(Time::ZERO));
        assert!(ring.requests.capacity() * 16 <= 4_096 * 16);
    }

    #[test]
    fn one_busy_key_is_recorded_for_a_shorter_time() {
        let mut ring = ring(1_000);
        for second in 0..3_000 {
            ring.push(u64::MAX, 1, seconds(second));
        }
        assert_eq!(ring.halvings, 0);
        assert!((500..=1_000).contains(&ring.requests.len()));
        let first = ring.requests[0].at(seconds(2_999));
        assert_eq!(ring.since, Some(first));
    }

    #[test]
    fn an_hour_is_kept() {
        let mut ring = ring(100_000);
        for second in 0..10_000 {
            ring.push(hash(second), 1, seconds(second));
        }
        assert_eq!(ring.requests.len(), 3_600);
        let late = seconds(20_000);
        ring.forget(late);
        assert_eq!((ring.requests.len(), ring.since), (0, None));
        // A later thread may note first.
        ring.push(1, 1, late + Nanos::SECOND);
        ring.push(2, 1, late);
        assert_eq!(ring.requests.len(), 2);
        ring.resize(1);
        assert_eq!(ring.requests.len(), 1);
    }
}
