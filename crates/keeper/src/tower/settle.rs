//! Settle: the effect of a ruling on the request, and on the fields of its response.
//!
//! ```text
//!   ruling --> allowed ------------> pass, with RateLimit fields, held back if shaped
//!          |-> refused, enforced --> 429 with a problem document, or gRPC's form
//!          '-> refused, shadow ----> pass, with x-ratekeeper-shadow
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderValue, Response, StatusCode, header};
use ratekeeper_core::{Mode, Nanos, Permits};

use super::denial::Denial;
use super::gate::{Denied, Ruling};
use super::grpc;
use super::head::RequestHead;
use super::pass::{FieldsToSend, Pass};
use super::shown::SHADOW;
use crate::problem::PROBLEM_JSON;

/// Settings for every gate.
#[derive(Clone, Default)]
pub(super) struct GateSettings {
    pub(super) mode: Mode,
    /// How long a request may wait in line.
    pub(super) patience: Nanos,
    pub(super) cost: Option<Arc<CostOf>>,
    pub(super) on_refused: Option<Arc<OnDenial>>,
    pub(super) on_shadow: Option<Arc<OnDenial>>,
    pub(super) tally: Arc<DecisionTally>,
}

pub(super) type CostOf = dyn Fn(RequestHead<'_>) -> Permits + Send + Sync;
pub(super) type OnDenial = dyn Fn(&Denial) + Send + Sync;

#[derive(Debug, Default)]
pub(super) struct DecisionTally {
    passed: AtomicU64,
    refused: AtomicU64,
    shadowed: AtomicU64,
}

/// Numbers of requests that a layer has decided.
///
/// ```
/// use ratekeeper::Limiter;
/// use ratekeeper::tower::{Counts, RateLimitLayer};
/// let layer = RateLimitLayer::new(Limiter::per("100/1s")?);
/// assert_eq!(layer.counts(), Counts { passed: 0, refused: 0, shadowed: 0 });
/// # Ok::<(), ratekeeper::core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Requests let through to the service.
    pub passed: u64,
    /// Refused requests.
    pub refused: u64,
    /// Requests let through that a limit in shadow mode would have refused.
    pub shadowed: u64,
}

/// The outcome for a request.
pub(super) enum SettledRuling {
    Pass(Pass),
    Refuse(Response<Vec<u8>>),
}

impl GateSettings {
    /// Settles a ruling; `grpc` returns the content type of a refusal, if the request is one of
    /// gRPC.
    pub(super) fn settle(
        &self,
        ruling: Ruling,
        grpc: impl FnOnce() -> Option<HeaderValue>,
    ) -> SettledRuling {
        let enforced = self.mode == Mode::Enforce;
        match ruling {
            Ruling::Denied(denied) if enforced && !denied.denial.is_shadow() => {
                let Denied { denial, terms, .. } = *denied;
                add(&self.tally.refused);
                call(self.on_refused.as_deref(), &denial);
                SettledRuling::Refuse(refusal(&denial, terms.fields, grpc()))
            }
            Ruling::Denied(denied) => SettledRuling::Pass(self.shadowed(*denied)),
            Ruling::Pass(mut pass) => {
                self.passed_by(&mut pass);
                SettledRuling::Pass(pass)
            }
        }
    }

    /// Counts a request that passes.
    #[inline]
    pub(super) fn passed(&self) {
        add(&self.tally.passed);
    }

    /// Counts a request that passes, which a layer in shadow mode neither delays nor shows.
    #[inline]
    pub(super) fn passed_by(&self, pass: &mut Pass) {
        self.passed();
        if let (Mode::Shadow, Some(terms)) = (self.mode, &mut pass.terms) {
            terms.hide();
        }
    }

    /// Passes a request that a limit in shadow mode refuses, or any limit of a layer in shadow
    /// mode.
    fn shadowed(&self, denied: Denied) -> Pass {
        let (denial, mut terms) = (denied.denial, denied.terms);
        add(&self.tally.passed);
        add(&self.tally.shadowed);
        call(self.on_shadow.as_deref(), &denial);
        if self.mode == Mode::Shadow {
            terms.hide();
        }
        let names: Vec<_> = denial.names().collect();
        if let Ok(names) = HeaderValue::try_from(names.join(", ")) {
            terms.fields.add(SHADOW, names);
        }
        Pass {
            hold: denied.hold,
            terms: Some(Box::new(terms)),
        }
    }

    pub(super) fn counts(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            passed: read(&self.tally.passed),
            refused: read(&self.tally.refused),
            shadowed: read(&self.tally.shadowed),
        }
    }
}

/// Returns the response to a refused request; `grpc` is its content type in the form of gRPC.
pub(super) fn refusal(
    denial: &Denial,
    mut fields: FieldsToSend,
    grpc: Option<HeaderValue>,
) -> Response<Vec<u8>> {
    let mut response = Response::new(Vec::new());
    if let Some(content_type) = grpc {
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, content_type);
        grpc::put_status(headers, denial);
    } else {
        if let Some(body) = denial.body() {
            let content_type = match body.content_type {
                PROBLEM_JSON => Ok(HeaderValue::from_static(PROBLEM_JSON)),
                other => HeaderValue::from_str(other),
            };
            if let Ok(content_type) = content_type {
                let headers = response.headers_mut();
                headers.insert(header::CONTENT_TYPE, content_type);
            }
            *response.body_mut() = body.content.into_bytes();
        }
        let status = StatusCode::from_u16(denial.status());
        *response.status_mut() = status.unwrap_or(StatusCode::TOO_MANY_REQUESTS);
    }
    fields.put_into(response.headers_mut());
    response
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn call(callback: Option<&OnDenial>, denial: &Denial) {
    if let Some(callback) = callback {
        callback(denial);
    }
}

debug_fields!([] GateSettings { mode, tally });
