//! Slot box: the slot of a limit, whatever its algorithm.
//!
//! ```text
//!   SlotBox::Gcra(Box<Slot<Gcra>>)       typed: the hot path
//!   SlotBox::Other(Box<dyn AnySlot>)     one indirect call for every other algorithm
//! ```

use std::fmt;
use std::ops::{Deref, DerefMut};

use foldhash::quality::RandomState;
use ratekeeper_core::{AnyAlgorithm, Gcra, Limit, Listed, Visitor};

use super::slot::{AnySlot, Slot};

/// A slot of any algorithm.
pub(super) enum SlotBox {
    Gcra(Box<Slot<Gcra>>),
    Other(Box<dyn AnySlot>),
}

impl SlotBox {
    pub(super) fn new(limit: &Limit, hasher: &RandomState) -> Self {
        let version = limit.version;
        if let AnyAlgorithm::Gcra(gcra) = &limit.algorithm {
            return Self::Gcra(Box::new(Slot::new(gcra, version, hasher)));
        }
        Self::Other(limit.algorithm.visit(Make { version, hasher }))
    }
}

/// Makes a slot for an algorithm.
struct Make<'a> {
    version: u32,
    hasher: &'a RandomState,
}

impl Visitor for Make<'_> {
    type Output = Box<dyn AnySlot>;

    fn visit<A: Listed>(self, algorithm: &A) -> Box<dyn AnySlot> {
        Box::new(Slot::new(algorithm, self.version, self.hasher))
    }
}

impl Deref for SlotBox {
    type Target = dyn AnySlot;

    #[inline]
    fn deref(&self) -> &Self::Target {
        match self {
            Self::Gcra(slot) => &**slot,
            Self::Other(slot) => &**slot,
        }
    }
}

impl DerefMut for SlotBox {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            Self::Gcra(slot) => &mut **slot,
            Self::Other(slot) => &mut **slot,
        }
    }
}

impl fmt::Debug for SlotBox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotBox")
            .field("version", &self.version())
            .finish_non_exhaustive()
    }
}
