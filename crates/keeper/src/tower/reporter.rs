//! Reporter: corrects the charges of a request by its response.
//!
//! ```text
//!   head: status, fields --> corrected at once: `count`, `reset_on`, `settle = "response.header:.."`
//!   body: parts as they pass --> its end --> corrected: `settle = "response.json:.."`
//!                           '--> broken off, or not to be read: the estimate stays
//! ```

use std::fmt;

use http::HeaderMap;
use ratekeeper_core::Permits;
use ratekeeper_policy::{BodyField, CostSource, ResponseReader, Rule};
use ratekeeper_store::Store;
use tokio::runtime::Handle;

use super::policy::ByPolicy;
use crate::at_once::poll_once;
use crate::decision_id::MadeCharge;
use crate::reporting::{settled_by_response, stated_cost};
use crate::{Answer, Report, Timer};

/// Receives the result of a request and the fields of its response, once. Dropped without them (the
/// service failed, or the client went away), the charges stay.
pub(super) struct Reporter {
    pub(super) receive: Box<ReceiveReport>,
    /// True if the body of the response may settle a charge.
    pub(super) reads_body: bool,
}

type ReceiveReport = dyn FnOnce(Report, &HeaderMap) -> HeadReported + Send;

/// The effect of the head of a response.
#[derive(Debug, Default)]
pub(super) struct HeadReported {
    /// Number of charges that keep their estimate.
    pub(super) unsettled: usize,
    /// Charges that the body settles.
    pub(super) costs: Option<Box<ResponseCosts>>,
}

/// Charges that the body of a response settles at its end. Dropped before, they keep their estimate.
pub(super) struct ResponseCosts {
    pub(super) reader: ResponseReader,
    /// Receives the values of the body, and returns the number of charges that keep their estimate.
    settle: Box<dyn FnOnce(Vec<Option<String>>) -> usize + Send>,
    pub(super) charges: usize,
}

impl ResponseCosts {
    /// Settles the charges after the last part of the body. Returns the number of those that keep
    /// their estimate.
    pub(super) fn finish(self) -> usize {
        (self.settle)(self.reader.finish())
    }
}

impl<S: Store + 'static, C: Timer + 'static> ByPolicy<S, C> {
    /// Returns the receiver of the result, for a request with charges that it corrects.
    pub(super) fn reporter(&self, answer: &Answer) -> Option<Reporter> {
        let made = answer.corrected_charges();
        if made.is_empty() {
            return None;
        }
        let by_body = |charge: &MadeCharge| {
            let settled = settled_by_response(&answer.policy, charge);
            matches!(settled, Some((_, CostSource::Body(_))))
        };
        let reads_body = made.iter().any(by_body);
        let gate = self.clone();
        let receive =
            Box::new(move |report, fields: &HeaderMap| gate.report_head(made, report, fields));
        Some(Reporter {
            receive,
            reads_body,
        })
    }

    /// Corrects the charges that the head of a response decides about.
    fn report_head(
        self,
        made: Vec<MadeCharge>,
        mut report: Report,
        fields: &HeaderMap,
    ) -> HeadReported {
        let policy = self.keeper.policy();
        let mut reported = HeadReported::default();
        let (mut decided, mut open, mut places) = (Vec::new(), Vec::new(), Vec::<BodyField>::new());
        for charge in made {
            match stated_cost(&policy, &charge, &report) {
                Some((_, CostSource::Body(field))) => {
                    places.push(field.clone());
                    open.push(charge);
                    continue;
                }
                Some((rule, CostSource::Header(name))) => {
                    match amount(one_value(fields, name), rule) {
                        Some(cost) => report = report.cost_of(charge.rule(), cost.get()),
                        None => reported.unsettled += 1,
                    }
                }
                None => {}
            }
            decided.push(charge);
        }
        if !open.is_empty() {
            let max = self.max_inspected_response;
            let fields = fields.iter();
            let fields: Vec<_> = fields
                .map(|(name, value)| (name.as_str(), value.as_bytes()))
                .collect();
            let charges = open.len();
            match ResponseReader::new(places, &fields, max) {
                Some(reader) => {
                    let (gate, report) = (self.clone(), report.clone());
                    let settle = Box::new(move |values| gate.report_body(open, report, values));
                    reported.costs = Some(Box::new(ResponseCosts {
                        reader,
                        settle,
                        charges,
                    }));
                }
                None => reported.unsettled += charges,
            }
        }
        self.correct(decided, report);
        reported
    }

    /// Corrects charges by the values of a body, one for each. Returns the number of those that keep
    /// their estimate.
    fn report_body(
        self,
        charges: Vec<MadeCharge>,
        mut report: Report,
        values: Vec<Option<String>>,
    ) -> usize {
        let policy = self.keeper.policy();
        let mut unsettled = 0;
        for (charge, value) in charges.iter().zip(values) {
            let rule = policy.rule(charge.rule());
            match rule.and_then(|rule| amount(value.as_deref(), rule)) {
                Some(cost) => report = report.cost_of(charge.rule(), cost.get()),
                None => unsettled += 1,
            }
        }
        self.correct(charges, report);
        unsettled
    }

    /// Corrects charges: in memory before the call returns, in another store soon after.
    fn correct(self, made: Vec<MadeCharge>, report: Report) {
        if made.is_empty() {
            return;
        }
        let at_once = self.keeper.store().answers_at_once();
        let settling = async move {
            let settled = self.keeper.correct(&made, &report);
            if let (Err(error), Some(callback)) = (settled.await, &self.on_store_error) {
                callback(&error);
            }
        };
        if at_once {
            let _ = poll_once(settling);
        } else if let Ok(runtime) = Handle::try_current() {
            drop(runtime.spawn(settling));
        }
    }
}

fn amount(text: Option<&str>, rule: &Rule) -> Option<Permits> {
    rule.amount(text?)
}

/// Returns the value of a field, trimmed; `None` if it is absent, repeated or no text.
fn one_value<'a>(fields: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = fields.get_all(name).iter();
    let (value, None) = (values.next()?, values.next()) else {
        return None;
    };
    value.to_str().ok().map(str::trim)
}

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reporter").finish_non_exhaustive()
    }
}

impl fmt::Debug for ResponseCosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseCosts")
            .field("charges", &self.charges)
            .finish_non_exhaustive()
    }
}
