//! Report: the result of a request that was charged when it was judged.
//!
//! Like a permit, a decision id is all that its holder needs: it names the charges, cannot be
//! guessed or forged, and works once, at any node that shares the store.

use bytes::Bytes;
use http::StatusCode;
use ratekeeper::{DecisionId, Report, Reported};
use ratekeeper_policy::Policy;

use super::CallResult;
use super::check::store_down;
use super::json;
use super::problem::{NOT_OPEN, Problem, UNKNOWN_LIMIT, WRONG_VALUE, near_spelling, shown};
use super::request::{self, ReportBody};
use crate::context::ServiceContext;
use crate::observe::metrics::ReportResult;

/// `POST /v1/report`
pub(super) async fn report(shared: &ServiceContext, body: Bytes) -> CallResult {
    let read = request::report(&body)?;
    let report = result(&read)?;
    knows_costs(&read.decision, &report, &shared.keeper.look_at_policy())?;
    let reported = shared.keeper.report(&read.decision, &report).await;
    shared.observers.metrics.report(match &reported {
        Ok(Reported::Corrected) => ReportResult::Corrected,
        Ok(Reported::Repeated) => ReportResult::Repeated,
        Ok(Reported::NotOpen) => ReportResult::NotOpen,
        Err(_) => ReportResult::Error,
    });
    match reported.map_err(store_down(shared))? {
        Reported::Corrected => Ok(json(StatusCode::OK, r#"{"done":"corrected"}"#)),
        Reported::Repeated => Ok(json(StatusCode::OK, r#"{"done":"repeated"}"#)),
        Reported::NotOpen => {
            let detail = "its time for a report is over (`report_within` of the limit), or these \
                counters have no record of it; its charges stay";
            Err(Problem::new(NOT_OPEN, detail))
        }
    }
}

/// Returns the result that the body states.
fn result(body: &ReportBody<'_>) -> Result<Report, Problem> {
    let mut report = Report::default();
    if let Some(status) = body.status {
        report = report.status(status);
    }
    if let Some(outcome) = body.outcome.as_deref() {
        report = report.outcome(outcome);
    }
    if let Some(cost) = body.cost {
        report = report.cost(cost.get());
    }
    for (limit, cost) in &body.costs {
        report = report.cost_of(limit, cost.get());
    }
    if report.is_empty() {
        let detail = "the report says nothing; send `status`, `outcome`, `cost` or `costs`";
        return Err(Problem::new(WRONG_VALUE, detail));
    }
    Ok(report)
}

/// Refuses costs that no limit of the decision takes.
fn knows_costs(id: &DecisionId, report: &Report, policy: &Policy) -> Result<(), Problem> {
    let reserves = |name: &str| {
        let correction = policy
            .rule(name)
            .and_then(|rule| rule.correction.as_deref());
        correction.is_some_and(|correction| correction.is_estimate)
    };
    let mut takers = id.limits().filter(|name| reserves(name)).peekable();
    if report.has_cost() && takers.peek().is_none() {
        let detail = "`cost`: no limit of this decision charged an estimate, with `reserve` in its \
            `cost`";
        return Err(Problem::new(WRONG_VALUE, detail));
    }
    let takers: Vec<_> = takers.collect();
    for name in report.limits() {
        if !takers.contains(&name) {
            let near = near_spelling(name, takers.iter().copied());
            let detail = format!(
                "`costs` names `{}`, which charged no estimate in this decision{near}",
                shown(name)
            );
            return Err(Problem::new(UNKNOWN_LIMIT, detail));
        }
    }
    Ok(())
}
