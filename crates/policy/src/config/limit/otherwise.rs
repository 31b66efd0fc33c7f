//! Otherwise: the limits that are asked, in order, when a limit denies.
//!
//! ```text
//!   [[limit]]  name = "api"    limit = "1000/day"   otherwise = ["promo"]
//!   [[limit]]  name = "promo"  limit = "500/30d"    asked only by `api`
//! ```

use ratekeeper_core::Denials;

use super::draft::{LimitList, by_name};
use crate::config::{Draft, ValueError, codes, first_reason};
use crate::{Role, Rule};

const OTHERWISE: LimitList = LimitList {
    field: "otherwise",
    verb: "ask",
    code: codes::OTHERWISE,
    refused,
};

/// Reads `otherwise` of every limit.
pub(crate) fn otherwise(drafts: &mut [Draft<'_>]) {
    let names = by_name(drafts);
    let mut allowances = Vec::new();
    for asking in 0..drafts.len() {
        let listed = OTHERWISE.read(&drafts[asking], drafts, &names);
        let indices = listed.iter().filter_map(|it| u32::try_from(it.value).ok());
        drafts[asking].rule.otherwise = indices.collect();
        allowances.extend(listed.into_iter().map(|it| it.value));
    }
    for asked in allowances {
        drafts[asked].rule.role = Role::Allowance;
    }
}

/// Returns why a limit cannot ask another.
fn refused(asking: &Draft<'_>, asked: &Draft<'_>) -> Option<ValueError> {
    let limits = [asking, asked];
    let any = |holds: fn(&Draft<'_>) -> bool| limits.into_iter().any(holds);
    let has = |field| limits.iter().any(|draft| draft.table.has(field));
    first_reason! {
        asking.rule.limit.name == asked.rule.limit.name => "it is the limit itself", "name another limit";
        asked.table.first_of(&["otherwise", "soft", "elastic"]).is_some() =>
            "it asks a limit itself",
            "put all names into one list, in the order in which they are asked";
        has("distinct") || has("priority") =>
            "one of the two counts values, or keeps a part for some requests",
            "leave out `distinct` and `priority` in both limits";
        any(|draft| draft.rule.limit.algorithm.concurrency().is_some()) =>
            "permits on loan have no alternative", "use limits of requests in a period";
        has("queue") => "a limit with a `queue` holds requests back in place of asking another",
            "leave out `queue`";
        any(|draft| draft.denials == Denials::Counted) => "one of the two counts refused requests",
            "write count_denied = false in both limits";
        any(|draft| draft.rule.correction.as_deref().is_some_and(|it| it.reset_on.is_some())) =>
            "a result would begin the key anew in one limit, and leave the other",
            "leave out `reset_on` in both limits";
        !corrected_alike(&asking.rule, &asked.rule) =>
            "reports correct the charges of the two in different ways",
            "write the same `count`, `reserve`, `settle` and `report_within` in both limits";
        any(|draft| draft.rule.limit.algorithm.bans().is_some()) =>
            "one of the two bans keys, and would count refusals that pass",
            "leave out `ban` in both limits";
        asking.rule.is_for_descriptors() != asked.rule.is_for_descriptors() =>
            "one of the two is for descriptors, the other for requests",
            "name a limit for the same kind of request";
        asking.rule.limit.outage != asked.rule.limit.outage =>
            "the two have another `on_store_error`: that of a balance is \"deny\", of others \"local\"",
            "write on_store_error = \"deny\" in both limits";
        asking.rule.mode != asked.rule.mode && asked.table.has("mode") && !asked.is_off() =>
            "its `mode` is another", "leave out `mode` there: the limit that asks decides";
    }
}

/// Returns true if a report corrects the charge of either limit in the same way.
fn corrected_alike(asking: &Rule, asked: &Rule) -> bool {
    match [asking, asked].map(|rule| rule.correction.as_deref()) {
        [Some(one), Some(other)] => one.agrees_with(other),
        [one, other] => one.is_none() && other.is_none(),
    }
}

/// Returns the rules of the drafts, with their extras and candidates behind them.
pub(crate) fn rules(drafts: Vec<Draft<'_>>) -> Vec<Rule> {
    let mut rules = Vec::with_capacity(drafts.len());
    let mut extras = Vec::new();
    let count = drafts.len();
    for mut draft in drafts {
        let mut add = |rule| {
            let index = u32::try_from(count + extras.len()).unwrap_or(u32::MAX);
            extras.push(rule);
            index
        };
        if let Some(extra) = draft.extra.take() {
            let is_seen = matches!(extra.rule.role, Role::Seen);
            let index = add(extra.rule);
            if is_seen {
                draft.rule.distinct = Some(index);
            } else {
                draft.rule.otherwise.insert(0, index);
            }
        }
        draft.rule.candidate = draft.candidate.take().map(|rule| add(*rule));
        rules.push(draft.rule);
    }
    rules.extend(extras);
    rules
}
