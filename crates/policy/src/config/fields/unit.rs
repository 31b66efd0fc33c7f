//! Fields of `unit`: the unit of the permits of a limit.

use super::{UNIT_NAME, optional, pattern, required, whole};
use crate::config::shape::{FieldSpec, Shape, TableSpec};
use crate::unit::MAX_DECIMALS;

pub(super) const UNIT: FieldSpec = optional(
    "unit",
    Shape::Table(&TABLE),
    "{ name = \"USD\", decimals = 2 }",
    "Unit of the quantities and the cost, which then have decimals: size = \"200.00\".",
);

static TABLE: TableSpec = TableSpec {
    what: "`unit`",
    fields: &[
        required(
            "name",
            pattern(UNIT_NAME),
            "\"USD\"",
            "Name of the unit, as people read it.",
        ),
        required(
            "decimals",
            whole(0, MAX_DECIMALS as u64),
            "2",
            "Number of decimals: permits are counted in the smallest part.",
        ),
    ],
    ..TableSpec::EMPTY
};
