//! Pass: a request that may pass, and the fields to add to its response.
//!
//! ```text
//!   Pass --> hold: to the end of the answer's body
//!        '-> terms, or none for most limits that send no fields
//!              |-> delay:  held back so long
//!              '-> fields: written when the answer is there
//! ```

use http::{HeaderMap, HeaderValue};
use ratekeeper_core::Nanos;
use smallvec::SmallVec;

use super::denial::ShownDecision;
use super::hold::RequestHold;
use super::reporter::Reporter;
use super::shown::put;

/// A request that may pass.
#[derive(Debug, Default)]
#[expect(unnameable_types, reason = "gates are made in this module only")]
pub struct Pass {
    pub(super) hold: Option<RequestHold>,
    /// `None` if it passes at once, and its response is returned as it is. On the heap, because
    /// moving them with each request takes longer than to allocate them.
    pub(super) terms: Option<Box<PassTerms>>,
}

impl Pass {
    /// Returns how long the request is held back.
    pub(super) fn delay(&self) -> Nanos {
        self.terms.as_ref().map_or(Nanos::ZERO, |terms| terms.delay)
    }
}

/// The terms on which a request passes.
#[derive(Debug)]
pub(super) struct PassTerms {
    pub(super) delay: Nanos,
    pub(super) fields: FieldsToSend,
    /// Receives the result of the request.
    pub(super) reporter: Option<Reporter>,
}

impl PassTerms {
    /// The terms of a request with a result that nothing receives.
    pub(super) const fn new(delay: Nanos, fields: FieldsToSend) -> Self {
        Self {
            delay,
            fields,
            reporter: None,
        }
    }

    /// Neither delays nor shows, as a layer in shadow mode.
    pub(super) fn hide(&mut self) {
        self.delay = Nanos::ZERO;
        self.fields = FieldsToSend::Nothing;
    }
}

/// Fields to add to a response.
#[derive(Debug)]
pub(super) enum FieldsToSend {
    Nothing,
    /// The states of limits, that with the longest wait first.
    Limits(SmallVec<[ShownDecision; 1]>),
    /// Anything else, by name.
    Fields(Vec<(&'static str, HeaderValue)>),
}

impl FieldsToSend {
    /// Adds one field.
    pub(super) fn add(&mut self, name: &'static str, value: HeaderValue) {
        match self {
            Self::Fields(fields) => fields.push((name, value)),
            // A limit without a policy is in shadow mode with its layer, and adds no fields then.
            Self::Nothing | Self::Limits(_) => {
                *self = Self::Fields(vec![(name, value)]);
            }
        }
    }

    /// Adds the fields to the response.
    pub(super) fn put_into(&mut self, headers: &mut HeaderMap) {
        match self {
            Self::Nothing => {}
            Self::Limits(limits) => {
                for shown in limits {
                    shown.limit.put_into(shown.report(), headers);
                }
            }
            Self::Fields(fields) => {
                for (name, value) in fields.drain(..) {
                    put(headers, name, value);
                }
            }
        }
    }
}
