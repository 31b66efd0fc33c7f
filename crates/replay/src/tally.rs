//! Tally: the counts of a replay, by limit, client, key and hour.

use std::cmp::Reverse;
use std::collections::HashMap;

use foldhash::fast::RandomState;
use ratekeeper::{Answer, Outcome};
use ratekeeper_core::{LimitId, Mode};
use ratekeeper_policy::Policy;
use smallvec::SmallVec;

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
    /// By the number of a client: 0 without a request, else 1 more than its refused requests.
    clients: Vec<u32>,
    /// By hour since 1970: requests, and the refused ones.
    pub(crate) hours: Vec<HourCounts>,
}

#[derive(Debug, Default)]
pub(crate) struct HourCounts {
    pub(crate) hour: u64,
    pub(crate) requests: u64,
    pub(crate) refused: u64,
}

impl RequestCounts {
    /// Counts a request, of which `refused` is 1 if it was refused, else 0.
    fn add(&mut self, at: u64, client: Option<usize>, refused: u32) {
        self.requests += 1;
        self.refused += u64::from(refused);
        if let Some(client) = client {
            if client >= self.clients.len() {
                self.clients.resize(client + 1, 0);
            }
            let known = &mut self.clients[client];
            *known = (*known).max(1).saturating_add(refused);
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
            last.refused += u64::from(refused);
        }
    }

    /// Returns the number of clients with a request.
    pub(crate) fn clients(&self) -> u64 {
        self.clients.iter().filter(|known| **known > 0).count() as u64
    }

    /// Returns the number of clients with a refused request.
    pub(crate) fn clients_hit(&self) -> u64 {
        self.clients.iter().filter(|known| **known > 1).count() as u64
    }

    /// Returns the numbers of the clients of which it refused most, at most `most` of them.
    pub(crate) fn worst_clients(&self, most: usize) -> Vec<(usize, u32)> {
        let refused = self.clients.iter().map(|known| known.saturating_sub(1));
        let clients = refused.enumerate().filter(|(_, refused)| *refused > 0);
        let mut clients: Vec<(usize, u32)> = clients.collect();
        clients.sort_by_key(|(number, refused)| (Reverse(*refused), *number));
        clients.truncate(most);
        clients
    }

    fn bytes(&self) -> usize {
        4 * self.clients.len() + self.hours.len() * size_of::<HourCounts>()
    }
}

/// Counts of one limit.
#[derive(Debug, Default)]
pub(crate) struct LimitTally {
    pub(crate) counts: RequestCounts,
    /// Requests that it refused, without those that it would have refused in shadow mode.
    pub(crate) enforced: u64,
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
        self.all.add(at, client, (!answer.allowed()).into());
        // A limit has an outcome for each key of the request.
        let asked = answer.outcomes().filter(|outcome| outcome.is_asked);
        let mut outcomes: SmallVec<[Outcome<'_>; 4]> = asked.collect();
        let id = |outcome: &Outcome<'_>| outcome.rule.limit.id;
        outcomes.sort_by_key(id);
        for outcomes in outcomes.chunk_by(|one, other| id(one) == id(other)) {
            if let Some(index) = self.indices.get(&id(&outcomes[0])) {
                self.limits[*index].add(at, client, outcomes);
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
    fn add(&mut self, at: u64, client: Option<usize>, outcomes: &[Outcome<'_>]) {
        // An alternative that denies as well counts, with the mode of the limit that asks it.
        let refused = || {
            let each = outcomes.iter();
            each.filter(|it| !it.decision.verdict.allows() && it.covered_by.is_none())
        };
        self.enforced += u64::from(refused().any(|it| it.mode() == Some(Mode::Enforce)));
        self.key_missing += u64::from(outcomes.iter().any(|it| it.key_missing));
        self.counts
            .add(at, client, refused().next().is_some().into());
        for outcome in refused() {
            self.first_refused.get_or_insert(at);
            self.add_key(at, outcome.key.as_bytes());
        }
    }

    fn add_key(&mut self, at: u64, key: &[u8]) {
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
