//! Answer: what one call is told.

use serde_json::{Map, Value};
use smallvec::SmallVec;

use super::{Hits, Unit};

/// Whether the caller may go on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EnvoyCode {
    /// It may.
    Ok,
    /// A limit is exceeded.
    OverLimit,
}

/// What one call is told: `RateLimitResponse` without its wire.
#[derive(Clone, Debug)]
pub struct EnvoyAnswer<'c> {
    /// For the whole call.
    pub overall: EnvoyCode,
    /// The call would have been refused, but for the global shadow mode.
    pub shadowed: bool,
    /// One for each descriptor, in their order.
    pub statuses: SmallVec<[DescriptorAnswer<'c>; 4]>,
    /// What the rules that passed say, merged: the first that says a field wins.
    pub metadata: Map<String, Value>,
}

/// What is said of one descriptor.
#[derive(Clone, PartialEq, Debug)]
pub struct DescriptorAnswer<'c> {
    /// Whether its limit is exceeded.
    pub code: EnvoyCode,
    /// The limit, if one applies that has a number.
    pub current_limit: Option<CurrentLimit<'c>>,
    /// Requests left in this window; 2^32 - 1 if unlimited, 0 if nothing applies.
    pub limit_remaining: u32,
    /// To the end of the window, rounded up; if a limit applies that has a number.
    pub reset_after_s: Option<u64>,
    /// What it adds to the counters of its rule. None if no rule applies, or if hits were
    /// given back.
    pub hits: Option<Hits>,
}

/// A limit as it is reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CurrentLimit<'c> {
    /// The rule's name, if it has one.
    pub name: Option<&'c str>,
    /// 0 blocks.
    pub requests_per_unit: u32,
    /// The window.
    pub unit: Unit,
    /// How many units make the window; above 1 only if the call said so.
    pub multiplier: u32,
}

impl DescriptorAnswer<'_> {
    /// No limit applies.
    pub(super) const NONE: Self = Self {
        code: EnvoyCode::Ok,
        current_limit: None,
        limit_remaining: 0,
        reset_after_s: None,
        hits: None,
    };
}

/// What the descriptors say together.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Votes {
    /// One that is no quota is over.
    over: bool,
    quotas: usize,
    quotas_over: usize,
}

impl Votes {
    pub(super) fn add(&mut self, code: EnvoyCode, quota: bool) {
        let over = code == EnvoyCode::OverLimit;
        if quota {
            self.quotas += 1;
            self.quotas_over += usize::from(over);
        } else {
            self.over |= over;
        }
    }

    pub(super) const fn over(self) -> bool {
        self.over || (self.quotas > 0 && self.quotas == self.quotas_over)
    }
}
