//! Limit row: the counters of one limit, and what a decision adds to them.
//!
//! ```text
//!   decision --> mode (enforce, shadow) x effect (allowed, denied, queued, covered) += 1
//!                allowed with more than 80 % spent: near += 1
//! ```

use std::sync::Arc;

use ratekeeper::Outcome;
use ratekeeper_core::{LimitId, Mode, Permits, Verdict};
use ratekeeper_policy::{Rule, RuleMode};

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
}

impl LimitRow {
    pub(super) fn new(rule: &Rule) -> Self {
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
        }
    }

    pub(super) fn is_of(&self, rule: &Rule) -> bool {
        self.mode == rule.mode && self.has_ban == rule.limit.algorithm.bans().is_some()
    }

    /// Returns the same counts under a changed rule. A request that is being counted right now may
    /// be lost; decisions themselves are not touched.
    pub(super) fn under(&self, rule: &Rule) -> Self {
        let copy = |counter: &Counter| Counter::at(counter.count());
        let copies = |counters: &[Counter; EFFECTS]| counters.each_ref().map(copy);
        Self {
            decisions: self.decisions.each_ref().map(copies),
            units: self.units.each_ref().map(copies),
            near: copy(&self.near),
            key_missing: copy(&self.key_missing),
            bans: self.bans.each_ref().map(copy),
            ..Self::new(rule)
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
        if outcome.key_missing {
            self.key_missing.add(1);
        }
        let shadow = usize::from(outcome.mode() == Some(Mode::Shadow));
        self.decisions[shadow][did as usize].add(1);
        self.units[shadow][did as usize].add(outcome.cost.get());
        if matches!(outcome.decision.verdict, Verdict::Ban { .. }) {
            self.bans[shadow].add(1);
        } else if !matches!(did, Did::Covered | Did::Denied)
            && near(outcome.quota(), outcome.decision.remaining)
        {
            self.near.add(1);
        }
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
