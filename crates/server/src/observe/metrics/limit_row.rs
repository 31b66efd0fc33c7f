//! Limit row: the counters of one limit, and what a decision adds to them.
//!
//! ```text
//!   decision --numbers of a plan?--> the counters of the plan, or the limit's own
//!                mode (enforce, shadow, candidate) x effect (allowed, denied, queued, ..) += 1
//!                allowed with more than `near_percent` spent: near += 1
//!            --> highest share that a key has spent: kept until it is read
//! ```
//!
//! A decision adds to one set of counters, and a scrape adds the sets up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ratekeeper::Outcome;
use ratekeeper_core::{AnyAlgorithm, LimitId, Mode, Outage, Permits, Verdict};
use ratekeeper_policy::{Allowance, Policy, Role, Rule, RuleMode};
use strum::VariantNames;

use super::{RequestResult, Tally, durations::Waits};
use crate::counter::Counter;
use crate::doors::hold::lets_wait;

/// The modes of decisions, as labels.
pub(super) const MODES: [&str; 3] = ["enforce", "shadow", "candidate"];
/// The effects of a limit, as labels; those that are shown come first.
pub(super) const DID: &[&str] = Did::VARIANTS;
/// Number of effects that are shown.
pub(super) const EFFECTS: usize = 7;
const ENFORCE: usize = 0;
const SHADOW: usize = 1;
const CANDIDATE: usize = 2;
/// Number of effects that are counted: denials by bans apart.
const COUNTED: usize = EFFECTS + 1;

/// Name for the keys that have the numbers of no plan; no plan can be called so.
const OTHER_KEYS: &str = "(other)";

/// The effect of a limit on a request.
#[derive(Clone, Copy, Debug, VariantNames)]
#[strum(serialize_all = "snake_case")]
enum Did {
    Allowed,
    Denied,
    Queued,
    /// Denied, and let through by another limit.
    Covered,
    /// Let through because the store could not be asked.
    FailOpen,
    /// Denied for the same reason.
    FailClosed,
    /// Nothing was charged, because another limit refused the request.
    Uncharged,
    /// Denied, because the key is banned.
    Banned,
}

/// The counters of one limit.
#[derive(Debug)]
pub(super) struct LimitRow {
    pub(super) id: LimitId,
    pub(super) name: Arc<str>,
    pub(super) terms: RowTerms,
    /// Requests that were exempt, by mode.
    pub(super) exempt: [Counter; MODES.len()],
    /// The longest waits of requests, where they were those of this limit; `None` if it lets none
    /// wait.
    pub(super) waits: Option<Waits>,
    /// Decisions with numbers of no plan.
    own: RowCounters,
    pub(super) plans: Vec<PlanRow>,
    pub(super) key_missing: Counter,
    /// Bans that began, by mode.
    pub(super) bans: [Counter; MODES.len()],
    /// Highest share of the limit that a key had spent since the last reading, in percent.
    highest: AtomicU64,
    /// Denials of requests without priority while the limit had room for them.
    pub(super) shed: Counter,
}

/// The properties of a rule by which it is counted.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct RowTerms {
    /// Index in [`MODES`]; `None` if it is off.
    pub(super) mode: Option<usize>,
    near_percent: u8,
    /// True if another limit may let through what it denies.
    pub(super) may_be_covered: bool,
    /// Its choice for an outage of the store.
    pub(super) outage: Outage,
    /// True if requests may be exempt from it.
    pub(super) has_exemptions: bool,
    /// True if it bans keys.
    pub(super) has_ban: bool,
    /// The limits with numbers of plans, in their order, and the index of the plan.
    plan_of: Vec<(LimitId, usize)>,
}

/// The counters of the keys with the numbers of a plan.
#[derive(Debug)]
pub(super) struct PlanRow {
    pub(super) name: Box<str>,
    pub(super) counters: RowCounters,
}

type CountersByMode = [[Counter; COUNTED]; MODES.len()];
pub(super) type CountsByMode = [[u64; EFFECTS]; MODES.len()];

/// Counters of decisions.
#[derive(Debug, Default)]
pub(super) struct RowCounters {
    /// By mode, then by effect.
    decisions: CountersByMode,
    /// The same in cost.
    units: CountersByMode,
    near: Counter,
}

/// Counts of decisions.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DecisionCounts {
    /// By mode, then by effect, in the order of [`Did`].
    pub(super) decisions: CountsByMode,
    /// The same in cost.
    pub(super) units: CountsByMode,
    /// Denials by bans, by mode; they are among the denials too.
    pub(super) banned: [u64; MODES.len()],
    pub(super) near: u64,
}

impl LimitRow {
    pub(super) fn new(rule: &Rule, policy: &Policy) -> Self {
        let (plans, plan_of) = plans(rule, policy);
        Self {
            id: rule.limit.id,
            name: Arc::clone(&rule.limit.name),
            terms: RowTerms {
                mode: mode_of(rule),
                near_percent: policy.settings.metrics.near_percent,
                may_be_covered: !rule.otherwise.is_empty(),
                outage: rule.limit.outage,
                has_exemptions: !rule.exemptions.is_empty() && matches!(rule.role, Role::Limit),
                has_ban: rule.limit.algorithm.bans().is_some(),
                plan_of,
            },
            exempt: Default::default(),
            waits: lets_wait(rule).then(Waits::default),
            own: RowCounters::default(),
            plans,
            bans: Default::default(),
            key_missing: Counter::default(),
            highest: AtomicU64::new(0),
            shed: Counter::default(),
        }
    }

    /// Returns the row of a rule that the policy had before. Plans that went are counted as the
    /// limit's own numbers. A request that is being counted right now may be lost; decisions
    /// themselves are not touched.
    pub(super) fn under(self: Arc<Self>, new: Self) -> Arc<Self> {
        let names = self.plans.iter().map(|plan| &plan.name);
        let has_same_plans = names.eq(new.plans.iter().map(|plan| &plan.name));
        let waits_alike = self.waits.is_some() == new.waits.is_some();
        if self.terms == new.terms && has_same_plans && waits_alike {
            return self;
        }
        for plan in &self.plans {
            let same = new.plans.iter().find(|it| it.name == plan.name);
            same.map_or(&new.own, |it| &it.counters).add(&plan.counters);
        }
        new.own.add(&self.own);
        new.key_missing.add(self.key_missing.count());
        new.shed.add(self.shed.count());
        if let (Some(new), Some(old)) = (&new.waits, &self.waits) {
            new.add(old);
        }
        let pairs = new.bans.iter().zip(&self.bans);
        for (new, old) in pairs.chain(new.exempt.iter().zip(&self.exempt)) {
            new.add(old.count());
        }
        Arc::new(new)
    }

    /// Returns the counts of all decisions.
    pub(super) fn counts(&self) -> DecisionCounts {
        let all = RowCounters::default();
        all.add(&self.own);
        self.plans.iter().for_each(|plan| all.add(&plan.counters));
        all.read()
    }

    /// Returns the denials of each plan with numbers of its own, and then those of all other keys;
    /// empty if the limit has no such plan.
    pub(super) fn denials_by_plan(&self) -> Vec<(Box<str>, u64)> {
        let denied =
            |counts: DecisionCounts| -> u64 { sum_of(&counts.decisions)[Did::Denied as usize] };
        let plans = self.plans.iter();
        let plans = plans.map(|plan| (plan.name.clone(), denied(plan.counters.read())));
        let mut each: Vec<_> = plans.collect();
        if !each.is_empty() {
            each.push((OTHER_KEYS.into(), denied(self.own.read())));
        }
        each
    }

    /// Returns the counts in the form of the history.
    pub(super) fn tally(&self) -> Tally {
        let counts = self.counts().decisions;
        let denied =
            |mode: &[u64; EFFECTS]| mode[Did::Denied as usize] + mode[Did::FailClosed as usize];
        let ([enforce, rehearsed @ ..], all) = (&counts, sum_of(&counts));
        Tally {
            allowed: all.iter().sum::<u64>() - denied(&all),
            denied: denied(enforce),
            other: rehearsed.iter().map(denied).sum(),
            highest: 0,
        }
    }

    /// Counts a decision; returns true if a ban began with it.
    pub(super) fn record(&self, outcome: &Outcome<'_>, result: RequestResult) -> bool {
        let admitted = result == RequestResult::Allowed;
        let is_covered = !outcome.decision.verdict.allows() && outcome.covered_by.is_some();
        let did = match outcome.decision.verdict {
            _ if !outcome.is_asked => return false,
            Verdict::Allow if outcome.outage == Some(Outage::Allow) && admitted => Did::FailOpen,
            Verdict::Deny { .. } if outcome.outage == Some(Outage::Deny) => Did::FailClosed,
            _ if is_covered && !admitted => Did::Uncharged,
            _ if is_covered => Did::Covered,
            Verdict::Allow | Verdict::AllowAfter(_) if !admitted => Did::Uncharged,
            Verdict::Allow => Did::Allowed,
            Verdict::AllowAfter(_) => Did::Queued,
            Verdict::Banned { .. } => Did::Banned,
            _ => Did::Denied,
        };
        let mode = self.mode_of(outcome);
        let counters = self.counters_of(outcome);
        counters.decisions[mode][did as usize].add(1);
        if matches!(did, Did::Uncharged) {
            return false;
        }
        let is_known = !matches!(did, Did::FailOpen | Did::FailClosed);
        let is_spent = matches!(did, Did::Covered | Did::Denied | Did::Banned);
        let has_room = outcome.decision.remaining >= outcome.cost;
        if is_spent && outcome.headroom > Permits::ZERO && has_room {
            self.shed.add(1);
        }
        if is_known && outcome.decision.verdict != Verdict::DenyForever {
            self.note_highest(outcome);
        }
        if outcome.key_missing {
            self.key_missing.add(1);
        }
        counters.units[mode][did as usize].add(outcome.cost.get());
        let bans = matches!(outcome.decision.verdict, Verdict::Ban { .. });
        if bans {
            self.bans[mode].add(1);
        } else if matches!(did, Did::Allowed | Did::Queued)
            && shows_share(outcome)
            && self.is_near(outcome.quota(), outcome.decision.remaining)
        {
            counters.near.add(1);
        }
        bans
    }

    /// Counts a request that is exempt from the limit.
    pub(super) fn record_exempt(&self) {
        if let Some(mode) = self.terms.mode {
            self.exempt[mode].add(1);
        }
    }

    /// Notes the share of the limit that the key has spent, if none was higher.
    fn note_highest(&self, outcome: &Outcome<'_>) {
        let is_spent = !outcome.decision.verdict.allows();
        if !is_spent && !shows_share(outcome) {
            return;
        }
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

    /// Returns the index in [`MODES`] of a decision. A limit that is enforced for a share of its
    /// keys, or that diverts, decides the others in shadow mode.
    fn mode_of(&self, outcome: &Outcome<'_>) -> usize {
        match (self.terms.mode, outcome.mode()) {
            (Some(CANDIDATE), _) => CANDIDATE,
            (_, Some(Mode::Shadow)) => SHADOW,
            _ => ENFORCE,
        }
    }

    fn counters_of(&self, outcome: &Outcome<'_>) -> &RowCounters {
        let plan = outcome.variant.and_then(|variant| {
            let of = &self.terms.plan_of;
            let place = of.binary_search_by_key(&variant.limit.id, |(limit, _)| *limit);
            self.plans.get(of.get(place.ok()?)?.1)
        });
        plan.map_or(&self.own, |plan| &plan.counters)
    }

    /// Returns true if more than `near_percent` of `quota` is spent.
    fn is_near(&self, quota: Permits, remaining: Permits) -> bool {
        let spent = (quota - remaining).get();
        spent * 100 > quota.get() * u64::from(self.terms.near_percent)
    }
}

/// Returns true if a request that passes shows how much of its limit is spent. One that holds a
/// single permit, or is post-paid, has all of it left or nothing.
fn shows_share(outcome: &Outcome<'_>) -> bool {
    let is_post_paid = matches!(outcome.limit.algorithm, AnyAlgorithm::WarmUp(_));
    outcome.quota() > Permits::ONE && !is_post_paid
}

/// Returns the index in [`MODES`] of a rule; `None` if it is off.
fn mode_of(rule: &Rule) -> Option<usize> {
    match rule.mode {
        RuleMode::Off => None,
        _ if matches!(rule.role, Role::Candidate) => Some(CANDIDATE),
        RuleMode::Shadow => Some(SHADOW),
        RuleMode::Enforce => Some(ENFORCE),
    }
}

/// Returns the counts of all modes together.
pub(super) fn sum_of(counts: &CountsByMode) -> [u64; EFFECTS] {
    std::array::from_fn(|did| counts.iter().map(|mode| mode[did]).sum())
}

/// Returns the plans of a rule with numbers of their own, and the limits of these numbers, each with
/// the index of its plan.
fn plans(rule: &Rule, policy: &Policy) -> (Vec<PlanRow>, Vec<(LimitId, usize)>) {
    let (mut rows, mut of) = (Vec::new(), Vec::new());
    let plans = policy.plans.as_ref();
    for (name, allowance) in plans.into_iter().flat_map(|plans| rule.plans(plans)) {
        let Allowance::Variant(first) = allowance else {
            continue;
        };
        let limits = rule.variants.of_allowance(first);
        of.extend(limits.map(|variant| (variant.limit.id, rows.len())));
        rows.push(PlanRow {
            name: name.into(),
            counters: RowCounters::default(),
        });
    }
    of.sort_unstable();
    (rows, of)
}

impl RowCounters {
    fn add(&self, other: &Self) {
        let add = |mine: &CountersByMode, theirs: &CountersByMode| {
            let pairs = mine.as_flattened().iter().zip(theirs.as_flattened());
            pairs.for_each(|(mine, theirs)| mine.add(theirs.count()));
        };
        add(&self.decisions, &other.decisions);
        add(&self.units, &other.units);
        self.near.add(other.near.count());
    }

    pub(super) fn read(&self) -> DecisionCounts {
        let denied = |counts: &[Counter; COUNTED]| {
            let mut shown: [u64; EFFECTS] = std::array::from_fn(|did| counts[did].count());
            shown[Did::Denied as usize] += counts[Did::Banned as usize].count();
            shown
        };
        let banned = |counts: &[Counter; COUNTED]| counts[Did::Banned as usize].count();
        DecisionCounts {
            decisions: self.decisions.each_ref().map(denied),
            units: self.units.each_ref().map(denied),
            banned: self.decisions.each_ref().map(banned),
            near: self.near.count(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(settings: &str) -> LimitRow {
        let limit = "[[limit]]\nname = \"a\"\nkey = [\"ip\"]\nlimit = \"10/1m\"";
        let text = format!("version = 1\n{settings}\n{limit}");
        let policy = ratekeeper::Keeper::open(&text).unwrap().policy();
        let rule = policy.rules.iter().next().unwrap();
        LimitRow::new(rule, &policy)
    }

    /// Records the request of this cost under a limit; returns the highest share that was spent, and
    /// the number of requests that were near.
    fn spent(limit: &str, costs: &[u64]) -> (u64, u64) {
        let text = format!("version = 1\n[[limit]]\nname = \"a\"\nkey = [\"all\"]\n{limit}");
        let keeper = ratekeeper::Keeper::open(&text).unwrap();
        let policy = keeper.policy();
        let row = LimitRow::new(policy.rules.iter().next().unwrap(), &policy);
        for cost in costs {
            let facts = ratekeeper_policy::Facts {
                cost: Some(Permits::new(*cost)),
                ..<_>::default()
            };
            let answer = ratekeeper::at_once(keeper.check(&facts, ratekeeper::Scope::All)).unwrap();
            let result = RequestResult::of(&answer);
            row.record(&answer.outcomes().next().unwrap(), result);
        }
        (row.highest.load(Ordering::Relaxed), row.counts().near)
    }

    #[test]
    fn a_refusal_for_ever_spends_nothing() {
        for (costs, expected) in [
            (&[11][..], (0, 0)),
            (&[4, 11], (40, 0)),
            (&[4, 5, 11], (90, 1)),
            (&[4, 7], (100, 0)),
        ] {
            assert_eq!(spent("limit = \"10/1h\"", costs), expected, "{costs:?}");
        }
    }

    #[test]
    fn limits_with_all_left_or_nothing_are_near_no_end() {
        for limit in [
            "limit = \"10/1h\"\nalgorithm = \"leaky-bucket\"",
            "spacing = \"1h\"",
            "limit = \"10/1h\"\nwarmup = { period = \"2h\", cold_factor = 3 }",
        ] {
            assert_eq!(spent(limit, &[1]), (0, 0), "{limit}");
            assert_eq!(spent(limit, &[1, 1]), (100, 0), "{limit}");
        }
    }

    #[test]
    fn near_is_above_four_fifths_unless_the_policy_says_otherwise() {
        let near =
            |settings, remaining| row(settings).is_near(Permits::new(10), Permits::new(remaining));
        for (remaining, expected) in [(10, false), (2, false), (1, true), (11, false)] {
            assert_eq!(near("", remaining), expected, "{remaining}");
        }
        let half = "[metrics]\nnear_percent = 50";
        assert_eq!((near(half, 5), near(half, 4)), (false, true));
    }

    #[test]
    fn a_changed_row_keeps_its_counts() {
        let old = row("");
        old.own.decisions[0][Did::Denied as usize].add(3);
        old.own.decisions[0][Did::Banned as usize].add(2);
        let kept = Arc::new(old).under(row("[metrics]\nnear_percent = 50"));
        let counts = kept.counts();
        assert_eq!(counts.decisions[0], [0, 5, 0, 0, 0, 0, 0]);
        assert_eq!(counts.banned, [2, 0, 0]);
        let same = Arc::clone(&kept).under(row("[metrics]\nnear_percent = 50"));
        assert!(Arc::ptr_eq(&kept, &same));
    }
}
