//! Exemption: requests that some limits do not count.

use crate::{Facts, Matcher, RequestFacts};

/// `[[exempt]]`: requests that some limits do not count.
#[derive(Clone, Debug)]
pub struct Exemption {
    /// Requests that are exempt.
    pub matcher: Matcher,
    /// Reason, for the record.
    pub reason: String,
}

impl Exemption {
    /// Returns true if it has descriptor fields; then it exempts nothing else.
    pub fn for_descriptors(&self) -> bool {
        let mut fields = self.matcher.fields.iter();
        fields.any(|(field, _)| field.is_of_descriptors())
    }

    /// Returns true if it exempts this request from the limits it names.
    pub fn exempts(&self, facts: &Facts<'_>) -> bool {
        self.holds(&RequestFacts::new(facts))
    }

    /// Like [`exempts`](Self::exempts), for a request that was read already.
    #[inline]
    pub(crate) fn holds(&self, request: &RequestFacts<'_>) -> bool {
        let is_of_its_kind = self.for_descriptors() == request.facts.descriptor.is_some();
        is_of_its_kind && self.matcher.exempts(request)
    }
}
