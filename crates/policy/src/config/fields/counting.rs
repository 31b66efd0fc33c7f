//! Fields that change the number of a request under a limit: `distinct` and `priority`.

use super::requests::MATCH;
use super::{optional, pattern, required};
use crate::config::shape::{FieldSpec, Shape, TableSpec};

const PERCENT: &str = "^[1-9][0-9]?%$";

pub(super) const DISTINCT: FieldSpec = optional(
    "distinct",
    Shape::TEXT,
    "\"attr:account\"",
    "Counts different values of a key part in each window, and not requests.",
);

pub(super) const PRIORITY: FieldSpec = optional(
    "priority",
    Shape::Table(&PRIORITY_TABLE),
    "{ last = \"20%\", match = { path = \"/health\" } }",
    "Keeps the last part of the limit for some of its requests.",
);

static PRIORITY_TABLE: TableSpec = TableSpec {
    what: "`priority`",
    fields: &[
        required(
            "last",
            pattern(PERCENT),
            "\"20%\"",
            "Part of the limit, rounded up, that other requests leave free: 1% to 99%.",
        ),
        required(
            "match",
            Shape::Table(&MATCH),
            "{ path = \"/health\" }",
            "Requests with priority, which may use the whole limit.",
        ),
    ],
    ..TableSpec::EMPTY
};
