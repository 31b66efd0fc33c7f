//! Denial: a request that limits refuse, or would refuse if they were enforced.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ratekeeper_core::{Decision, Outage, Permits};
use smallvec::SmallVec;

use super::key_source::no_key::NoKey;
use super::shown::ShownLimit;
#[cfg(feature = "policy")]
use crate::Answer;
use crate::LimitReport;
use crate::problem::{self, RefusalBody};

/// A request that limits refuse, or would refuse if they were enforced; for the callbacks of a
/// layer.
///
/// ```
/// use ratekeeper::Limiter;
/// use ratekeeper::tower::{Denial, RateLimitLayer};
///
/// let log = |denial: &Denial| {
///     for limit in denial.names() {
///         eprintln!("refused by {limit}");
///     }
/// };
/// let layer = RateLimitLayer::new(Limiter::per("100/1s")?).on_refused(log);
/// assert_eq!(layer.counts().refused, 0);
/// # Ok::<(), ratekeeper::core::Error>(())
/// ```
pub struct Denial(pub(super) DeniedBy);

pub(super) enum DeniedBy {
    /// The limits of a layer, that with the longest wait first.
    Limits(SmallVec<[ShownDecision; 1]>),
    /// The limits of a policy.
    #[cfg(feature = "policy")]
    Policy(Box<Answer>),
    /// The request has no key under a limit.
    NoKey { limit: Arc<str>, reason: NoKey },
}

/// The decision of a limit of a layer, as clients are shown it.
#[derive(Clone, Debug)]
pub(super) struct ShownDecision {
    pub(super) limit: Arc<ShownLimit>,
    pub(super) decision: Decision,
    pub(super) cost: Permits,
    /// See [`LimitReport::outage`].
    pub(super) outage: Option<Outage>,
}

impl ShownDecision {
    pub(super) fn report(&self) -> LimitReport<'_> {
        LimitReport {
            outage: self.outage,
            ..self.limit.report(self.decision, self.cost)
        }
    }
}

impl Denial {
    /// Returns the limit that denies the request; of several the one with the longest wait, those in
    /// shadow mode last. `None` if the request has no key, so that no limit was asked.
    pub fn by(&self) -> Option<LimitReport<'_>> {
        match &self.0 {
            DeniedBy::Limits(limits) => limits.first().map(ShownDecision::report),
            DeniedBy::NoKey { .. } => None,
            #[cfg(feature = "policy")]
            DeniedBy::Policy(answer) => {
                let refused_by = answer.refused_by();
                let outcome = refused_by.or_else(|| answer.shadow_denials().next());
                outcome.map(|outcome| outcome.report())
            }
        }
    }

    /// Returns the names of all limits that deny the request.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let (own, limit) = match &self.0 {
            DeniedBy::Limits(limits) => (&limits[..], None),
            DeniedBy::NoKey { limit, .. } => (&[][..], Some(&**limit)),
            #[cfg(feature = "policy")]
            DeniedBy::Policy(_) => (&[][..], None),
        };
        let names = own.iter().map(|shown| shown.report().name).chain(limit);
        #[cfg(feature = "policy")]
        let names = {
            let outcomes = self.answer().into_iter().flat_map(Answer::outcomes);
            let denying = outcomes.filter(|it| it.refuses() || it.shadow_denies());
            names.chain(denying.map(|outcome| &*outcome.rule.limit.name))
        };
        names
    }

    /// Returns the answer of the policy; `None` for the limit of a layer without a policy.
    #[cfg(feature = "policy")]
    pub fn answer(&self) -> Option<&Answer> {
        match &self.0 {
            DeniedBy::Limits(_) | DeniedBy::NoKey { .. } => None,
            DeniedBy::Policy(answer) => Some(answer),
        }
    }

    /// Returns the reason if the request has no key under a limit of the layer.
    pub const fn no_key(&self) -> Option<&NoKey> {
        if let DeniedBy::NoKey { reason, .. } = &self.0 {
            return Some(reason);
        }
        None
    }

    /// Returns how long the client must wait; `None` if waiting does not help, or if only limits in
    /// shadow mode deny the request.
    pub fn retry_after(&self) -> Option<Duration> {
        let wait = match &self.0 {
            DeniedBy::Limits(limits) => limits.first()?.decision.verdict.retry_after(),
            DeniedBy::NoKey { .. } => None,
            #[cfg(feature = "policy")]
            DeniedBy::Policy(answer) => answer.retry_after(),
        };
        wait.map(Duration::from)
    }

    /// Returns the HTTP status of the refusal; 200 if only limits in shadow mode deny the request.
    pub fn status(&self) -> u16 {
        match &self.0 {
            DeniedBy::Limits(_) => self.by().map_or(200, |limit| limit.refusal.status),
            DeniedBy::NoKey { reason, .. } => reason.status(),
            #[cfg(feature = "policy")]
            DeniedBy::Policy(answer) => answer.status(),
        }
    }

    /// Returns true if only limits in shadow mode deny the request.
    pub(super) fn is_shadow(&self) -> bool {
        match &self.0 {
            DeniedBy::Limits(_) | DeniedBy::NoKey { .. } => false,
            #[cfg(feature = "policy")]
            DeniedBy::Policy(answer) => answer.allowed(),
        }
    }

    pub(super) fn body(&self) -> Option<RefusalBody<'_>> {
        match &self.0 {
            DeniedBy::Limits(_) => {
                let limit = self.by()?;
                problem::body(&limit, self.names(), limit.refusal.status)
            }
            #[cfg(feature = "policy")]
            DeniedBy::Policy(answer) => answer.body(),
            DeniedBy::NoKey { limit, reason } => Some(reason.body(limit)),
        }
    }

    /// Returns a sentence or two for the person who reads the response.
    pub(super) fn detail(&self) -> String {
        if let DeniedBy::NoKey { limit, reason } = &self.0 {
            return reason.detail(limit);
        }
        self.by()
            .map_or_else(String::new, |limit| problem::detail(&limit))
    }
}

impl fmt::Debug for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Denial")
            .field("by", &self.by())
            .finish_non_exhaustive()
    }
}
