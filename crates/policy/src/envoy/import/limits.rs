//! Limits: native limits on descriptors, under construction.

use std::collections::HashSet;
use std::fmt::Write as _;

use super::Imported;
use crate::config::{Context, parse};

/// Maximum number of characters of a limit's name.
const MAX_NAME: usize = 40;

/// A limit to be written.
#[derive(Clone, Debug, Default)]
pub(super) struct ImportedLimit {
    /// Name in the other service.
    pub(super) called: String,
    pub(super) domain: String,
    /// Entry and its values, `!` before excluded ones.
    pub(super) matches: Vec<(String, Vec<String>)>,
    /// Entries that are counted by value.
    pub(super) key: Vec<String>,
    /// `5/1m`
    pub(super) quota: String,
    /// `fixed`
    pub(super) algorithm: &'static str,
    /// Further lines, as `mode = "shadow"`.
    pub(super) more: Vec<&'static str>,
    /// Features of the limit that are lost.
    pub(super) lost: Vec<String>,
}

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
    pub(super) fn limit(&mut self, draft: &ImportedLimit) {
        let name = self.name(&draft.called);
        let body = body(&name, draft);
        self.imported.text.push('\n');
        for lost in &draft.lost {
            self.unsupported(&format!("{}: {lost}", draft.called));
        }
        let refused = parse(&format!("version = 1\n{body}"), Context::default()).err();
        if let Some(finding) = refused.as_deref().and_then(<[_]>::first) {
            let why = &finding.message;
            self.unsupported(&format!("{}: not imported: {why}", draft.called));
            for line in body.lines() {
                self.comment(line);
            }
            return;
        }
        self.names.insert(name);
        self.imported.text.push_str(&body);
        self.imported.limits += 1;
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
        let mut slug = String::new();
        for c in called.chars().map(|c| c.to_ascii_lowercase()) {
            if c.is_ascii_lowercase() || c.is_ascii_digit() {
                slug.push(c);
            } else if !slug.ends_with('-') && !slug.is_empty() {
                slug.push('-');
            }
        }
        slug.truncate(MAX_NAME);
        let slug = slug.trim_end_matches('-');
        let slug = if slug.is_empty() { "limit" } else { slug };
        let mut name = slug.to_owned();
        let mut number = 2_u32;
        while self.names.contains(&name) {
            let end = format!("-{number}");
            let kept = slug.len().min(MAX_NAME - end.len());
            name = format!("{}{end}", slug[..kept].trim_end_matches('-'));
            number += 1;
        }
        name
    }
}

fn body(name: &str, draft: &ImportedLimit) -> String {
    let mut text = String::from("[[limit]]\n");
    let mut line = |name: &str, value: String| {
        writeln!(text, "{name} = {value}").expect("writing to a string does not fail");
    };
    line("name", quoted(name));
    let mut matches = vec![format!("domain = {}", quoted(&draft.domain))];
    for (entry, values) in &draft.matches {
        matches.push(format!("descriptor.{} = {}", quoted(entry), listed(values)));
    }
    line("match", format!("{{ {} }}", matches.join(", ")));
    let parts = draft.key.iter().map(|entry| format!("descriptor:{entry}"));
    let mut parts: Vec<_> = parts.collect();
    if parts.is_empty() {
        parts.push("all".to_owned());
    }
    let parts: Vec<_> = parts.iter().map(|part| quoted(part)).collect();
    line("key", format!("[{}]", parts.join(", ")));
    line("limit", quoted(&draft.quota));
    line("algorithm", quoted(draft.algorithm));
    for more in &draft.more {
        text.push_str(more);
        text.push('\n');
    }
    text
}

fn listed(values: &[String]) -> String {
    match values {
        [one] => quoted(one),
        several => {
            let each: Vec<_> = several.iter().map(|value| quoted(value)).collect();
            format!("[{}]", each.join(", "))
        }
    }
}

/// Formats a text as a TOML string.
fn quoted(text: &str) -> String {
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

/// Returns the name of the entry of that key on this way: the second `a` is `a#2`.
pub(super) fn entry_name(key: &str, before: &[String]) -> String {
    let named = |number: usize| match number {
        1 => key.to_owned(),
        number => format!("{key}#{number}"),
    };
    let mut number = 1;
    while before.contains(&named(number)) {
        number += 1;
    }
    named(number)
}
