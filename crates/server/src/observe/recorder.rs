//! Recorder: the requests of the last hour under each limit, for `GET /v1/whatif`.
//!
//! ```text
//!   decision --note--> ring of its limit:  | key, time, cost: 8 bytes | ..   an hour at most
//!                                 full: every second key is left out, from then on and before
//! ```
//!
//! * A request is noted if no other limit refuses it: the number of this limit decides about it.
//! * Keys are sampled whole, by their hash: the record of a sampled key is complete, so that it
//!   can be decided again exactly. With too few keys to leave out half of them, the oldest
//!   requests are left out instead.
//! * Memory: [`TOTAL_BYTES`] for all limits, of which the first [`MAX_LIMITS`] have equal shares.
//!   A note of a sampled key takes one lock for some nanoseconds; the pass over a full ring takes
//!   it once for each halving.

mod packed;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use ratekeeper::Outcome;
use ratekeeper_core::{LimitId, Nanos, Permits, Time};
use ratekeeper_policy::{KeyPart, Policy};

use self::packed::PackedRequests;
pub(crate) use self::packed::RecordedRequest;
use super::by_limit::{self, LimitValues};

/// Memory of all records.
const TOTAL_BYTES: usize = 7 << 19;
/// Number of limits, the first of the policy, with a record.
const MAX_LIMITS: usize = 256;
/// Maximum number of words of one limit: its requests are decided again within a fraction of a
/// second.
const MAX_WORDS: usize = 1 << 17;
/// Maximum age of a record.
const SPAN: Nanos = Nanos::from_secs(3_600);
/// Keys are left out as long as at least so many stay.
const MIN_KEYS: usize = 64;

/// Records of all limits.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    limits: ArcSwap<LimitValues<LimitRecord>>,
}

#[derive(Debug)]
struct LimitRecord {
    key: Vec<KeyPart>,
    /// Copy of [`Ring::halvings`], so that a key that is left out needs no lock.
    halvings: AtomicU32,
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
        let most = TOTAL_BYTES / packed::WORD_BYTES / limits;
        let recorded = policy.rules.iter().take(MAX_LIMITS);
        let records = by_limit::renewed(&old, recorded, |rule, known| {
            let kept = known.filter(|record| record.key == rule.key);
            let record = kept.cloned().unwrap_or_else(|| {
                Arc::new(LimitRecord {
                    key: rule.key.clone(),
                    halvings: AtomicU32::default(),
                    ring: Mutex::default(),
                })
            });
            record.change(|ring| ring.resize(most.min(MAX_WORDS)));
            Some(record)
        });
        self.limits.store(Arc::new(records));
    }

    /// Notes a request under a limit that alone decides about it; `hash` is that of its key.
    pub(crate) fn note(&self, outcome: &Outcome<'_>, hash: u64, at: Time) {
        let own_numbers = outcome.variant.is_none() && outcome.numbers.is_none();
        if !own_numbers || outcome.cost == Permits::ZERO {
            return;
        }
        let limits = self.limits.load();
        if let Some(record) = by_limit::of(&limits, outcome.rule.limit.id) {
            record.note(RecordedRequest::new(hash, at, outcome.cost));
        }
    }

    /// Returns the record of a limit; `None` if it has none.
    pub(crate) fn recorded(&self, limit: LimitId, now: Time) -> Option<Recorded> {
        let limits = self.limits.load_full();
        let record = by_limit::of(&limits, limit)?;
        let ring = record.change(|ring| {
            ring.forget(now);
            ring.clone()
        });
        let mut requests = Vec::with_capacity(ring.requests.count());
        requests.extend(ring.requests.iter());
        Some(Recorded {
            requests,
            since: ring.since.unwrap_or(now).max(now - SPAN),
            halvings: ring.halvings,
        })
    }

    /// Returns the number of bytes of all records.
    pub(crate) fn bytes(&self) -> usize {
        let limits = self.limits.load_full();
        let each = limits.iter().flatten();
        each.map(|record| record.ring.lock().requests.bytes()).sum()
    }

    /// Forgets old records, and gives their memory back, of limits that decide no more.
    pub(crate) fn sweep(&self, now: Time) {
        for record in self.limits.load_full().iter().flatten() {
            record.change(|ring| {
                ring.forget(now);
                ring.requests.shrink();
            });
        }
    }
}

impl LimitRecord {
    fn note(&self, request: RecordedRequest) {
        if is_sampled(request.key, self.halvings.load(Ordering::Relaxed)) {
            self.change(|ring| ring.push(request));
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut Ring) -> T) -> T {
        let mut ring = self.ring.lock();
        let changed = change(&mut ring);
        self.halvings.store(ring.halvings, Ordering::Relaxed);
        changed
    }
}

/// The record of one limit.
#[derive(Clone, Debug, Default)]
struct Ring {
    requests: PackedRequests,
    /// Maximum number of words.
    most: usize,
    /// Start of the record; `None` while it is empty.
    since: Option<Time>,
    /// Keys are recorded if so many of the upper bits of their hash are 0.
    halvings: u32,
}

impl Ring {
    fn push(&mut self, request: RecordedRequest) {
        if !self.requests.has_room(self.most) {
            self.forget(request.at);
        }
        self.make_room();
        if is_sampled(request.key, self.halvings) {
            self.since.get_or_insert(request.at);
            self.requests.push(request);
        }
    }

    fn resize(&mut self, most: usize) {
        self.most = most;
        self.make_room();
        self.requests.shrink_to(most);
    }

    /// Drops requests that are older than an hour. Without any, all keys are recorded again.
    fn forget(&mut self, now: Time) {
        let is_old = |first: RecordedRequest| now.since(first.at) >= SPAN;
        while self.requests.first().is_some_and(is_old) {
            self.requests.pop();
        }
        let is_empty = self.requests.count() == 0;
        if is_empty && self.since.is_some_and(|since| now.since(since) >= SPAN) {
            self.since = None;
            self.halvings = 0;
        }
    }

    fn make_room(&mut self) {
        while self.requests.count() > 0 && !self.requests.has_room(self.most) {
            self.leave_out();
        }
    }

    /// Leaves out every second key, or the older half if few keys would stay.
    fn leave_out(&mut self) {
        let halvings = self.halvings + 1;
        let mut stays = HashSet::with_capacity(MIN_KEYS);
        let keys = self.requests.iter().map(|request| request.key);
        let enough = keys
            .filter(|key| is_sampled(*key, halvings))
            .any(|key| stays.insert(key) && stays.len() == MIN_KEYS);
        if enough {
            self.halvings = halvings;
            self.requests.retain(|key| is_sampled(key, halvings));
            return;
        }
        for _ in 0..self.requests.count().div_ceil(2) {
            self.requests.pop();
        }
        self.since = self.requests.first().map(|first| first.at);
    }
}

/// Returns true if a key is among those that are recorded after so many halvings.
const fn is_sampled(key: u64, halvings: u32) -> bool {
    key.leading_zeros() >= halvings
}

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

    fn request(hash: u64, at: Time) -> RecordedRequest {
        RecordedRequest::new(hash, at, Permits::ONE)
    }

    /// Hashes of keys, spread like those of a hasher.
    fn hash(key: u64) -> u64 {
        key.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    #[test]
    fn a_sampled_key_is_recorded_whole() {
        let record = LimitRecord {
            key: Vec::new(),
            halvings: AtomicU32::default(),
            ring: Mutex::new(ring(4_096)),
        };
        let mut noted = Vec::new();
        for number in 0..40_000_u64 {
            let at = Time::from_nanos(number * 10_000_000);
            let cost = Permits::new(if number % 100 == 0 { 1 << 40 } else { 2 });
            let request = RecordedRequest::new(hash(number % 3_000), at, cost);
            record.note(request);
            noted.push(request);
        }
        let ring = record.ring.lock();
        assert!((3..=5).contains(&ring.halvings), "{}", ring.halvings);
        assert_eq!(record.halvings.load(Ordering::Relaxed), ring.halvings);
        noted.retain(|request| is_sampled(request.key, ring.halvings));
        assert_eq!(ring.requests.iter().collect::<Vec<_>>(), noted);
        assert_eq!(ring.since, Some(Time::ZERO));
        assert_eq!(ring.requests.bytes(), 4_096 * 8);
    }

    #[test]
    fn one_busy_key_is_recorded_for_a_shorter_time() {
        let mut ring = ring(1_000);
        for second in 0..3_000 {
            ring.push(request(u64::MAX, seconds(second)));
        }
        assert_eq!(ring.halvings, 0);
        assert!((400..=1_000).contains(&ring.requests.count()));
        let first = ring.requests.first().unwrap();
        assert_eq!(ring.since, Some(first.at));
    }

    /// Half of the keys have their upper bit set, but few of the requests.
    #[test]
    fn memory_is_bounded_if_the_busy_keys_stay() {
        let mut ring = ring(1_024);
        for number in 0..9_000_u64 {
            let busy = (number % 64) / 2;
            let key = if number % 50 == 0 { hash(number) } else { busy };
            ring.push(request(key, seconds(number / 9)));
            assert!(ring.requests.bytes() <= 1_024 * 8, "{number}");
        }
    }

    #[test]
    fn an_hour_is_kept() {
        let mut ring = ring(100_000);
        for second in 0..10_000 {
            ring.push(request(hash(second), seconds(second)));
        }
        ring.forget(seconds(9_999));
        assert_eq!(ring.requests.count(), 3_600);
        let late = seconds(20_000);
        ring.forget(late);
        assert_eq!((ring.requests.count(), ring.since), (0, None));
        // A later thread may note first.
        ring.push(request(1, late + Nanos::SECOND));
        ring.push(request(2, late));
        assert_eq!(ring.requests.count(), 2);
        ring.resize(6);
        assert_eq!(ring.requests.count(), 1);
    }

    /// Old requests make room for new ones, so that no key is left out.
    #[test]
    fn a_full_ring_forgets_first() {
        let mut ring = ring(4_096);
        for number in 0..100_000_u64 {
            ring.push(request(hash(number), seconds(number)));
        }
        assert_eq!(ring.halvings, 0);
    }
}
