//! Answer: what the limits said about one request.
//!
//! ```text
//!   outcomes:  per-ip  allow, 12 left     -> headers list both, the tightest first
//!              login   deny, 37 s         -> refused_by: the longest wait decides
//!                                            status, Retry-After and body
//! ```

use std::sync::Arc;

use ratekeeper_core::{Decision, Key, Mode, Nanos, Permits, Verdict};
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
    /// What the request costs under this limit.
    pub cost: Permits,
    /// A key part was missing: something else stood in, or the request was refused for it.
    pub key_missing: bool,
}

impl Outcome<'_> {
    /// Whether this limit refuses the request: it denies, and it is enforced.
    pub fn refuses(&self) -> bool {
        !self.decision.verdict.allows() && self.mode() == Some(Mode::Enforce)
    }

    /// Whether this limit would refuse the request if it were enforced.
    pub fn shadow_denies(&self) -> bool {
        !self.decision.verdict.allows() && self.mode() == Some(Mode::Shadow)
    }

    /// The mode it was decided in.
    pub fn mode(&self) -> Option<Mode> {
        self.rule.mode.charge_mode()
    }

    /// Orders refusals: the longer wait is the worse; forever is the worst.
    pub(crate) fn wait(&self) -> Nanos {
        match self.decision.verdict {
            Verdict::Allow | Verdict::AllowAfter(_) => Nanos::ZERO,
            Verdict::Deny { retry_after } => retry_after,
            Verdict::DenyForever => Nanos::MAX,
        }
    }
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

    /// What each limit said, in the policy's order; those that deny because a key part is
    /// missing come last, as `DenyForever`.
    pub fn outcomes(&self) -> impl Iterator<Item = Outcome<'_>> {
        let decided = self.charges.entries.iter().zip(&self.decisions.each);
        let decided = decided.filter_map(|(entry, &decision)| {
            Some(Outcome {
                rule: self.policy.rules.get(entry.rule as usize)?,
                decision,
                key: self.charges.key(entry),
                cost: entry.cost,
                key_missing: entry.fallback,
            })
        });
        let missing = self.charges.missing.iter().filter_map(|&rule| {
            Some(Outcome {
                rule: self.policy.rules.get(rule as usize)?,
                decision: Decision {
                    verdict: Verdict::DenyForever,
                    remaining: Permits::ZERO,
                    reset_after: Nanos::ZERO,
                },
                key: Key::ALL,
                cost: Permits::ZERO,
                key_missing: true,
            })
        });
        decided.chain(missing)
    }

    /// The limit that refuses; of several, the one with the longest wait.
    pub fn refused_by(&self) -> Option<Outcome<'_>> {
        if self.allowed() {
            return None;
        }
        // The first of equals, so that the policy's order decides.
        self.outcomes()
            .filter(Outcome::refuses)
            .reduce(|worst, next| {
                if next.wait() > worst.wait() {
                    next
                } else {
                    worst
                }
            })
    }

    /// How long a refused client must wait; none if it is allowed, or if waiting is no use.
    pub fn retry_after(&self) -> Option<Nanos> {
        self.refused_by()?.decision.verdict.retry_after()
    }

    /// How long an allowed request is to be held back (shaping); zero for most.
    pub fn delay(&self) -> Nanos {
        let delays = self
            .outcomes()
            .filter(|outcome| outcome.mode() == Some(Mode::Enforce));
        let delays = delays.filter_map(|outcome| match outcome.decision.verdict {
            Verdict::AllowAfter(wait) => Some(wait),
            _ => None,
        });
        delays.max().unwrap_or_default()
    }

    /// Limits in shadow mode that would refuse.
    pub fn shadow_denials(&self) -> impl Iterator<Item = Outcome<'_>> {
        self.outcomes().filter(Outcome::shadow_denies)
    }

    /// HTTP status of the refusal: the refusing limit's own, 429 unless the policy says
    /// otherwise; 200 if allowed.
    pub fn status(&self) -> u16 {
        self.refused_by()
            .map_or(200, |outcome| outcome.rule.refusal.status)
    }
}
