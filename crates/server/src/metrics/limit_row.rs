//! Limit row: the counters of one limit, and what a decision adds to them.
//!
//! ```text
//!   decision --> mode (enforce, shadow) x effect (allowed, denied, queued, covered) += 1
//!                allowed with more than 80 % spent: near += 1
//!                highest share that a key has spent: kept until it is read
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ratekeeper::Outcome;
use ratekeeper_core::{LimitId, Mode, Permits, Verdict};
use ratekeeper_policy::{Allowance, Plans, Rule, RuleMode};

use super::{Counter, Tally};

/// Percentage of a limit above which an allowed request counts as near it.
const NEAR_PERCENT: u64 = 80;

/// Number of effects.
pub(super) const EFFECTS: usize = 4;

/// The effect of a limit on a request.
#[derive(Clone, Copy, Debug)]
enum Did {
    Allowed,
    Denied,
    Queued,
    /// Denied, and let through by another limit.
    Covered,
}

/// The counters of one limit.
#[derive(Debug)]
pub(super) struct LimitRow {
    pub(super) id: LimitId,
    pub(super) name: Arc<str>,
    pub(super) mode: RuleMode,
    /// By mode (enforce, shadow), then by effect (allowed, denied, queued, covered).
    pub(super) decisions: [[Counter; EFFECTS]; 2],
    /// The same in cost.
    pub(super) units: [[Counter; EFFECTS]; 2],
    pub(super) near: Counter,
    pub(super) key_missing: Counter,
    /// True if the limit bans keys.
    pub(super) has_ban: bool,
    /// Bans that began, by mode.
    pub(super) bans: [Counter; 2],
    /// Highest share of the limit that a key had spent since the last reading, in percent.
    highest: AtomicU64,
    /// Denials of requests without priority while the limit had room for them.
    pub(super) shed: Counter,
    /// Denials by the numbers of plans; empty if the limit has no `plans`.
    pub(super) plans: Vec<PlanDenials>,
}

/// Denials of the keys with the numbers of a plan. Plans with the limit's own numbers are counted
/// together, and with them the keys that have no plan.
#[derive(Debug)]
pub(super) struct PlanDenials {
    limit: LimitId,
    /// Name of the plan, or of several.
    pub(super) name: Arc<str>,
    pub(super) denied: Counter,
}

impl PlanDenials {
    /// Returns the counters of a rule. One with a day of the month for each key has none: its
    /// plans have 31 limits each.
    fn of(rule: &Rule, plans: Option<&Plans>) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        if rule.variants.day_attribute().is_some() {
            return all;
        }
        for (name, allowance) in plans.into_iter().flat_map(|plans| rule.plans(plans)) {
            let limit = match allowance {
                Allowance::Own => rule.limit.id,
                Allowance::Variant(index) => match rule.variants.numbers().get(index as usize) {
                    Some(variant) => variant.limit.id,
                    None => continue,
                },
                Allowance::Unlimited | Allowance::Blocked => continue, // no limit decides
            };
            match all.iter_mut().find(|known| known.limit == limit) {
                Some(known) => known.name = format!("{}, {name}", known.name).into(),
                None => all.push(Self {
                    limit,
                    name: name.into(),
                    denied: Counter::default(),
                }),
            }
        }
        all
    }

    fn is_same(&self, other: &Self) -> bool {
        self.limit == other.limit && self.name == other.name
    }
}

impl LimitRow {
    pub(super) fn new(rule: &Rule, plans: Option<&Plans>) -> Self {
        Self {
            id: rule.limit.id,
            name: Arc::clone(&rule.limit.name),
            mode: rule.mode,
            has_ban: rule.limit.algorithm.bans().is_some(),
            bans: Default::default(),
            decisions: Default::default(),
            units: Default::default(),
            near: Counter::default(),
            key_missing: Counter::default(),
            highest: AtomicU64::new(0),
            shed: Counter::default(),
            plans: PlanDenials::of(rule, plans),
        }
    }

    pub(super) fn is_of(&self, rule: &Rule, plans: Option<&Plans>) -> bool {
        let plans = PlanDenials::of(rule, plans);
        self.mode == rule.mode
            && self.has_ban == rule.limit.algorithm.bans().is_some()
            && self.plans.len() == plans.len()
            && plans.iter().zip(&self.plans).all(|(a, b)| a.is_same(b))
    }

    /// Returns the same counts under a changed rule. A request that is being counted right now may
    /// be lost; decisions themselves are not touched.
    pub(super) fn under(&self, rule: &Rule, plans: Option<&Plans>) -> Self {
        let new = Self::new(rule, plans);
        for plan in &new.plans {
            if let Some(known) = self.plans.iter().find(|known| known.is_same(plan)) {
                plan.denied.add(known.denied.count());
            }
        }
        let copy = |counter: &Counter| Counter::at(counter.count());
        let copies = |counters: &[Counter; EFFECTS]| counters.each_ref().map(copy);
        Self {
            decisions: self.decisions.each_ref().map(copies),
            units: self.units.each_ref().map(copies),
            near: copy(&self.near),
            key_missing: copy(&self.key_missing),
            bans: self.bans.each_ref().map(copy),
            shed: copy(&self.shed),
            ..new
        }
    }

    /// Returns the counts in the form of the history.
    pub(super) fn tally(&self) -> Tally {
        let [enforce, shadow] = &self.decisions;
        let passed = [Did::Allowed, Did::Queued, Did::Covered].map(|did| {
            let did = did as usize;
            enforce[did].count() + shadow[did].count()
        });
        Tally {
            allowed: passed.iter().sum(),
            denied: enforce[Did::Denied as usize].count(),
            other: shadow[Did::Denied as usize].count(),
            highest: 0,
        }
    }

    pub(super) fn record(&self, outcome: &Outcome<'_>, admitted: bool) {
        let did = match outcome.decision.verdict {
            _ if !outcome.is_asked => return,
            verdict if !verdict.allows() && outcome.covered_by.is_some() => {
                if !admitted {
                    return;
                }
                Did::Covered
            }
            Verdict::Allow | Verdict::AllowAfter(_) if !admitted => return,
            Verdict::Allow => Did::Allowed,
            Verdict::AllowAfter(_) => Did::Queued,
            _ => Did::Denied,
        };
        let is_spent = matches!(did, Did::Covered | Did::Denied);
        if is_spent {
            self.record_denial(outcome);
        }
        self.note_highest(outcome, is_spent);
        if outcome.key_missing {
            self.key_missing.add(1);
        }
        let shadow = usize::from(outcome.mode() == Some(Mode::Shadow));
        self.decisions[shadow][did as usize].add(1);
        self.units[shadow][did as usize].add(outcome.cost.get());
        if matches!(outcome.decision.verdict, Verdict::Ban { .. }) {
            self.bans[shadow].add(1);
        } else if !is_spent && near(outcome.quota(), outcome.decision.remaining) {
            self.near.add(1);
        }
    }

    fn record_denial(&self, outcome: &Outcome<'_>) {
        let has_room = outcome.decision.remaining >= outcome.cost;
        if outcome.headroom > Permits::ZERO && has_room {
            self.shed.add(1);
        }
        // A key that is missing or blocked is denied without a limit.
        let no_limit = outcome.decision.verdict == Verdict::DenyForever;
        if outcome.numbers.is_none() && !no_limit {
            let mut plans = self.plans.iter();
            if let Some(plan) = plans.find(|plan| plan.limit == outcome.limit.id) {
                plan.denied.add(1);
            }
        }
    }

    /// Notes the share of the limit that the key has spent, if none was higher.
    fn note_highest(&self, outcome: &Outcome<'_>, is_spent: bool) {
        let quota = outcome.quota().get();
        let spent = (outcome.quota() - outcome.decision.remaining).get() * 100;
        let highest = self.highest.load(Ordering::Relaxed);
        // Compared without a division, and written only if it is higher.
        if highest < 100 && (is_spent || spent >= quota * (highest + 1)) {
            let percent = spent.checked_div(quota).filter(|_| !is_spent);
            let percent = percent.map_or(100, |percent| percent.min(100));
            self.highest.fetch_max(percent, Ordering::Relaxed);
        }
    }

    /// Returns the highest share that a key had spent since the last reading, in percent.
    pub(super) fn take_highest(&self) -> u8 {
        let highest = self.highest.swap(0, Ordering::Relaxed);
        u8::try_from(highest).unwrap_or(u8::MAX)
    }
}

/// Returns true if more than [`NEAR_PERCENT`] of `quota` is spent.
fn near(quota: Permits, remaining: Permits) -> bool {
    let spent = (quota - remaining).get();
    spent * 100 > quota.get() * NEAR_PERCENT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_is_above_four_fifths() {
        let near = |remaining| near(Permits::new(10), Permits::new(remaining));
        assert!(!near(10));
        assert!(!near(2), "80 % is not above 80 %");
        assert!(near(1));
        assert!(!near(11), "more than the quota is not near");
    }
}
