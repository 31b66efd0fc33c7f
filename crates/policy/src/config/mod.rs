//! Text to policy: every error at once, with code, line, caret and hint.
//!
//! ```text
//!   text --toml--> document --check--> right shapes --read--> drafts --lints--> Policy
//!            |                |                         |              |
//!            +----------------+---- findings -----------+--------------+--> errors, or
//!                                                                           warnings
//! ```
//!
//! * `fields.rs` is the language as one table: the checker and the JSON Schema read it.
//! * `check.rs` compares the document with the table, and finds fields that are missing, unknown
//!   or of the wrong type.
//! * `requests`, `forms` (`algorithm`, `log`, `queue`), `refusal`, `exempt`, `settings`: one
//!   part of a limit each, from values of the right shape to the model.
//! * `limit_text.rs` reads the quantity of a limit that stands by itself.
//! * `lints.rs` reports valid policies that are probably not as intended.
//!
//! Only the text is read: time zones are compiled in, so that a policy means the same on every
//! machine.

mod algorithm;
mod check;
pub(crate) mod codes;
mod complaint;
mod concurrency;
mod dated;
mod descriptors;
mod diagnostic;
mod exempt;
mod fields;
mod foreign;
mod forms;
mod limit;
mod limit_text;
mod lints;
mod log;
mod near;
mod numbers;
mod post_paid;
mod quantity;
mod queue;
mod read;
mod redis;
mod refusal;
mod render;
mod requests;
mod schema;
mod secrets;
mod settings;
mod shape;
mod shares;
mod syntax;
mod within;

use std::collections::HashMap;
use std::fmt::Write as _;

use ratekeeper_core::Origin;
use sha2::{Digest as _, Sha256};
use toml::de::DeTable;

pub use codes::explain;
pub use diagnostic::{Diagnostic, Severity};
pub use limit_text::{LimitTextError, parse_limit};
pub use render::{Colour, brief, render};
pub use schema::schema;

pub(crate) use self::diagnostic::{Findings, shown};
use self::fields::MAX_LIMITS;
use self::limit::{Draft, FileContext};
use crate::{Policy, Rules};

/// Maximum size of a policy file in bytes: room for 100,000 limits.
pub const MAX_BYTES: usize = 16 << 20;

/// The result of parsing a text.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The compiled policy.
    pub policy: Policy,
    /// Lints: the policy runs, but these deserve a look.
    pub warnings: Vec<Diagnostic>,
}

/// Properties of the process that the loader needs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Context {
    /// Where the clock's zero lies.
    pub origin: Origin,
}

/// Reads a policy.
///
/// ```
/// use ratekeeper_policy::config::{Context, parse};
///
/// let text = r#"
/// version = 1
/// [[limit]]
/// name  = "per-ip"
/// key   = ["ip"]
/// limit = "100/1m"
/// "#;
/// let loaded = parse(text, Context::default()).unwrap();
/// assert_eq!(&*loaded.policy.rules[0].limit.name, "per-ip");
///
/// let errors = parse("version = 2", Context::default()).unwrap_err();
/// assert_eq!((errors[0].code, errors[0].line, errors[0].column), ("RK0110", 1, 11));
/// ```
///
/// # Errors
/// All errors of the text, in its order. Warnings are produced only if there are no errors.
pub fn parse(text: &str, context: Context) -> Result<Loaded, Vec<Diagnostic>> {
    let mut out = Findings::new(text);
    let Some(document) = syntax::document(text, &mut out) else {
        return Err(out.finish());
    };
    let root = document.get_ref();
    check::policy(root, &fields::POLICY, &mut out);
    let policy = policy(text, root, context, &mut out);
    match policy {
        Some(policy) if !out.has_errors() => Ok(Loaded {
            policy,
            warnings: out.finish(),
        }),
        _ => Err(out.finish()),
    }
}

/// Reads a checked document; `None` if the text has an error.
fn policy(
    text: &str,
    root: &DeTable<'_>,
    context: Context,
    out: &mut Findings<'_>,
) -> Option<Policy> {
    let zone = settings::zone(root, out);
    let client_ip = settings::client_ip(root, out);
    let settings = settings::process(root, out);
    let mut responses = refusal::responses(root, out);
    let defaults = limit::defaults(root, &mut responses, out);
    let mut shared = FileContext {
        zone,
        origin: context.origin,
        defaults,
        responses,
        names: HashMap::new(),
    };
    let mut lines = LineCounter::new(text);
    let mut drafts: Vec<Draft> = Vec::new();
    for (index, table) in read::tables(root, "limit", MAX_LIMITS) {
        let line = lines.at(table.at.start);
        if let Some(mut draft) = limit::limit(index, &table, &mut shared, out) {
            draft.rule.line = line;
            drafts.push(draft);
        }
    }
    exempt::exempt(root, &mut drafts, out);
    lints::impossible(&drafts, &settings, out);
    if out.has_errors() {
        return None;
    }
    lints::lints(&drafts, &shared.responses, &settings, out);
    Some(Policy {
        version: 0,
        sha: sha([text]).into(),
        rules: Rules::new(drafts.into_iter().map(|draft| draft.rule).collect()),
        origin: context.origin,
        client_ip,
        headers: settings::headers(root),
        settings,
    })
}

/// Returns the SHA-256 of texts, one after the other, in hexadecimal.
pub(crate) fn sha<'t>(texts: impl IntoIterator<Item = &'t str>) -> String {
    let mut digest = Sha256::new();
    for text in texts {
        digest.update(text);
    }
    let mut hex = String::with_capacity(64);
    for byte in digest.finalize() {
        write!(hex, "{byte:02x}").expect("writing to a string does not fail");
    }
    hex
}

/// Counts lines up to positions that mostly grow: limits stand in the order of the file.
struct LineCounter<'t> {
    text: &'t str,
    at: usize,
    line: usize,
}

impl<'t> LineCounter<'t> {
    const fn new(text: &'t str) -> Self {
        Self {
            text,
            at: 0,
            line: 1,
        }
    }

    /// Returns the line of a position, from 1.
    fn at(&mut self, position: usize) -> usize {
        if position < self.at {
            *self = Self::new(self.text);
        }
        let passed = self.text.get(self.at..position).unwrap_or_default();
        self.line += passed.matches('\n').count();
        self.at = position;
        self.line
    }
}
