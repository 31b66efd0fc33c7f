//! Document: the text as a TOML document, its fields compared with the table, and values out of it.

pub(super) mod check;
pub(super) mod complaint;
pub(super) mod exclusions;
pub(super) mod meant;
pub(super) mod other_words;
pub(super) mod read;
pub(super) mod scalar;
pub(super) mod shape;
pub(super) mod syntax;
