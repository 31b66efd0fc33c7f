//! Call: one request of the rate limit protocol.

use smallvec::SmallVec;

use super::Unit;

/// Maximum number of descriptors of one call: a call with more is refused.
pub const MAX_DESCRIPTORS: usize = 100;

/// One call: `RateLimitRequest` without its wire format.
#[derive(Clone, Debug)]
pub struct EnvoyCall<'a> {
    /// Domain of the configuration.
    pub domain: &'a str,
    /// Descriptors to decide; answered in this order.
    pub descriptors: SmallVec<[EnvoyDescriptor<'a>; 4]>,
    /// Cost of descriptors without their own; 0 means 1.
    pub hits_addend: u32,
}

/// One descriptor of a call.
#[derive(Clone, Debug, Default)]
pub struct EnvoyDescriptor<'a> {
    /// Keys and values, outermost first.
    pub entries: SmallVec<[(&'a str, &'a str); 4]>,
    /// Replaces the rule of the configuration.
    pub limit: Option<Override>,
    /// Its own cost; 0 only looks. Values above 2^53 count as 2^53.
    pub hits_addend: Option<u64>,
    /// Direction of the hits.
    pub direction: Direction,
}

/// Direction of hits: taken or given back.
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

/// The reason why a call has no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnvoyCallError {
    /// The domain is empty.
    #[error("rate limit domain must not be empty")]
    EmptyDomain,
    /// There are no descriptors.
    #[error("rate limit descriptor list must not be empty")]
    NoDescriptors,
    /// There are more than [`MAX_DESCRIPTORS`].
    #[error("more than {MAX_DESCRIPTORS} rate limit descriptors")]
    TooManyDescriptors,
}
