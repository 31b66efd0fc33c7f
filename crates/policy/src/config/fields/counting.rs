//! Fields that change the number of a request under a limit: `distinct` and `priority`.

use super::requests::MATCH;
use crate::config::document::shape::{fields, percent, table};

fields! {
    pub(super) PRIORITY = "`priority`" {
        required last: percent(99), "\"20%\"",
            "Part of the limit, rounded up, that other requests leave free: 1% to 99%.";
        required r#match: table(&MATCH), "{ path = \"/health\" }",
            "Requests with priority, which may use the whole limit.";
    }
}
