//! Overrides: `[[override]]`, other numbers for single keys of a limit.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use jiff::Timestamp;
use toml::de::DeValue;

use super::key_text::{exact_value, pieces};
use super::{SetText, VariantReader};
use crate::config::document::shape::in_backticks;
use crate::config::fields::MAX_PATTERNS;
use crate::config::limit::draft::{by_name, unknown_limit};
use crate::config::lints::unmatched::never_matches;
use crate::config::{
    At, Draft, Findings, Node, Spot, Table, Text, ValueError, codes, error, warning,
};
use crate::model::keys::overrides::{Override, OverrideKey, Overrides, PartPattern};
use crate::{Glob, KeyPart, PathCase};

/// Collects the overrides of all limits.
pub(crate) struct OverrideReader<'r, 'a> {
    /// The limits that overrides are for, and the reader of their numbers.
    pub(super) drafts: &'r mut [Draft<'a>],
    numbers: &'r mut VariantReader<'a>,
    ipv6_prefix: u8,
    /// `None` if it does not matter which have ended.
    unix_nanos: Option<u64>,
    /// Limits by name.
    names: BTreeMap<Arc<str>, usize>,
    /// Names of all limits, those with errors too.
    written: &'r HashMap<&'a str, Spot<'a>>,
    /// By limit.
    found: Vec<Overrides>,
    /// Where the ends stand of those that have ended: the first are named, because contracts end all
    /// the time.
    ended: Vec<Range<usize>>,
}

/// Maximum number of overrides of the policy, or of the file, that are named as ended.
const MAX_ENDED: usize = 3;

/// One override as written.
pub(crate) struct OverrideText<'t> {
    pub(crate) limit: Text<'t>,
    /// Key parts and their values.
    pub(crate) key: Vec<(Text<'t>, Text<'t>)>,
    pub(crate) set: At<'t, Cow<'t, str>>,
    pub(crate) until: Option<At<'t, Cow<'t, str>>>,
    pub(crate) reason: &'t str,
    /// Range of the key.
    pub(crate) at: Spot<'t>,
    pub(crate) line: usize,
    pub(super) stands: OverridePlace,
}

/// Where an override is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OverridePlace {
    /// `[[override]]` of the policy.
    Policy,
    /// `[[override]]` of the file.
    FileTable,
    /// A line of the file.
    FileLine,
}

impl OverridePlace {
    fn is_file(self) -> bool {
        self != Self::Policy
    }

    /// Returns the field with the numbers; empty for a cell.
    fn field(self) -> &'static str {
        match self {
            Self::Policy | Self::FileTable => "set",
            Self::FileLine => "",
        }
    }
}

/// Returns the overrides of `[[override]]` that can be read. The others have been reported:
/// something is missing there, or of the wrong type.
pub(super) fn written(
    root: Table<'_>,
    stands: OverridePlace,
) -> impl Iterator<Item = OverrideText<'_>> {
    root.tables("override").filter_map(move |written| {
        let key = written.names("key")?;
        let key = key.filter_map(|(part, value)| Some((part, value.text()?)));
        let until = written.get("until").and_then(|node| {
            let text = match node.value {
                DeValue::Datetime(moment) => moment.to_string().into(),
                value => value.as_str()?.into(),
            };
            Some(At::new(text, node.at))
        });
        Some(OverrideText {
            limit: written.text("limit")?,
            at: written.place("key"),
            key: key.collect(),
            set: written.get("set").and_then(Node::text_or_number)?,
            until,
            reason: written.text("reason").map_or("", |reason| reason.value),
            line: written.at().line(),
            stands,
        })
    })
}

impl<'r, 'a> OverrideReader<'r, 'a> {
    /// `written` has the names of all limits, those with errors too.
    pub(crate) fn new(
        ipv6_prefix: u8,
        unix_nanos: Option<u64>,
        numbers: &'r mut VariantReader<'a>,
        drafts: &'r mut [Draft<'a>],
        written: &'r HashMap<&'a str, Spot<'a>>,
    ) -> Self {
        Self {
            written,
            ipv6_prefix,
            unix_nanos,
            names: by_name(drafts),
            found: vec![Overrides::default(); drafts.len()],
            drafts,
            numbers,
            ended: Vec::new(),
        }
    }

    /// Gives the limits their overrides.
    pub(crate) fn install(self) {
        for (draft, found) in self.drafts.iter_mut().zip(self.found) {
            draft.rule.variants.overrides = Arc::new(found);
        }
    }

    /// Reads `[[override]]` of the policy or of the file.
    pub(crate) fn tables(&mut self, root: Table<'_>, stands: OverridePlace) {
        for text in written(root, stands) {
            self.add(&text);
        }
        self.count_ended(root.findings());
    }

    /// Warns of the overrides that have ended and are not named, at the end of a text.
    pub(super) fn count_ended(&mut self, out: &Findings<'_>) {
        let ended = std::mem::take(&mut self.ended);
        if let Some(next) = ended.get(MAX_ENDED) {
            let message = format!("{} more overrides have ended", ended.len() - MAX_ENDED);
            let label = "and others below it";
            warning(codes::OVERRIDE_ENDED, out.at(next.clone()), message, label)
                .help("remove them, or write later times");
        }
    }

    /// Returns the limit of a name, if there is one; reports an error if not.
    pub(crate) fn limit(&self, name: &Text<'_>) -> Option<usize> {
        if let Some(index) = self.names.get(name.value) {
            return Some(*index);
        }
        if !self.written.contains_key(name.value) {
            let known = self.names.keys().map(|name| &**name);
            let help = "write the name of a [[limit]] of the policy";
            let missing = ValueError::new("not found in the policy", help);
            unknown_limit(name, known, missing);
        }
        None
    }

    /// Adds an override, or reports why not.
    pub(crate) fn add(&mut self, text: &OverrideText<'_>) {
        let until = text.until.as_ref().map(moment);
        let Some(index) = self.limit(&text.limit) else {
            return;
        };
        let draft = &mut self.drafts[index];
        let set = SetText {
            name: &text.set.value,
            text: &text.set.value,
            field: text.stands.field(),
            at: text.set.at,
        };
        let allowance = self.numbers.allowance(draft, set);
        let key = key_of(draft, text, self.ipv6_prefix);
        let (Some(allowance), Some(key), false) = (allowance, key, until == Some(None)) else {
            return;
        };
        let until_unix_nanos = until.flatten();
        let new = Override {
            allowance,
            until_unix_nanos,
            reason: text.reason.into(),
            line: text.line,
            from_file: text.stands.is_file(),
        };
        let now = self.unix_nanos.filter(|now| new.has_ended(*now));
        if let (Some(now), Some(until)) = (now, &text.until) {
            self.ended.push(until.at.range());
            if self.ended.len() <= MAX_ENDED {
                ended(&text.limit, until.at, now);
            }
        }
        let found = &mut self.found[index];
        let is_glob = |part: &PartPattern| matches!(part, PartPattern::Glob(_));
        if found.pattern_count() >= MAX_PATTERNS && key.iter().flatten().any(is_glob) {
            let message = format!("{draft} has more than {MAX_PATTERNS} patterns");
            let label = "one more than allowed";
            error(codes::TOO_MANY, text.at, message, label)
                .help("name keys without *, of which there may be many");
            return;
        }
        if let Err(first) = found.add(key, new) {
            let place = match (first.from_file, text.stands.is_file()) {
                (false, true) => format!("in the policy, line {}", first.line),
                _ => format!("in line {}", first.line),
            };
            let message = "this override never applies";
            let label = format!("the same limit and key are {place}");
            warning(codes::OVERRIDE_HIDDEN, text.at, message, label)
                .help("remove one of the two: the first applies until it is removed");
        }
    }
}

/// Reads the key; `None` if it is reported as wrong.
fn key_of(draft: &Draft<'_>, text: &OverrideText<'_>, ipv6_prefix: u8) -> Option<OverrideKey> {
    let parts = &draft.rule.key;
    let mut key: OverrideKey = vec![None; parts.len()];
    for (name, value) in &text.key {
        let part = KeyPart::parse(name.value).ok();
        let index = parts.iter().position(|known| Some(known) == part.as_ref());
        let Some(index) = index else {
            let message = format!("`{name}` is not in the key of {draft}");
            let (label, help) = if parts.is_empty() {
                let help = "write the numbers into the limit itself".to_owned();
                ("all requests share one counter".to_owned(), help)
            } else {
                let part = &parts[0];
                let help = match value.value {
                    "" => format!("write {part}={name}"), // a cell
                    value => format!("write key = {{ \"{part}\" = \"{value}\" }}"),
                };
                (format!("its key is {}", in_backticks(parts)), help)
            };
            error(codes::OVERRIDE, name.at, message, label).help(help);
            return None;
        };
        if key[index].is_some() {
            let message = format!("the key names `{}` twice", parts[index]);
            let label = "one value for each part";
            error(codes::OVERRIDE, name.at, message, label)
                .help("leave one of them out, or write `\\;` for a semicolon of a value");
            return None;
        }
        never_matches(draft, &parts[index], value);
        let case = draft.rule.matcher.path_case;
        key[index] = Some(pattern(&parts[index], value, case, ipv6_prefix)?);
    }
    (!text.key.is_empty()).then_some(key)
}

/// Reads the value of a part; `None` if it is reported as wrong.
fn pattern(
    part: &KeyPart,
    value: &Text<'_>,
    case: PathCase,
    ipv6_prefix: u8,
) -> Option<PartPattern> {
    // A `*` of a route is its own: keys hold the value of `match.path`.
    let has_no_patterns = matches!(part, KeyPart::Ip { .. } | KeyPart::Route);
    let pieces = pieces(value.value);
    if pieces.len() == 1 || has_no_patterns {
        let text = pieces.join("*");
        let plain = At::new(&*text, value.at);
        let exact = exact_value(part, &plain, ipv6_prefix, case)?;
        return Some(PartPattern::Exact(exact));
    }
    let has_no_case = match part {
        KeyPart::Host => true,
        KeyPart::Path => case == PathCase::Insensitive,
        _ => false,
    };
    let pieces = pieces.into_iter().map(|mut piece| {
        if has_no_case {
            piece.make_ascii_lowercase();
        }
        piece.into_bytes().into()
    });
    Some(PartPattern::Glob(Glob::from_pieces(pieces.collect())))
}

/// Warns of an override that has ended.
fn ended(limit: &Text<'_>, until: Spot<'_>, now: u64) {
    let nanos = i128::from(now);
    let now = Timestamp::from_nanosecond(nanos).map_or_else(
        |_| String::new(),
        |now| now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    );
    let message = format!("an override of limit `{limit}` has ended");
    let label = format!("it is {now}");
    warning(codes::OVERRIDE_ENDED, until, message, label).help("remove it, or write a later time");
}

/// Reads a time with an offset, as nanoseconds since 1970; `None` if it is reported as wrong.
fn moment(text: &At<'_, Cow<'_, str>>) -> Option<u64> {
    if let Ok(moment) = text.value.parse::<Timestamp>() {
        return Some(u64::try_from(moment.as_nanosecond().max(0)).unwrap_or(u64::MAX));
    }
    let message = format!("\"{text}\" is not a time with an offset");
    let label = "expected a date, a time and an offset";
    error(codes::OVERRIDE, text.at, message, label)
        .help("write for example 2026-12-31T00:00:00Z, or 2026-12-31T00:00:00+01:00");
    None
}
