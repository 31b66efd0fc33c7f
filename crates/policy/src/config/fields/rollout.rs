//! Fields for a limit or a number that is tried before it is enforced.

use super::{optional, whole};
use crate::config::shape::{FieldSpec, Shape};

pub(super) const PERCENT: FieldSpec = optional(
    "percent",
    whole(0, 100),
    "10",
    "Percentage of the keys for which the limit is enforced; for the others it decides and counts \
     (default 100). A larger percentage enforces it for the keys of a smaller one as well.",
);

pub(super) const CANDIDATE: FieldSpec = optional(
    "candidate",
    Shape::TEXT,
    "\"80/1m\"",
    "Another number that is tried beside the limit: it decides and counts by itself, and never \
     refuses. Written like the number of a plan.",
);
