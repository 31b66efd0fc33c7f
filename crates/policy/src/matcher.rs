//! Matcher: which requests a rule is for.

use crate::{Field, Pattern};

/// `match = { .. }`: all fields must hold; within a field, one of the values.
#[derive(Clone, Debug, Default)]
pub struct Matcher {
    /// Field and its acceptable values.
    pub fields: Vec<(Field, Vec<Pattern>)>,
}
