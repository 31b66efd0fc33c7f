//! `ValueError`: the reason why a value of the language is refused.

/// Error for a refused value of the language: the reason, and the value to write instead.
///
/// ```
/// use ratekeeper_policy::KeyPart;
/// let error = KeyPart::parse("ipp").unwrap_err();
/// assert_eq!(error.reason, "unknown key part `ipp`");
/// assert_eq!(error.help, "did you mean `ip`?");
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ValueError {
    /// Lower case, no full stop, shows the value.
    pub reason: String,
    /// A concrete edit.
    pub help: String,
}

impl ValueError {
    pub(crate) fn new(reason: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            help: help.into(),
        }
    }
}

impl std::fmt::Display for ValueError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}\nhint: {}", self.reason, self.help)
    }
}

impl std::error::Error for ValueError {}
