//! Parts of `simulate`: the limit in words, its results as text and as JSON, and the user's own
//! events.

pub(crate) mod document;
pub(crate) mod events;
pub(crate) mod picture;
pub(crate) mod subject;
pub(crate) mod table;
