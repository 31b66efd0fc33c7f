//! Replaces: the limits that are not asked where another applies.
//!
//! ```text
//!   [[limit]]  name = "api"    limit = "100/1m"
//!   [[limit]]  name = "login"  limit = "5/1m"  match = { path = "/login" }  replaces = ["api"]
//!
//!   /search --> api         /login --> login
//! ```

use std::ops::Range;

use super::draft::{Draft, by_name, unknown_limit};
use super::otherwise::{ANOTHER, NAMED_TWICE};
use crate::config::codes;
use crate::config::diagnostic::{Findings, shown};
use crate::{KeyShare, MissingKey, Role, RuleMode};

/// A limit that another names, and where it names it.
struct Named {
    draft: usize,
    at: Range<usize>,
}

/// Reads `replaces` of every limit.
pub(in crate::config) fn replaces(drafts: &mut [Draft<'_>], out: &mut Findings<'_>) {
    let names = by_name(drafts);
    let mut edges: Vec<Vec<Named>> = Vec::new();
    for by in drafts.iter() {
        let mut listed: Vec<Named> = Vec::new();
        for text in by.table.texts("replaces") {
            let Some(&draft) = names.get(text.value) else {
                unknown_limit(&text, names.keys().map(|it| &**it), ANOTHER, out);
                continue;
            };
            let why = if listed.iter().any(|named| named.draft == draft) {
                Some(NAMED_TWICE)
            } else {
                refused(by, &drafts[draft])
            };
            match why {
                Some((label, help)) => refuse(by, text.value, text.at, label, help, out),
                None => listed.push(Named { draft, at: text.at }),
            }
        }
        edges.push(listed);
    }
    for (by, named) in cyclic(&edges) {
        let replaced = drafts[named.draft].rule.limit.name.to_string();
        let label = "it replaces this limit, by itself or by others";
        let help = "leave one of the names out: where all match, no limit would be asked";
        refuse(&drafts[by], &replaced, named.at.clone(), label, help, out);
    }
    for (by, named) in edges.iter().enumerate() {
        let indices = named.iter().filter_map(|it| u32::try_from(it.draft).ok());
        drafts[by].rule.replaces = indices.collect();
        if drafts[by].rule.mode != RuleMode::Off {
            for other in named {
                drafts[other.draft].is_replaced = true;
            }
        }
    }
}

fn refuse(
    by: &Draft<'_>,
    name: &str,
    at: Range<usize>,
    label: &str,
    help: &str,
    out: &mut Findings<'_>,
) {
    let by = &by.rule.limit.name;
    let message = format!("limit `{by}` cannot replace `{}`", shown(name));
    out.error(codes::REPLACES, at, message, label).help(help);
}

/// Returns why a limit cannot replace another, and what to write instead.
fn refused(by: &Draft<'_>, other: &Draft<'_>) -> Option<(&'static str, &'static str)> {
    if by.index == other.index {
        return Some(("it is the limit itself", "name another limit"));
    }
    if by.rule.is_for_descriptors() != other.rule.is_for_descriptors() {
        return Some((
            "one of the two is for descriptors, the other for requests",
            "name a limit for the same kind of request",
        ));
    }
    let is_allowance = |draft: &Draft<'_>| matches!(draft.rule.role, Role::Allowance);
    if is_allowance(other) {
        return Some((
            "it is asked by `otherwise` of another limit only",
            "name the limit that asks it",
        ));
    }
    is_allowance(by).then_some((
        "this limit is asked by `otherwise` of another only, and replaces none",
        "write `replaces` in the limit that asks",
    ))
}

/// Returns a name on each cycle, with the limit that has it.
fn cyclic(named: &[Vec<Named>]) -> Vec<(usize, &Named)> {
    #[derive(Clone, Copy, PartialEq)]
    enum Visit {
        Never,
        Open,
        Done,
    }
    let mut visits = vec![Visit::Never; named.len()];
    let mut found = Vec::new();
    for start in 0..named.len() {
        let mut path = Vec::new();
        if visits[start] == Visit::Never {
            visits[start] = Visit::Open;
            path.push((start, named[start].iter()));
        }
        while let Some((by, rest)) = path.last_mut() {
            let Some(next) = rest.next() else {
                visits[*by] = Visit::Done;
                path.pop();
                continue;
            };
            match visits[next.draft] {
                Visit::Open => found.push((*by, next)),
                Visit::Done => {}
                Visit::Never => {
                    visits[next.draft] = Visit::Open;
                    path.push((next.draft, named[next.draft].iter()));
                }
            }
        }
    }
    found
}

/// Warns of limits that are never asked, because another applies to all of their requests.
pub(in crate::config) fn lints(drafts: &[Draft<'_>], out: &mut Findings<'_>) {
    for by in drafts {
        let rule = &by.rule;
        let skips = rule.missing_key == MissingKey::Skip && !rule.key.is_empty();
        let always = rule.mode == RuleMode::Enforce
            && rule.percent.is_none_or(KeyShare::is_whole)
            && rule.active.is_none()
            && rule.exemptions.is_empty()
            && !skips;
        let replaced = rule.replaces.iter().filter(|_| always);
        let replaced = replaced.filter_map(|index| drafts.get(*index as usize));
        for other in replaced.filter(|other| by.same.is_empty() || by.same == other.same) {
            let name = &other.rule.limit.name;
            let message = format!("limit `{name}` is never asked");
            let label = format!("`{}` replaces it for all of its requests", rule.limit.name);
            let at = other.places.quantity.clone();
            let found = out.warning(codes::ALWAYS_REPLACED, at, message, label);
            found.related(by.places.quantity.clone()).help(format!(
                "remove `{name}`, or narrow the `match` of the other"
            ));
        }
    }
}
