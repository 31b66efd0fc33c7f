//! Fields of `unit`: the unit of the permits of a limit.

use crate::config::document::shape::{Whole, fields, name};
use crate::http::unit::MAX_DECIMALS;

fields! {
    pub(super) UNIT = "`unit`" {
        required name: name(16, ""), "\"USD\"", "Name of the unit, as people read it.";
        required decimals: Whole(0, MAX_DECIMALS as u64), "2",
            "Number of decimals: permits are counted in the smallest part.";
    }
}
