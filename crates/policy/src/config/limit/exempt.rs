//! Exempt: `[[exempt]]`, given to the limits it names.

use std::ops::Bound::{Included, Unbounded};
use std::sync::Arc;

use super::descriptors::separate;
use super::draft::{HERE, by_name, unknown_limit};
use super::requests::{requests, takes_all};
use crate::config::{At, Draft, PolicyFiles, Table, ValueError, codes, warning};
use crate::{Exemption, Glob, Matcher};

/// Reads the exemptions, adds each to the limits it names, and returns them.
pub(crate) fn exempt<'a>(
    root: Table<'a>,
    files: &PolicyFiles,
    drafts: &mut [Draft<'_>],
) -> Vec<At<'a, Arc<Exemption>>> {
    let mut all = Vec::new();
    let sorted = by_name(drafts);
    let names = || sorted.keys().map(|name| &**name);
    for table in root.tables("exempt") {
        separate(table);
        let requests = requests(table, files);
        let reason = table.text("reason").map(|reason| reason.value.to_owned());
        let exemption = Arc::new(Exemption {
            matcher: requests.matcher,
            reason: reason.unwrap_or_default(),
        });
        everything(&exemption.matcher, table);
        let globs = table.texts("limits");
        let mut exempted = vec![false; drafts.len()];
        for glob in &globs {
            let compiled = Glob::new(glob.value.as_bytes());
            let mut found = false;
            // Names that begin as the pattern does: most patterns are compared with few of them.
            let head = glob.value.split('*').next().unwrap_or_default();
            let likely = sorted.range::<str, _>((Included(head), Unbounded));
            for (name, index) in likely.take_while(|(name, _)| name.starts_with(head)) {
                if (!found || !exempted[*index]) && compiled.matches(name.as_bytes()) {
                    (found, exempted[*index]) = (true, true);
                }
            }
            if !found && glob.value != "*" {
                let first = names().next().map(|first| {
                    format!(
                        "write the name of a limit, such as \"{first}\", or \"*\" for all of them"
                    )
                });
                let other = first.as_deref().unwrap_or("write \"*\" for all limits");
                unknown_limit(glob, names(), ValueError::new(HERE, other));
            }
        }
        for (draft, _) in drafts.iter_mut().zip(exempted).filter(|(_, it)| *it) {
            if !exemption.for_descriptors() && is_as_wide(&requests.same, draft) {
                let name = &draft.rule.limit.name;
                let message = format!("{table} is as wide as limit `{name}`");
                let label = "the limit has no value in `match` that is not exempt from it";
                warning(codes::EXEMPTS_ALL, table.place("match"), message, label)
                    .related(draft.table.place("match"))
                    .help(format!("leave `{name}` out of `limits`, or match less"));
            }
            draft.rule.exemptions.push(Arc::clone(&exemption));
        }
        all.push(At::new(exemption, table.place("match")));
    }
    all
}

/// Returns true if each value that a limit matches is exempt: in all fields of the exemption.
fn is_as_wide(exempt: &[(String, Vec<String>)], limit: &Draft<'_>) -> bool {
    let is_plain = |value: &&String| !value.starts_with('!');
    let mut covers = exempt.iter().map(|(field, values)| {
        let own = limit.same.iter().filter(|(name, _)| name == field);
        let mut own = own.flat_map(|(_, own)| own).filter(is_plain).peekable();
        let has_all = own.peek().is_some() && own.all(|it| values.binary_search(it).is_ok());
        has_all && values.iter().all(|it| is_plain(&it))
    });
    !exempt.is_empty() && covers.all(|it| it)
}

/// Warns of an exemption that takes every request out.
fn everything(matcher: &Matcher, table: Table<'_>) {
    if takes_all(table, matcher) {
        let message = format!("{table} takes every request out of its limits");
        let at = table.place("match");
        warning(codes::EXEMPTS_ALL, at, message, "matches every request").help(
            "match only the exempt requests, as in match = { path = \"/health\" }; to switch a \
             limit off, write mode = \"off\" in it",
        );
    }
}
