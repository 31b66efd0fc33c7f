//! Which requests a limit applies to: the facts of a request, and conditions on them.

pub(crate) mod body;
pub(crate) mod common_part;
pub(crate) mod descriptor;
pub(crate) mod descriptor_index;
pub(crate) mod facts;
pub(crate) mod glob;
pub(crate) mod gram_index;
pub(crate) mod matcher;
pub(crate) mod part_index;
pub(crate) mod path_pattern;
pub(crate) mod pattern;
pub(crate) mod patterns;
pub(crate) mod request;
pub(crate) mod request_index;
