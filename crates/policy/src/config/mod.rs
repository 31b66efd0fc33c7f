//! Text to policy: every error at once, with code, line, caret and hint. Skeleton.

use ratekeeper_core::Origin;

use crate::Policy;

/// What a text becomes.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The compiled policy.
    pub policy: Policy,
    /// Lints: the policy runs, but look at these.
    pub warnings: Vec<Diagnostic>,
}

/// What the loader must be told about the process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Context {
    /// Where the clock's zero lies.
    pub origin: Origin,
}

/// Whether a finding stops the policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The policy is refused.
    Error,
    /// The policy runs.
    Warning,
}

/// One finding about a policy text.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Diagnostic {
    /// `RK0103`; explained by `ratekeeper help RK0103`.
    pub code: &'static str,
    /// Error or warning.
    pub severity: Severity,
    /// One sentence, lower case, no full stop.
    pub message: String,
    /// Bytes of the text it points at.
    pub start: usize,
    /// End of those bytes.
    pub end: usize,
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// What stands under the carets.
    pub label: String,
    /// A concrete edit.
    pub help: Option<String>,
}

/// Reads a policy. `file` is used in messages only.
pub fn parse(_text: &str, _context: Context) -> Result<Loaded, Vec<Diagnostic>> {
    todo!()
}

/// Renders findings as rustc does; colour by choice.
pub fn render(_file: &str, _text: &str, _findings: &[Diagnostic], _colour: Colour) -> String {
    todo!()
}

/// Whether to colour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Colour {
    /// With ANSI escapes.
    Always,
    /// Plain text.
    Never,
}

/// The JSON Schema of the policy file, generated.
pub fn schema() -> serde_json::Value {
    todo!()
}

/// Explains a code: `ratekeeper help RK0103`.
pub fn explain(_code: &str) -> Option<&'static str> {
    todo!()
}
