//! Fields of plans and overrides: other numbers for some keys of a limit.

use super::{MAX_AT_ONCE, MAX_KEY_PARTS, MAX_PLAN_KEYS, NAME, POLICY};
use crate::config::document::shape::{Either, Map, Moment, Shape, TEXT, Whole, fields, pattern};

/// Numbers of a plan or an override, in the form of the limit's own.
pub(super) const NUMBERS: Shape = Either(&[TEXT, Whole(1, MAX_AT_ONCE)]);

fields! {
    /// `[plan]`
    pub(super) PLAN = "`[plan]`" {
        required from: Either(&[TEXT, Map(&Map(&TEXT, MAX_PLAN_KEYS), 1)]),
            "\"attr:plan\"",
            "Source of the plan: an attribute, a claim, a header, or a table of keys and their \
             plans.";
        required default: pattern(NAME), "\"free\"",
            "Plan of requests without one, or with one that no limit names.";
    }

    /// A file of overrides in TOML.
    pub(in crate::config) OVERRIDES = "a file of overrides" {
        shared POLICY { override };
    }

    /// `[[override]]`
    pub(super) OVERRIDE = "an override" {
        required limit: pattern(NAME), "\"named\"", "Name of the limit.";
        required key: Map(&TEXT, MAX_KEY_PARTS), "{ ip = \"192.0.2.7\" }",
            "Parts of the limit's key and their values; * matches any characters.";
        required set: NUMBERS, "\"20/1m\"",
            "Numbers in the form of the limit's own, \"unlimited\" or \"blocked\".";
        optional until: Moment, "\"2026-12-31T00:00:00Z\"", "End of the override, with an offset.";
        optional reason: TEXT, "\"contract 4711\"", "Reason, for the record.";
    }
}
