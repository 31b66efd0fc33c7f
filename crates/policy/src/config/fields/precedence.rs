//! Fields for the requests and the processes that a limit is asked about.

use super::{optional, pattern, texts};
use crate::config::shape::{FieldSpec, Shape};

/// Maximum number of names in `replaces`: each is looked at per request to which the limit applies.
const MAX_REPLACED: usize = 16;

/// `on_limit`
const ROUTE_NAME: &str = "^route:[a-z0-9-]{1,40}$";

pub(super) const REPLACES: FieldSpec = optional(
    "replaces",
    texts(MAX_REPLACED),
    "\"api\"",
    "Names of the limits that are not asked about the requests to which this one applies.",
);

pub(super) const SCOPE: FieldSpec = optional(
    "scope",
    Shape::Word(&["cluster", "node"]),
    "\"node\"",
    "With [store.redis]: cluster (default) counts in all processes together, node in each process by \
     itself.",
);

pub(super) const ON_LIMIT: FieldSpec = optional(
    "on_limit",
    pattern(ROUTE_NAME),
    "\"route:spare\"",
    "The gateway forwards the requests that this limit denies to the route of this name; other \
     listeners refuse them.",
);
