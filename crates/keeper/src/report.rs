//! Limit report: one limit and its decision, in the form that clients see.
//!
//! ```text
//!   a limit of a policy  \
//!   a limit of a layer    +-> LimitReport --> RateLimit fields, Retry-After, problem document
//!   a rule of Envoy's    /
//! ```
//!
//! A plain value. Header fields and bodies are written from it, for limits of any origin.

use std::cmp::Reverse;
use std::ops::Deref;

use ratekeeper_core::{Decision, Nanos, Outage, Permits, Verdict};
use ratekeeper_policy::{Refusal, Unit};
use smallvec::SmallVec;

/// A limit and its decision about a request, as clients are shown them.
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
/// let report = answer.outcomes().next().expect("one limit").report();
/// assert_eq!((report.name, report.quota_per_window()), ("api", (2, Some(3_600))));
/// # Ok::<(), ratekeeper::OpenError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct LimitReport<'a> {
    /// The name of the limit.
    pub name: &'a str,
    /// The maximum that the limit holds.
    pub quota: Permits,
    /// The span of the quota; `None` for a number of concurrent requests, and for months and years
    /// of the calendar.
    pub window: Option<Nanos>,
    /// The span until more than the remaining permits may be used; `None` if it is not known.
    pub more_after: Option<Nanos>,
    /// True if permits come back when work is done, not with time.
    pub is_level: bool,
    /// The quota in words: `5 per minute`; empty for numbers of the caller.
    pub text: &'a str,
    /// Unit of the permits, such as cents; `None` for requests or other plain permits.
    pub unit: Option<&'a Unit>,
    /// The decision.
    pub decision: Decision,
    /// The cost of the request.
    pub cost: Permits,
    /// True if the request has no value for a part of the limit's key.
    pub key_missing: bool,
    /// Its choice for an outage, by which it decided without the store; `None` if the store
    /// decided.
    pub outage: Option<Outage>,
    /// Status and body of a refusal.
    pub refusal: &'a Refusal,
}

impl LimitReport<'_> {
    /// Returns true if the remaining quota is known; false while the store is away, for a limit
    /// that refuses, or that passes every request.
    pub fn is_counted(&self) -> bool {
        match self.outage {
            None => true,
            Some(Outage::Local) => self.decision.verdict.allows(),
            Some(_) => false,
        }
    }

    /// Returns the quota and its window in whole seconds; `None` for months and years of the
    /// calendar. For a window under a second, returns the quota of one second if a whole number of
    /// windows makes a second, else no window.
    pub fn quota_per_window(&self) -> (u64, Option<u64>) {
        let quota = self.quota.get();
        match self.window {
            None => (quota, None),
            Some(window) if window >= Nanos::SECOND => (quota, Some(window.as_secs_ceil())),
            Some(window) => {
                let second = Nanos::SECOND.as_nanos();
                if window > Nanos::ZERO && second.is_multiple_of(window.as_nanos()) {
                    (quota.saturating_mul(second / window.as_nanos()), Some(1))
                } else {
                    (quota, None)
                }
            }
        }
    }

    /// Returns true if this limit matters more to a client than `other`: the client waits longer,
    /// or a smaller share is left.
    pub fn is_tighter_than(&self, other: &Self) -> bool {
        self.tightness() > other.tightness()
    }

    /// Sort key, the greatest first: longest wait, then the least share left.
    pub(crate) fn tightness(&self) -> (Nanos, u128) {
        let quota = self.quota.max(Permits::ONE);
        let used = quota - self.decision.remaining;
        let used_ppm = u128::from(used.get()) * 1_000_000 / u128::from(quota.get()); // floor: an order
        (wait(&self.decision), used_ppm)
    }
}

/// The reports of a request, the tightest first: a slice. Those of up to four limits take no memory
/// of the heap.
///
/// ```
/// use ratekeeper::policy::Facts;
/// use ratekeeper::{Keeper, LimitReports, Scope, at_once};
///
/// let keeper = Keeper::open(
///     r#"
///     version = 1
///     [[limit]]
///     name  = "api"
///     key   = ["all"]
///     limit = "5/1h"
///     "#,
/// )?;
/// let answer = at_once(keeper.check(&Facts::default(), Scope::All))?;
/// let reports: LimitReports<'_> = answer.reports();
/// assert_eq!(reports[0].decision.remaining.get(), 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct LimitReports<'a>(SmallVec<[LimitReport<'a>; 4]>);

impl<'a> Deref for LimitReports<'a> {
    type Target = [LimitReport<'a>];

    fn deref(&self) -> &[LimitReport<'a>] {
        &self.0
    }
}

impl<'a> LimitReport<'a> {
    /// Collects reports, the tightest first. A request with two credentials has two counters of one
    /// limit: of those, the tighter stays.
    pub fn tightest_first(reports: impl Iterator<Item = Self>) -> LimitReports<'a> {
        let mut sorted = LimitReports(SmallVec::new()); // not collected, which moves its room
        sorted.0.extend(reports);
        let reports = &mut sorted.0;
        if reports.len() > 1 {
            reports.sort_by_key(|report| Reverse(report.tightness()));
            let mut named: SmallVec<[&'a str; 4]> = SmallVec::new();
            reports.retain(|report| {
                let is_new = !named.contains(&report.name);
                named.push(report.name);
                is_new
            });
        }
        sorted
    }
}

/// Orders refusals: the longer wait is the worse; forever is the worst.
pub(crate) fn wait(decision: &Decision) -> Nanos {
    match decision.verdict {
        Verdict::Allow | Verdict::AllowAfter(_) => Nanos::ZERO,
        denied => denied.retry_after().unwrap_or(Nanos::MAX),
    }
}
