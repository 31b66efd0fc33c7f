//! Reason: why something cannot be as it was written, and the edit that helps.

/// Why something was refused, and what to write instead.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::config) struct Reason {
    /// A fact: the label of a finding.
    pub(in crate::config) why: String,
    /// An instruction: its help.
    pub(in crate::config) help: String,
}

impl Reason {
    /// Returns a reason of these words.
    pub(in crate::config) fn new(why: impl Into<String>, help: impl Into<String>) -> Self {
        let (why, help) = (why.into(), help.into());
        Self { why, help }
    }
}

/// Returns the reason of the first condition that is true, or `None`.
macro_rules! first_reason {
    ($($is_so:expr => $why:expr, $help:expr;)*) => {
        match () {
            $(() if $is_so => Some($crate::config::reason::Reason::new($why, $help)),)*
            () => None,
        }
    };
}
pub(in crate::config) use first_reason;
