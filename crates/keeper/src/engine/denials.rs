//! Denials: the limits that deny a request, whether it is refused or not.

use ratekeeper_core::Decision;

use crate::{Answer, Outcome};

impl Answer {
    /// Returns the limits in shadow mode that would refuse.
    pub fn shadow_denials(&self) -> impl Iterator<Item = Outcome<'_>> {
        self.if_one_denies().filter(Outcome::shadow_denies)
    }

    /// Returns all outcomes if a limit denies, and none otherwise, as usual.
    fn if_one_denies(&self) -> impl Iterator<Item = Outcome<'_>> {
        let denies = |it: &Decision| !it.verdict.allows();
        let one = !self.charges.uncharged.is_empty() || self.decisions.each.iter().any(denies);
        one.then(|| self.outcomes()).into_iter().flatten()
    }

    /// Returns the name of the route that an allowed request must take, because a limit with
    /// `on_limit` denies it: the route of the first such limit.
    pub fn diverts_to(&self) -> Option<&str> {
        let denials = self.if_one_denies();
        let mut routes = denials.filter_map(|outcome| outcome.diverts_to());
        routes.next().filter(|_| self.allowed())
    }

    /// Returns the soft limits that the request exceeds, if it is allowed.
    pub fn soft_denials(&self) -> impl Iterator<Item = Outcome<'_>> {
        let denials = self.if_one_denies();
        denials.filter(|outcome| self.allowed() && outcome.is_soft())
    }

    /// Returns the HTTP status of the refusal: the refusing limit's, 429 unless the policy
    /// sets another; 200 if allowed.
    pub fn status(&self) -> u16 {
        self.refused_by()
            .map_or(200, |outcome| outcome.rule.refusal.status)
    }
}
