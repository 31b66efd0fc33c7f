//! Credential: the API key and the bearer token of a request.

use crate::request::{RequestFacts, trim};

/// One of the credentials of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Credential {
    /// `x-api-key`, or the bearer token of a request without it.
    First,
    /// The bearer token of a request that has another `x-api-key`.
    Second,
}

impl Credential {
    /// Returns the value of the credential, if the request has it.
    pub(crate) fn of<'a>(self, request: &RequestFacts<'a>) -> Option<&'a [u8]> {
        let (api_key, bearer) = (request.headers("x-api-key").next(), bearer(request));
        match self {
            Self::First => api_key.or(bearer),
            Self::Second => bearer.filter(|bearer| api_key.is_some_and(|key| key != *bearer)),
        }
    }
}

/// Returns the token of `authorization: Bearer`.
pub(super) fn bearer<'a>(request: &RequestFacts<'a>) -> Option<&'a [u8]> {
    let token = |value: &'a [u8]| {
        let (scheme, token) = value.split_at_checked("Bearer ".len())?;
        scheme.eq_ignore_ascii_case(b"Bearer ").then(|| trim(token))
    };
    let mut values = request.headers("authorization");
    values.find_map(token).filter(|token| !token.is_empty())
}
