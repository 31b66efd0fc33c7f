//! Requests: the requests that a limit is for (`match`), how it groups them (`key`), and its
//! behaviour when a part of the key is missing.

use std::collections::BTreeSet;

use ipnet::{IpNet, Ipv4Net};

use crate::config::document::meant;
use crate::config::fields::{MAX_MATCH_VALUES, MAX_NAME, MAX_NAMES};
use crate::config::settings::policy_files::ListName;
use crate::config::{
    At, Node, PolicyFiles, Spot, Table, Text, codes, error, header_name, invalid, shown, warning,
};
use crate::{EntryName, Field, KeyPart, Matcher, MissingKey, PathCase, Pattern, Patterns};

/// Maximum number of values that are compared with each other.
const MAX_COMPARED: usize = 100;
/// Maximum number of characters of a name in `attr.X`, `query.X` or `cookie.X`.
const MAX_FIELD_NAME: usize = 100;

/// A matcher, and the same in a form that can be compared: fields and values sorted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requests {
    pub(crate) matcher: Matcher,
    pub(crate) same: Vec<(String, Vec<String>)>,
}

/// Reads `match`; without one, all requests match.
pub(crate) fn requests(table: Table<'_>, files: &PolicyFiles) -> Requests {
    let matched = table.table("match");
    matched.map_or_else(Requests::default, |written| matching(written, files))
}

/// Returns true if a matcher of this table fits every request. One without fields whose `match` has
/// some is one with errors.
pub(crate) fn takes_all(table: Table<'_>, matcher: &Matcher) -> bool {
    let is_blank = || table.table("match").is_some_and(Table::is_empty);
    matcher.matches_all() && (!matcher.fields.is_empty() || is_blank())
}

/// Reads the fields of `match`, or those of them that a table may hold.
pub(super) fn matching(written: Table<'_>, files: &PolicyFiles) -> Requests {
    let mut all = Requests::default();
    for (name, field) in [
        ("method", Field::Method),
        ("host", Field::Host),
        ("path", Field::Path),
        ("ip", Field::Ip),
        ("domain", Field::Domain),
    ] {
        if written.lists(name) && written.has(name) {
            all.add(name, field, &written.texts(name), files);
        }
    }
    for (group, field) in [
        ("query", Field::Query as fn(String) -> Field),
        ("header", Field::Header),
        ("cookie", Field::Cookie),
        ("attr", Field::Attribute),
        ("descriptor", |name| {
            Field::Descriptor(EntryName::new(&name))
        }),
        // Last, so that no token is verified for a request that another field leaves out.
        ("jwt", Field::Claim),
    ] {
        let names = written.lists(group).then(|| written.names(group));
        for (name, node) in names.flatten().into_iter().flatten().take(MAX_NAMES) {
            let Some(name) = field_name(group, &name) else {
                continue;
            };
            let path = format!("{group}.{name}");
            let values = node.each().take(MAX_MATCH_VALUES).filter_map(Node::text);
            let values: Vec<_> = values.collect();
            all.add(&path, field(name), &values, files);
        }
    }
    // Last, because a look-up is saved where another field does not hold.
    for (name, field) in [("country", Field::Country), ("continent", Field::Continent)] {
        if written.lists(name) && written.has(name) {
            all.add(name, field, &written.texts(name), files);
        }
    }
    if written.lists("asn") && written.has("asn") {
        let numbers = written.values("asn").filter_map(Node::text_or_number);
        let numbers: Vec<_> = numbers.collect();
        let texts = numbers.iter().map(|it| At::new(&*it.value, it.at));
        let texts: Vec<_> = texts.collect();
        all.add("asn", Field::Asn, &texts, files);
    }
    all.same.sort();
    all
}

impl Requests {
    /// Sets how paths compare.
    pub(super) fn compare(&mut self, case: PathCase, key: &[KeyPart]) {
        self.matcher.path_case = case;
        let mut fields = self.matcher.fields.iter();
        let matched = fields.any(|(field, _)| *field == Field::Path);
        let is_counted = |part: &KeyPart| matches!(part, KeyPart::Path | KeyPart::Route);
        let counted = key.iter().any(is_counted);
        if case == PathCase::Sensitive && (matched || counted) {
            self.same.push(("path_case".into(), Vec::new()));
        }
    }

    fn add(&mut self, name: &str, field: Field, values: &[Text<'_>], files: &PolicyFiles) {
        let mut patterns = Vec::with_capacity(values.len());
        let mut has_positive = false;
        for text in values {
            has_positive |= !text.value.starts_with('!');
            if let Some(list) = ListName::of(text.value) {
                list.read(files, name, &field, text, &mut patterns);
                continue;
            }
            let mut error = match Pattern::parse(&field, text.value) {
                Ok(pattern) => {
                    foreign(name, &field, text);
                    patterns.push(pattern);
                    continue;
                }
                Err(error) => error,
            };
            if field == Field::Path
                && let Some(help) = meant::path(text.value)
            {
                error.help = help;
            }
            error.help = kept(text.value, &error.help);
            let label = format!("not a valid value of `{name}`");
            let code = if field.is_located() {
                codes::PLACE
            } else {
                codes::MATCH_VALUE
            };
            invalid(code, text.at, error, label);
        }
        if field == Field::Ip {
            half_of_all(values);
        }
        if let Some(first) = values.first() {
            no_value_left(&field, &patterns, first.at);
        }
        let same: BTreeSet<_> = values.iter().map(|text| text.value.to_owned()).collect();
        let patterns = Patterns::new(patterns, has_positive);
        self.matcher.fields.push((field, patterns));
        self.same
            .push((name.to_owned(), same.into_iter().collect()));
    }
}

/// Warns of a field with values of which each is excluded. Values with several spellings, and GET,
/// which HEAD also is, may match nevertheless.
fn no_value_left(field: &Field, patterns: &[Pattern], at: Spot<'_>) {
    let is_plain = matches!(field, Field::Method | Field::Host | Field::Ip);
    let (excluded, wanted): (Vec<_>, Vec<_>) = patterns.iter().partition(|it| it.negated);
    let is_excluded = |it: &&Pattern| {
        let is_head = *field == Field::Method && it.matches_text(b"GET");
        !is_head && excluded.iter().any(|no| no.covers(it))
    };
    let is_compared = is_plain && patterns.len() <= MAX_COMPARED && !wanted.is_empty();
    if is_compared && wanted.iter().all(is_excluded) {
        let message = format!("no request matches `{field}`: each value is excluded");
        let label = "the values with `!` take out all others";
        warning(codes::NEVER_MATCHES, at, message, label)
            .help("leave out the value with `!`, or add values that it does not exclude");
    }
}

/// Warns of all addresses of IPv4, without any of IPv6.
fn half_of_all(values: &[Text<'_>]) {
    let networks = values.iter().map(|text| text.value.parse().ok());
    let networks: Option<Vec<IpNet>> = networks.collect();
    let is_all = |it: Vec<IpNet>| IpNet::aggregate(&it) == [IpNet::V4(Ipv4Net::default())];
    if let Some(first) = values.first()
        && networks.is_some_and(is_all)
    {
        let message = "ip matches each IPv4 address, and no IPv6 address";
        let label = "leaves IPv6 out";
        warning(codes::FOREIGN_PATTERN, first.at, message, label)
            .help("remove `ip`, or write ip = [\"0.0.0.0/0\", \"::/0\"]");
    }
}

/// Warns of a value that is valid, and reads as if it were written for another program.
fn foreign(name: &str, field: &Field, text: &Text<'_>) {
    let value = text.value.strip_prefix('!').unwrap_or(text.value);
    let (label, help) = match field {
        Field::Path => (
            "`:name`, `<name>` and regular expressions have no meaning here",
            meant::path(value),
        ),
        Field::Header(header) if header == "content-type" && !value.contains(['*', ';']) => (
            "most clients add `; charset=utf-8`, or a boundary",
            Some(format!("write \"{}*\"", shown(value))),
        ),
        Field::Query(_) | Field::Header(_) | Field::Cookie(_) | Field::Attribute(_) => (
            "regular expressions and comparisons have no meaning here",
            meant::value(value),
        ),
        _ => return,
    };
    if let Some(help) = help {
        let message = format!("{name} \"{}\" is read as text", shown(value));
        let help = kept(text.value, &help);
        warning(codes::FOREIGN_PATTERN, text.at, message, label).help(help);
    }
}

/// Returns the help of a value; what it proposes in place of one with `!` has the `!` too.
fn kept(written: &str, help: &str) -> String {
    let sign = if written.starts_with('!') { "!" } else { "" };
    help.replace("write \"", &format!("write \"{sign}"))
}

/// Returns the X of `header.X`, `attr.X`, ...
fn field_name(group: &str, text: &Text<'_>) -> Option<String> {
    if group == "header" {
        return header_name(text);
    }
    if !text.value.is_empty() && text.value.len() <= MAX_FIELD_NAME {
        return Some(text.value.to_owned());
    }
    let message = format!("a name in `{group}` has {} bytes", text.value.len());
    let label = format!("expected 1 to {MAX_FIELD_NAME} bytes");
    error(codes::MATCH_NAME, text.at, message, label)
        .help(format!("write a name, as in {group}.NAME = \"value\""));
    None
}

/// Reads `key`; `None` if it is missing or a part of it is refused.
pub(super) fn key(table: Table<'_>) -> Option<Vec<KeyPart>> {
    let written = table.texts("key");
    if written.is_empty() {
        return None; // reported: not a list, or an empty one
    }
    let mut parts = Vec::with_capacity(written.len());
    let mut whole = true;
    for text in &written {
        match key_part(text) {
            Some(part) if parts.contains(&part) => {} // the same counter
            Some(part) => parts.push(part),
            None => whole = false,
        }
    }
    if parts.len() > 1 && parts.contains(&KeyPart::All) {
        let all = written.iter().find(|text| text.value == "all");
        let at = all.map_or_else(|| table.place("key"), |all| all.at);
        let message = "`all` cannot be combined with other parts of a key";
        let label = "`all` counts all requests together";
        error(codes::KEY_PART, at, message, label)
            .help("write key = [\"all\"] for one counter, or leave \"all\" out");
        return None;
    }
    whole.then_some(parts)
}

/// Reads a key part; `None` if it is refused.
pub(crate) fn key_part(text: &Text<'_>) -> Option<KeyPart> {
    let mut error = match KeyPart::parse(text.value) {
        Ok(part) => return Some(part),
        Err(error) => error,
    };
    if let Some(help) = meant::part(text.value) {
        error.help = help;
    }
    invalid(codes::KEY_PART, text.at, error, "not a key part");
    None
}

/// Reads `missing_key`; `None` if it is not written or cannot be read.
pub(super) fn missing_key(table: Table<'_>) -> Option<MissingKey> {
    let text = table.text("missing_key")?;
    match text.value {
        "skip" => return Some(MissingKey::Skip),
        "deny" => return Some(MissingKey::Deny),
        "shared" => return Some(MissingKey::Shared),
        _ => {}
    }
    if let Some(part) = text.value.strip_prefix("use:") {
        return key_part(&At::new(part, text.at.within(part))).map(MissingKey::Use);
    }
    let word = text.value;
    let help = match text.at.findings.nearest(word, ["skip", "deny", "shared"]) {
        Some(near) => format!("did you mean missing_key = \"{near}\"?"),
        None if KeyPart::parse(word).is_ok() => format!("write missing_key = \"use:{word}\""),
        None => {
            "choose for a request without the key: missing_key = \"deny\" refuses it, \"skip\" \
            lets it pass, \"shared\" counts all of them together, \"use:ip\" counts by another part"
                .into()
        }
    };
    let message = format!("unknown value \"{}\" for `missing_key`", shown(word));
    let label = "expected \"skip\", \"deny\", \"shared\" or \"use:PART\"";
    error(codes::MISSING_KEY, text.at, message, label).help(help);
    None
}

/// Returns true if a name follows the rule for names; reports an error if not.
pub(crate) fn name(text: &Text<'_>, kind: &str) -> bool {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let name = text.value;
    if (1..=MAX_NAME).contains(&name.len()) && name.chars().all(good) {
        return true;
    }
    let mut better = name.to_lowercase().replace(|c| !good(c), "-");
    better.truncate(MAX_NAME);
    let better = match better.trim_matches('-') {
        "" => "per-ip",
        better => better,
    };
    let message = format!("\"{}\" cannot be the name of a {kind}", shown(name));
    let label = format!("expected 1 to {MAX_NAME} lower-case letters, digits or hyphens");
    error(codes::NAME, text.at, message, label).help(format!("write for example \"{better}\""));
    false
}
