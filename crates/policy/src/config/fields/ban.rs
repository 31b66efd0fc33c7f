//! Fields of `ban`: when a limit bans a key, and for how long.

use super::{DURATION, MAX_GROWTH, optional, pattern, required, whole};
use crate::config::shape::{FieldSpec, Shape, TableSpec};

pub(super) const BAN: FieldSpec = optional(
    "ban",
    Shape::Table(&TABLE),
    "{ after = 3, within = \"24h\", for = \"1h\" }",
    "Bans a key after some refusals by this limit: it is refused until the ban ends.",
);

static TABLE: TableSpec = TableSpec {
    what: "`ban`",
    fields: &[
        required(
            "after",
            whole(1, ratekeeper_core::MAX_STRIKES as u64),
            "3",
            "Number of refusals by this limit that begin a ban.",
        ),
        required(
            "within",
            pattern(DURATION),
            "\"24h\"",
            "Time within which the refusals count; also how long after its end a ban makes the next \
             one longer.",
        ),
        required(
            "for",
            pattern(DURATION),
            "\"1h\"",
            "Length of the first ban.",
        ),
        optional(
            "grow",
            Shape::Factor { most: MAX_GROWTH },
            "2.0",
            "Factor by which each further ban is longer (default 1).",
        ),
        optional(
            "max",
            pattern(DURATION),
            "\"24h\"",
            "Maximum length of a ban; needed with `grow`.",
        ),
    ],
    ..TableSpec::EMPTY
};
