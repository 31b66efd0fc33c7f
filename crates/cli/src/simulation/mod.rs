//! Parts of `simulate`: the limit in words, and its results as text, as JSON and as a picture.

pub(crate) mod document;
pub(crate) mod picture;
pub(crate) mod subject;
pub(crate) mod table;
