//! Outcome: the decision of one limit about a request, as callers see it.

use ratekeeper_core::{Decision, Key, Limit, Mode, Nanos, Outage, Permits};
use ratekeeper_policy::{Numbers, Role, Rule, RuleMode, Variant};

use crate::LimitReport;

/// The decision of one limit.
///
/// ```
/// use ratekeeper::policy::Facts;
/// use ratekeeper::{Keeper, Scope, at_once};
///
/// let keeper = Keeper::open(
///     r#"
///     version = 1
///     [[limit]]
///     name  = "api"
///     key   = ["all"]
///     limit = "2/1h"
///     "#,
/// )?;
/// let answer = at_once(keeper.check(&Facts::default(), Scope::All)).unwrap();
/// let outcome = answer.outcomes().next().expect("the one limit");
/// assert_eq!((outcome.text(), outcome.remaining().get()), ("2/1h", 1));
/// assert!(!outcome.refuses());
/// # Ok::<(), ratekeeper::OpenError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Outcome<'a> {
    /// The limit.
    pub rule: &'a Rule,
    /// The limit that decided: the rule's own, a variant, or the same with numbers of the caller.
    pub limit: &'a Limit,
    /// Its decision.
    pub decision: Decision,
    /// The key that was counted.
    pub key: Key<'a>,
    /// The cost of the request under this limit.
    pub cost: Permits,
    /// The rule's other numbers, if the key has a plan or an override with such.
    pub variant: Option<&'a Variant>,
    /// The numbers that replace the policy's: the caller's, or none at all for a blocked
    /// key.
    pub numbers: Option<Numbers>,
    /// True if a key part was missing: another key was used, or the request was refused for it.
    pub key_missing: bool,
    /// The rule that allows the request in place of this one, which denies it.
    pub covered_by: Option<&'a Rule>,
    /// False for an alternative that was not needed: it shows its key unchanged.
    pub is_asked: bool,
    /// The mode of the first limit of its chain.
    pub(crate) mode: Option<Mode>,
    /// True if it is asked only when another limit denies.
    pub(crate) is_alternative: bool,
    /// The room that the request must leave to requests with priority.
    pub headroom: Permits,
    /// Its choice for an outage, by which it decided without the store; `None` if the store
    /// decided.
    pub outage: Option<Outage>,
}

impl<'a> Outcome<'a> {
    /// Returns the policy's numbers for the key in words.
    pub fn text(&self) -> &'a str {
        self.variant
            .map_or(&self.rule.text, |variant| &variant.text)
    }

    /// Returns the maximum that the limit holds.
    pub fn quota(&self) -> Permits {
        let own = self
            .variant
            .map_or(self.rule.quota, |variant| variant.quota);
        self.numbers.map_or(own, Numbers::permits)
    }

    /// Returns the span of the quota; `None` for months and years of the calendar.
    pub fn window(&self) -> Option<Nanos> {
        let own = self
            .variant
            .map_or(self.rule.window, |variant| variant.window);
        self.numbers.map_or(own, |numbers| Some(numbers.per()))
    }

    /// Returns true if this limit refuses the request: it is enforced, and denies with all of its
    /// alternatives.
    pub fn refuses(&self) -> bool {
        self.denies() && self.mode == Some(Mode::Enforce)
    }

    /// Returns true if this limit would refuse the request if it were enforced.
    pub fn shadow_denies(&self) -> bool {
        self.denies() && self.mode == Some(Mode::Shadow) && self.diverts_to().is_none()
    }

    /// Returns the name of the route for the request, if this limit denies it and sends it there in
    /// place of refusing it (`on_limit`).
    pub fn diverts_to(&self) -> Option<&'a str> {
        // A limit that is enforced decides in shadow mode only for a caller with its route.
        let is_diverted =
            self.denies() && self.mode == Some(Mode::Shadow) && self.rule.mode == RuleMode::Enforce;
        self.rule.on_limit.as_deref().filter(|_| is_diverted)
    }

    /// Returns true if it denies, and no other limit allows in its place.
    fn denies(&self) -> bool {
        let is_covered = self.covered_by.is_some() || self.is_alternative;
        !self.decision.verdict.allows() && !is_covered
    }

    /// Returns the permits that remain for requests of this kind: without those that are kept for
    /// requests with priority.
    pub fn remaining(&self) -> Permits {
        self.decision.remaining - self.headroom
    }

    /// Returns true if the request passes only because the limit is soft.
    pub fn is_soft(&self) -> bool {
        let covering = self.covered_by.map(|rule| &rule.role);
        matches!(covering, Some(Role::Soft))
    }

    /// Returns the mode of its decision: of an alternative, the mode of the limit that asks it.
    pub fn mode(&self) -> Option<Mode> {
        self.mode
    }

    /// Returns the outcome as clients are shown it.
    pub fn report(&self) -> LimitReport<'a> {
        let algorithm = &self.limit.algorithm;
        let is_level = algorithm.concurrency().is_some();
        let window = self.window();
        let more_after = algorithm.effective_window(&self.decision).or(window);
        LimitReport {
            name: &self.rule.limit.name,
            quota: self.quota(),
            window,
            more_after: more_after.filter(|_| !is_level),
            is_level,
            text: self.numbers.map_or(self.text(), |_| ""),
            unit: self.rule.unit.as_ref(),
            decision: Decision {
                remaining: self.remaining(),
                ..self.decision
            },
            cost: self.cost,
            // Where another key was counted, the request has a cost.
            key_missing: self.key_missing && self.cost == Permits::ZERO,
            outage: self.outage,
            refusal: &self.rule.refusal,
        }
    }
}
