//! Plan: one call on its way through the store.
//!
//! ```text
//!   call --lookup--> steps, one a descriptor --replaces--> charges, one a counter
//!                                                            |
//!   refunds --> store.refund        (hits given back)        |
//!   looks ----> store.look ----> hold_back   (stop_increment only)
//!   charges --> store.decide --> answer
//! ```
//!
//! Two descriptors of a call that count on one key make one charge: the answer of each holds the
//! count after its own hits.

use std::ops::Range;

use ratekeeper_core::{Charge, Decision, Key, Limit, Mode, Permits, Time};
use serde_json::{Map, Value};
use smallvec::SmallVec;

use super::answer::{CountedHits, CounterSeries, DescriptorAnswer, EnvoyAnswer, EnvoyCode, Hits};
use super::applies::Applies;
use super::call::{Direction, EnvoyCall, EnvoyCallError, MAX_DESCRIPTORS};
use super::config::{Domain, EnvoyConfig};
use super::counters::{CAPACITY, class, write_entries, write_window};
use crate::KeyBytes;

/// Charges of a call in the form that a store takes.
pub type PlannedCharges<'p> = SmallVec<[Charge<'p>; 4]>;

/// The charges of a call, and how to answer it afterwards.
#[derive(Clone, Debug)]
pub struct Plan<'c> {
    config: &'c EnvoyConfig,
    now: Time,
    steps: SmallVec<[PlanStep<'c>; 4]>,
    counts: SmallVec<[CounterKey<'c>; 4]>,
    bytes: KeyBytes,
}

/// One descriptor.
#[derive(Clone, Debug)]
struct PlanStep<'c> {
    applies: Applies<'c>,
    /// Hits that it adds to its counter, or takes off it.
    hits: u64,
    direction: Direction,
    /// Series that counts the hits of the rule, if there is one.
    series: Option<CounterSeries>,
    /// Index of its counter.
    count: usize,
    /// True if it is held back: not counted, because another descriptor is over.
    held: bool,
}

/// One key of one counter.
#[derive(Clone, Debug)]
struct CounterKey<'c> {
    limit: &'c Limit,
    key: Range<usize>,
}

impl EnvoyConfig {
    /// Returns the charges of a call at `now`.
    ///
    /// # Errors
    /// For a call without domain or descriptors, or with too many descriptors.
    pub fn plan<'c>(&'c self, call: &EnvoyCall<'_>, now: Time) -> Result<Plan<'c>, EnvoyCallError> {
        if call.domain.is_empty() {
            return Err(EnvoyCallError::EmptyDomain);
        }
        if call.descriptors.is_empty() {
            return Err(EnvoyCallError::NoDescriptors);
        }
        if call.descriptors.len() > MAX_DESCRIPTORS {
            return Err(EnvoyCallError::TooManyDescriptors);
        }
        let mut plan = Plan {
            config: self,
            now,
            steps: SmallVec::new(),
            counts: SmallVec::new(),
            bytes: KeyBytes::default(),
        };
        let domain = self.domains.get(call.domain);
        for descriptor in &call.descriptors {
            let applies = domain.map(|domain| Applies::find(domain, descriptor));
            let hits = match (descriptor.hits_addend, call.hits_addend) {
                (Some(own), _) => Permits::new(own).get(),
                (None, 0) => 1,
                (None, shared) => shared.into(),
            };
            plan.steps.push(PlanStep {
                applies: applies.unwrap_or_default(),
                hits,
                direction: descriptor.direction,
                series: None,
                count: 0,
                held: false,
            });
        }
        plan.replace();
        if let Some(domain) = domain {
            plan.place(domain, call);
        }
        Ok(plan)
    }
}

impl<'c> Plan<'c> {
    /// Returns the moment at which the call is decided.
    pub const fn now(&self) -> Time {
        self.now
    }

    /// Returns the charges to count; the decisions on them make the [`answer`](Self::answer).
    pub fn charges(&self) -> PlannedCharges<'_> {
        self.charge(|step| match step.direction {
            Direction::Take if !step.held => step.hits,
            _ => 0,
        })
    }

    /// Returns the refunds to make before anything is counted.
    pub fn refunds(&self) -> PlannedCharges<'_> {
        let mut refunds = self.charge(|step| match step.direction {
            Direction::Take => 0,
            Direction::GiveBack => step.hits,
        });
        refunds.retain(|refund| refund.cost > Permits::ZERO);
        refunds
    }

    /// Returns the looks to make before anything is counted, for [`hold_back`](Self::hold_back).
    /// `None` unless the settings ask for it.
    pub fn looks(&self) -> Option<PlannedCharges<'_>> {
        self.config
            .settings
            .stop_increment
            .then(|| self.charge(|_| 0))
    }

    /// Takes the state of the counters before the call: if any descriptor would be over, only the
    /// descriptors that would are counted. Changes between the look and the count are missed.
    pub fn hold_back(&mut self, looked: &[Decision]) {
        let before: SmallVec<[u64; 4]> = looked.iter().map(counted).collect();
        let is_over = |step: &PlanStep<'_>| {
            let limit = step.applies.limit;
            // Each descriptor is compared alone, as in the Go service: two of them that share
            // a counter do not add up here, only when they are counted.
            limit.is_some_and(|limit| {
                let after = before[step.count] + step.hits;
                step.direction == Direction::Take && after > u64::from(limit.requests_per_unit)
            })
        };
        if self.steps.iter().any(is_over) {
            for step in &mut self.steps {
                step.held = !is_over(step);
            }
        }
    }

    /// Returns the answer to the call, given the decisions on its [`charges`](Self::charges).
    pub fn answer(&self, decisions: &[Decision]) -> EnvoyAnswer<'c> {
        let settings = self.config.settings;
        let mut after: SmallVec<[u64; 4]> = decisions.iter().map(counted).collect();
        let mut statuses: SmallVec<[DescriptorAnswer<'c>; 4]> = SmallVec::new();
        // Backwards: the hits of later descriptors on the same key are subtracted again.
        for step in self.steps.iter().rev() {
            let after = after.get_mut(step.count);
            statuses.push(self.status(step, after));
        }
        statuses.reverse();
        let mut over = false;
        // True if all quotas are over; `None` without a quota.
        let mut quotas_over = None;
        let mut metadata = Map::new();
        for (step, status) in self.steps.iter().zip(&statuses) {
            let is_over = status.code == EnvoyCode::OverLimit;
            if step.applies.is_quota(settings) {
                quotas_over = Some(quotas_over.unwrap_or(true) && is_over);
            } else {
                over |= is_over;
            }
            let rule = step.applies.rule.filter(|_| status.code == EnvoyCode::Ok);
            if let Some(own) = rule.and_then(|rule| rule.metadata.as_ref())
                && settings.dynamic_metadata
            {
                merge(&mut metadata, own);
            }
        }
        let over = over || quotas_over == Some(true);
        EnvoyAnswer {
            overall: if over && !settings.shadow_mode {
                EnvoyCode::OverLimit
            } else {
                EnvoyCode::Ok
            },
            shadowed: over && settings.shadow_mode,
            statuses,
            metadata,
            without_store: false,
        }
    }

    /// Rules that another rule of the call replaces do not apply.
    fn replace(&mut self) {
        let rules = self.steps.iter().filter_map(|step| step.applies.rule);
        let replaced: SmallVec<[&str; 4]> = rules
            .flat_map(|rule| &rule.replaces)
            .map(|name| &**name)
            .collect();
        for step in &mut self.steps {
            let name = step.applies.limit.and_then(|limit| limit.name);
            if name.is_some_and(|name| replaced.contains(&name)) {
                step.applies = Applies::default();
            }
        }
    }

    /// Assigns a counter and key to every descriptor that a limit applies to.
    fn place(&mut self, domain: &'c Domain, call: &EnvoyCall<'_>) {
        for (step, descriptor) in self.steps.iter_mut().zip(&call.descriptors) {
            step.series = step.applies.series(call.domain, descriptor);
            let Some(current) = step.applies.limit else {
                continue;
            };
            let start = self.bytes.len();
            let span = current.span();
            let limit = if span.multiplier == 1 {
                &domain.units[span.unit as usize]
            } else {
                let window = span.window_at(self.now, self.config.origin);
                write_window(call.domain, span, window.number, &mut self.bytes);
                &self.config.spans[class(span)]
            };
            write_entries(
                descriptor,
                step.applies.rule.map_or(&[], |rule| &rule.levels),
                &mut self.bytes,
            );
            let key = start..self.bytes.len();
            let same = |count: &CounterKey<'_>| {
                std::ptr::eq(count.limit, limit)
                    && self.bytes[count.key.clone()] == self.bytes[key.clone()]
            };
            let earlier = self.counts.iter().position(same);
            step.count = earlier.unwrap_or(self.counts.len());
            if earlier.is_some() {
                self.bytes.truncate(start);
            } else {
                self.counts.push(CounterKey { limit, key });
            }
        }
    }

    /// Returns a charge for each counter: the sum of `cost` over its descriptors.
    fn charge(&self, cost: impl Fn(&PlanStep<'c>) -> u64) -> PlannedCharges<'_> {
        let charge = |count: &CounterKey<'c>| Charge {
            limit: count.limit,
            key: Key::from_bytes(&self.bytes[count.key.clone()]),
            cost: Permits::ZERO,
            // Counters are never full, but their store may be: that must not keep the other
            // descriptors from being counted.
            mode: Mode::Shadow,
        };
        let mut charges: PlannedCharges<'_> = self.counts.iter().map(charge).collect();
        for step in &self.steps {
            if step.applies.limit.is_some() {
                let charge = &mut charges[step.count];
                charge.cost = charge.cost + Permits::new(cost(step));
            }
        }
        charges
    }

    /// Returns the answer for one descriptor. `after`, the count after its own hits, loses them.
    fn status(&self, step: &PlanStep<'c>, after: Option<&mut u64>) -> DescriptorAnswer<'c> {
        let series = step.series.clone();
        let hits = step.hits;
        let Applies { rule, limit } = step.applies;
        let Some(current) = limit else {
            return DescriptorAnswer {
                code: EnvoyCode::Ok,
                current_limit: None,
                limit_remaining: rule.map_or(0, |_| u32::MAX),
                reset_after_s: None,
                hits: series.map(|series| Hits::unlimited(series, hits)),
            };
        };
        let taken = step.direction == Direction::Take;
        // A store that did not decide admits nothing.
        let after = after.map_or(FULL, |after| {
            let mine = *after;
            if taken && !step.held && mine < FULL {
                *after = mine.saturating_sub(hits);
            }
            mine
        });
        let limit = u64::from(current.requests_per_unit);
        let shadow = rule.is_some_and(|rule| rule.shadow);
        let left = limit.saturating_sub(after);
        let window = current.span().window_at(self.now, self.config.origin);
        let counted = CountedHits {
            limit,
            hits,
            after,
            shadow,
        };
        DescriptorAnswer {
            code: if after > limit && !shadow {
                EnvoyCode::OverLimit
            } else {
                EnvoyCode::Ok
            },
            current_limit: Some(current),
            limit_remaining: u32::try_from(left).unwrap_or(u32::MAX),
            reset_after_s: Some(window.left.as_secs_ceil()),
            hits: series
                .filter(|_| taken)
                .map(|series| counted.of_series(series)),
        }
    }
}

/// Adds the fields that are not there yet; tables that are in both are merged.
fn merge(all: &mut Map<String, Value>, own: &Map<String, Value>) {
    for (field, value) in own {
        match (all.get_mut(field), value) {
            (None, _) => drop(all.insert(field.clone(), value.clone())),
            (Some(Value::Object(all)), Value::Object(own)) => merge(all, own),
            _ => {}
        }
    }
}

/// More than any limit: a counter that is full, or that its store had no room for.
const FULL: u64 = CAPACITY.get() + 1;

/// Returns the count of a counter.
fn counted(decision: &Decision) -> u64 {
    if decision.verdict.allows() {
        (CAPACITY - decision.remaining).get()
    } else {
        FULL
    }
}
