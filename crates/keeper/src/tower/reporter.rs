//! Reporter: corrects the charges of a request by its response.
//!
//! ```text
//!   head: status, fields --> corrected at once: `count`, `reset_on`, `settle = "response.header:.."`
//!   body: parts as they pass --> its end --> corrected: `settle = "response.json:.."`,
//!                           |                           `settle = "response.trailer:.."`
//!                           '--> broken off, or not to be read: the estimate stays
//! ```

use std::sync::Arc;

use bytes::Buf;
use http::{HeaderMap, Response};
use http_body::Frame;
use ratekeeper_core::Time;
use ratekeeper_policy::{BodyField, CostSource, ResponseReader};
use ratekeeper_store::{ChargeOrigin, Store, StoreError};
use tokio::runtime::Handle;

use super::gate::measured::announced_length;
use crate::at_once::poll_once;
use crate::engine::decision_id::MadeCharge;
use crate::engine::reporting::{settled_by_response, stated_cost};
use crate::{Answer, Keeper, Report, Timer};

/// Receives the result of a request and the fields of its response, once. Dropped without them (the
/// service failed, or the client went away), the charges stay.
pub(super) struct Reporter {
    pub(super) receive: Box<ReceiveReport>,
    /// True if the body of the response may settle a charge.
    pub(super) reads_body: bool,
}

impl Reporter {
    /// Corrects charges by a response, or by the report in its extensions. Returns the charges that
    /// its body settles.
    pub(super) fn receive_response<R>(
        self,
        response: &mut Response<R>,
    ) -> Option<Box<ResponseCosts>> {
        let own = response.extensions_mut().remove::<Report>();
        let own = own
            .unwrap_or_default()
            .or_status(response.status().as_u16());
        (self.receive)(own, response.headers()).costs
    }
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

/// Charges that the body of a response, or its trailers, settle at its end. Dropped before, they keep
/// their estimate.
pub(super) struct ResponseCosts {
    /// `None` if only trailers settle charges.
    reader: Option<ResponseReader>,
    trailers: HeaderMap,
    /// The bytes still to come of a body with a known length; `None` if trailers may come.
    left: Option<u64>,
    settle: Box<SettleAtEnd>,
    pub(super) charges: usize,
}

/// Receives the values of the body and the trailers, and returns the number of charges that keep
/// their estimate.
type SettleAtEnd = dyn FnOnce(Vec<Option<String>>, &HeaderMap) -> usize + Send;

impl ResponseCosts {
    /// Reads a part of the body.
    pub(super) fn add(&mut self, part: &[u8]) {
        if let Some(reader) = &mut self.reader {
            reader.add(part);
        }
        let left = self.left;
        self.left = left.map(|left| left.saturating_sub(part.len() as u64));
    }

    /// Returns true once the body has all bytes of a known length.
    pub(super) fn is_whole(&self) -> bool {
        self.left == Some(0)
    }

    /// Returns the number of bytes that are held of the body.
    pub(super) fn held(&self) -> usize {
        self.reader.as_ref().map_or(0, ResponseReader::held)
    }

    /// Takes the trailers.
    pub(super) fn add_trailers(&mut self, fields: &HeaderMap) {
        self.trailers = fields.clone();
    }

    /// Settles the charges after the last part of the body. Returns the number of those that keep
    /// their estimate.
    pub(super) fn finish(self) -> usize {
        let values = self.reader.map_or_else(Vec::new, ResponseReader::finish);
        (self.settle)(values, &self.trailers)
    }
}

/// The charges of a request until their report.
#[derive(Clone, Copy)]
struct ReportEnd {
    /// The end of the time in which a report corrects them.
    at: Time,
    origin: ChargeOrigin,
}

pub(super) type OnStoreError = dyn Fn(&StoreError) + Send + Sync;

/// What corrections need of the layer.
pub(super) struct Corrections<S, C> {
    pub(super) keeper: Arc<Keeper<S, C>>,
    pub(super) on_store_error: Option<Arc<OnStoreError>>,
    /// Maximum number of bytes of a response that are held to find costs.
    pub(super) max_inspected_response: usize,
}

clone_fields!([S, C] Corrections<S, C> { keeper, on_store_error, max_inspected_response });

impl<S: Store + 'static, C: Timer + 'static> Corrections<S, C> {
    /// Returns the receiver of the result, for a request with charges that it corrects.
    pub(super) fn reporter(self, answer: &Answer) -> Option<Reporter> {
        let (made, origin) = (answer.corrected_charges(), answer.origin()?);
        let end = ReportEnd {
            at: answer.reported_until()?,
            origin,
        };
        if made.is_empty() {
            return None;
        }
        let by_body = |charge: &MadeCharge| {
            let settled = settled_by_response(&answer.policy, charge);
            matches!(settled, Some((_, CostSource::Body(_))))
        };
        let reads_body = made.iter().any(by_body);
        let receive =
            Box::new(move |report, fields: &HeaderMap| self.report_head(made, end, report, fields));
        Some(Reporter {
            receive,
            reads_body,
        })
    }

    /// Corrects the charges that the head of a response decides about.
    fn report_head(
        self,
        made: Vec<MadeCharge>,
        end: ReportEnd,
        mut report: Report,
        fields: &HeaderMap,
    ) -> HeadReported {
        let policy = self.keeper.policy();
        let mut reported = HeadReported::default();
        let (mut decided, mut open) = (Vec::new(), Vec::new());
        for charge in made {
            match stated_cost(&policy, &charge, &report) {
                Some((_, place @ (CostSource::Body(_) | CostSource::Trailer(_)))) => {
                    open.push((charge, place.clone()));
                    continue;
                }
                Some((rule, CostSource::Header(name))) => {
                    match one_value(fields, name).and_then(|text| rule.amount(text)) {
                        Some(cost) => report = report.cost_of(charge.rule(), cost.get()),
                        None => reported.unsettled += 1,
                    }
                }
                None => {}
            }
            decided.push(charge);
        }
        if !open.is_empty() {
            let (costs, unread) = self.costs_at_end(open, end, &report, fields);
            reported.costs = costs;
            reported.unsettled += unread;
        }
        self.correct(decided, end, report);
        reported
    }

    /// Returns the charges that the end of the response settles, and the number of those that keep
    /// their estimate, because the body cannot be read.
    fn costs_at_end(
        &self,
        mut open: Vec<(MadeCharge, CostSource)>,
        end: ReportEnd,
        report: &Report,
        fields: &HeaderMap,
    ) -> (Option<Box<ResponseCosts>>, usize) {
        let places = open.iter().filter_map(|(_, place)| match place {
            CostSource::Body(field) => Some(field.clone()),
            CostSource::Header(_) | CostSource::Trailer(_) => None,
        });
        let places: Vec<BodyField> = places.collect();
        let (mut reader, mut unread) = (None, 0);
        if !places.is_empty() {
            unread = places.len();
            let fields = fields.iter();
            let fields: Vec<_> = fields
                .map(|(name, value)| (name.as_str(), value.as_bytes()))
                .collect();
            reader = ResponseReader::new(places, &fields, self.max_inspected_response);
        }
        if reader.is_some() {
            unread = 0;
        } else {
            open.retain(|(_, place)| matches!(place, CostSource::Trailer(_)));
        }
        let charges = open.len();
        if charges == 0 {
            return (None, unread);
        }
        let awaits_trailers = |(_, place): &(_, _)| matches!(place, CostSource::Trailer(_));
        let has_trailers = open.iter().any(awaits_trailers);
        let left = announced_length(fields).filter(|_| !has_trailers);
        let (gate, report) = (self.clone(), report.clone());
        let settle = Box::new(move |values, trailers: &HeaderMap| {
            gate.report_end(open, end, report, values, trailers)
        });
        let costs = ResponseCosts {
            reader,
            trailers: HeaderMap::new(),
            left,
            settle,
            charges,
        };
        (Some(Box::new(costs)), unread)
    }

    /// Corrects charges by the values of a body, one for each that it settles, and by trailers.
    /// Returns the number of those that keep their estimate.
    fn report_end(
        self,
        charges: Vec<(MadeCharge, CostSource)>,
        end: ReportEnd,
        mut report: Report,
        values: Vec<Option<String>>,
        trailers: &HeaderMap,
    ) -> usize {
        let policy = self.keeper.policy();
        let (mut unsettled, mut values) = (0, values.into_iter());
        for (charge, place) in &charges {
            let value = match place {
                CostSource::Body(_) => values.next().flatten(),
                CostSource::Trailer(name) => one_value(trailers, name).map(str::to_owned),
                CostSource::Header(_) => None, // settled by the head
            };
            let rule = policy.rule(charge.rule());
            match rule.and_then(|rule| rule.amount(value.as_deref()?)) {
                Some(cost) => report = report.cost_of(charge.rule(), cost.get()),
                None => unsettled += 1,
            }
        }
        let charges = charges.into_iter().map(|(charge, _)| charge);
        self.correct(charges.collect(), end, report);
        unsettled
    }

    /// Corrects charges: in memory before the call returns, in another store soon after.
    fn correct(self, made: Vec<MadeCharge>, end: ReportEnd, report: Report) {
        if made.is_empty() {
            return;
        }
        let at_once = self.keeper.store().answers_at_once();
        let settling = async move {
            let corrected = self
                .keeper
                .correct(&made, end.origin, &report, Some(end.at));
            if let (Err(error), Some(callback)) = (corrected.await, &self.on_store_error) {
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

/// Settles costs at the end of a body.
pub(super) fn settle(costs: &mut Option<Box<ResponseCosts>>) {
    if let Some(costs) = costs.take() {
        costs.finish();
    }
}

/// Reads a frame for the costs that a body settles. After an error, or data in several pieces, the
/// estimates stay.
pub(super) fn read<D: Buf, E>(
    costs: &mut Option<Box<ResponseCosts>>,
    frame: Option<&Result<Frame<D>, E>>,
) {
    let Some(reading) = costs else {
        return;
    };
    match frame {
        None => settle(costs),
        Some(Ok(frame)) => {
            if let Some(data) = frame.data_ref() {
                let part = data.chunk();
                if part.len() < data.remaining() {
                    if reading.reader.is_some() {
                        *costs = None;
                    }
                } else {
                    reading.add(part);
                    if reading.is_whole() {
                        settle(costs);
                    }
                }
            } else if let Some(fields) = frame.trailers_ref() {
                reading.add_trailers(fields);
            }
        }
        Some(Err(_)) => *costs = None,
    }
}

/// Returns the value of a field, trimmed; `None` if it is absent, repeated or no text.
fn one_value<'a>(fields: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = fields.get_all(name).iter();
    let (value, None) = (values.next()?, values.next()) else {
        return None;
    };
    value.to_str().ok().map(str::trim)
}

debug_fields!([] Reporter {});

debug_fields!([] ResponseCosts { charges });
