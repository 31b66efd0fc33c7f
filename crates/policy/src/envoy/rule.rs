//! Rule: one descriptor of a configuration that limits.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::Unit;

/// Which rule of a configuration: dense, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RuleId(pub(super) u32);

impl RuleId {
    /// The number.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a rule grants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EnvoyRateLimit {
    /// Everything.
    Unlimited,
    /// So many requests in each window of one unit; 0 blocks.
    PerUnit {
        /// Up to 2^32 - 1.
        requests_per_unit: u32,
        /// The window.
        unit: Unit,
    },
}

/// One descriptor of a configuration that limits.
#[derive(Clone, PartialEq, Debug)]
pub struct EnvoyRule {
    /// Its number.
    pub id: RuleId,
    /// `domain.key_value.key`: what its counters are called.
    pub path: Arc<str>,
    /// What it grants.
    pub limit: EnvoyRateLimit,
    /// What clients see, and what `replaces` of another rule names.
    pub name: Option<Arc<str>>,
    /// Names of the rules that neither limit nor count when this one matches.
    pub replaces: Box<[Arc<str>]>,
    /// It counts and reports, and never says over.
    pub shadow: bool,
    /// It denies only when all quota rules of the call are over.
    pub quota: bool,
    /// Told to the client's proxy when the rule passes.
    pub metadata: Option<Map<String, Value>>,
    /// What the series of its counters is called after.
    pub(super) series: SeriesName,
    /// By level: the pattern whose values share one counter. Empty if none do.
    pub(super) shared: Box<[Option<Box<str>>]>,
}

impl EnvoyRule {
    /// Whether its counters are called after values of the calls.
    pub(super) fn has_named_series(&self) -> bool {
        self.series != SeriesName::Path
    }
}

/// What the series of a rule's counters is called after.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum SeriesName {
    /// The rule alone.
    Path,
    /// The values of the request too, at the levels that say so.
    Levels(Box<[LevelName]>),
}

/// How one level stands in the name of a series.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum LevelName {
    /// As in the file: no other value leads here, or all that do are counted as one.
    Fixed(Box<str>),
    /// As in the file, though values of several kinds lead here.
    Written(Box<str>),
    /// The key, with the value that the request brings.
    Requested,
}
