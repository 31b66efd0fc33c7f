//! Correction: reads `count`, `reset_on` and `report_within`, and checks that the limit can be
//! corrected.

use ratekeeper_core::{Algorithm as _, AnyAlgorithm, Call, Nanos, Outage};

use crate::config::quantity::quantity_at;
use crate::config::{
    At, Node, Quantity, Spot, Table, codes, error, first_reason, refuse, shown, whole,
};
use crate::{Correction, CostSource, ResultSet};

/// Time within which a report corrects a charge, unless the limit sets another.
const DEFAULT_WITHIN: Nanos = Nanos::from_secs(120);

/// Reads how reports correct the charges of a limit, if they do and it can be corrected.
/// `settle` is the place of the actual cost in the response, where the cost is an estimate.
pub(super) fn correction(
    table: Table<'_>,
    settle: Option<CostSource>,
    quantity: &Quantity,
) -> Option<Correction> {
    let count = results(table, "count");
    let reset_on = results(table, "reset_on");
    let within = within(table);
    let estimate = table.table("cost").map(Table::at);
    let fields = [
        ("count", count.as_ref().map(|count| count.at)),
        ("reserve", estimate),
        ("reset_on", reset_on.as_ref().map(|reset| reset.at)),
    ];
    let first = fields.into_iter().find_map(|(name, at)| Some((name, at?)));
    let Some((first, at)) = first else {
        if let Some(within) = within {
            let message = format!("`report_within` of {table} has no effect");
            let label = "no report corrects the charges of this limit";
            error(codes::REPORT, within.at, message, label)
                .help("add for example count = { status = [401, 403] }, or leave it out");
        }
        return None;
    };
    if let Some(scope) = table.text("scope").filter(|scope| scope.value == "node") {
        let message = format!("`{first}` of {table} cannot be combined with scope = \"node\"");
        let label = "a report may reach a process that did not charge the request";
        error(codes::NOT_CORRECTABLE, scope.at, message, label)
            .related(at)
            .help("leave one of them out");
    }
    can_be_corrected(table, first, at, quantity);
    let is_estimate = estimate.is_some();
    if let Some(at) = estimate.filter(|_| quantity.algorithm.bans().is_some()) {
        let message = format!("`reserve` of {table} cannot be combined with `ban`");
        let label = "a cost that is owed while the key is banned would be lost";
        error(codes::NOT_CORRECTABLE, at, message, label)
            .help("leave one of them out, or add a second limit with the ban");
    }
    if let (Some(count), Some(reset_on)) = (&count, &reset_on)
        && let Some(both) = count.value.shared_with(&reset_on.value)
    {
        let message = format!("{both} is both in `count` and in `reset_on` of {table}");
        let label = "resets the count, and cannot be counted as well";
        error(codes::REPORT, reset_on.at, message, label)
            .related(count.at)
            .help("remove it from one of them");
    }
    let within = within.map_or(DEFAULT_WITHIN, |within| within.value);
    let within = Nanos::from_millis(within.as_millis_ceil()); // as ids write it
    Some(Correction {
        count: count.map(|count| count.value),
        reset_on: reset_on.map(|reset_on| reset_on.value),
        is_estimate,
        settle,
        ..Correction::new(within).ok()? // within the bounds of a window
    })
}

/// Returns `report_within`, or `expire` of `cost`.
fn within<'a>(table: Table<'a>) -> Option<At<'a, Nanos>> {
    let read = |table: Table<'a>, field| Some(At::new(table.span(field)?, table.place(field)));
    let within = read(table, "report_within");
    let expire = table.table("cost").and_then(|cost| read(cost, "expire"));
    if let (Some(within), Some(expire)) = (&within, &expire) {
        let message = format!("{table} has both `expire` and `report_within`");
        let label = "the same as `report_within`";
        error(codes::REPORT, expire.at, message, label)
            .related(within.at)
            .help("leave one of them out");
    }
    within.or(expire)
}

/// Returns the algorithm of a limit with corrections: actual costs above an estimate are owed,
/// however long that takes.
pub(crate) fn owing(algorithm: AnyAlgorithm, correction: Option<&Correction>) -> AnyAlgorithm {
    match correction {
        Some(correction) if correction.is_estimate => algorithm.with_patience(Nanos::MAX),
        _ => algorithm,
    }
}

/// Reports a limit whose charges may not have been made when a report gives them back.
pub(super) fn is_counted(table: Table<'_>, outage: Outage) {
    if outage != Outage::Allow {
        return;
    }
    let fields = ["on_store_error", "count", "reset_on", "cost"];
    let at = table.place(table.first_of(&fields).unwrap_or("on_store_error"));
    let message = format!("reports of {table} cannot be combined with on_store_error = \"allow\"");
    let label = "a request that passed uncounted has nothing to give back";
    error(codes::NOT_CORRECTABLE, at, message, label)
        .help("write on_store_error = \"local\" in this limit");
}

/// Reports limits that cannot give back: permits on loan, and algorithms without refunds.
fn can_be_corrected(table: Table<'_>, field: &str, at: Spot<'_>, quantity: &Quantity) {
    let algorithm = &quantity.algorithm;
    let gives_back = field == "reset_on" || algorithm.supports(Call::Refund).is_ok();
    let reason = first_reason! {
        algorithm.concurrency().is_some() =>
            "permits come back by POST /v1/release, not by a report",
            format!(
                "leave `{field}` out, or write bucket = {{ size = 10, refill = \"10/1h\" }} in \
                 place of `concurrency`"
            );
        !gives_back => format!("{} limits cannot give a charge back", algorithm.name()),
            "write algorithm = \"token-bucket\", \"fixed-window\", \"sliding-window-counter\" or \
             \"sliding-window-log\"";
    };
    if let Some(reason) = reason {
        let message = format!("`{field}` of {table} cannot be combined with its limit");
        refuse(codes::NOT_CORRECTABLE, at, message, reason).related(quantity_at(table));
    }
}

/// Reads `{ status, outcome }`; wrong values are reported.
fn results<'a>(table: Table<'a>, field: &str) -> Option<At<'a, ResultSet>> {
    let table = table.table(field)?;
    let at = table.at();
    let mut set = ResultSet::default();
    for node in table.values("status") {
        set.statuses.extend(status(node, field));
    }
    let outcomes = table.texts("outcome").into_iter();
    set.outcomes
        .extend(outcomes.map(|outcome| outcome.value.into()));
    if table.is_empty() {
        let label = "needs `status`, `outcome` or both";
        let message = format!("`{field}` names no result");
        error(codes::REPORT, at, message, label).help(format!(
            "write for example {field} = {{ status = [401, 403] }}"
        ));
    }
    Some(At::new(set, at))
}

/// Reads `401`, or `"4xx"`.
fn status(node: Node<'_>, field: &str) -> Option<(u16, u16)> {
    let Some(text) = node.value.as_str() else {
        let status = u16::try_from(whole(node.value)?).ok()?;
        return Some((status, status));
    };
    if let [digit @ b'1'..=b'5', b'x', b'x'] = text.as_bytes() {
        let hundreds = u16::from(digit - b'0') * 100;
        return Some((hundreds, hundreds + 99));
    }
    let message = format!("\"{}\" is not a valid status of `{field}`", shown(text));
    let label = "expected a number from 100 to 599, or a class such as \"4xx\"";
    let help = match text.trim().parse::<u16>() {
        Ok(number) => format!("write it without quotes: {number}"),
        Err(_) => "write for example 401, or \"4xx\"".to_owned(),
    };
    error(codes::REPORT, node.at, message, label).help(help);
    None
}
