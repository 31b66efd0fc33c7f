//! Answer: what the limits said about one request. Skeleton.

use std::sync::Arc;

use ratekeeper_core::{Decision, Key, Nanos, Permits};
use ratekeeper_policy::{Charges, Policy, Rule};
use ratekeeper_store::Decisions;

/// What the limits said about one request.
#[derive(Clone, Debug)]
pub struct Answer {
    policy: Arc<Policy>,
    charges: Charges,
    decisions: Decisions,
}

/// What one limit said.
#[derive(Clone, Copy, Debug)]
pub struct Outcome<'a> {
    /// The limit.
    pub rule: &'a Rule,
    /// Its decision.
    pub decision: Decision,
    /// Who was counted.
    pub key: Key<'a>,
    /// What it cost.
    pub cost: Permits,
    /// A key part was missing: something else stood in, or the request was refused for it.
    pub key_missing: bool,
}

impl Answer {
    pub(crate) fn new(policy: Arc<Policy>, charges: Charges, decisions: Decisions) -> Self {
        Self {
            policy,
            charges,
            decisions,
        }
    }
    /// Whether the request may pass.
    pub fn allowed(&self) -> bool {
        self.decisions.admitted
    }
    /// The policy that decided.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }
    /// What each limit said, in the policy's order; those that refused for a missing key
    /// come last, as `DenyForever`.
    pub fn outcomes(&self) -> impl Iterator<Item = Outcome<'_>> {
        let _ = &self.charges;
        std::iter::empty()
    }
    /// The limit that refused, the one with the longest wait if there are several.
    pub fn refused_by(&self) -> Option<Outcome<'_>> {
        todo!()
    }
    /// How long a refused client should wait; none if allowed, or if waiting is no use.
    pub fn retry_after(&self) -> Option<Nanos> {
        todo!()
    }
    /// How long an allowed request must be held back (shaping); zero for most.
    pub fn delay(&self) -> Nanos {
        todo!()
    }
    /// Limits in shadow mode that would have refused.
    pub fn shadow_denials(&self) -> impl Iterator<Item = Outcome<'_>> {
        std::iter::empty()
    }
    /// Header fields for the client, in the policy's style: `RateLimit-Policy`, `RateLimit`,
    /// `X-RateLimit-*`, and `Retry-After` where refused.
    pub fn header_fields(&self) -> Vec<(&'static str, String)> {
        todo!()
    }
    /// HTTP status of the refusal (the binding limit's own, 429 by default).
    pub fn status(&self) -> u16 {
        todo!()
    }
    /// Content type and body of the refusal, as the policy wants it; none for no body.
    pub fn body(&self) -> Option<(String, String)> {
        todo!()
    }
}
