//! Replaces: the limits that are not asked where another applies.
//!
//! ```text
//!   [[limit]]  name = "api"    limit = "100/1m"
//!   [[limit]]  name = "login"  limit = "5/1m"  match = { path = "/login" }  replaces = ["api"]
//!
//!   /search --> api         /login --> login
//! ```

use super::draft::{LimitList, by_name};
use crate::config::{At, Draft, ValueError, codes, first_reason, warning};
use crate::{KeyShare, MissingKey, RuleMode};

const REPLACES: LimitList = LimitList {
    field: "replaces",
    verb: "replace",
    code: codes::REPLACES,
    refused,
};

/// Reads `replaces` of every limit.
pub(crate) fn replaces(drafts: &mut [Draft<'_>]) {
    let names = by_name(drafts);
    let read = |by| REPLACES.read(by, drafts, &names);
    let edges: Vec<_> = drafts.iter().map(read).collect();
    for (by, named) in cyclic(&edges) {
        let replaced = At::new(&*drafts[named.value].rule.limit.name, named.at);
        let why = "it replaces this limit, by itself or by others";
        let help = "leave one of the names out: where all match, no limit would be asked";
        let reason = Some(ValueError::new(why, help));
        REPLACES.unless(&drafts[by], &replaced, reason);
    }
    for (by, named) in edges.iter().enumerate() {
        let indices = named.iter().filter_map(|it| u32::try_from(it.value).ok());
        drafts[by].rule.replaces = indices.collect();
        if drafts[by].rule.mode != RuleMode::Off {
            for other in named {
                drafts[other.value].is_replaced = true;
            }
        }
    }
}

/// Returns why a limit cannot replace another.
fn refused(by: &Draft<'_>, other: &Draft<'_>) -> Option<ValueError> {
    first_reason! {
        by.rule.limit.name == other.rule.limit.name => "it is the limit itself", "name another limit";
        by.rule.is_for_descriptors() != other.rule.is_for_descriptors() =>
            "one of the two is for descriptors, the other for requests",
            "name a limit for the same kind of request";
        other.is_asked() => "it is asked by `otherwise` of another limit only",
            "name the limit that asks it";
        by.is_asked() => "this limit is asked by `otherwise` of another only, and replaces none",
            "write `replaces` in the limit that asks";
    }
}

/// Returns a name on each cycle, with the limit that has it.
fn cyclic<'a>(named: &[Vec<At<'a, usize>>]) -> Vec<(usize, At<'a, usize>)> {
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
            match visits[next.value] {
                Visit::Open => found.push((*by, *next)),
                Visit::Done => {}
                Visit::Never => {
                    visits[next.value] = Visit::Open;
                    path.push((next.value, named[next.value].iter()));
                }
            }
        }
    }
    found
}

/// Warns of limits that are never asked, because another applies to all of their requests.
pub(crate) fn lints(drafts: &[Draft<'_>]) {
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
            warning(codes::ALWAYS_REPLACED, other.quantity_at, message, label)
                .related(by.quantity_at)
                .help(format!(
                    "remove `{name}`, or narrow the `match` of the other"
                ));
        }
    }
}
