//! `ValueError`: why a value of the language is refused.

/// Why a value of the language is refused: reason, and what to write instead.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ValueError {
    /// Lower case, no full stop, shows the value.
    pub reason: String,
    /// A concrete edit.
    pub help: String,
}
