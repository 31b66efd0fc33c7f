//! Alert: a key has used more than a share of its limit for a given time.
//!
//! ```text
//!   usage  100 % |        xxxx  x          x: a decision
//!                |      x     ''..x'.      the dots: the limit refills
//!          above |- - -x- - - - - -'.- - - - - - - - -
//!                |   x                '..
//!                | x                     ''..
//!                +-----|------------|-|----------------> time
//!                      |<-- for --->|
//!                   since         starts ends
//! ```
//!
//! The usage of a key is the part of its quota that its last decision left spent; a refused request
//! counts as all of it, until the same request would be allowed. A key is *above* from the
//! first decision that leaves more than `above` spent to the first that does not, or to the moment
//! at which the limit has refilled so far, if that comes earlier. The alert of the key starts
//! when it has been above for `for` without a break, and ends when it is no longer above. The only
//! hysteresis is that no alert of a key starts twice within `for`. A banned key is above for `for`
//! and a minute, or to the end of its ban, if that comes earlier.
//!
//! * The moment is computed from the decision alone: `more_after` brings back one permit,
//!   `reset_after` all of them, and the others are taken to come evenly between the two. That is
//!   exact for token buckets, leaky buckets and spacing, and for windows that empty at once.
//!   For other algorithms it lies between the first permit and the last.
//! * A charge that is given back, a reset, and a permit that is released show at the key's next
//!   decision.
//! * Trade-off: no state is read between decisions, so that a shared store is not asked for
//!   keys that send nothing.

use std::fmt;

use ratekeeper_core::{Decision, Nanos, Permits, Verdict};

/// How long the alert of a banned key that sends nothing more lasts, so that scrapes see it.
const BAN_SHOWN: Nanos = Nanos::from_secs(60);

/// `alert` of a limit.
///
/// # Examples
/// ```
/// use ratekeeper_core::{Algorithm, Gcra, Nanos, Permits, Time};
/// use ratekeeper_policy::Alert;
///
/// let alert = Alert { above_percent: 80, hold: Nanos::from_secs(120) };
/// let limit = Gcra::token_bucket("10/10s".parse()?)?;
/// let mut state = Default::default();
/// let mut spend = |cost| limit.decide(&mut state, Time::ZERO, Permits::new(cost));
/// assert_eq!(alert.above_for(Permits::new(10), &spend(8)), Nanos::ZERO);
/// assert_eq!(alert.above_for(Permits::new(10), &spend(1)), Nanos::SECOND);
/// # Ok::<(), ratekeeper_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alert {
    /// `above`: percentage of the quota, 1 to 99.
    pub above_percent: u8,
    /// `for`: how long a key is above before its alert starts.
    pub hold: Nanos,
}

impl Alert {
    /// Returns how long a key of that quota stays above after the decision, if it spends no more;
    /// zero if it is not above.
    pub fn above_for(&self, quota: Permits, decision: &Decision) -> Nanos {
        // A request above the capacity is refused forever, which shows nothing about the usage.
        let refused = decision.verdict.retry_after().unwrap_or(Nanos::ZERO);
        if decision.verdict.is_ban() {
            // Its times are those of the ban. A banned key that has gone away is not watched to
            // the end, because each key that is watched takes a place.
            return refused.min(self.hold + BAN_SHOWN);
        }
        let used = quota.get().saturating_sub(decision.remaining.get());
        let excess = used.saturating_sub(self.level(quota).get());
        if excess == 0 {
            return refused;
        }
        let (first, all) = (decision.more_after, decision.reset_after);
        let rest = u128::from(all.saturating_sub(first).as_nanos());
        // The product is below 2^117, and the quotient at most `rest`. Rounded up: a key is above
        // until it has surely fallen.
        let even = (rest * u128::from(excess - 1)).div_ceil(u128::from(used - 1).max(1));
        let even = Nanos::from_nanos(u64::try_from(even).unwrap_or(u64::MAX));
        (first + even).max(refused)
    }

    /// Returns the part of a quota that a decision leaves spent, in percent, rounded down; 100 for
    /// a refused request.
    pub fn usage_percent(quota: Permits, decision: &Decision) -> u8 {
        if matches!(decision.verdict, Verdict::Deny { .. }) {
            return 100;
        }
        let used = quota.get().saturating_sub(decision.remaining.get());
        let percent = (used * 100).checked_div(quota.get()).unwrap_or(100);
        u8::try_from(percent).unwrap_or(100)
    }

    /// Returns the largest usage that is not above. Rounded down: usage is in whole permits.
    pub fn level(&self, quota: Permits) -> Permits {
        Permits::new(quota.get() * u64::from(self.above_percent) / 100)
    }
}

/// As in the policy: `above 80% for 2m`.
impl fmt::Display for Alert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "above {}% for {}", self.above_percent, self.hold)
    }
}

#[cfg(test)]
mod tests {
    use ratekeeper_core::{Algorithm, AnyAlgorithm, AnyState, Time};

    use super::*;
    use crate::config::{Context, parse};

    fn limit(quantity: &str) -> (AnyAlgorithm, Permits) {
        let text = format!("version = 1\n[[limit]]\nname = \"l\"\nkey = [\"all\"]\n{quantity}\n");
        let policy = parse(&text, Context::default()).unwrap().policy;
        let rule = &policy.rules[0];
        (rule.limit.algorithm.clone(), rule.quota)
    }

    fn above(percent: u8) -> Alert {
        let hold = Nanos::SECOND;
        Alert {
            above_percent: percent,
            hold,
        }
    }

    #[test]
    fn a_ban_is_watched_for_no_longer_than_it_takes_to_see_its_alert() {
        let banning = "limit = \"2/1h\"\nban = { after = 1, within = \"24h\", for = \"2h\" }";
        check(banning, 80, &[1, 1, 1], Nanos::from_secs(61));
        check(banning, 80, &[1, 1, 1, 1], Nanos::from_secs(61));
    }

    /// Spends `costs` at time zero, and compares the predicted moment with the usage that looks at
    /// the state find before and after it.
    fn check(quantity: &str, percent: u8, costs: &[u64], expected: Nanos) {
        let (algorithm, quota) = limit(quantity);
        let mut state = AnyState::default();
        let mut last = None;
        for cost in costs {
            let cost = Permits::new(*cost);
            last = Some(algorithm.decide(&mut state, Time::ZERO, cost));
        }
        let alert = above(percent);
        let found = alert.above_for(quota, &last.unwrap());
        assert_eq!(found, expected, "{quantity} {percent} {costs:?}");
        if found == Nanos::ZERO || last.unwrap().verdict.retry_after().is_some() {
            return;
        }
        let is_above = |after: Nanos| {
            let looked = algorithm.look(&state, Time::ZERO + after, Permits::ZERO);
            alert.above_for(quota, &looked) > Nanos::ZERO
        };
        assert!(
            is_above(found.saturating_sub(Nanos::from_nanos(1))),
            "{quantity} before"
        );
        assert!(!is_above(found), "{quantity} after");
    }

    #[test]
    fn a_key_falls_when_the_limit_has_refilled() {
        let s = |seconds: u64| Nanos::from_secs(seconds);
        for (quantity, percent, costs, expected) in [
            // A token bucket refills evenly: one permit a second.
            ("limit = \"10/10s\"", 80, &[8][..], s(0)),
            ("limit = \"10/10s\"", 80, &[9], s(1)),
            ("limit = \"10/10s\"", 80, &[10], s(2)),
            ("limit = \"10/10s\"", 50, &[10], s(5)),
            ("limit = \"10/10s\"", 1, &[1], s(1)),
            ("limit = \"10/10s\"", 99, &[10], s(1)),
            ("bucket = { size = 4, refill = \"1/1m\" }", 75, &[4], s(60)),
            // A denial counts until the same request would be allowed.
            ("limit = \"10/10s\"", 80, &[6, 5], s(1)),
            ("limit = \"10/10s\"", 80, &[10, 5], s(5)),
            // Above the capacity: nothing is shown.
            ("limit = \"10/10s\"", 80, &[11], s(0)),
            // Windows that empty at once.
            (
                "limit = \"10/1m\"\nalgorithm = \"fixed-window\"",
                80,
                &[9],
                s(60),
            ),
            (
                "limit = \"10/1m\"\nalgorithm = \"quota-reset\"",
                20,
                &[9],
                s(60),
            ),
            // A log, at whose end all come back.
            (
                "limit = \"10/1m\"\nalgorithm = \"sliding-window-log\"",
                80,
                &[10],
                s(60),
            ),
            // One place: used or not.
            ("spacing = \"5s\"", 80, &[1], s(5)),
        ] {
            check(quantity, percent, costs, expected);
        }
    }

    #[test]
    fn the_ends_of_numbers_neither_overflow_nor_divide_by_zero() {
        let decision = |remaining, more_after, reset_after| Decision {
            verdict: Verdict::Allow,
            remaining: Permits::new(remaining),
            more_after,
            reset_after,
        };
        let (all, none) = (Nanos::from_nanos(u64::MAX), Nanos::ZERO);
        let found = above(1).above_for(Permits::MAX, &decision(0, none, all));
        assert!(found <= all && found > all.saturating_sub(Nanos::from_nanos(all.as_nanos() / 50)));
        let nothing = decision(0, none, none);
        for quota in [Permits::ZERO, Permits::ONE, Permits::MAX] {
            assert_eq!(above(99).above_for(quota, &nothing), none);
        }
        assert_eq!(Alert::usage_percent(Permits::ZERO, &nothing), 100);
        assert_eq!(Alert::usage_percent(Permits::MAX, &nothing), 100);
        let more_than_quota = decision(9, none, all);
        assert_eq!(above(50).above_for(Permits::new(5), &more_than_quota), none);
        assert_eq!(Alert::usage_percent(Permits::new(5), &more_than_quota), 0);
    }

    #[test]
    fn the_text_is_that_of_the_policy() {
        assert_eq!(above(80).to_string(), "above 80% for 1s");
        assert_eq!(above(80).level(Permits::new(10)), Permits::new(8));
        assert_eq!(above(80).level(Permits::new(4)), Permits::new(3));
    }
}
