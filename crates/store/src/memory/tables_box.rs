//! Box of the tables of a limit, whatever its algorithm.
//!
//! ```text
//!   TablesBox::Gcra(Box<LimitTables<Gcra>>)   typed: the hot path
//!   TablesBox::Other(Box<dyn AnyTables>)      one indirect call for every other algorithm
//! ```

use std::fmt;
use std::ops::{Deref, DerefMut};

use ratekeeper_core::{AlgorithmSet, AnyAlgorithm, Gcra, Limit, Listed, Visitor};

use super::key::KeyHasher;
use super::limit_tables::{AnyTables, LimitTables};

/// The tables of a limit of any algorithm.
pub(super) enum TablesBox {
    Gcra(Box<LimitTables<Gcra>>),
    Other(Box<dyn AnyTables>),
}

impl TablesBox {
    /// Returns empty tables; `None` for an algorithm that is not of the set.
    pub(super) fn new<S: AlgorithmSet>(limit: &Limit, hasher: &KeyHasher) -> Option<Self> {
        let version = limit.version;
        if let AnyAlgorithm::Gcra(gcra) = &limit.algorithm {
            let tables = LimitTables::new(gcra, version, hasher);
            return Some(Self::Gcra(Box::new(tables)));
        }
        S::visit(&limit.algorithm, Make { version, hasher }).map(Self::Other)
    }
}

/// Makes the tables for an algorithm.
struct Make<'a> {
    version: u32,
    hasher: &'a KeyHasher,
}

impl Visitor for Make<'_> {
    type Output = Box<dyn AnyTables>;

    fn visit<A: Listed>(self, algorithm: &A) -> Box<dyn AnyTables> {
        Box::new(LimitTables::new(algorithm, self.version, self.hasher))
    }
}

impl Deref for TablesBox {
    type Target = dyn AnyTables;

    #[inline]
    fn deref(&self) -> &Self::Target {
        match self {
            Self::Gcra(tables) => &**tables,
            Self::Other(tables) => &**tables,
        }
    }
}

impl DerefMut for TablesBox {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            Self::Gcra(tables) => &mut **tables,
            Self::Other(tables) => &mut **tables,
        }
    }
}

impl fmt::Debug for TablesBox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TablesBox")
            .field("version", &self.version())
            .finish_non_exhaustive()
    }
}
