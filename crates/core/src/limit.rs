//! Limit: a name and the algorithm chosen for it at run time.
//!
//! The name is the identity of its counters, across reloads, restarts and processes.

use alloc::sync::Arc;

use crate::AnyAlgorithm;

/// The index of a limit's states in a store: given once per name, kept across reloads.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LimitId(u32);

impl LimitId {
    /// The id with this number; ids are dense, from 0.
    pub const fn new(index: u32) -> Self {
        Self(index)
    }

    /// The number.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A named limit.
///
/// The name is the identity of its counters across reloads; `id` replaces it on the hot
/// path. `version` grows with every reload: a store that meets a newer version converts the
/// states it holds, once.
#[derive(Clone, Debug)]
pub struct Limit {
    /// `[a-z0-9-]{1,40}`, unique in a policy.
    pub name: Arc<str>,
    /// The number in place of the name.
    pub id: LimitId,
    /// The version of the policy that defines this limit.
    pub version: u32,
    /// The algorithm that decides.
    pub algorithm: AnyAlgorithm,
    /// The behaviour while the store that it shares with other processes fails.
    pub outage: Outage,
    /// The processes that count together.
    pub scope: LimitScope,
    /// The keys that have its numbers.
    pub keys: LimitKeys,
}

/// The keys that have the numbers of a limit. A store keeps the usage of a single key when its
/// numbers change.
#[derive(Clone, Debug, Default)]
pub enum LimitKeys {
    /// All keys of a limit, but for those that have other numbers.
    #[default]
    All,
    /// The keys of a plan of the limit with this id.
    Plan(LimitId),
    /// Single keys. They have been counted before by other numbers of single keys, or by one of
    /// these: the limit's own numbers, then those of its plans.
    Single(Arc<[Limit]>),
}

impl Limit {
    /// The first version of a limit of all keys, which all processes count together, and of which
    /// each keeps its share while the store fails.
    pub fn new(name: impl Into<Arc<str>>, id: LimitId, algorithm: impl Into<AnyAlgorithm>) -> Self {
        Self {
            name: name.into(),
            id,
            version: 1,
            algorithm: algorithm.into(),
            outage: Outage::default(),
            scope: LimitScope::default(),
            keys: LimitKeys::default(),
        }
    }

    /// Returns the limit that has its numbers for some keys; itself if it has its own.
    pub fn family(&self) -> (LimitId, &Arc<str>) {
        match &self.keys {
            LimitKeys::Single(base) if let [own, ..] = &**base => (own.id, &own.name),
            LimitKeys::Plan(own) => (*own, &self.name),
            _ => (self.id, &self.name),
        }
    }
}

/// The processes that count a limit together, if they share a store.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum LimitScope {
    /// All processes that share the store.
    #[default]
    Cluster,
    /// Each process by itself, under its own name in the store.
    Node,
}

/// The behaviour of a limit while the store that it shares with other processes fails.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Outage {
    /// Each process holds its share of the limit.
    #[default]
    Local,
    /// Passes everything.
    Allow,
    /// Refuses everything.
    Deny,
    /// Returns the store's error, so that the caller decides.
    Error,
}
