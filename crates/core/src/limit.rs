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
