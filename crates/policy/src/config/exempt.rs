//! Exempt: `[[exempt]]`, given to the limits it names.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use toml::de::DeTable;

use super::codes;
use super::descriptors::separate;
use super::diagnostic::{Findings, shown};
use super::fields::MAX_EXEMPTIONS;
use super::limit::Draft;
use super::read::{self, At};
use super::requests::requests;
use crate::{Exemption, Field, Matcher, Pattern};

/// Reads the exemptions and adds each to the limits it names.
pub(super) fn exempt(
    root: &DeTable<'_>,
    names: &HashMap<&str, Range<usize>>,
    drafts: &mut [Draft],
    out: &mut Findings<'_>,
) {
    for (index, table) in read::tables(root, "exempt", MAX_EXEMPTIONS) {
        separate(table.value, &format!("exempt {}", index + 1), out);
        let requests = requests(table.value, out);
        let reason = read::text(table.value, "reason").map(|reason| reason.value.to_owned());
        let exemption = Arc::new(Exemption {
            matcher: requests.matcher,
            reason: reason.unwrap_or_default(),
        });
        everything(&exemption.matcher, index, &table, out);
        let globs = table
            .value
            .get("limits")
            .map(read::texts)
            .unwrap_or_default();
        for glob in &globs {
            known(glob, names, out);
        }
        let applies = |draft: &&mut Draft| {
            let name = &draft.rule.limit.name;
            globs.iter().any(|glob| matches(glob.value, name))
        };
        for draft in drafts.iter_mut().filter(applies) {
            draft.rule.exemptions.push(Arc::clone(&exemption));
        }
    }
}

/// Warns of an exemption that takes every request out.
fn everything(matcher: &Matcher, index: usize, table: &At<&DeTable<'_>>, out: &mut Findings<'_>) {
    let all = |(field, patterns): &(Field, Vec<Pattern>)| {
        let one = |pattern: &Pattern| match field {
            Field::Path => pattern.text() == "/**",
            Field::Method | Field::Host => pattern.text() == "*",
            Field::Ip => pattern.text().ends_with("/0"),
            _ => false,
        };
        patterns.iter().all(|pattern| !pattern.negated) && patterns.iter().any(one)
    };
    if matcher.fields.is_empty() || !matcher.fields.iter().all(all) {
        return;
    }
    let at = table
        .value
        .get("match")
        .map_or(table.at.clone(), toml::Spanned::span);
    let message = format!("exempt {} takes every request out of its limits", index + 1);
    out.warning(codes::EXEMPTS_ALL, at, message, "matches every request")
        .help(
            "match what is exempt, as in match = { path = \"/health\" }; to switch a limit off, \
             write mode = \"off\" in it",
        );
}

/// Reports a name that no limit has.
fn known(glob: &At<&str>, names: &HashMap<&str, Range<usize>>, out: &mut Findings<'_>) {
    let found = if glob.value.contains('*') {
        names.keys().any(|name| matches(glob.value, name)) || glob.value == "*"
    } else {
        names.contains_key(glob.value)
    };
    if found || !out.is_whole() {
        return;
    }
    let mut sorted: Vec<_> = names.keys().copied().collect();
    if !out.is_full() {
        sorted.sort_unstable(); // the same help for the same file
    }
    let help = match (
        out.nearest(glob.value, sorted.iter().copied()),
        sorted.first(),
    ) {
        (Some(near), _) => format!("did you mean \"{near}\"?"),
        (None, Some(first)) => {
            format!("write the name of a limit, such as \"{first}\", or \"*\" for all of them")
        }
        (None, None) => "write \"*\" for all limits".into(),
    };
    let message = format!("no limit is called `{}`", shown(glob.value));
    out.error(
        codes::UNKNOWN_LIMIT,
        glob.at.clone(),
        message,
        "not found in this file",
    )
    .help(help);
}

/// Whether `name` fits `glob`, where `*` stands for any characters.
///
/// Between two stars the first place that fits is taken: a later one could not fit more.
fn matches(glob: &str, name: &str) -> bool {
    let Some((head, rest)) = glob.split_once('*') else {
        return glob == name;
    };
    let Some(mut name) = name.strip_prefix(head) else {
        return false;
    };
    let (middle, tail) = rest.rsplit_once('*').unwrap_or(("", rest));
    for part in middle.split('*') {
        let Some(at) = name.find(part) else {
            return false;
        };
        name = &name[at + part.len()..];
    }
    name.len() >= tail.len() && name.ends_with(tail)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (glob, name, fits) in [
            ("*", "login", true),
            ("api-*", "api-minute", true),
            ("api-*", "api-", true),
            ("api-*", "login", false),
            ("*-minute", "api-minute", true),
            ("a*i*e", "api-minute", true),
            ("a*a", "a", false),
            ("a**a", "aa", true),
            ("login", "login", true),
            ("login", "login-2", false),
            ("*b*b*", "abb", true),
            ("*b*b*", "ab", false),
        ] {
            assert_eq!(matches(glob, name), fits, "{glob} {name}");
        }
    }
}
