//! Mismatch: messages about a value that has the type of its field, but is none of its values.

use std::ops::Range;

use super::complaint::{Here, written};
use super::other_words;
use super::read::SpannedValue;
use super::scalar::Scalar;
use super::shape::quoted;
use crate::config::diagnostic::grouped;
use crate::config::{Findings, codes, shown};

impl Findings<'_> {
    /// Reports a text that is no value of its kind; says nothing of one that is.
    pub(super) fn not_scalar(
        &mut self,
        scalar: Scalar,
        text: &str,
        at: Range<usize>,
        here: Here<'_>,
    ) {
        if scalar.accepts(text) {
            return;
        }
        let Here { place, field, .. } = here;
        let message = match scalar {
            Scalar::Secret => format!("`{field}` of {place} must name the source of the secret"),
            _ => format!("\"{}\" is not a valid `{field}` of {place}", shown(text)),
        };
        let mismatch = scalar.mismatch(text, here.example);
        let help = match mismatch.meant {
            Some(meant) => format!("write {field} = \"{meant}\""),
            None => here.usual(),
        };
        self.error(scalar.code(), at, message, mismatch.label)
            .help(help);
    }

    pub(super) fn not_factor(&mut self, node: &SpannedValue<'_>, most: u64, here: Here<'_>) {
        let Here { place, field, .. } = here;
        let message = format!("`{field}` of {place} is out of range");
        let label = format!("expected a number from 1 to {most}, with at most three decimals");
        self.error(codes::OUT_OF_RANGE, node.span(), message, label)
            .help(here.usual());
    }

    pub(super) fn out_of_range(
        &mut self,
        node: &SpannedValue<'_>,
        least: u64,
        most: u64,
        here: Here<'_>,
    ) {
        let Here { place, field, .. } = here;
        if field == "version" {
            let version = written(node).unwrap_or_default();
            let message = format!("version {version} of the language is not known");
            let label = "this ratekeeper reads version 1";
            self.error(codes::VERSION, node.span(), message, label)
                .help("write version = 1, or use a newer ratekeeper");
            return;
        }
        let message = format!("`{field}` of {place} is out of range");
        let label = format!("must be {} to {}", grouped(least), grouped(most));
        // -1 is no limit in other programs, and 0 no request.
        let or = match written(node).as_deref() {
            Some("-1") if has_words(field) => ", or \"unlimited\"",
            Some("0") if has_words(field) => ", or \"blocked\"",
            _ => "",
        };
        self.error(codes::OUT_OF_RANGE, node.span(), message, label)
            .help(here.usual() + or);
    }

    pub(super) fn word(
        &mut self,
        text: &str,
        at: Range<usize>,
        words: &'static [&'static str],
        here: Here<'_>,
    ) {
        if words.contains(&text) {
            return;
        }
        let Here { place, field, .. } = here;
        let other = || match field {
            "body" => {
                let quote = if text.contains('"') { '\'' } else { '"' };
                let text = shown(text);
                format!("write a text as text: body = {{ text = {quote}{text}{quote} }}")
            }
            _ => format!("write for example {field} = \"{}\"", words[0]),
        };
        let near = || self.meant(text, words.iter().copied(), &format!("{field} = "), other);
        let help = other_words::value(field, text).map_or_else(near, str::to_owned);
        let message = format!("unknown value \"{}\" for `{field}` of {place}", shown(text));
        let label = format!("expected one of {}", quoted(words));
        self.error(codes::UNKNOWN_WORD, at, message, label)
            .help(help);
    }
}

/// Returns true for a field with numbers of a limit, which may also be words.
fn has_words(field: &str) -> bool {
    field == "set" || field.starts_with("plans.")
}
