//! Fields that change the number of a request under a limit: `distinct` and `priority`.

use super::requests::MATCH;
use crate::config::document::shape::{Table, fields, percent};

fields! {
    pub(super) PRIORITY = "`priority`" {
        required last: percent(99), "\"20%\"",
            "Part of the limit, rounded up, that other requests leave free: 1% to 99%.";
        required r#match: Table(&MATCH), "{ path = \"/health\" }",
            "Requests with priority, which may use the whole limit.";
    }
}
