//! Settle: the effect of a ruling on the request, and on the fields of its response.
//!
//! ```text
//!   ruling --> allowed ------------> pass, with RateLimit fields, held back if shaped
//!          |-> refused, enforced --> 429 with a problem document, or gRPC's form
//!          '-> refused, shadow ----> pass, with x-ratekeeper-shadow
//! ```

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::request::Parts;
use http::{HeaderValue, Response, StatusCode, header};
use ratekeeper_core::{Mode, Nanos, Permits};

use super::gate::{Denied, Ruling};
use super::grpc;
use super::pass::{FieldsToSend, Pass, SHADOW};
use crate::problem::PROBLEM_JSON;
use crate::{Answer, Outcome};

/// Settings for every gate.
#[derive(Clone)]
pub(super) struct GateSettings {
    pub(super) mode: Mode,
    pub(super) cost: Option<Arc<CostOf>>,
    pub(super) on_refused: Option<Arc<OnAnswer>>,
    pub(super) on_shadow: Option<Arc<OnAnswer>>,
    pub(super) tally: Arc<DecisionTally>,
}

pub(super) type CostOf = dyn Fn(&Parts) -> Permits + Send + Sync;
pub(super) type OnAnswer = dyn Fn(&Answer) + Send + Sync;

#[derive(Debug, Default)]
pub(super) struct DecisionTally {
    passed: AtomicU64,
    refused: AtomicU64,
    shadowed: AtomicU64,
}

/// Numbers of requests that a layer has decided.
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
pub(super) enum Settled {
    Pass(Pass),
    Refuse(Response<Vec<u8>>),
}

impl Default for GateSettings {
    fn default() -> Self {
        Self {
            mode: Mode::Enforce,
            cost: None,
            on_refused: None,
            on_shadow: None,
            tally: Arc::default(),
        }
    }
}

impl GateSettings {
    /// Settles a ruling; `grpc` returns the content type of a refusal, if the request is one of
    /// gRPC.
    pub(super) fn settle(
        &self,
        ruling: Ruling,
        grpc: impl FnOnce() -> Option<HeaderValue>,
    ) -> Settled {
        let shows = self.mode == Mode::Enforce;
        match ruling {
            Ruling::Denied(Denied { answer, told, .. }) if shows && !answer.allowed() => {
                add(&self.tally.refused);
                tell(self.on_refused.as_deref(), &answer);
                Settled::Refuse(refusal(&answer, told, grpc()))
            }
            Ruling::Denied(denied) => Settled::Pass(self.shadowed(denied)),
            Ruling::Pass(mut pass) => {
                add(&self.tally.passed);
                if !shows {
                    pass.told = FieldsToSend::Nothing;
                    pass.delay = Nanos::ZERO;
                }
                Settled::Pass(pass)
            }
        }
    }

    /// Passes a request that a limit in shadow mode refuses, or any limit of a layer in shadow
    /// mode.
    fn shadowed(&self, denied: Denied) -> Pass {
        let Denied { answer, told, hold } = denied;
        add(&self.tally.passed);
        add(&self.tally.shadowed);
        tell(self.on_shadow.as_deref(), &answer);
        let (mut told, delay) = match self.mode {
            Mode::Enforce => (told, answer.delay()),
            Mode::Shadow => (FieldsToSend::Nothing, Nanos::ZERO),
        };
        let ruled_out = |outcome: &Outcome<'_>| outcome.refuses() || outcome.shadow_denies();
        let denials = answer.outcomes().filter(ruled_out);
        let denials: Vec<_> = denials.map(|outcome| &*outcome.rule.limit.name).collect();
        if let Ok(denials) = HeaderValue::try_from(denials.join(", ")) {
            told.add(SHADOW, denials);
        }
        Pass { told, delay, hold }
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

fn refusal(
    answer: &Answer,
    mut told: FieldsToSend,
    grpc: Option<HeaderValue>,
) -> Response<Vec<u8>> {
    let mut response = Response::new(Vec::new());
    if let Some(content_type) = grpc {
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, content_type);
        grpc::put_status(headers, answer);
    } else {
        let status = answer.status();
        if let Some(body) = answer.body_sent_with(status) {
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
        let status = StatusCode::from_u16(status);
        *response.status_mut() = status.unwrap_or(StatusCode::TOO_MANY_REQUESTS);
    }
    told.put_into(response.headers_mut());
    response
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn tell(whom: Option<&OnAnswer>, answer: &Answer) {
    if let Some(tell) = whom {
        tell(answer);
    }
}

impl fmt::Debug for GateSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GateSettings")
            .field("mode", &self.mode)
            .field("tally", &self.tally)
            .finish_non_exhaustive()
    }
}
