//! Pass: a request that may pass, and what its client is told in the fields of the answer.
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

use super::described::Shown;
use super::gate::RequestHold;
use crate::Answer;
use crate::headers::names;

/// The limits in shadow mode that would have refused.
pub(super) const SHADOW: &str = "x-ratekeeper-shadow";

/// Those of the usual style, and one of limits in shadow mode.
const USUAL_FIELDS: usize = 3;

/// A request that may pass.
#[derive(Debug)]
#[expect(unnameable_types, reason = "gates are made in this module only")]
pub struct Pass {
    pub(super) told: FieldsToSend,
    pub(super) delay: Nanos,
    pub(super) hold: Option<RequestHold>,
}

/// What a client is told in the fields of its answer.
#[derive(Debug)]
pub(super) enum FieldsToSend {
    Nothing,
    /// How one limit stands.
    Limit(Arc<Shown>, Decision),
    /// Anything else, by name.
    Fields(Vec<(&'static str, HeaderValue)>),
}

impl FieldsToSend {
    /// What an answer says.
    pub(super) fn by(answer: &Answer) -> Self {
        let mut fields = Vec::with_capacity(USUAL_FIELDS);
        answer.put_header_fields(|name, value| {
            // Names and numbers, which can be sent; another would be left out.
            if let Ok(value) = HeaderValue::from_str(value) {
                fields.push((name, value));
            }
        });
        Self::Fields(fields)
    }

    /// One field more.
    pub(super) fn add(&mut self, name: &'static str, value: HeaderValue) {
        match self {
            Self::Fields(fields) => fields.push((name, value)),
            // A limit without a policy is in shadow mode with its layer, and says nothing then.
            Self::Nothing | Self::Limit(..) => *self = Self::Fields(vec![(name, value)]),
        }
    }

    /// Adds it to the fields of the answer.
    pub(super) fn put_into(&mut self, headers: &mut HeaderMap) {
        match self {
            Self::Nothing => {}
            Self::Limit(shown, decision) => shown.tell(*decision, headers),
            Self::Fields(fields) => {
                for (name, value) in fields.drain(..) {
                    put(headers, name, value);
                }
            }
        }
    }
}

/// Adds a field. Lists grow, so that layers upon each other are all shown; of the others the
/// service's own, or the inner layer's, stay.
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

/// As [`put`], of a text: names and numbers, which can be sent; another is left out.
pub(super) fn put_text(headers: &mut HeaderMap, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        put(headers, name, value);
    }
}
