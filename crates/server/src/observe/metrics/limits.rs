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
use super::family::{DurationsSnapshot, MetricList};
use super::limit_row::{CountsByMode, DecisionCounts, EFFECTS, LimitRow, MODES, sum_of};
use super::{LimitRows, table};
use crate::counter::Counter;
use crate::observe::alerts::AlertCounts;

/// Name of the limits that are counted together.
const OTHER: &str = "(other)";
const DID: [&str; EFFECTS] = [
    "allowed",
    "denied",
    "queued",
    "covered",
    "fail_open",
    "fail_closed",
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
    each: Vec<LimitCounts>,
    /// The sum of the limits without series; `None` if all have some.
    other: Option<LimitCounts>,
    folded: u64,
}

/// The metrics of one limit, or of those that are added up.
#[derive(Debug)]
pub(super) struct LimitCounts {
    pub(super) name: Arc<str>,
    /// The modes with series from the start.
    is_in_mode: [bool; MODES.len()],
    has_ban: bool,
    /// The effects with series from the start.
    may: [bool; EFFECTS],
    counts: DecisionCounts,
    has_exemptions: bool,
    /// Requests that were exempt, by mode.
    exempt: [u64; MODES.len()],
    pub(super) waits: Option<DurationsSnapshot>,
    /// The counts of plans, which are among those above.
    plans: Vec<(Box<str>, DecisionCounts)>,
    key_missing: u64,
    bans: [u64; MODES.len()],
    pub(super) levels: LimitLevels,
    denied: DeniedKeys,
}

impl LimitsSnapshot {
    pub(super) fn new(rows: &LimitRows, sources: &LimitSources<'_>) -> Self {
        let rows = rows.iter().flatten();
        let mut snapshot = Self {
            each: Vec::new(),
            other: None,
            folded: 0,
        };
        for row in rows {
            let mut counts = LimitCounts::new(row, sources);
            if snapshot.each.len() < sources.max_limits {
                counts.denied = (sources.denied)(row.id);
                snapshot.each.push(counts);
                continue;
            }
            snapshot.folded += 1;
            if let Some(other) = &mut snapshot.other {
                other.add(&counts);
            } else {
                counts.name = OTHER.into();
                snapshot.other = Some(counts);
            }
        }
        snapshot
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &LimitCounts> {
        self.each.iter().chain(&self.other)
    }

    /// Writes the decisions of limits.
    pub(super) fn encode_decisions(&self, out: &mut MetricList) {
        for (family, counted) in [
            (&table::DECISIONS, decisions as Counted),
            (&table::UNITS, units),
        ] {
            let mut series = family.open(out);
            for limit in self.all() {
                for (mode, (counts, listed)) in MODES.iter().zip(limit.by_mode(counted)) {
                    for ((outcome, count), may) in DID.iter().zip(counts).zip(limit.may) {
                        if (listed && may) || *count > 0 {
                            series.count(&[&limit.name, outcome, mode], *count);
                        }
                    }
                }
                if family.name != table::DECISIONS.name {
                    continue; // the cost of exempt requests is not known
                }
                let exempt = limit.exempt.iter().zip(limit.is_in_mode);
                for (mode, (count, listed)) in MODES.iter().zip(exempt) {
                    if (listed && limit.has_exemptions) || *count > 0 {
                        series.count(&[&limit.name, EXEMPT, mode], *count);
                    }
                }
            }
        }
        let near = self.all().map(|it| ([&*it.name], it.counts.near));
        table::NEAR_LIMIT.each(out, near);
        self.encode_plans(out);
        self.encode_bans(out);
        let missing = self.all().map(|it| ([&*it.name], it.key_missing));
        table::KEY_MISSING.each(out, missing);
    }

    /// Writes the decisions with numbers of plans, of limits with series of their own.
    fn encode_plans(&self, out: &mut MetricList) {
        if self.each.iter().all(|limit| limit.plans.is_empty()) {
            return;
        }
        let mut series = table::PLAN_DECISIONS.open(out);
        for limit in &self.each {
            for (plan, counts) in &limit.plans {
                let counts = DID.iter().zip(sum_of(&counts.decisions));
                for ((outcome, count), may) in counts.zip(limit.may) {
                    if may || count > 0 {
                        series.count(&[&limit.name, plan, outcome], count);
                    }
                }
            }
        }
        let mut series = table::PLAN_NEAR_LIMIT.open(out);
        for limit in &self.each {
            for (plan, counts) in &limit.plans {
                series.count(&[&limit.name, plan], counts.near);
            }
        }
    }

    /// Writes the bans of limits that have some.
    fn encode_bans(&self, out: &mut MetricList) {
        let is_banned = |limit: &LimitCounts| limit.counts.banned.iter().any(|count| *count > 0);
        // Keys of any limit are banned by hand.
        let banning = || {
            let each = self.all();
            each.filter(move |limit| limit.has_ban || is_banned(limit))
        };
        if banning().next().is_none() {
            return;
        }
        for (family, counted) in [
            (&table::BANS, (|limit| limit.bans) as fn(&LimitCounts) -> _),
            (&table::BANNED_REQUESTS, |limit| limit.counts.banned),
        ] {
            let mut series = family.open(out);
            for limit in banning() {
                let counts = counted(limit).into_iter().zip(limit.is_in_mode);
                for (mode, (count, listed)) in MODES.iter().zip(counts) {
                    if listed || count > 0 {
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
        let keys = self.each.iter().map(|it| ([&*it.name], it.denied.keys));
        table::DENIED_KEYS.each(out, keys);
        let mut series = table::DENIED_BUSIEST.open(out);
        for limit in &self.each {
            series.number(&[&limit.name], limit.denied.busiest);
        }
        let quotas = self.each.iter().map(|it| ([&*it.name], it.levels.quota));
        table::LIMIT_QUOTA.each(out, quotas);
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
        table::LIMITS_FOLDED.write(out, self.folded);
        let hours = || {
            let each = self.each.iter();
            each.filter_map(|it| Some(([&*it.name], u64::from(it.levels.is_active?))))
        };
        if hours().next().is_some() {
            table::LIMIT_ACTIVE.each(out, hours());
        }
        let alerts = || {
            let all = self.all();
            all.filter_map(|limit| Some(([&*limit.name], limit.levels.alerts.as_ref()?)))
        };
        if alerts().next().is_some() {
            let of = |count: fn(&AlertCounts) -> u64| {
                alerts().map(move |(name, counts)| (name, count(counts)))
            };
            table::ALERTS_ACTIVE.each(out, of(|counts| counts.active));
            table::ALERTS.each(out, of(|counts| counts.started));
            table::ALERTS_UNWATCHED.each(out, of(|counts| counts.unwatched));
        }
    }

    /// Writes the keys of limits.
    pub(super) fn encode_keys(&self, out: &mut MetricList) {
        let keys = self
            .all()
            .map(|it| ([&*it.name], it.levels.usage.keys as u64));
        table::KEYS.each(out, keys);
        let mut series = table::KEYS_EVICTED.open(out);
        for limit in self.all() {
            let evicted = limit.levels.usage.evicted;
            series.count(&[&limit.name, "idle"], evicted.idle);
            series.count(&[&limit.name, "budget"], evicted.budget);
        }
    }
}

type Counted = fn(&DecisionCounts) -> &CountsByMode;

fn decisions(counts: &DecisionCounts) -> &CountsByMode {
    &counts.decisions
}

fn units(counts: &DecisionCounts) -> &CountsByMode {
    &counts.units
}

impl LimitCounts {
    fn new(row: &LimitRow, sources: &LimitSources<'_>) -> Self {
        let plans = row.plans.iter();
        let may_fail = |outage| sources.is_shared && row.outage == outage;
        Self {
            name: Arc::clone(&row.name),
            is_in_mode: std::array::from_fn(|mode| row.mode == Some(mode)),
            has_ban: row.has_ban,
            may: [
                true,
                true,
                true,
                row.may_be_covered,
                may_fail(Outage::Allow),
                may_fail(Outage::Deny),
            ],
            counts: row.counts(),
            has_exemptions: row.has_exemptions,
            exempt: row.exempt.each_ref().map(Counter::count),
            waits: row.waits.as_ref().map(|waits| waits.snapshot(&WAITS)),
            plans: plans
                .map(|plan| (plan.name.clone(), plan.counts()))
                .collect(),
            key_missing: row.key_missing.count(),
            bans: row.bans.each_ref().map(Counter::count),
            levels: (sources.levels)(row.id),
            denied: DeniedKeys::default(),
        }
    }

    /// Returns the counts of each mode, and whether the mode is listed at 0 too.
    fn by_mode(&self, counted: Counted) -> impl Iterator<Item = (&[u64; EFFECTS], bool)> {
        counted(&self.counts).iter().zip(self.is_in_mode)
    }

    /// Adds the counts of another limit.
    fn add(&mut self, other: &Self) {
        self.counts.add(&other.counts);
        for mode in 0..MODES.len() {
            self.is_in_mode[mode] |= other.is_in_mode[mode];
            self.bans[mode] += other.bans[mode];
            self.exempt[mode] += other.exempt[mode];
        }
        self.has_ban |= other.has_ban;
        for (mine, theirs) in self.may.iter_mut().zip(other.may) {
            *mine |= theirs;
        }
        self.has_exemptions |= other.has_exemptions;
        match (&mut self.waits, &other.waits) {
            (Some(mine), Some(theirs)) => mine.add(theirs),
            (mine @ None, Some(theirs)) => *mine = Some(theirs.clone()),
            (_, None) => {}
        }
        self.key_missing += other.key_missing;
        let (mine, theirs) = (&mut self.levels, &other.levels);
        mine.usage.keys += theirs.usage.keys;
        mine.usage.evicted.idle += theirs.usage.evicted.idle;
        mine.usage.evicted.budget += theirs.usage.evicted.budget;
        if let Some(bans) = theirs.bans {
            *mine.bans.get_or_insert_default() += bans;
        }
        for (mine, theirs) in mine.by_hand.iter_mut().zip(theirs.by_hand) {
            *mine += theirs;
        }
        if let Some(length) = theirs.queue_length {
            *mine.queue_length.get_or_insert_default() += length;
        }
        if let Some(theirs) = theirs.reservations {
            mine.reservations.get_or_insert_default().add(&theirs);
        }
        if let Some(theirs) = theirs.loans {
            let mine = mine.loans.get_or_insert_default();
            mine.in_use += theirs.in_use;
            mine.lapsed += theirs.lapsed;
        }
        match (&mut mine.alerts, &theirs.alerts) {
            (Some(mine), Some(theirs)) => {
                mine.active += theirs.active;
                mine.started += theirs.started;
                mine.unwatched += theirs.unwatched;
            }
            (mine @ None, Some(theirs)) => *mine = Some(theirs.clone()),
            (_, None) => {}
        }
    }
}
