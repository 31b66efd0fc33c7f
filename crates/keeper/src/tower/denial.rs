//! Denial: a request that limits refuse, or would refuse if they were enforced.

use std::fmt;
use std::sync::Arc;

use ratekeeper_core::{Decision, Nanos, Permits};

use super::shown::ShownLimit;
use crate::problem::{self, RefusalBody};
use crate::{Answer, LimitReport, Outcome};

/// A request that limits refuse, or would refuse if they were enforced; for the callbacks of a
/// layer.
pub struct Denial(pub(super) DeniedBy);

pub(super) enum DeniedBy {
    /// The limit of a layer.
    Limit {
        limit: Arc<ShownLimit>,
        decision: Decision,
        cost: Permits,
    },
    /// The limits of a policy.
    Policy(Box<Answer>),
}

impl Denial {
    /// Returns the limit that denies the request; of several the one with the longest wait, those in
    /// shadow mode last.
    pub fn by(&self) -> Option<LimitReport<'_>> {
        match &self.0 {
            DeniedBy::Limit {
                limit,
                decision,
                cost,
            } => Some(limit.report(*decision, *cost)),
            DeniedBy::Policy(answer) => {
                let refused_by = answer.refused_by();
                let outcome = refused_by.or_else(|| answer.shadow_denials().next());
                outcome.map(|outcome| outcome.report())
            }
        }
    }

    /// Returns the names of all limits that deny the request.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let denies = |outcome: &Outcome<'_>| outcome.refuses() || outcome.shadow_denies();
        let (own, answer) = match &self.0 {
            DeniedBy::Limit { .. } => (self.by().map(|limit| limit.name), None),
            DeniedBy::Policy(answer) => (None, Some(answer)),
        };
        let outcomes = answer.into_iter().flat_map(|answer| answer.outcomes());
        let names = outcomes.filter(denies);
        own.into_iter()
            .chain(names.map(|outcome| &*outcome.rule.limit.name))
    }

    /// Returns the answer of the policy; `None` for the limit of a layer without a policy.
    pub fn answer(&self) -> Option<&Answer> {
        match &self.0 {
            DeniedBy::Limit { .. } => None,
            DeniedBy::Policy(answer) => Some(answer),
        }
    }

    /// Returns how long the client must wait; `None` if waiting does not help, or if only limits in
    /// shadow mode deny the request.
    pub fn retry_after(&self) -> Option<Nanos> {
        match &self.0 {
            DeniedBy::Limit { decision, .. } => decision.verdict.retry_after(),
            DeniedBy::Policy(answer) => answer.retry_after(),
        }
    }

    /// Returns the HTTP status of the refusal; 200 if only limits in shadow mode deny the request.
    pub fn status(&self) -> u16 {
        match &self.0 {
            DeniedBy::Limit { .. } => self.by().map_or(200, |limit| limit.refusal.status),
            DeniedBy::Policy(answer) => answer.status(),
        }
    }

    /// Returns true if only limits in shadow mode deny the request.
    pub(super) fn is_shadow(&self) -> bool {
        self.answer().is_some_and(Answer::allowed)
    }

    /// Returns how long the request is held back if it passes all the same.
    pub(super) fn delay(&self) -> Nanos {
        self.answer().map_or(Nanos::ZERO, Answer::delay)
    }

    pub(super) fn body(&self) -> Option<RefusalBody<'_>> {
        match &self.0 {
            DeniedBy::Limit { .. } => {
                let limit = self.by()?;
                problem::body(&limit, std::iter::once(limit.name), limit.refusal.status)
            }
            DeniedBy::Policy(answer) => answer.body(),
        }
    }
}

impl fmt::Debug for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Denial")
            .field("by", &self.by())
            .finish_non_exhaustive()
    }
}
