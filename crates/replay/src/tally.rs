//! Tally: the counts of a replay, by limit, client, key and hour.

use std::cmp::Reverse;
use std::collections::HashMap;

use foldhash::fast::RandomState;
use ratekeeper::{Answer, Outcome};
use ratekeeper_core::LimitId;
use ratekeeper_policy::Policy;

/// Nanoseconds of an hour.
pub(crate) const HOUR: u64 = 3_600_000_000_000;

/// Counts of all limits and of each, in the order of the policy.
#[derive(Debug, Default)]
pub(crate) struct ReplayTally {
    pub(crate) all: RequestCounts,
    pub(crate) limits: Vec<LimitTally>,
    /// Place of each limit in the list.
    indices: HashMap<LimitId, usize, RandomState>,
    /// Times of the first and last request, in nanoseconds since the Unix epoch.
    pub(crate) span: Option<(u64, u64)>,
}

/// Counts of requests.
#[derive(Debug, Default)]
pub(crate) struct RequestCounts {
    pub(crate) requests: u64,
    pub(crate) refused: u64,
    pub(crate) clients: NumberSet,
    /// Refused requests of each client, by its number.
    pub(crate) refused_of: Vec<u32>,
    /// Number of clients with a refused request.
    pub(crate) clients_hit: u64,
    /// By hour since 1970: requests, and the refused ones.
    pub(crate) hours: Vec<HourCounts>,
}

#[derive(Debug, Default)]
pub(crate) struct HourCounts {
    pub(crate) hour: u64,
    pub(crate) requests: u64,
    pub(crate) refused: u64,
}

/// A set of small numbers: a bit for each.
#[derive(Debug, Default)]
pub(crate) struct NumberSet {
    words: Vec<u64>,
    pub(crate) len: u64,
}

impl NumberSet {
    fn insert(&mut self, number: usize) {
        let (word, bit) = (number / 64, 1 << (number % 64));
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.len += u64::from(self.words[word] & bit == 0);
        self.words[word] |= bit;
    }
}

impl RequestCounts {
    fn add(&mut self, at: u64, client: Option<usize>) {
        self.requests += 1;
        if let Some(client) = client {
            self.clients.insert(client);
        }
        let hour = at / HOUR;
        if self.hours.last().is_none_or(|last| last.hour != hour) {
            self.hours.push(HourCounts {
                hour,
                ..HourCounts::default()
            });
        }
        if let Some(last) = self.hours.last_mut() {
            last.requests += 1;
        }
    }

    /// Counts the request that was added last as refused.
    fn refuse(&mut self, client: Option<usize>) {
        self.refused += 1;
        if let Some(client) = client {
            if client >= self.refused_of.len() {
                self.refused_of.resize(client + 1, 0);
            }
            let refused = &mut self.refused_of[client];
            self.clients_hit += u64::from(*refused == 0);
            *refused = refused.saturating_add(1);
        }
        if let Some(last) = self.hours.last_mut() {
            last.refused += 1;
        }
    }

    /// Returns the numbers of the clients of which it refused most, at most `most` of them.
    pub(crate) fn worst_clients(&self, most: usize) -> Vec<(usize, u32)> {
        let clients = self.refused_of.iter().copied().enumerate();
        let mut clients: Vec<(usize, u32)> = clients.filter(|(_, refused)| *refused > 0).collect();
        clients.sort_by_key(|(number, refused)| (Reverse(*refused), *number));
        clients.truncate(most);
        clients
    }

    fn bytes(&self) -> usize {
        8 * self.clients.words.len()
            + 4 * self.refused_of.len()
            + self.hours.len() * size_of::<HourCounts>()
    }
}

/// Counts of one limit.
#[derive(Debug, Default)]
pub(crate) struct LimitTally {
    pub(crate) counts: RequestCounts,
    /// Requests for which a part of the key was missing.
    pub(crate) key_missing: u64,
    pub(crate) first_refused: Option<u64>,
    keys: HashMap<Box<[u8]>, KeyTally, RandomState>,
    key_bytes: usize,
}

/// Refusals of one key, and the times of the first and last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyTally {
    pub(crate) refused: u64,
    pub(crate) first: u64,
    pub(crate) last: u64,
}

impl ReplayTally {
    pub(crate) fn new(policy: &Policy) -> Self {
        let ids = policy.rules.iter().map(|rule| rule.limit.id);
        Self {
            indices: ids.enumerate().map(|(index, id)| (id, index)).collect(),
            limits: policy.rules.iter().map(|_| LimitTally::default()).collect(),
            ..Self::default()
        }
    }

    /// Counts the answer to a request at `at`. Times do not decrease.
    pub(crate) fn add(&mut self, at: u64, client: Option<usize>, answer: &Answer) {
        self.span = Some((self.span.map_or(at, |(first, _)| first), at));
        self.all.add(at, client);
        if !answer.allowed() {
            self.all.refuse(client);
        }
        for outcome in answer.outcomes() {
            let index = self.indices.get(&outcome.rule.limit.id);
            if let Some(limit) = index.and_then(|index| self.limits.get_mut(*index)) {
                limit.add(at, client, &outcome);
            }
        }
    }

    /// Returns the memory that the counts take, about.
    pub(crate) fn bytes(&self) -> usize {
        const ENTRY: usize = 96; // with free slots of the table
        let limits = self.limits.iter();
        let of_limits = limits.map(|it| it.counts.bytes() + it.keys.len() * ENTRY + it.key_bytes);
        self.all.bytes() + of_limits.sum::<usize>()
    }
}

impl LimitTally {
    fn add(&mut self, at: u64, client: Option<usize>, outcome: &Outcome<'_>) {
        self.counts.add(at, client);
        self.key_missing += u64::from(outcome.key_missing);
        if !outcome.refuses() && !outcome.shadow_denies() {
            return;
        }
        self.counts.refuse(client);
        self.first_refused.get_or_insert(at);
        let key = outcome.key.as_bytes();
        if let Some(known) = self.keys.get_mut(key) {
            known.refused += 1;
            known.last = at;
            return;
        }
        let first = KeyTally {
            refused: 1,
            first: at,
            last: at,
        };
        self.keys.insert(key.into(), first);
        self.key_bytes += key.len();
    }

    /// Returns the keys that it refused most, at most `most` of them.
    pub(crate) fn worst_keys(&self, most: usize) -> Vec<(&[u8], KeyTally)> {
        let mut keys: Vec<_> = self
            .keys
            .iter()
            .map(|(key, tally)| (&**key, *tally))
            .collect();
        keys.sort_by_key(|(key, tally)| (Reverse(tally.refused), *key));
        keys.truncate(most);
        keys
    }
}
