//! Limits: native limits under construction, and the text that they are written to.

use std::collections::HashSet;

use super::Imported;
use crate::config::{Context, parse};

/// Maximum number of characters of a limit's name.
const MAX_NAME: usize = 40;

/// Time after which the permit of a request in flight comes back in any case.
pub(super) const LEASE: &str = "24h";
/// A limit beside which other tables are tried.
const PROBE: &str = "[[limit]]\nname = \"probe\"\nkey = [\"all\"]\nlimit = \"1/1s\"\n";

/// A limit to be written.
#[derive(Clone, Debug, Default)]
pub(super) struct ImportedLimit {
    /// Name in the other service.
    pub(super) called: String,
    /// Fields of `match` as they are written, and their values, `!` before excluded ones.
    pub(super) matches: Matches,
    /// Key parts; empty for `all`.
    pub(super) key: Vec<String>,
    /// Further lines, as `limit = "5/1m"`.
    pub(super) lines: Vec<String>,
    /// Features of the limit that are lost.
    pub(super) lost: Vec<String>,
}

/// Fields of a `match`, and their values.
pub(super) type Matches = Vec<(String, Vec<String>)>;

/// Writes limits one after the other.
#[derive(Debug, Default)]
pub(super) struct Writer {
    imported: Imported,
    names: HashSet<String>,
}

impl Writer {
    pub(super) fn new(heading: &str) -> Self {
        let mut writer = Self::default();
        for line in heading.lines() {
            writer.comment(line);
        }
        writer.imported.text.push_str("\nversion = 1\n");
        writer
    }

    /// Writes a limit, and its lost features; writes it as a comment if the language refuses it.
    /// Returns its name if it was written.
    pub(super) fn limit(&mut self, draft: &ImportedLimit) -> Option<String> {
        let name = self.name(&draft.called);
        let body = body(&name, draft);
        self.imported.text.push('\n');
        for lost in &draft.lost {
            self.unsupported(&format!("{}: {lost}", draft.called));
        }
        if !self.accepts(&draft.called, "", &body) {
            return None;
        }
        self.imported.text.push_str(&body);
        self.imported.limits += 1;
        self.names.insert(name.clone());
        Some(name)
    }

    /// Writes an exemption of limits that were written before.
    pub(super) fn exempt(&mut self, names: &[String], matches: &Matches, reason: &str) {
        let body = format!(
            "[[exempt]]\nlimits = {}\nmatch = {}\nreason = {}\n",
            list(names),
            match_table(matches),
            quoted(reason)
        );
        let probed = body.replacen(&list(names), "[\"probe\"]", 1);
        self.imported.text.push('\n');
        if self.accepts(reason, PROBE, &probed) {
            self.imported.text.push_str(&body);
        }
    }

    /// Writes a table of the policy if the language accepts it behind those `before`, to which it
    /// is added.
    pub(super) fn table(&mut self, called: &str, before: &mut String, body: &str) {
        self.imported.text.push('\n');
        if self.accepts(called, &format!("{PROBE}{before}"), body) {
            self.imported.text.push_str(body);
            before.push_str(body);
        }
    }

    /// Returns true if the language accepts a table; else writes it as a comment, with the reason.
    fn accepts(&mut self, called: &str, before: &str, body: &str) -> bool {
        let text = format!("version = 1\ntimezone = \"UTC\"\n{before}{body}");
        let refused = parse(&text, Context::default()).err();
        let Some(finding) = refused.as_deref().and_then(<[_]>::first) else {
            return true;
        };
        let why = &finding.message;
        self.unsupported(&format!("{called}: not imported: {why}"));
        for line in body.lines() {
            self.comment(line);
        }
        false
    }

    /// Notes a feature that the policy does not express.
    pub(super) fn unsupported(&mut self, line: &str) {
        self.comment(&format!("UNSUPPORTED {line}"));
        self.imported.unsupported.push(visible(line));
    }

    pub(super) fn finish(self) -> Imported {
        self.imported
    }

    fn comment(&mut self, line: &str) {
        let line = visible(line);
        let comment = format!("# {line}");
        self.imported.text.push_str(comment.trim_end());
        self.imported.text.push('\n');
    }

    /// Returns a free name, made from the original name of the limit.
    fn name(&self, called: &str) -> String {
        let mut name = slug(called, "");
        let mut number = 2_u32;
        while self.names.contains(&name) {
            name = slug(called, &format!("-{number}"));
            number += 1;
        }
        name
    }
}

/// Returns a name in the characters of names with this end, made from another one.
pub(super) fn slug(called: &str, end: &str) -> String {
    let mut slug = String::new();
    for c in called.chars().map(|c| c.to_ascii_lowercase()) {
        if c.is_ascii_lowercase() || c.is_ascii_digit() {
            slug.push(c);
        } else if !slug.ends_with('-') && !slug.is_empty() {
            slug.push('-');
        }
    }
    slug.truncate(MAX_NAME - end.len());
    let slug = slug.trim_end_matches('-');
    let slug = if slug.is_empty() { "limit" } else { slug };
    format!("{slug}{end}")
}

fn body(name: &str, draft: &ImportedLimit) -> String {
    let mut lines = vec!["[[limit]]".to_owned(), format!("name = {}", quoted(name))];
    if !draft.matches.is_empty() {
        lines.push(format!("match = {}", match_table(&draft.matches)));
    }
    let all = ["all".to_owned()];
    let key = Some(&draft.key[..]).filter(|key| !key.is_empty());
    lines.push(format!("key = {}", list(key.unwrap_or(&all))));
    lines.extend(draft.lines.iter().cloned());
    lines.join("\n") + "\n"
}

pub(super) fn match_table(matches: &Matches) -> String {
    let fields = matches.iter().map(|(field, values)| match &values[..] {
        [one] => format!("{field} = {}", quoted(one)),
        several => format!("{field} = {}", list(several)),
    });
    format!("{{ {} }}", fields.collect::<Vec<_>>().join(", "))
}

/// Formats values as a list.
pub(super) fn list(values: &[String]) -> String {
    let each: Vec<_> = values.iter().map(|value| quoted(value)).collect();
    format!("[{}]", each.join(", "))
}

/// Formats a text as a TOML string.
pub(super) fn quoted(text: &str) -> String {
    // JSON escapes the characters that TOML requires, but for one control character.
    let json = serde_json::Value::from(text).to_string();
    json.replace('\u{7f}', "\\u007f")
}

/// Formats a line of a comment, where TOML allows no control characters.
fn visible(line: &str) -> String {
    let shown = |c: char| {
        if c.is_control() {
            c.escape_default().to_string()
        } else {
            c.to_string()
        }
    };
    line.chars().map(shown).collect()
}
