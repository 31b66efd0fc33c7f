//! Limits: the metrics of each limit, and one sum for those beyond the maximum.
//!
//! ```text
//!   limit 1 .. max_limits      a series each       limit="login"
//!   all further ones           added up            limit="(other)"
//! ```
//!
//! No limit of a policy can be called `(other)`. The order is that in which limits came into the
//! policy, so a limit that is added takes no series from another.

use std::collections::HashMap;
use std::sync::Arc;

use ratekeeper::Clock;
use ratekeeper_core::{LimitId, Outage, Time};
use ratekeeper_policy::{HandAct, Policy, Rule, WallTime};
use ratekeeper_store::AnyStore;
use strum::VariantNames;

use super::durations::WAITS;
use super::family::{MetricList, OTHER, double};
use super::limit_row::{CountsByMode, DID, DecisionCounts, EFFECTS, LimitRow, MODES, sum_of};
use super::{MetricSources, table};
use crate::counter::Counter;
use crate::observe::key_usage::{usage_of, with_variants};
use crate::observe::standing_bans::counts_by_hand;

/// The effect of a limit from which a request is exempt, so that it is not asked.
const EXEMPT: &str = "exempt";

/// The metrics of all limits.
#[derive(Debug)]
pub(super) struct LimitsSnapshot<'s> {
    sources: &'s MetricSources<'s>,
    policy: &'s Policy,
    now: Time,
    limits: Vec<LimitCounts<'s>>,
    /// Number of limits with series of their own; the others are added up, as each is written.
    apart: usize,
}

/// The metrics of one limit.
#[derive(Debug)]
struct LimitCounts<'s> {
    /// [`OTHER`] if it is added up with others.
    name: Arc<str>,
    rule: &'s Rule,
    row: Arc<LimitRow>,
    /// The effects with series from the start.
    may: [bool; EFFECTS],
    counts: DecisionCounts,
}

impl<'s> LimitsSnapshot<'s> {
    pub(super) fn new(sources: &'s MetricSources<'s>, policy: &'s Policy) -> Self {
        let rules = policy.rules.iter().map(|rule| (rule.limit.id, rule));
        let rules: HashMap<LimitId, &Rule> = rules.collect();
        let rows = sources.observers.metrics.rows.load();
        let limits = rows.iter().flatten().filter_map(|row| {
            let rule = *rules.get(&row.id)?; // the policy may have just lost it
            Some(LimitCounts::new(row, rule, sources.keeper.store()))
        });
        let mut limits: Vec<_> = limits.collect();
        let apart = limits
            .len()
            .min(policy.settings.metrics.max_limits as usize);
        for limit in &mut limits[apart..] {
            limit.name = OTHER.into();
        }
        Self {
            sources,
            policy,
            now: sources.keeper.clock().now(),
            limits,
            apart,
        }
    }

    fn all(&self) -> impl Iterator<Item = &LimitCounts<'s>> {
        self.limits.iter()
    }

    /// Returns the limits with series of their own.
    fn each(&self) -> impl Iterator<Item = &LimitCounts<'s>> {
        self.limits.iter().take(self.apart)
    }

    /// Writes the decisions of limits.
    pub(super) fn encode_decisions(&self, out: &mut MetricList) {
        for (family, counted) in [
            (
                &table::DECISIONS,
                (|counts| &counts.decisions) as fn(&DecisionCounts) -> &CountsByMode,
            ),
            (&table::UNITS, |counts| &counts.units),
        ] {
            let mut series = family.open(out);
            for limit in self.all() {
                for (at, mode) in MODES.iter().enumerate() {
                    let listed = limit.row.terms.mode == Some(at);
                    let counts = DID.iter().zip(counted(&limit.counts)[at]);
                    for ((outcome, count), may) in counts.zip(limit.may) {
                        if (listed && may) || count > 0 {
                            series.count(&[&limit.name, outcome, mode], count);
                        }
                    }
                }
                if family.name != table::DECISIONS.name {
                    continue; // the cost of exempt requests is not known
                }
                for (at, mode) in MODES.iter().enumerate() {
                    let listed = limit.row.terms.has_exemptions && limit.row.terms.mode == Some(at);
                    let count = limit.row.exempt[at].count();
                    if listed || count > 0 {
                        series.count(&[&limit.name, EXEMPT, mode], count);
                    }
                }
            }
        }
        table::NEAR_LIMIT.each(out, self.all().map(|it| ([&*it.name], it.counts.near)));
        self.encode_plans(out);
        self.encode_bans(out);
        let missing = self.all();
        let missing = missing.map(|it| ([&*it.name], it.row.key_missing.count()));
        table::KEY_MISSING.each(out, missing);
    }

    /// Writes the decisions with numbers of plans, of limits with series of their own.
    fn encode_plans(&self, out: &mut MetricList) {
        let plans = || {
            let each = self.each();
            each.flat_map(|limit| limit.row.plans.iter().map(move |plan| (limit, plan)))
        };
        let mut series = table::PLAN_DECISIONS.open(out);
        for (limit, plan) in plans() {
            let counts = DID.iter().zip(sum_of(&plan.counters.read().decisions));
            for ((outcome, count), may) in counts.zip(limit.may) {
                if may || count > 0 {
                    series.count(&[&limit.name, &plan.name, outcome], count);
                }
            }
        }
        let near =
            plans().map(|(limit, plan)| ([&*limit.name, &*plan.name], plan.counters.read().near));
        table::PLAN_NEAR_LIMIT.each(out, near);
    }

    /// Writes the bans of limits that have some.
    fn encode_bans(&self, out: &mut MetricList) {
        // Keys of any limit are banned by hand.
        let banning = || {
            let is_banned = |limit: &LimitCounts<'_>| limit.counts.banned.iter().any(|it| *it > 0);
            let all = self.all();
            all.filter(move |limit| limit.row.terms.has_ban || is_banned(limit))
        };
        let began = |limit: &LimitCounts<'_>| limit.row.bans.each_ref().map(Counter::count);
        for (family, counted) in [
            (&table::BANS, began as fn(&LimitCounts<'_>) -> _),
            (&table::BANNED_REQUESTS, |limit| limit.counts.banned),
        ] {
            let mut series = family.open(out);
            for limit in banning() {
                for (at, (mode, count)) in MODES.iter().zip(counted(limit)).enumerate() {
                    if limit.row.terms.mode == Some(at) || count > 0 {
                        series.count(&[&limit.name, mode], count);
                    }
                }
            }
        }
        let standing = &self.sources.observers.bans;
        let active = banning().map(|it| ([&*it.name], standing.count(it.row.id)));
        table::BANS_ACTIVE.each(out, active);
    }

    /// Writes the state of limits: their denied keys, quotas, alerts and loans.
    pub(super) fn encode_levels(&self, out: &mut MetricList) {
        self.encode_denied_keys(out);
        let quotas = self.each().map(|it| ([&*it.name], it.rule.quota.get()));
        table::LIMIT_QUOTA.each(out, quotas);
        let origin = self.sources.keeper.wall_origin();
        let wall = WallTime::new(origin, self.now);
        let unix_millis = origin.unix_nanos(self.now) / 1_000_000;
        let by_hand = |it: &LimitCounts<'_>| counts_by_hand(self.policy, it.rule, unix_millis);
        let by_hand = self.all().map(|it| (&*it.name, by_hand(it)));
        let by_hand: Vec<_> = by_hand.collect();
        if by_hand.iter().any(|(_, counts)| *counts != [0; 2]) {
            table::BY_HAND_KEYS.rows(out, HandAct::VARIANTS, by_hand);
        }
        table::LIMITS_FOLDED.write(out, (self.limits.len() - self.apart) as u64);
        let active = self.each().filter(|it| it.rule.active.is_some());
        let active = active.map(|it| ([&*it.name], it.rule.is_active(wall).into()));
        table::LIMIT_ACTIVE.each(out, active);
        let counts = self.sources.observers.alerts.counts().into_iter();
        let counts: HashMap<_, _> = counts.map(|it| (Arc::clone(&it.limit), it)).collect();
        let alerts = || {
            let all = self.all();
            all.filter_map(|it| Some(([&*it.name], counts.get(&it.rule.limit.name)?)))
        };
        table::ALERTS_ACTIVE.each(out, alerts().map(|(name, it)| (name, it.active)));
        table::ALERTS.each(out, alerts().map(|(name, it)| (name, it.started)));
        table::ALERTS_UNWATCHED.each(out, alerts().map(|(name, it)| (name, it.unwatched)));
    }

    /// Writes the number of keys that limits denied a moment ago, and the share of the first.
    fn encode_denied_keys(&self, out: &mut MetricList) {
        let top_keys = &self.sources.observers.watchers.top_keys;
        let found = self
            .each()
            .map(|it| (&*it.name, top_keys.most_denied(it.row.id, self.now)));
        let found: Vec<_> = found.collect();
        let keys = found.iter().map(|(name, it)| match it.denied {
            0 => ([*name], 0),
            _ => ([*name], it.distinct_denied),
        });
        table::DENIED_KEYS.each(out, keys);
        let mut series = table::DENIED_BUSIEST.open(out);
        for (name, it) in &found {
            let busiest = double(it.most_denied.min(it.denied));
            series.number(&[name], busiest / double(it.denied.max(1)));
        }
    }

    /// Writes the work that limits have under way: waits, reservations, loans.
    pub(super) fn encode_work(&self, out: &mut MetricList) {
        let mut series = table::QUEUE_WAIT.open(out);
        for limit in self.all() {
            if let Some(waits) = &limit.row.waits {
                series.durations(&[&limit.name], &waits.snapshot(&WAITS));
            }
        }
        let held = self.sources.hold.lengths();
        let queues = self.all().filter(|it| it.row.waits.is_some());
        let lengths = queues.map(|it| ([&*it.name], held.get(&it.row.id).copied()));
        let lengths = lengths.map(|(name, length)| (name, length.unwrap_or_default()));
        table::QUEUE_LENGTH.each(out, lengths);
        let reservations = self.sources.keeper.reservations();
        let reserved = self.all().filter_map(|it| {
            let counts = reservations.counts(it.row.id, self.now)?;
            Some((&*it.name, counts))
        });
        let reserved: Vec<_> = reserved.collect();
        let mut series = table::RESERVED_UNITS.open(out);
        for (name, counts) in &reserved {
            series.number(&[name], double(counts.units));
        }
        let results = ["ok", "over_reserve", "late", "expired", "elsewhere"];
        let ended = reserved.into_iter().map(|(name, it)| {
            let counts = [it.ok, it.over_reserve, it.late, it.expired, it.elsewhere];
            (name, counts)
        });
        table::SETTLEMENTS.rows(out, &results, ended);
        let lent = self.all().filter(|it| self.lends(it.rule));
        let in_use = lent.map(|it| ([&*it.name], self.in_use(it.rule)));
        table::CONCURRENCY_IN_USE.each(out, in_use);
    }

    /// Returns true if a limit lends permits here; those of a shared store are not known.
    fn lends(&self, rule: &Rule) -> bool {
        let is_here = self.sources.keeper.store().shared().is_none();
        is_here && rule.limit.algorithm.concurrency().is_some()
    }

    /// Returns the permits of a limit in use.
    fn in_use(&self, rule: &Rule) -> u64 {
        let store = self.sources.keeper.store().local();
        let each = rule.limits();
        each.map(|limit| store.loans(limit, self.now).in_use).sum()
    }

    /// Writes the keys of limits.
    pub(super) fn encode_keys(&self, out: &mut MetricList) {
        let keeper = self.sources.keeper;
        let usage = with_variants(&keeper.owners(), keeper.store().local().usage());
        let of_limits = || {
            let all = self.all();
            all.map(|it| (&*it.name, usage_of(&usage, it.row.id)))
        };
        let keys = of_limits().map(|(name, used)| ([name], used.keys as u64));
        table::KEYS.each(out, keys);
        let evicted = of_limits().map(|(name, used)| (name, used.evicted));
        let evicted = evicted.map(|(name, it)| (name, [it.idle, it.budget]));
        table::KEYS_EVICTED.rows(out, &["idle", "budget"], evicted);
        let lent = self.all().filter(|it| self.lends(it.rule));
        let lapsed = lent.map(|it| ([&*it.name], usage_of(&usage, it.row.id).lapsed));
        table::LEASES_EXPIRED.each(out, lapsed);
    }
}

impl<'s> LimitCounts<'s> {
    fn new(row: &Arc<LimitRow>, rule: &'s Rule, store: &AnyStore) -> Self {
        let is_shared = store.shared().is_some();
        let may_fail = |outage| is_shared && row.terms.outage == outage;
        Self {
            name: Arc::clone(&row.name),
            rule,
            row: Arc::clone(row),
            may: [
                true,
                true,
                true,
                row.terms.may_be_covered,
                may_fail(Outage::Allow),
                may_fail(Outage::Deny),
                false,
            ],
            counts: row.counts(),
        }
    }
}
