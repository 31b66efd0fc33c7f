//! Settle: what a ruling means for the request, and for what its client is told.
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
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use ratekeeper_core::{Mode, Nanos, Permits};
use smallvec::SmallVec;

use super::gate::{Hold, Ruling};
use super::grpc;
use super::measured::Measured;
use crate::headers::names;
use crate::{Answer, Outcome};

const SHADOW: HeaderName = HeaderName::from_static("x-ratekeeper-shadow");

/// What holds for every gate.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) mode: Mode,
    pub(super) cost: Option<Arc<CostOf>>,
    pub(super) on_refused: Option<Arc<OnAnswer>>,
    pub(super) on_shadow: Option<Arc<OnAnswer>>,
    pub(super) tally: Arc<Tally>,
}

pub(super) type CostOf = dyn Fn(&Parts) -> Permits + Send + Sync;
pub(super) type OnAnswer = dyn Fn(&Answer) + Send + Sync;

#[derive(Debug, Default)]
pub(super) struct Tally {
    passed: AtomicU64,
    refused: AtomicU64,
    shadowed: AtomicU64,
}

/// How many requests a layer has decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Let through to the service.
    pub passed: u64,
    /// Refused.
    pub refused: u64,
    /// Of those let through, how many a limit in shadow mode would have refused.
    pub shadowed: u64,
}

/// What becomes of a request.
pub(super) enum Settled {
    Pass(Pass),
    Refuse(Response<Vec<u8>>),
}

/// A request that may pass.
pub(super) struct Pass {
    /// For the headers of the answer.
    fields: SmallVec<[(HeaderName, HeaderValue); 2]>,
    pub(super) delay: Nanos,
    pub(super) hold: Option<Hold>,
}

impl Default for Settings {
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

impl Settings {
    pub(super) fn settle(&self, parts: &Parts, ruling: Ruling) -> Settled {
        let Ruling { answer, hold } = ruling;
        let Some(answer) = answer else {
            add(&self.tally.passed);
            return Settled::Pass(Pass {
                fields: SmallVec::new(),
                delay: Nanos::ZERO,
                hold,
            });
        };
        if !answer.allowed() && self.mode == Mode::Enforce {
            add(&self.tally.refused);
            tell(self.on_refused.as_deref(), &answer);
            return Settled::Refuse(refusal(parts, &answer));
        }
        add(&self.tally.passed);
        let mut fields = SmallVec::new();
        if self.mode == Mode::Enforce {
            put_fields(&answer, |name, value| fields.push((name, value)));
        }
        let ruled_out = |outcome: &Outcome<'_>| outcome.refuses() || outcome.shadow_denies();
        if answer.outcomes().any(|outcome| ruled_out(&outcome)) {
            add(&self.tally.shadowed);
            tell(self.on_shadow.as_deref(), &answer);
            let denials = answer.outcomes().filter(ruled_out);
            let denials: Vec<_> = denials.map(|outcome| &*outcome.rule.limit.name).collect();
            if let Ok(value) = HeaderValue::try_from(denials.join(", ")) {
                fields.push((SHADOW, value));
            }
        }
        Settled::Pass(Pass {
            fields,
            delay: match self.mode {
                Mode::Enforce => answer.delay(),
                Mode::Shadow => Nanos::ZERO,
            },
            hold,
        })
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

impl Pass {
    /// What wants to be told how the request goes.
    pub(super) fn measured(&mut self) -> Option<&mut Measured> {
        self.hold.as_mut()?.measured()
    }

    /// Adds the fields to those of the answer. Lists grow, so that layers upon each other
    /// are all shown; of the others the service's own, or the inner layer's, stay.
    pub(super) fn put_fields(&mut self, headers: &mut HeaderMap) {
        for (name, value) in self.fields.drain(..) {
            let is_list = [names::RATELIMIT_POLICY, names::RATELIMIT].contains(&name.as_str());
            if is_list || name == SHADOW {
                headers.append(name, value);
            } else {
                headers.entry(name).or_insert(value);
            }
        }
    }
}

fn refusal(parts: &Parts, answer: &Answer) -> Response<Vec<u8>> {
    let mut response = Response::new(Vec::new());
    if let Some(content_type) = grpc::content_type(parts) {
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, content_type);
        grpc::put_status(headers, answer);
    } else {
        let status = StatusCode::from_u16(answer.status());
        *response.status_mut() = status.unwrap_or(StatusCode::TOO_MANY_REQUESTS);
        if let Some(body) = answer.body() {
            if let Ok(content_type) = HeaderValue::try_from(body.content_type) {
                let headers = response.headers_mut();
                headers.insert(header::CONTENT_TYPE, content_type);
            }
            *response.body_mut() = body.content.into_bytes();
        }
    }
    let headers = response.headers_mut();
    put_fields(answer, |name, value| {
        headers.append(name, value);
    });
    response
}

fn put_fields(answer: &Answer, mut put: impl FnMut(HeaderName, HeaderValue)) {
    answer.put_header_fields(|name, value| {
        // Values are made of names and numbers; one that could not be sent is left out.
        if let Ok(value) = HeaderValue::from_str(value) {
            put(HeaderName::from_static(name), value);
        }
    });
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn tell(whom: Option<&OnAnswer>, answer: &Answer) {
    if let Some(tell) = whom {
        tell(answer);
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("mode", &self.mode)
            .field("tally", &self.tally)
            .finish_non_exhaustive()
    }
}
