//! Correction: how a report of the result of a request corrects its charge.
//!
//! ```text
//!   request --charged--> work --> report: status, outcome, cost
//!                                    |
//!              in `reset_on`? --yes--+--> the key begins anew
//!              not in `count`? ------+--> the charge is given back
//!              an estimate? ---------+--> the actual cost, even beyond the limit; the report has
//!                                    |    it, or the response (`settle`)
//!                                    '--> the charge stays
//! ```
//!
//! A request is charged when it is judged, so concurrent requests cannot pass together before the
//! first result is known. Without a report the charge stays.

use std::fmt;

use ratekeeper_core::{
    Error, Limit, LimitId, LimitKeys, LimitScope, Nanos, Outage, Permits, Quota, QuotaReset,
};

use crate::BodyField;

/// How a report corrects the charge of a limit: `count`, `reset_on`, `report_within`, and
/// `reserve` and `settle` of `cost`.
#[derive(Clone, Debug)]
pub struct Correction {
    /// Results that count; `None` for all.
    pub count: Option<ResultSet>,
    /// Results after which the key begins anew.
    pub reset_on: Option<ResultSet>,
    /// True if the cost is an estimate, and the report has the actual one.
    pub is_estimate: bool,
    /// Place of the actual cost in the response; `None` if only a report has it.
    pub settle: Option<CostSource>,
    /// Time within which the report corrects the charge.
    pub within: Nanos,
    /// Records of the requests that may still be reported: see [`Correction::RECORDED`].
    pub record: Limit,
}

/// The place of the actual cost in a response: `settle` of `cost`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CostSource {
    /// A header field, by its name in lower case: `response.header:x-tokens-used`.
    Header(Box<str>),
    /// A trailer, a field after the body, by its name in lower case:
    /// `response.trailer:x-tokens-used`.
    Trailer(Box<str>),
    /// A value of the JSON in the body: `response.json:/usage/total_tokens`.
    Body(BodyField),
}

/// Results of requests, by status or by the application's own word.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ResultSet {
    /// Ranges of statuses, both ends included.
    pub statuses: Vec<(u16, u16)>,
    /// Words of the application.
    pub outcomes: Vec<Box<str>>,
}

/// The result of a request: its status, the application's word for it, and its actual cost.
///
/// ```
/// use ratekeeper_policy::Report;
/// let failed = Report::default().status(401);
/// let paid = Report::default().outcome("ok").cost(663);
/// let tokens = Report::default().cost_of("llm-tokens", 663).cost_of("images", 2);
/// # assert!(failed != paid && paid != tokens);
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[must_use = "a report corrects nothing until a keeper receives it"]
pub struct Report {
    status: Option<u16>,
    outcome: Option<Box<str>>,
    cost: Option<Permits>,
    costs: Vec<(Box<str>, Permits)>,
}

/// The corrected charge of a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Corrected {
    /// The cost that the request has after all; zero if it does not count.
    Cost(Permits),
    /// None: the key begins anew.
    Reset,
}

impl Report {
    /// The same report, with the status of the response.
    pub fn status(self, status: u16) -> Self {
        let status = Some(status);
        Self { status, ..self }
    }

    /// The same report, with the application's word for the result: `declined`.
    pub fn outcome(self, outcome: &str) -> Self {
        let outcome = Some(outcome.into());
        Self { outcome, ..self }
    }

    /// The same report, with the actual cost under all limits that charged an estimate. A cost
    /// above [`Permits::MAX`] counts as that.
    pub fn cost(self, cost: u64) -> Self {
        let cost = Some(Permits::new(cost));
        Self { cost, ..self }
    }

    /// The same report, with the actual cost under one limit.
    pub fn cost_of(mut self, limit: &str, cost: u64) -> Self {
        self.costs.push((limit.into(), Permits::new(cost)));
        self
    }

    /// Returns true if it reports nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the same report, with this status if it has none.
    pub fn or_status(self, status: u16) -> Self {
        let status = self.status.or(Some(status));
        Self { status, ..self }
    }

    /// Returns the names of the limits with a cost of their own.
    pub fn limits(&self) -> impl Iterator<Item = &str> {
        self.costs.iter().map(|(limit, _)| &**limit)
    }

    /// Returns true if it has the actual cost for all limits that charged an estimate.
    pub fn has_cost(&self) -> bool {
        self.cost.is_some()
    }

    /// Returns the actual cost under a limit, if the report has one.
    pub fn cost_under(&self, limit: &str) -> Option<Permits> {
        let own = self.costs.iter().find(|(name, _)| **name == *limit);
        own.map(|(_, cost)| *cost).or(self.cost)
    }
}

impl Correction {
    /// Charge of a key of [`record`](Self::record) by the decision about a request.
    pub const RECORDED: Permits = Permits::ONE;
    /// Charge by a report, so that a report finds no record (and leaves all but 2 permits), finds
    /// one (and leaves all but 3), or comes after another (and leaves less).
    pub const REPORTED: Permits = Permits::new(2);
    /// Permits of a record. A full memory store forgives an evicted key an eighth of its limit;
    /// this must be more than a record ever uses, because otherwise an id without a record could be
    /// taken for one with a record.
    pub const RECORD: Permits = Permits::new(64);

    /// Corrections that charge the reported cost, or keep the whole charge without `count`.
    ///
    /// # Errors
    /// If there cannot be a record for `within`: for more than 73 years.
    pub fn new(within: Nanos) -> Result<Self, Error> {
        let quota = Quota::new(Self::RECORD, within)?;
        Ok(Self {
            count: None,
            reset_on: None,
            is_estimate: false,
            settle: None,
            within,
            record: Limit {
                // No limit of a policy begins with a `=`.
                name: format!("=reports-{}ms", within.as_millis_ceil()).into(),
                id: LimitId::default(),
                version: 0,
                algorithm: QuotaReset::new(quota)?.into(),
                // Without a record the charge stays.
                outage: Outage::Deny,
                scope: LimitScope::Cluster,
                keys: LimitKeys::All,
            },
        })
    }

    /// Returns the corrected charge of the limit called `limit`, which charged `charged`. The
    /// charge stays as far as the report does not say otherwise.
    pub fn correct(&self, limit: &str, charged: Permits, report: &Report) -> Corrected {
        let holds = |set: &Option<ResultSet>| set.as_ref().and_then(|set| set.holds(report));
        if holds(&self.reset_on) == Some(true) {
            return Corrected::Reset;
        }
        if holds(&self.count) == Some(false) {
            return Corrected::Cost(Permits::ZERO);
        }
        let actual = report.cost_under(limit).filter(|_| self.is_estimate);
        Corrected::Cost(actual.unwrap_or(charged))
    }

    /// Returns true if a report corrects charges of both in the same way.
    pub(crate) fn agrees_with(&self, other: &Self) -> bool {
        (self.is_estimate, self.within) == (other.is_estimate, other.within)
            && (&self.count, &self.reset_on) == (&other.count, &other.reset_on)
            && self.settle == other.settle
    }
}

impl ResultSet {
    /// Returns whether the set has the result; `None` if the report lacks all that the set names.
    fn holds(&self, report: &Report) -> Option<bool> {
        let status = report.status.filter(|_| !self.statuses.is_empty());
        let status = status.map(|status| self.has_status(status));
        let outcome = report.outcome.as_ref();
        let outcome = outcome.filter(|_| !self.outcomes.is_empty());
        let outcome = outcome.map(|outcome| self.outcomes.contains(outcome));
        match (status, outcome) {
            (Some(a), Some(b)) => Some(a || b),
            (known, None) | (None, known) => known,
        }
    }

    fn has_status(&self, status: u16) -> bool {
        let mut ranges = self.statuses.iter();
        ranges.any(|(first, last)| (*first..=*last).contains(&status))
    }

    /// Returns a result that both sets have, if there is one.
    pub(crate) fn shared_with(&self, other: &Self) -> Option<String> {
        let starts = self.statuses.iter().chain(&other.statuses);
        let mut starts = starts.map(|(first, _)| *first);
        let status = starts.find(|status| self.has_status(*status) && other.has_status(*status));
        let outcome = || self.outcomes.iter().find(|it| other.outcomes.contains(it));
        status
            .map(|status| format!("status {status}"))
            .or_else(|| Some(format!("outcome \"{}\"", outcome()?)))
    }
}

/// `x-tokens-used`, `json:/usage/total_tokens`
impl fmt::Display for CostSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) | Self::Trailer(name) => f.write_str(name),
            Self::Body(field) => write!(f, "{field}"),
        }
    }
}

/// `status 401, 403, 500-599, outcome declined`
impl fmt::Display for ResultSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = |(first, last): &(u16, u16)| {
            if first == last {
                first.to_string()
            } else {
                format!("{first}-{last}")
            }
        };
        let statuses: Vec<_> = self.statuses.iter().map(status).collect();
        let groups = [
            ("status", statuses.join(", ")),
            ("outcome", self.outcomes.join(", ")),
        ];
        let mut written = groups.iter().filter(|(_, values)| !values.is_empty());
        if let Some((name, values)) = written.next() {
            write!(f, "{name} {values}")?;
        }
        written.try_for_each(|(name, values)| write!(f, ", {name} {values}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(statuses: &[(u16, u16)], outcomes: &[&str]) -> ResultSet {
        ResultSet {
            statuses: statuses.to_vec(),
            outcomes: outcomes.iter().map(|it| (*it).into()).collect(),
        }
    }

    #[test]
    fn a_charge_stays_unless_the_report_says_otherwise() {
        let failures = |is_estimate| Correction {
            count: Some(set(&[(401, 401), (500, 599)], &["declined"])),
            reset_on: Some(set(&[(200, 200)], &["ok"])),
            is_estimate,
            ..Correction::new(Nanos::SECOND).unwrap()
        };
        let cost = |permits| Corrected::Cost(Permits::new(permits));
        let says = Report::default;
        for (report, expected) in [
            (says().status(401), cost(5)),
            (says().status(599), cost(5)),
            (says().status(404), cost(0)),
            (says().status(200), Corrected::Reset),
            (says().outcome("declined"), cost(5)),
            (says().outcome("Declined"), cost(0)),
            (says().outcome("ok"), Corrected::Reset),
            (says().outcome("declined").status(404), cost(5)),
            (says().outcome("other").status(401), cost(5)),
            (says().outcome("other").status(404), cost(0)),
            (says().outcome("declined").status(200), Corrected::Reset),
            (says().cost(9), cost(5)), // neither status nor outcome
        ] {
            let corrected = failures(false).correct("a", Permits::new(5), &report);
            assert_eq!(corrected, expected, "{report:?}");
        }
        for (report, expected) in [
            (says().status(401), cost(5)),
            (says().cost(9), cost(9)),
            (says().cost(9).status(404), cost(0)),
            (says().cost(9).cost_of("a", 2), cost(2)),
            (says().cost_of("b", 2), cost(5)),
            (says().cost(0), cost(0)),
            (says().cost(u64::MAX), cost(u64::MAX)),
        ] {
            let corrected = failures(true).correct("a", Permits::new(5), &report);
            assert_eq!(corrected, expected, "{report:?}");
        }
    }

    #[test]
    fn sets_are_written_in_words() {
        let text = |statuses: &[_], outcomes: &[_]| set(statuses, outcomes).to_string();
        assert_eq!(text(&[(401, 401), (500, 599)], &[]), "status 401, 500-599");
        assert_eq!(text(&[(401, 401)], &["a", "b"]), "status 401, outcome a, b");
        assert_eq!(text(&[], &["a"]), "outcome a");
    }
}
