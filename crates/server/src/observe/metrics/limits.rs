//! Limits: the metrics of each limit, and one sum for those beyond the maximum.
//!
//! ```text
//!   limit 1 .. max_limits      a series each       limit="login"
//!   all further ones           added up            limit="(other)"
//! ```
//!
//! No limit of a policy can be called `(other)`. The order is that in which limits came into the
//! policy, so a limit that is added takes no series from another.

use std::sync::Arc;

use ratekeeper::ReservationCounts;
use ratekeeper_core::{LimitId, Outage};
use ratekeeper_policy::HandAct;
use ratekeeper_store::{LimitUsage, Loans};

use super::durations::WAITS;
use super::family::{MetricList, OTHER, double};
use super::limit_row::{CountsByMode, DecisionCounts, EFFECTS, LimitRow, MODES, sum_of};
use super::{LimitValues, table};
use crate::counter::Counter;
use crate::observe::alerts::AlertCounts;

/// The effects of a limit, as labels.
pub(super) const DID: [&str; EFFECTS] = [
    "allowed",
    "denied",
    "queued",
    "covered",
    "fail_open",
    "fail_closed",
    "uncharged",
];
/// The effect of a limit from which a request is exempt, so that it is not asked.
const EXEMPT: &str = "exempt";

/// The state of a limit beside its counters.
#[derive(Clone, Debug, Default)]
pub(crate) struct LimitLevels {
    /// Maximum that a key may hold.
    pub(crate) quota: u64,
    pub(crate) usage: LimitUsage,
    /// `None` if it has no `concurrency`, or a store that others share.
    pub(crate) loans: Option<Loans>,
    /// `None` if it has no `alert`.
    pub(crate) alerts: Option<AlertCounts>,
    /// Bans that stand; `None` if it has no `ban`.
    pub(crate) bans: Option<u64>,
    /// Keys that operators have banned, and allowed.
    pub(crate) by_hand: [u64; 2],
    /// True within its hours; `None` if it always applies.
    pub(crate) is_active: Option<bool>,
    /// Number of answers that it delays; `None` if it lets no request wait.
    pub(crate) queue_length: Option<u64>,
    /// `None` if no report corrects it.
    pub(crate) reservations: Option<ReservationCounts>,
}

/// The keys that a limit denied a moment ago.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DeniedKeys {
    /// Number of different ones.
    pub(crate) keys: u64,
    /// Share of the denials that the most denied one has, from 0 to 1.
    pub(crate) busiest: f64,
}

/// Returns the state of a limit when it is scraped.
pub(crate) struct LimitSources<'a> {
    pub(crate) max_limits: usize,
    /// True with a shared store.
    pub(crate) is_shared: bool,
    pub(crate) levels: &'a dyn Fn(LimitId) -> LimitLevels,
    /// Asked for limits with series of their own only.
    pub(crate) denied: &'a dyn Fn(LimitId) -> DeniedKeys,
}

/// The metrics of all limits.
#[derive(Debug)]
pub(super) struct LimitsSnapshot {
    limits: Vec<LimitCounts>,
    /// Number of limits with series of their own; the others are added up, as each is written.
    apart: usize,
}

/// The metrics of one limit.
#[derive(Debug)]
struct LimitCounts {
    /// [`OTHER`] if it is added up with others.
    name: Arc<str>,
    row: Arc<LimitRow>,
    /// The effects with series from the start.
    may: [bool; EFFECTS],
    counts: DecisionCounts,
    levels: LimitLevels,
    denied: DeniedKeys,
}

impl LimitsSnapshot {
    pub(super) fn new(rows: &LimitValues<LimitRow>, sources: &LimitSources<'_>) -> Self {
        let rows = rows.iter().flatten();
        let mut limits: Vec<_> = rows.map(|row| LimitCounts::new(row, sources)).collect();
        let apart = limits.len().min(sources.max_limits);
        let (each, folded) = limits.split_at_mut(apart);
        for limit in each {
            limit.denied = (sources.denied)(limit.row.id);
        }
        for limit in folded {
            limit.name = OTHER.into();
        }
        Self { limits, apart }
    }

    fn all(&self) -> impl Iterator<Item = &LimitCounts> {
        self.limits.iter()
    }

    /// Returns the limits with series of their own.
    fn each(&self) -> impl Iterator<Item = &LimitCounts> {
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
            let is_banned = |limit: &LimitCounts| limit.counts.banned.iter().any(|it| *it > 0);
            let all = self.all();
            all.filter(move |limit| limit.row.terms.has_ban || is_banned(limit))
        };
        let began = |limit: &LimitCounts| limit.row.bans.each_ref().map(Counter::count);
        for (family, counted) in [
            (&table::BANS, began as fn(&LimitCounts) -> _),
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
        let active = banning().map(|it| ([&*it.name], it.levels.bans.unwrap_or_default()));
        table::BANS_ACTIVE.each(out, active);
    }

    /// Writes the state of limits: their denied keys, quotas, alerts and loans.
    pub(super) fn encode_levels(&self, out: &mut MetricList) {
        table::DENIED_KEYS.each(out, self.each().map(|it| ([&*it.name], it.denied.keys)));
        let mut series = table::DENIED_BUSIEST.open(out);
        for limit in self.each() {
            series.number(&[&limit.name], limit.denied.busiest);
        }
        table::LIMIT_QUOTA.each(out, self.each().map(|it| ([&*it.name], it.levels.quota)));
        if self.all().any(|limit| limit.levels.by_hand != [0; 2]) {
            let counts = self.all().flat_map(|limit| {
                let acts = [HandAct::Ban, HandAct::Allow].into_iter();
                acts.map(|act| {
                    let count = limit.levels.by_hand[act as usize];
                    ([&*limit.name, act.word()], count)
                })
            });
            table::BY_HAND_KEYS.each(out, counts);
        }
        table::LIMITS_FOLDED.write(out, (self.limits.len() - self.apart) as u64);
        let active = self.each();
        let active = active.filter_map(|it| Some(([&*it.name], it.levels.is_active?.into())));
        table::LIMIT_ACTIVE.each(out, active);
        let alerts = || {
            let all = self.all();
            all.filter_map(|it| Some(([&*it.name], it.levels.alerts.as_ref()?)))
        };
        table::ALERTS_ACTIVE.each(out, alerts().map(|(name, it)| (name, it.active)));
        table::ALERTS.each(out, alerts().map(|(name, it)| (name, it.started)));
        table::ALERTS_UNWATCHED.each(out, alerts().map(|(name, it)| (name, it.unwatched)));
    }

    /// Writes the work that limits have under way: waits, reservations, loans.
    pub(super) fn encode_work(&self, out: &mut MetricList) {
        let mut series = table::QUEUE_WAIT.open(out);
        for limit in self.all() {
            if let Some(waits) = &limit.row.waits {
                series.durations(&[&limit.name], &waits.snapshot(&WAITS));
            }
        }
        let queues = self.all().filter(|it| it.row.waits.is_some());
        let lengths = queues.map(|it| ([&*it.name], it.levels.queue_length.unwrap_or_default()));
        table::QUEUE_LENGTH.each(out, lengths);
        let reserved = || {
            let all = self.all();
            all.filter_map(|limit| Some((&*limit.name, limit.levels.reservations?)))
        };
        let mut series = table::RESERVED_UNITS.open(out);
        for (name, counts) in reserved() {
            series.number(&[name], double(counts.units));
        }
        let results = ["ok", "over_reserve", "late", "expired", "elsewhere"];
        let ended = reserved().map(|(name, it)| {
            let counts = [it.ok, it.over_reserve, it.late, it.expired, it.elsewhere];
            (name, counts)
        });
        table::SETTLEMENTS.rows(out, &results, ended);
        let loans = || {
            let all = self.all();
            all.filter_map(|it| Some(([&*it.name], it.levels.loans?)))
        };
        table::CONCURRENCY_IN_USE.each(out, loans().map(|(name, it)| (name, it.in_use)));
        table::LEASES_EXPIRED.each(out, loans().map(|(name, it)| (name, it.lapsed)));
    }

    /// Writes the keys of limits.
    pub(super) fn encode_keys(&self, out: &mut MetricList) {
        let keys = self.all();
        let keys = keys.map(|it| ([&*it.name], it.levels.usage.keys as u64));
        table::KEYS.each(out, keys);
        let evicted = self
            .all()
            .map(|limit| (&*limit.name, limit.levels.usage.evicted));
        let evicted = evicted.map(|(name, it)| (name, [it.idle, it.budget]));
        table::KEYS_EVICTED.rows(out, &["idle", "budget"], evicted);
    }
}

impl LimitCounts {
    fn new(row: &Arc<LimitRow>, sources: &LimitSources<'_>) -> Self {
        let may_fail = |outage| sources.is_shared && row.terms.outage == outage;
        Self {
            name: Arc::clone(&row.name),
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
            levels: (sources.levels)(row.id),
            denied: DeniedKeys::default(),
        }
    }
}
