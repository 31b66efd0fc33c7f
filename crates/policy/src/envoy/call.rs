//! Call: what one request of the rate limit protocol asks.

use std::fmt;

use smallvec::SmallVec;

use super::Unit;

/// Descriptors of one call: a call with more is refused.
pub const MAX_DESCRIPTORS: usize = 100;

/// One call: `RateLimitRequest` without its wire.
#[derive(Clone, Debug)]
pub struct EnvoyCall<'a> {
    /// Which domain of the configuration.
    pub domain: &'a str,
    /// What is asked about; answered in this order.
    pub descriptors: SmallVec<[EnvoyDescriptor<'a>; 4]>,
    /// The cost of descriptors that do not say their own; 0 means 1.
    pub hits_addend: u32,
}

/// One descriptor of a call.
#[derive(Clone, Debug, Default)]
pub struct EnvoyDescriptor<'a> {
    /// Keys and values, outermost first.
    pub entries: SmallVec<[(&'a str, &'a str); 4]>,
    /// Replaces the rule of the configuration.
    pub limit: Option<Override>,
    /// Its own cost; 0 only looks. Above 2^32 - 1 it counts as that.
    pub hits_addend: Option<u64>,
    /// Whether the hits are taken or given back.
    pub direction: Direction,
}

/// Whether hits are taken or given back.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Direction {
    /// They are added to the counter.
    #[default]
    Take,
    /// They are taken off it (`is_negative_hits`), down to 0.
    GiveBack,
}

/// A limit that a call brings along.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Override {
    /// 0 blocks.
    pub requests_per_unit: u32,
    /// The window, `multiplier` times as long.
    pub unit: Unit,
    /// 0 means 1.
    pub multiplier: u32,
}

/// Why a call has no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum EnvoyCallError {
    /// No configuration has been loaded yet.
    NoConfig,
    /// The domain is empty.
    EmptyDomain,
    /// There are no descriptors.
    NoDescriptors,
    /// There are more than [`MAX_DESCRIPTORS`].
    TooManyDescriptors,
}

impl fmt::Display for EnvoyCallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoConfig => f.write_str("no rate limit configuration loaded"),
            Self::EmptyDomain => f.write_str("rate limit domain must not be empty"),
            Self::NoDescriptors => f.write_str("rate limit descriptor list must not be empty"),
            Self::TooManyDescriptors => {
                write!(f, "more than {MAX_DESCRIPTORS} rate limit descriptors")
            }
        }
    }
}

impl std::error::Error for EnvoyCallError {}
