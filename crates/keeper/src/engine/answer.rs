//! Answer: the decisions of the limits about one request.
//!
//! ```text
//!   outcomes:  per-ip  allow, 12 left     -> headers list both, the tightest first
//!              login   deny, 37 s         -> refused_by: the longest wait decides
//!                                            status, Retry-After and body
//! ```

use std::sync::Arc;

use ratekeeper_core::{Decision, Key, LeaseId, Mode, Nanos, Permits, Time, Verdict};
use ratekeeper_policy::{Charges, Country, Entry, NoCharge, Policy, Rule, Uncharged};
use ratekeeper_store::Decisions;

use crate::report::wait;
use crate::{DecisionId, Outcome};

/// The decisions of the limits about one request.
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
/// let ask = || at_once(keeper.check(&Facts::default(), Scope::All)).unwrap();
/// let statuses = [ask(), ask(), ask()].map(|answer| (answer.allowed(), answer.status()));
/// assert_eq!(statuses, [(true, 200), (true, 200), (false, 429)]);
/// let refused = ask();
/// assert_eq!(&*refused.refused_by().unwrap().rule.limit.name, "api");
/// assert!(refused.retry_after().is_some());
/// # Ok::<(), ratekeeper::OpenError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Answer {
    pub(crate) policy: Arc<Policy>,
    pub(crate) charges: Charges,
    pub(crate) decisions: Decisions,
    decided_at: Time,
    /// How long the request was held back.
    pub(crate) held: Nanos,
    /// The name that holds the lent permits, if the request asked for some.
    pub(crate) lease: Option<LeaseId>,
    /// The charges that a report may correct, if there is a record of them.
    pub(crate) open: Option<Box<DecisionId>>,
    /// True if its charges are among the [`Reservations`](crate::Reservations).
    pub(crate) is_reserved: bool,
    /// Index of the outcome that refuses: used by status, headers and body.
    refused_by: Option<usize>,
}

/// Position in a list of charges.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ChargeSpan {
    pub(crate) entries: usize,
    uncharged: usize,
}

impl ChargeSpan {
    /// The end of the list.
    pub(crate) fn of(charges: &Charges) -> Self {
        Self {
            entries: charges.entries.len(),
            uncharged: charges.uncharged.len(),
        }
    }

    /// Drops the denials after this position that need no decision of the store, and the
    /// exemptions.
    pub(crate) fn drop_refusals_since(self, charges: &mut Charges) {
        charges.uncharged.truncate(self.uncharged);
        let entries = charges.entries.iter_mut().skip(self.entries);
        entries.for_each(|entry| entry.banned = None);
    }
}

impl Answer {
    /// Returns the answer to a request whose charges are not known yet. It is large, so charges and
    /// decisions are put into it where it is.
    #[inline]
    pub(crate) fn unasked(policy: Arc<Policy>, decided_at: Time) -> Self {
        Self {
            policy,
            charges: Charges::default(),
            decisions: Decisions::default(),
            decided_at,
            held: Nanos::ZERO,
            lease: None,
            open: None,
            is_reserved: false,
            refused_by: None,
        }
    }

    /// Sets the decisions about the charges.
    #[inline]
    pub(crate) fn set(&mut self, decisions: Decisions) {
        self.decisions = decisions;
        self.show_bans();
        if self.charges.entries.iter().any(Entry::is_alternative) {
            self.join_waits();
        }
        self.refused_by = self.longest_wait();
    }

    /// Sets the verdicts about keys that an operator has banned, of which the store knows nothing.
    fn show_bans(&mut self) {
        for (entry, decision) in self.charges.entries.iter().zip(&mut self.decisions.each) {
            if let Some(left) = entry.banned {
                let retry_after = left.max(decision.verdict.retry_after().unwrap_or_default());
                *decision = Decision {
                    verdict: Verdict::Banned { retry_after },
                    remaining: Permits::ZERO,
                    reset_after: decision.reset_after.max(left),
                    more_after: decision.more_after.max(left),
                };
            }
        }
    }

    /// Sets the wait of each chain that denies, which is that of its first limit, to the shortest
    /// in the chain, because after it one of the limits lets the request pass.
    fn join_waits(&mut self) {
        let each = &mut self.decisions.each;
        let mut first = 0;
        for at in 1..=each.len() {
            if self
                .charges
                .entries
                .get(at)
                .is_some_and(Entry::is_alternative)
            {
                continue;
            }
            let chain = &mut each[first..at];
            let denies = chain.iter().all(|decision| !decision.verdict.allows());
            let soonest = chain.iter().min_by_key(|decision| wait(decision)).copied();
            if let (true, Some(soonest), [head, ..]) = (denies, soonest, chain) {
                head.verdict = soonest.verdict;
            }
            first = at;
        }
    }

    /// Returns the mode of a charge among those that it depends on.
    fn chain_mode(&self, at: usize) -> Mode {
        let entry = self.charges.entries.get(at);
        entry.map_or(Mode::Enforce, |entry| entry.mode)
    }

    /// Returns true if the charge of an entry was made, provided that the request was admitted.
    pub(crate) fn makes(&self, at: usize) -> bool {
        self.decisions.makes(at, |at| self.chain_mode(at))
    }

    /// Returns the rule of an entry.
    fn rule_at(&self, at: usize) -> Option<&Rule> {
        let entry = self.charges.entries.get(at)?;
        self.policy.rules.get(entry.rule as usize)
    }

    /// Returns true if the request may pass.
    pub fn allowed(&self) -> bool {
        self.decisions.admitted
    }

    /// Returns the policy that decided.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns the country of the request; `None` if no limit depended on it.
    pub fn country(&self) -> Option<Country> {
        self.charges.country
    }

    /// Returns the time of the decision, read before the policy was asked for its limits.
    pub fn decided_at(&self) -> Time {
        self.decided_at
    }

    /// Returns the outcome of each limit, in the policy's order. Limits that deny because a key
    /// part is missing, or because the caller lets no request pass, come last, as `DenyForever`.
    pub fn outcomes(&self) -> impl Iterator<Item = Outcome<'_>> {
        self.outcomes_between(ChargeSpan::default(), ChargeSpan::of(&self.charges))
    }

    /// Like [`outcomes`](Self::outcomes), for a part of the charges.
    pub(crate) fn outcomes_between(
        &self,
        start: ChargeSpan,
        end: ChargeSpan,
    ) -> impl Iterator<Item = Outcome<'_>> {
        let (mut mode, mut outage) = (None, None);
        let decided = (start.entries..end.entries).filter_map(move |at| {
            let entry = self.charges.entries.get(at)?;
            let decision = *self.decisions.each.get(at)?;
            let rule = self.policy.rules.get(entry.rule as usize)?;
            if !entry.is_shown() {
                return None;
            }
            let is_alternative = entry.is_alternative();
            let before = at
                .checked_sub(1)
                .and_then(|at| self.charges.entries.get(at));
            let headroom = before.filter(|before| before.mode == Mode::Headroom);
            let (is_asked, covered_by) = if is_alternative {
                (self.decisions.asks(at, |at| self.chain_mode(at)), None)
            } else {
                mode = Some(entry.mode);
                let limit = self.charges.limit(entry, rule);
                outage = self.decisions.without_store.then_some(limit.outage);
                let covered_by = self.decisions.covered_by(at, |at| self.chain_mode(at));
                (true, covered_by.and_then(|at| self.rule_at(at)))
            };
            let replaced = self.charges.replaced_of(entry);
            Some(Outcome {
                rule,
                limit: self.charges.limit(entry, rule),
                variant: entry.variant_of(rule),
                numbers: replaced.map(|(_, numbers)| *numbers),
                decision,
                key: self.charges.key(entry),
                cost: entry.cost,
                key_missing: entry.fallback,
                covered_by,
                is_asked,
                mode,
                is_alternative,
                headroom: headroom.map_or(Permits::ZERO, |headroom| headroom.cost),
                outage,
            })
        });
        let uncharged = start.uncharged..end.uncharged;
        let uncharged = self.charges.uncharged.get(uncharged).unwrap_or_default();
        // Missing keys come first.
        let missing = |it: &&Uncharged| it.reason.numbers().is_none();
        let denials = uncharged.iter().filter(missing);
        let denials = denials.chain(uncharged.iter().filter(move |it| !missing(it)));
        let unasked = denials.filter_map(|denial| {
            let rule = self.policy.rules.get(denial.rule as usize)?;
            let (mode, numbers) = (denial.reason.mode()?, denial.reason.numbers());
            Some(Outcome {
                rule,
                limit: &rule.limit,
                variant: None,
                numbers,
                decision: Decision::without_times(Verdict::DenyForever, Permits::ZERO),
                key: Key::ALL,
                cost: Permits::ZERO,
                key_missing: numbers.is_none(),
                covered_by: None,
                is_asked: true,
                mode: Some(mode),
                is_alternative: false,
                headroom: Permits::ZERO,
                outage: None,
            })
        });
        decided.chain(unasked)
    }

    /// Returns the limits that were not asked because the request is exempt from them.
    pub fn exempt(&self) -> impl Iterator<Item = &Rule> {
        let exempt = |it: &&Uncharged| it.reason == NoCharge::Exempt;
        let exempt = self.charges.uncharged.iter().filter(exempt);
        exempt.filter_map(|it| self.policy.rules.get(it.rule as usize))
    }

    /// Returns the limit that refuses: the one with the longest wait, if there are several.
    pub fn refused_by(&self) -> Option<Outcome<'_>> {
        let index = self.refused_by?;
        self.outcomes().nth(index)
    }

    fn longest_wait(&self) -> Option<usize> {
        if self.allowed() {
            return None;
        }
        let refusals = self.outcomes().enumerate();
        let refusals = refusals.filter(|(_, outcome)| outcome.refuses());
        // The first of equals, so that the policy's order decides.
        let longest = refusals.reduce(|worst, next| {
            if wait(&next.1.decision) > wait(&worst.1.decision) {
                next
            } else {
                worst
            }
        });
        longest.map(|(index, _)| index)
    }

    /// Returns how long a refused client must wait; `None` if the request is allowed, or if waiting
    /// does not help.
    pub fn retry_after(&self) -> Option<Nanos> {
        self.refused_by()?.decision.verdict.retry_after()
    }

    /// Returns how long an allowed request must be held back (shaping); usually zero.
    pub fn delay(&self) -> Nanos {
        self.delayed_by().map_or(Nanos::ZERO, |(_, wait)| wait)
    }

    /// Returns the limit that holds an allowed request back for the longest time, and the time.
    pub fn delayed_by(&self) -> Option<(Outcome<'_>, Nanos)> {
        let waits = |it: &Decision| matches!(it.verdict, Verdict::AllowAfter(_));
        let outcomes = self
            .decisions
            .each
            .iter()
            .any(waits)
            .then(|| self.outcomes());
        let enforced = outcomes.into_iter().flatten();
        let enforced = enforced.filter(|outcome| outcome.mode() == Some(Mode::Enforce));
        let delays = enforced.filter_map(|outcome| match outcome.decision.verdict {
            Verdict::AllowAfter(wait) => Some((outcome, wait)),
            _ => None,
        });
        delays.max_by_key(|(_, wait)| *wait)
    }

    /// Returns the answer after the request was held back for `span`: limits with a wait of at most
    /// `span` allow it at once.
    #[must_use]
    pub fn held_for(mut self, span: Nanos) -> Self {
        self.held = self.held + span;
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

    /// Returns the refusal of a request that could not be held back: each limit that delayed it
    /// denies it, for as long as the delay.
    #[must_use]
    pub fn turned_away(mut self) -> Self {
        let mut mode = None;
        let held = self.charges.entries.iter().map(|entry| {
            if !entry.is_alternative() {
                mode = Some(entry.mode);
            }
            entry.is_shown() && mode == Some(Mode::Enforce)
        });
        let held: Vec<bool> = held.collect();
        for (decision, enforced) in self.decisions.each.iter_mut().zip(held) {
            if let (Verdict::AllowAfter(wait), true) = (decision.verdict, enforced) {
                decision.verdict = Verdict::Deny { retry_after: wait };
                self.decisions.admitted = false;
            }
        }
        self.refused_by = self.longest_wait();
        if !self.allowed() {
            self.open = None;
            self.is_reserved = false;
        }
        self
    }
}
