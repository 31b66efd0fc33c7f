//! Answer: the result of one call.

use serde_json::{Map, Value};
use smallvec::SmallVec;

use super::{Hits, Unit};

/// Decision on a call or a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EnvoyCode {
    /// The request may proceed.
    Ok,
    /// A limit is exceeded.
    OverLimit,
}

/// The result of one call: `RateLimitResponse` without its wire format.
#[derive(Clone, Debug)]
pub struct EnvoyAnswer<'c> {
    /// For the whole call.
    pub overall: EnvoyCode,
    /// The call would have been refused, but for the global shadow mode.
    pub shadowed: bool,
    /// One for each descriptor, in their order.
    pub statuses: SmallVec<[DescriptorAnswer<'c>; 4]>,
    /// Metadata of the rules that passed, merged: the first rule with a field wins.
    pub metadata: Map<String, Value>,
    /// True if the call was decided without the store, by `on_store_error`.
    pub without_store: bool,
}

/// Result for one descriptor.
#[derive(Clone, PartialEq, Debug)]
pub struct DescriptorAnswer<'c> {
    /// `OverLimit` if its limit is exceeded.
    pub code: EnvoyCode,
    /// The limit, if one applies that has a number.
    pub current_limit: Option<CurrentLimit<'c>>,
    /// Requests remaining in this window; 2^32 - 1 if unlimited, 0 if no limit applies.
    pub limit_remaining: u32,
    /// Seconds to the end of the window, rounded up; `None` unless a limit with a number applies.
    pub reset_after_s: Option<u64>,
    /// Hits added to the counters of its rule. `None` if no rule applies, or if hits were given
    /// back.
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
    /// Number of units in the window; above 1 only if the call set it.
    pub multiplier: u32,
}

impl DescriptorAnswer<'_> {
    /// Answer if no limit applies.
    pub(super) const NONE: Self = Self {
        code: EnvoyCode::Ok,
        current_limit: None,
        limit_remaining: 0,
        reset_after_s: None,
        hits: None,
    };
}

/// Combined result of the descriptors.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Votes {
    /// True if one that is no quota is over.
    over: bool,
    quotas: usize,
    quotas_over: usize,
}

impl Votes {
    pub(super) fn add(&mut self, code: EnvoyCode) {
        self.over |= code == EnvoyCode::OverLimit;
    }

    pub(super) fn add_quota(&mut self, code: EnvoyCode) {
        self.quotas += 1;
        self.quotas_over += usize::from(code == EnvoyCode::OverLimit);
    }

    pub(super) const fn over(self) -> bool {
        self.over || (self.quotas > 0 && self.quotas == self.quotas_over)
    }
}
