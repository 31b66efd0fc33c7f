//! Pass: a request that may pass, and the fields to add to its response.
//!
//! ```text
//!   Pass --> delay: held back so long
//!        |-> hold:  to the end of the answer's body
//!        '-> told:  what was decided, written when the answer is there: until then the
//!                   request carries a few words, and nothing at all if nobody is told
//! ```

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, header};
use ratekeeper_core::{Decision, Nanos};

use super::described::ShownLimit;
use super::hold::RequestHold;
use crate::Answer;
use crate::headers::names;

/// Field that lists the limits in shadow mode that would have refused.
pub(super) const SHADOW: &str = "x-ratekeeper-shadow";

/// The fields of the usual style, and one of limits in shadow mode.
const USUAL_FIELDS: usize = 3;

/// A request that may pass.
#[derive(Debug)]
#[expect(unnameable_types, reason = "gates are made in this module only")]
pub struct Pass {
    pub(super) told: FieldsToSend,
    pub(super) delay: Nanos,
    pub(super) hold: Option<RequestHold>,
}

/// Fields to add to a response.
#[derive(Debug)]
pub(super) enum FieldsToSend {
    Nothing,
    /// The state of one limit.
    Limit(Arc<ShownLimit>, Decision),
    /// Anything else, by name.
    Fields(Vec<(&'static str, HeaderValue)>),
}

impl FieldsToSend {
    /// The fields of an answer.
    pub(super) fn by(answer: &Answer) -> Self {
        let mut fields = Vec::with_capacity(USUAL_FIELDS);
        answer.put_header_fields(|name, value| {
            // The values are names and numbers, which can be sent; others would be left out.
            if let Ok(value) = HeaderValue::from_str(value) {
                fields.push((name, value));
            }
        });
        Self::Fields(fields)
    }

    /// Adds one field.
    pub(super) fn add(&mut self, name: &'static str, value: HeaderValue) {
        match self {
            Self::Fields(fields) => fields.push((name, value)),
            // A limit without a policy is in shadow mode with its layer, and adds no fields then.
            Self::Nothing | Self::Limit(..) => *self = Self::Fields(vec![(name, value)]),
        }
    }

    /// Adds the fields to the response.
    pub(super) fn put_into(&mut self, headers: &mut HeaderMap) {
        match self {
            Self::Nothing => {}
            Self::Limit(limit, decision) => limit.put_into(*decision, headers),
            Self::Fields(fields) => {
                for (name, value) in fields.drain(..) {
                    put(headers, name, value);
                }
            }
        }
    }
}

/// Adds a field. Lists are appended to, so that nested layers are all shown; of the others the
/// service's own, or the inner layer's, is kept.
pub(super) fn put(headers: &mut HeaderMap, name: &'static str, value: HeaderValue) {
    const RATELIMIT_POLICY: HeaderName = HeaderName::from_static(names::RATELIMIT_POLICY);
    const RATELIMIT: HeaderName = HeaderName::from_static(names::RATELIMIT);
    let list = match name {
        names::RATELIMIT_POLICY => RATELIMIT_POLICY,
        names::RATELIMIT => RATELIMIT,
        SHADOW => HeaderName::from_static(SHADOW),
        names::RETRY_AFTER => {
            headers.entry(header::RETRY_AFTER).or_insert(value);
            return;
        }
        other => {
            headers.entry(other).or_insert(value);
            return;
        }
    };
    headers.append(list, value);
}

/// Like [`put`], for a text: names and numbers, which can be sent; others are left out.
pub(super) fn put_text(headers: &mut HeaderMap, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        put(headers, name, value);
    }
}
