//! Fields of plans and overrides: other numbers for some keys of a limit.

use super::{
    MAX_AT_ONCE, MAX_KEY_PARTS, MAX_OVERRIDES, MAX_PLAN_KEYS, MAX_PLANS, NAME, optional, pattern,
    required, whole,
};
use crate::config::shape::{FieldSpec, Shape, TableSpec};

/// Numbers of a plan or an override, in the form of the limit's own.
const NUMBERS: Shape = Shape::Either(&[Shape::TEXT, whole(1, MAX_AT_ONCE)]);

pub(super) const PLANS: FieldSpec = optional(
    "plans",
    Shape::Map {
        of: &NUMBERS,
        most: MAX_PLANS,
    },
    "{ pro = \"600/1m\" }",
    "Numbers for the requests of a plan, in place of the limit's own; \"unlimited\" or \"blocked\".",
);

/// `[plan]`
pub(super) static PLAN: TableSpec = TableSpec {
    what: "`[plan]`",
    fields: &[
        required(
            "from",
            Shape::Either(&[
                Shape::TEXT,
                Shape::Map {
                    of: &Shape::Map {
                        of: &Shape::TEXT,
                        most: MAX_PLAN_KEYS,
                    },
                    most: 1,
                },
            ]),
            "\"attr:plan\"",
            "Source of the plan: an attribute, a claim, a header, or a table of keys and their plans.",
        ),
        required(
            "default",
            pattern(NAME),
            "\"free\"",
            "Plan of requests without one, or with one that no limit names.",
        ),
    ],
    ..TableSpec::EMPTY
};

/// A file of overrides in TOML.
pub(in crate::config) static OVERRIDES: TableSpec = TableSpec {
    what: "a file of overrides",
    fields: &[OVERRIDE_TABLES],
    ..TableSpec::EMPTY
};

pub(super) const OVERRIDE_TABLES: FieldSpec = optional(
    "override",
    Shape::Tables {
        of: &OVERRIDE,
        most: MAX_OVERRIDES,
        heading: "override",
    },
    "[{ limit = \"named\", key = { ip = \"192.0.2.7\" }, set = \"20/1m\" }]",
    "Other numbers for single keys.",
);

/// `[[override]]`
static OVERRIDE: TableSpec = TableSpec {
    what: "an override",
    fields: &[
        required("limit", pattern(NAME), "\"named\"", "Name of the limit."),
        required(
            "key",
            Shape::Map {
                of: &Shape::TEXT,
                most: MAX_KEY_PARTS,
            },
            "{ ip = \"192.0.2.7\" }",
            "Parts of the limit's key and their values; * stands for any characters.",
        ),
        required(
            "set",
            NUMBERS,
            "\"20/1m\"",
            "Numbers in the form of the limit's own, \"unlimited\" or \"blocked\".",
        ),
        optional(
            "until",
            Shape::Moment,
            "\"2026-12-31T00:00:00Z\"",
            "End of the override, with an offset.",
        ),
        optional(
            "reason",
            Shape::TEXT,
            "\"contract 4711\"",
            "Reason, for the record.",
        ),
    ],
    ..TableSpec::EMPTY
};
