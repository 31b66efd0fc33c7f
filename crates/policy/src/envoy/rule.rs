//! Rule: one descriptor of a configuration that limits.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::Unit;

/// Number of a rule of a configuration: dense, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RuleId(pub(super) usize);

impl RuleId {
    /// Returns the number.
    pub const fn index(self) -> usize {
        self.0
    }
}

/// Limit that a rule grants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EnvoyRateLimit {
    /// No limit.
    Unlimited,
    /// Maximum number of requests in each window of one unit; 0 blocks.
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
    /// `domain.key_value.key`: the name of its counters.
    pub path: Arc<str>,
    /// Limit that it grants.
    pub limit: EnvoyRateLimit,
    /// Name that clients see, and that `replaces` of another rule refers to.
    pub name: Option<Arc<str>>,
    /// Names of the rules that neither limit nor count when this one matches.
    pub replaces: Box<[Arc<str>]>,
    /// True if it counts and reports, and is never over.
    pub shadow: bool,
    /// True if it denies only when all quota rules of the call are over.
    pub quota: bool,
    /// Sent to the client's proxy when the rule passes.
    pub metadata: Option<Map<String, Value>>,
    /// By level: its name in a series, and whether its values share a counter.
    pub(super) levels: Box<[LevelName]>,
}

/// Form of one level in the name of a series.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum LevelName {
    /// As in the file: no other value leads here.
    Fixed(Box<str>),
    /// As in the file: all values of the pattern are counted as one.
    Shared {
        written: Box<str>,
        pattern: Box<str>,
    },
    /// As in the file, though values of several kinds lead here.
    Written(Box<str>),
    /// The key, with the value that the request brings.
    Requested,
}

impl LevelName {
    /// Returns its name if it is that of the file.
    pub(super) fn written(&self) -> Option<&str> {
        match self {
            Self::Fixed(written) | Self::Shared { written, .. } | Self::Written(written) => {
                Some(written)
            }
            Self::Requested => None,
        }
    }
}
