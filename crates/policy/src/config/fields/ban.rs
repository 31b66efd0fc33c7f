//! Fields of `ban`: when a limit bans a key, and for how long.

use super::{DURATION, MAX_GROWTH};
use crate::config::shape::{factor, fields, pattern, whole};

fields! {
    pub(super) BAN = "`ban`" {
        required after: whole(1, ratekeeper_core::MAX_STRIKES as u64), "3",
            "Number of refusals by this limit that begin a ban.";
        required within: pattern(DURATION), "\"24h\"",
            "Time within which the refusals count; also how long after its end a ban makes the \
             next one longer.";
        required r#for: pattern(DURATION), "\"1h\"", "Length of the first ban.";
        optional grow: factor(MAX_GROWTH), "2.0",
            "Factor by which each further ban is longer (default 1).";
        optional max: pattern(DURATION), "\"24h\"", "Maximum length of a ban; needed with `grow`.";
    }
}
