//! When a key is banned, and for how long.

use crate::{Nanos, Quota};

/// The longest ban, a year.
pub const MAX_BAN: Nanos = Nanos::from_secs(365 * 86_400);
/// Maximum number of strikes that begin a ban: 800 bytes a key.
pub const MAX_STRIKES: u32 = 100;
/// `growth` of bans that stay as long as the first.
pub(super) const CONSTANT: u32 = 1_000;

/// When a key is banned, and for how long.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BanTerms {
    /// The number of strikes that begin a ban, and the span within which they count: `3/24h`.
    pub strikes: Quota,
    /// Length of the first ban.
    pub first: Nanos,
    /// Length of a further ban, in thousandths of the last one's; at least 1,000.
    pub growth_thousandths: u32,
    /// Maximum length.
    pub longest: Nanos,
}

impl BanTerms {
    /// Returns the length of the ban after one of `last`, rounded up.
    pub fn after_ban_of(&self, last: Nanos) -> Nanos {
        let grown = u128::from(last.as_nanos()) * u128::from(self.growth_thousandths);
        let grown = u64::try_from(grown.div_ceil(CONSTANT.into())).unwrap_or(u64::MAX);
        Nanos::from_nanos(grown).min(self.longest)
    }
}
