//! Text to policy: every error at once, with code, line, caret and hint.
//!
//! ```text
//!   text --toml--> document --check--> right shapes --read--> drafts --lints--> Policy
//!            |                |                         |              |
//!            +----------------+---- findings -----------+--------------+--> errors, or
//!                                                                           warnings
//! ```
//!
//! * `fields/` is the language as one table of fields: their names, shapes, examples and texts.
//! * `check.rs` compares the document with the table, and finds fields that are missing, unknown,
//!   of the wrong type or out of their bounds. `schema.rs` and `reference.rs` print the table.
//! * `scalar.rs` has the values that are written as one string, such as durations and percentages,
//!   and one sentence for a text that is none.
//! * `exclusions.rs` says which fields of a limit cannot stand together.
//! * `read.rs` reads a field of a checked document, by the name and with the bounds of the table.
//! * `draft.rs` is a limit on its way to a rule.
//! * `requests`, `forms` (`algorithm`, `log`, `queue`), `active`, `correction`, `refusal`,
//!   `exempt`, `settings`: one part of a limit each, from values of the right shape to the model.
//! * `policy_files`: the files that a policy names: `value_list`, `overrides_file`, `geo`, `jwt`.
//! * `plan`, `overrides`, `overrides_file`: other numbers for some keys, which `variants` compiles.
//! * `limit_text.rs` reads the quantity of a limit that stands by itself.
//! * `lints.rs` reports valid policies that are probably not as intended.
//!
//! Only the text is read, and the files that the caller hands over: time zones are compiled in, so
//! that a policy means the same on every machine.

mod active;
mod alert;
mod algorithm;
mod anchor;
mod balance;
mod ban;
mod candidate;
mod check;
pub(crate) mod codes;
mod complaint;
mod concurrency;
mod correction;
mod cost;
mod database_file;
mod dated;
mod descriptors;
mod diagnostic;
mod distinct;
mod draft;
mod exact_value;
mod exclusions;
mod exempt;
mod extras;
mod fields;
mod forms;
mod gateway;
mod geo;
mod headers;
mod http_url;
mod jwt;
mod key_text;
mod limit;
mod limit_text;
mod lints;
mod log;
mod meant;
mod mismatch;
mod near;
mod numbers;
mod other_numbers;
mod other_words;
mod otherwise;
mod overrides;
mod overrides_edit;
mod overrides_file;
mod percent;
mod plan;
mod policy_files;
mod post_paid;
mod priority;
mod quantity;
mod queue;
mod read;
mod redis;
mod reference;
mod refusal;
mod render;
mod replaces;
mod requests;
mod routes;
mod scalar;
mod schema;
mod scope;
mod secrets;
mod settings;
mod shape;
mod shares;
mod signals;
mod syntax;
mod telemetry;
mod time_zone;
mod unit;
mod unmatched;
mod value_list;
mod variants;
mod visitors;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::iter::once;

use ratekeeper_core::{Origin, Time};
use sha2::{Digest as _, Sha256};

pub use codes::explain;
pub use diagnostic::{Diagnostic, Severity};
pub use key_text::{exact_key_text, is_key_pattern, key_pairs};
pub use limit_text::{LimitTextError, parse_limit};
pub use overrides_edit::{OverrideLine, OverridesCsv, override_lines};
pub use policy_files::{MAX_LIST_BYTES, PolicyFiles};
pub use reference::{explain_field, reference};
pub use render::{Colour, brief, render};
pub use schema::schema;

pub(crate) use self::diagnostic::{Findings, shown};
use self::draft::Draft;
use self::fields::POLICY;
use self::limit::FileContext;
use self::overrides::{OverridePlace, OverrideReader};
use self::read::Table;
use self::unit::Conversions;
use self::variants::VariantReader;
use self::visitors::Visitors;
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
    load(text, &PolicyFiles::default(), context, None)
}

/// Reads the policy of a file at `now`, on the clock of `context`, with the files that it names, and
/// with a warning for each override that has ended.
///
/// ```
/// # use ratekeeper_core::Time;
/// use ratekeeper_policy::config::{Context, PolicyFiles, parse_file};
///
/// let text = r#"
/// version = 1
/// overrides = "overrides.csv"
/// [[limit]]
/// name  = "per-tenant"
/// key   = ["attr:tenant"]
/// limit = "100/1m"
/// "#;
/// let read = |_: &str, _| Ok("limit,key,set\nper-tenant,acme,20000/1m\n".to_owned());
/// let files = PolicyFiles::read(text, read);
/// let loaded = parse_file(text, &files, Context::default(), Time::ZERO).unwrap();
/// assert_eq!(loaded.policy.rules[0].variants.overrides().len(), 1);
/// ```
///
/// # Errors
/// Like [`parse`]; errors of a file stand at the place that names it.
pub fn parse_file(
    text: &str,
    files: &PolicyFiles,
    context: Context,
    now: Time,
) -> Result<Loaded, Vec<Diagnostic>> {
    load(text, files, context, Some(context.origin.unix_nanos(now)))
}

/// `unix_nanos` is `None` if it does not matter which overrides have ended.
fn load(
    text: &str,
    files: &PolicyFiles,
    context: Context,
    unix_nanos: Option<u64>,
) -> Result<Loaded, Vec<Diagnostic>> {
    let mut out = Findings::new(text);
    let Some(document) = syntax::document(text, &mut out) else {
        return Err(out.finish());
    };
    let conversions = Conversions::of(Table::root(document.get_ref(), &POLICY), &mut out);
    let converted = conversions.apply(document.get_ref());
    let root = converted.as_ref().unwrap_or(document.get_ref());
    check::policy(root, &mut out);
    let root = Table::root(root, &POLICY);
    let policy = policy((text, files), root, (context, unix_nanos), &mut out);
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
    (text, files): (&str, &PolicyFiles),
    root: Table<'_>,
    (context, unix_nanos): (Context, Option<u64>),
    out: &mut Findings<'_>,
) -> Option<Policy> {
    let zone = time_zone::zone(root, out);
    let client_ip = settings::client_ip(root, out);
    let geo = geo::geo(root, (files, &client_ip), unix_nanos, out);
    let settings = settings::process(root, files, out);
    let mut responses = refusal::responses(root, out);
    let defaults = limit::defaults(root, &mut responses, out);
    let mut shared = FileContext {
        zone,
        origin: context.origin,
        files,
        defaults,
        responses,
        zones: HashMap::new(),
        variants: 0,
        names: HashMap::new(),
    };
    let mut lines = LineCounter::new(text);
    let mut drafts: Vec<Draft<'_>> = Vec::new();
    for (index, table) in root.tables("limit") {
        let line = lines.at(table.at().start);
        if let Some(mut draft) = limit::limit(index, table, &mut shared, out) {
            draft.rule.line = line;
            drafts.push(draft);
        }
    }
    let exemptions = exempt::exempt(root, files, &mut drafts, out);
    let tokens = jwt::tokens(root, files, out);
    let mut variants = VariantReader::new(&shared.zone, shared.origin, shared.variants);
    let prefix = client_ip.ipv6_prefix;
    let signals = extras::extras(&mut drafts, &settings, &variants, out);
    distinct::distinct(&mut drafts, &variants, out);
    priority::priorities(&mut drafts, files, out);
    otherwise::otherwise(&mut drafts, out);
    replaces::replaces(&mut drafts, out);
    percent::beside(&drafts, out);
    routes::on_limit(&mut drafts, &settings, out);
    candidate::candidates(&mut drafts, &variants, out);
    jwt::required(root, &drafts, out);
    let plans = plan::plans(root, prefix, &mut variants, &mut drafts, out);
    let names = shared.names.keys().copied();
    let mut overrides = OverrideReader::new(prefix, unix_nanos, &drafts, names);
    overrides.tables(
        (root, OverridePlace::Policy),
        &mut lines,
        (&mut variants, &mut drafts),
        out,
    );
    overrides_file::read(
        root,
        files,
        &mut overrides,
        (&mut variants, &mut drafts),
        out,
    );
    overrides.install(&mut drafts);
    let visitors = Visitors::read(root, &client_ip, &settings, out);
    visitors::unreceived(&drafts, plans.as_ref(), (root, &settings), out);
    lints::impossible(&drafts, &settings, out);
    alert::impossible(&drafts, out);
    if out.has_errors() {
        return None;
    }
    lints::lints(&drafts, &shared.responses, &settings, out);
    balance::forgotten(&drafts, &settings, out);
    active::lints(&drafts, context.origin, out);
    replaces::lints(&drafts, out);
    if let Some(visitors) = visitors {
        visitors.lints(root, (&drafts, &exemptions), plans.as_ref(), out);
    }
    Some(Policy {
        version: 0,
        sha: sha(once(text).chain(files.texts())).into(),
        geo,
        rules: Rules::new(otherwise::rules(drafts)),
        origin: context.origin,
        client_ip,
        plans,
        signals,
        tokens,
        headers: settings::headers(root),
        settings,
    })
}

/// Returns the SHA-256 of texts, one after the other, in hexadecimal.
pub(crate) fn sha<T: AsRef<[u8]>>(texts: impl IntoIterator<Item = T>) -> String {
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
