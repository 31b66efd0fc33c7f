//! Refusal: the response to a request that a limit denies.

/// Form of a refusal: `[response.NAME]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP status, 400 to 599.
    pub status: u16,
    /// Content of the body.
    pub body: Body,
    /// Text with `{retry_after}`, `{limit}`; `None` for the standard sentence.
    pub detail: Option<String>,
}

impl Default for Refusal {
    fn default() -> Self {
        Self {
            status: 429,
            body: Body::ProblemJson,
            detail: None,
        }
    }
}

/// The body of a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// RFC 9457.
    ProblemJson,
    /// Nothing.
    Empty,
    /// Text from the policy, with its content type.
    Text {
        /// Text of the body.
        content: String,
        /// Its content type.
        content_type: String,
    },
}
