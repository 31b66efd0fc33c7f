//! Answer: what the limits said about one request.
//!
//! ```text
//!   outcomes:  per-ip  allow, 12 left     -> headers list both, the tightest first
//!              login   deny, 37 s         -> refused_by: the longest wait decides
//!                                            status, Retry-After and body
//! ```

use std::sync::Arc;

use ratekeeper_core::{Decision, Key, LeaseId, Limit, Mode, Nanos, Permits, Time, Verdict};
use ratekeeper_policy::{Charges, Numbers, Policy, Rule};
use ratekeeper_store::Decisions;

/// What the limits said about one request.
#[derive(Clone, Debug)]
pub struct Answer {
    policy: Arc<Policy>,
    charges: Charges,
    decisions: Decisions,
    decided_at: Time,
    /// The name that permits were lent to, if the request asked for some.
    pub(crate) lease: Option<LeaseId>,
    /// Which outcome refuses: status, headers and body all ask.
    refused_by: Option<usize>,
}

/// How far a list of charges reaches.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ChargeSpan {
    pub(crate) entries: usize,
    missing: usize,
    barred: usize,
}

impl ChargeSpan {
    /// All of it.
    pub(crate) fn of(charges: &Charges) -> Self {
        Self {
            entries: charges.entries.len(),
            missing: charges.missing.len(),
            barred: charges.barred.len(),
        }
    }

    /// Drops what refuses without being asked beyond here.
    pub(crate) fn forget_refusals_since(self, charges: &mut Charges) {
        charges.missing.truncate(self.missing);
        charges.barred.truncate(self.barred);
    }
}

/// What one limit said.
#[derive(Clone, Copy, Debug)]
pub struct Outcome<'a> {
    /// The limit.
    pub rule: &'a Rule,
    /// What decided: the rule's own limit, or the same with numbers of the caller.
    pub limit: &'a Limit,
    /// Its decision.
    pub decision: Decision,
    /// Who was counted.
    pub key: Key<'a>,
    /// What the request costs under this limit.
    pub cost: Permits,
    /// The numbers of the caller, if they stand in place of the rule's own.
    pub numbers: Option<Numbers>,
    /// A key part was missing: something else stood in, or the request was refused for it.
    pub key_missing: bool,
}

impl Outcome<'_> {
    /// What the limit holds at most.
    pub fn quota(&self) -> Permits {
        self.numbers.map_or(self.rule.quota, Numbers::permits)
    }

    /// The span of the quota; none for months and years of the calendar.
    pub fn window(&self) -> Option<Nanos> {
        self.numbers
            .map_or(self.rule.window, |numbers| Some(numbers.per()))
    }

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
    #[inline]
    pub(crate) fn new(
        policy: Arc<Policy>,
        charges: Charges,
        decisions: Decisions,
        decided_at: Time,
    ) -> Self {
        let mut answer = Self {
            policy,
            charges,
            decisions,
            decided_at,
            lease: None,
            refused_by: None,
        };
        answer.refused_by = answer.longest_wait();
        answer
    }

    /// The same answer to a request that took permits by that name.
    pub(crate) fn lent_to(self, lease: LeaseId) -> Self {
        let lease = Some(lease);
        Self { lease, ..self }
    }

    /// Whether the request may pass.
    pub fn allowed(&self) -> bool {
        self.decisions.admitted
    }

    /// The policy that decided.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The time the limits saw, read before the policy was asked which they are.
    pub fn decided_at(&self) -> Time {
        self.decided_at
    }

    /// What each limit said, in the policy's order; those that deny because a key part is
    /// missing, or because the caller lets nobody pass, come last, as `DenyForever`.
    pub fn outcomes(&self) -> impl Iterator<Item = Outcome<'_>> {
        self.outcomes_between(ChargeSpan::default(), ChargeSpan::of(&self.charges))
    }

    /// As [`outcomes`](Self::outcomes), of a part of the charges.
    pub(crate) fn outcomes_between(
        &self,
        start: ChargeSpan,
        end: ChargeSpan,
    ) -> impl Iterator<Item = Outcome<'_>> {
        let decided = self.charges.entries.iter().zip(&self.decisions.each);
        let decided = decided.take(end.entries).skip(start.entries);
        let decided = decided.filter_map(|(entry, &decision)| {
            let rule = self.policy.rules.get(entry.rule as usize)?;
            let replaced = self.charges.replaced_of(entry);
            Some(Outcome {
                rule,
                limit: replaced.map_or(&rule.limit, |(limit, _)| limit),
                numbers: replaced.map(|(_, numbers)| *numbers),
                decision,
                key: self.charges.key(entry),
                cost: entry.cost,
                key_missing: entry.fallback,
            })
        });
        let missing = self.charges.missing.iter();
        let missing = missing.take(end.missing).skip(start.missing);
        let barred = self.charges.barred.iter();
        let barred = barred.take(end.barred).skip(start.barred);
        let unasked = missing.map(|rule| (*rule, None));
        let unasked = unasked.chain(barred.map(|(rule, numbers)| (*rule, Some(*numbers))));
        let unasked = unasked.filter_map(|(rule, numbers)| {
            let rule = self.policy.rules.get(rule as usize)?;
            Some(Outcome {
                rule,
                limit: &rule.limit,
                numbers,
                decision: Decision {
                    verdict: Verdict::DenyForever,
                    remaining: Permits::ZERO,
                    reset_after: Nanos::ZERO,
                    more_after: Nanos::ZERO,
                },
                key: Key::ALL,
                cost: Permits::ZERO,
                key_missing: numbers.is_none(),
            })
        });
        decided.chain(unasked)
    }

    /// The limit that refuses; of several, the one with the longest wait.
    pub fn refused_by(&self) -> Option<Outcome<'_>> {
        self.outcomes().nth(self.refused_by?)
    }

    fn longest_wait(&self) -> Option<usize> {
        if self.allowed() {
            return None;
        }
        let refusals = self.outcomes().enumerate();
        let refusals = refusals.filter(|(_, outcome)| outcome.refuses());
        // The first of equals, so that the policy's order decides.
        let longest = refusals.reduce(|worst, next| {
            if next.1.wait() > worst.1.wait() {
                next
            } else {
                worst
            }
        });
        longest.map(|(index, _)| index)
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

    /// The answer once the request has been held back for `span`: what had to wait so long
    /// may go now.
    #[must_use]
    pub fn held_for(mut self, span: Nanos) -> Self {
        for decision in &mut self.decisions.each {
            if let Verdict::AllowAfter(wait) = decision.verdict {
                let rest = wait.saturating_sub(span);
                decision.verdict = match rest {
                    Nanos::ZERO => Verdict::Allow,
                    rest => Verdict::AllowAfter(rest),
                };
            }
            decision.reset_after = decision.reset_after.saturating_sub(span);
        }
        self
    }

    /// The refusal of a request that could not be held back: each limit that wanted it to wait
    /// denies it, for as long as it would have waited.
    #[must_use]
    pub fn turned_away(mut self) -> Self {
        let held: Vec<bool> = self
            .outcomes()
            .map(|outcome| outcome.mode() == Some(Mode::Enforce))
            .collect();
        for (decision, enforced) in self.decisions.each.iter_mut().zip(held) {
            if let (Verdict::AllowAfter(wait), true) = (decision.verdict, enforced) {
                decision.verdict = Verdict::Deny { retry_after: wait };
                self.decisions.admitted = false;
            }
        }
        self.refused_by = self.longest_wait();
        self
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
