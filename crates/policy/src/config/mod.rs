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
//!   `schema.rs` and `reference.rs` print it.
//! * `document/` compares the text with the table, and reads checked values.
//! * `limit/` reads one part of a limit a file, and makes drafts of rules; `quantity/` reads how much
//!   a limit allows and how it counts.
//! * `variants/` has other numbers for some keys: plans, and overrides here or in a file.
//! * `settings/` is all that is no limit: listeners, stores, and the files that a policy names.
//! * `lints/` reports valid policies that are probably not as intended.
//! * `codes/` explains each finding; `spot` has where it is reported.
//!
//! The names that most files use are imported here once, and the files take them from here.
//!
//! Only the text is read, and the files that the caller hands over: time zones are compiled in, so
//! that a policy means the same on every machine.

pub(crate) mod codes;
mod diagnostic;
mod document;
mod fields;
mod limit;
mod lints;
mod quantity;
mod reason;
mod reference;
mod render;
mod schema;
mod settings;
mod spot;
mod variants;

use std::collections::HashMap;
use std::iter::once;
use std::sync::Arc;

use ratekeeper_core::{Origin, Time};
use sha2::{Digest as _, Sha256};

pub use codes::{code_titles, explain};
pub use diagnostic::{Diagnostic, Severity};
pub use quantity::limit_text::{LimitTextError, parse_limit};
pub use reference::{explain_field, reference};
pub use render::{Colour, brief, render};
pub use schema::schema;
pub use settings::policy_files::{MAX_LIST_BYTES, PolicyFiles};
pub use variants::key_text::{exact_key_text, is_key_pattern, key_pairs};
pub use variants::overrides_edit::{OverrideLine, OverridesCsv, override_lines};

pub(crate) use self::diagnostic::{Findings, shown};
use self::document::check::check;
use self::document::exclusions::is_excluded;
pub(crate) use self::document::read::Text;
use self::document::read::{At, Node, SpannedValue, Table, header_name, whole};
use self::document::scalar::rate;
use self::document::syntax;
use self::fields::POLICY;
use self::limit::FileContext;
use self::limit::draft::Draft;
use self::limit::extras::SignalReader;
use self::lints::unreceived::{OpenListeners, unreceived};
use self::lints::visitors::Visitors;
use self::quantity::Quantity;
use self::quantity::unit::Conversions;
use self::reason::{first_reason, is_word};
use self::settings::ZoneSpec;
pub(crate) use self::spot::{Spot, error, warning};
use self::spot::{invalid, refuse};
use self::variants::VariantReader;
use self::variants::overrides::{OverridePlace, OverrideReader};
use crate::{Policy, Rules, ValueError};

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
    /// The listeners that do not follow the policy.
    pub listeners: Listeners,
}

impl From<Origin> for Context {
    fn from(origin: Origin) -> Self {
        let listeners = Listeners::default();
        Self { origin, listeners }
    }
}

/// Listeners that a command line opens (`true`) or closes; `None`: as the policy says.
#[derive(Clone, Copy, Debug, Default)]
pub struct Listeners {
    /// The check API and forward-auth.
    pub http: Option<bool>,
    /// Envoy's rate limit service.
    pub grpc: Option<bool>,
    /// The gateway.
    pub proxy: Option<bool>,
    /// True if requests are forwarded without `[listen.proxy]`, too.
    pub forwards: bool,
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
    let out = Findings::new(text);
    let mut conversions = Conversions::default(); // which the document refers to
    let Some(mut document) = syntax::document(text, &out) else {
        return Err(out.finish());
    };
    conversions.read(document.get_mut(), &out);
    conversions.apply(document.get_mut(), &out);
    let root = Table::root(document.get_ref(), &POLICY, &out);
    check(root, POLICY.what);
    let policy = policy(text, files, root, context, unix_nanos);
    let warnings = out.finish();
    match policy {
        Some(policy) => Ok(Loaded { policy, warnings }),
        None => Err(warnings),
    }
}

/// Reads a checked document; `None` if the text has an error.
fn policy(
    text: &str,
    files: &PolicyFiles,
    root: Table<'_>,
    context: Context,
    unix_nanos: Option<u64>,
) -> Option<Policy> {
    let zone = settings::zone(root);
    let client_ip = settings::client_ip(root);
    let geo = settings::geo::geo(root, files, &client_ip, unix_nanos);
    let settings = settings::process(root, files);
    let mut responses = limit::refusal::responses(root);
    let defaults = limit::defaults(root, &mut responses);
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
    let limits = root.tables("limit");
    let drafts = limits.filter_map(|table| limit::limit(table, &mut shared));
    let mut drafts: Vec<Draft<'_>> = drafts.collect();
    let exemptions = limit::exempt::exempt(root, files, &mut drafts);
    let tokens = settings::jwt::tokens(root, files);
    let mut variants = VariantReader::new(&shared.zone, shared.origin, shared.variants);
    let prefix = client_ip.ipv6_prefix;
    let mut signals = SignalReader::new(&settings);
    for draft in &mut drafts {
        limit::extras::soft_or_elastic(draft, &mut signals, &variants);
        limit::distinct::distinct(draft, &variants);
        limit::priority::limit_priority(draft, files);
    }
    limit::otherwise::otherwise(&mut drafts);
    limit::replaces::replaces(&mut drafts);
    for draft in &mut drafts {
        limit::rollout::has_percent(draft);
        settings::routes::on_limit(draft, &settings);
        limit::rollout::candidate(draft, &variants);
    }
    let asks_for_claims = settings::jwt::required(root, &settings, &drafts);
    let plans = variants::plan::plans(root, prefix, &mut variants, &mut drafts);
    let names = &shared.names;
    let mut overrides = OverrideReader::new(prefix, unix_nanos, &mut variants, &mut drafts, names);
    overrides.tables(root, OverridePlace::Policy);
    variants::overrides_file::read(root, files, &mut overrides);
    overrides.install();
    let open = OpenListeners::of(context.listeners, &settings);
    let visitors = Visitors::read(root, &client_ip, open);
    unreceived(open, &drafts, &exemptions, plans.as_ref(), root);
    lints::impossible(root, &drafts, &settings);
    if root.findings().has_errors() {
        return None;
    }
    lints::lints(&drafts, &shared.responses, &settings);
    limit::active::lints(&drafts, context.origin);
    limit::replaces::lints(&drafts);
    settings::routes::unnamed(root, &drafts);
    if !asks_for_claims {
        settings::jwt::unused(root, plans.as_ref());
    }
    if let Some(visitors) = visitors {
        let proxy = settings.listen.proxy.as_ref();
        visitors.lints(root, &drafts, &exemptions, plans.as_ref(), proxy);
    }
    Some(Policy {
        version: 0,
        sha: sha(once(text).chain(files.texts())).into(),
        geo,
        rules: Rules::new(limit::otherwise::rules(drafts)),
        origin: context.origin,
        client_ip,
        plans,
        by_hand: Arc::default(),
        signals: signals.found,
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
    format!("{:x}", digest.finalize())
}
