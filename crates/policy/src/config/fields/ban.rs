//! Fields of `ban`: when a limit bans a key, and for how long.

use ratekeeper_core::{MAX_BAN, MAX_STRIKES, Nanos};

use super::MAX_GROWTH;
use crate::config::document::shape::{Factor, Shape, Whole, fields, span};

/// `within`, `for` and `max`
const LENGTH: Shape = span(Nanos::from_nanos(1), MAX_BAN);

fields! {
    pub(super) BAN = "`ban`" {
        required after: Whole(1, MAX_STRIKES as u64), "3",
            "Number of refusals by this limit that begin a ban.";
        required within: LENGTH, "\"24h\"",
            "Time within which the refusals count; also how long after its end a ban makes the \
             next one longer.";
        required r#for: LENGTH, "\"1h\"", "Length of the first ban.";
        optional grow: Factor(MAX_GROWTH), "2.0",
            "Factor by which each further ban is longer (default 1).";
        optional max: LENGTH, "\"24h\"", "Maximum length of a ban; needed with `grow`.";
    }
}
