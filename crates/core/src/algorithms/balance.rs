//! Balance: prepaid credits, which do not refill and are topped up by grants.
//!
//! ```text
//!   credits
//!   max = 9 |.......................................
//!         8 |                  +----+
//!           |                  |    +------+          denied at 0, until
//!   start=4 |--+               |           |          the next grant
//!           |  +-----+         |           +---------
//!         0 |        +---------+
//!           +--------------------------------------> time
//!            spend     denied  grant 8   spend
//! ```
//!
//! A key never seen has `start` credits. Allow iff `cost <= credits`; then `credits -= cost`. A
//! grant adds to them, up to `max`. Time changes nothing.
//!
//! ```text
//!   remaining                credits
//!   retry_after, more_after  none: no wait helps, so a denial is `DenyForever`
//!   reset_after              none (`Nanos::MAX`), once a credit was spent or granted
//!   refund                   credits += cost, up to `max`; up to `start` without a grant
//! ```
//!
//! * State: 40 bytes, and 8 for each of the last [`MAX_GRANTS_KNOWN`] grants. Error: none.
//! * Worst case: `max` in any span, and each grant within the span on top. Long run: the grants.
//! * A grant has an id. The state keeps the ids of the last grants, so that a grant that is
//!   repeated with its id adds nothing: in every store, after a restart, on every node, because
//!   id and credits are one value.
//! * Choose it for credits that customers buy, and for promotions without an end.
//! * A smaller `max` cuts credits to it; another `start` concerns keys never seen only.
//! * Laws: keeps all of them while there are no grants. A grant is no refund: it leaves more
//!   than a key never seen has.
//! * Twin: `balance.lua`, for charges and refunds.
//! * Source: prepaid billing, as in ITU-T Q.825 and Diameter credit control (RFC 8506, 2019),
//!   whose units are granted, used and given back.

mod stored_form;

use alloc::vec::Vec;

use crate::algorithm::{Algorithm, Refund};
use crate::quota::countable;
use crate::stored_form::bytes_fingerprint;
use crate::{
    AnyAlgorithm, Decision, Error, Nanos, Origin, Permits, Quota, Receipt, Reconfigure, Time,
    Verdict,
};

/// Number of grants of one key whose ids are known; an older one is forgotten.
pub const MAX_GRANTS_KNOWN: usize = 32;

/// Prepaid credits; see the [module](self) for figure and formula.
///
/// ```
/// use ratekeeper_core::{Algorithm, Balance, Granted, GrantId, Permits, Time, Verdict};
///
/// let limit = Balance::new(Permits::new(4), Permits::new(9)).unwrap();
/// let (mut state, now) = (Default::default(), Time::ZERO);
/// assert_eq!(limit.decide(&mut state, now, Permits::new(4)).verdict, Verdict::Allow);
/// assert_eq!(limit.decide(&mut state, now, Permits::ONE).verdict, Verdict::DenyForever);
///
/// let (credits, id) = (Permits::new(8), GrantId::of("payment-4711"));
/// assert_eq!(limit.grant(&mut state, credits, id), Granted::Added(credits));
/// assert_eq!(limit.grant(&mut state, credits, id), Granted::Repeated);
/// assert_eq!(limit.decide(&mut state, now, Permits::new(5)).remaining, Permits::new(3));
/// ```
#[doc(alias = "credits")]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Balance {
    /// At most `max`.
    start: u64,
    /// 1 to [`Quota::MAX_PERMITS`].
    max: u64,
}

/// The credits of one key, and its last grants.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct BalanceState {
    /// `None` for a key never seen, and for one that was given back all its charges and has no
    /// grants.
    credits: Option<u64>,
    /// Oldest first, at most [`MAX_GRANTS_KNOWN`].
    grants: Vec<GrantId>,
}

/// Identifies a grant among those of a key: 64 bits of a text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GrantId(u64);

impl GrantId {
    /// The id of a text, such as the number of a payment.
    pub fn of(text: &str) -> Self {
        Self(bytes_fingerprint(text.bytes()))
    }
}

/// The result of a grant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Granted {
    /// So many credits were added; fewer than granted if the maximum is reached.
    Added(Permits),
    /// A grant with this id was made before; nothing was added.
    Repeated,
}

impl Balance {
    /// `start` credits for a key never seen, and at most `max` for any.
    ///
    /// # Errors
    /// [`Error::NoPermits`] if `max` is zero, [`Error::TooManyPermits`] if it is above
    /// [`Quota::MAX_PERMITS`], and [`Error::Balance`] if `start` is above it.
    pub fn new(start: impl Into<Permits>, max: impl Into<Permits>) -> Result<Self, Error> {
        let (start, max) = (start.into().get(), countable(max.into())?.get());
        if start > max {
            return Err(Error::Balance);
        }
        Ok(Self { start, max })
    }

    /// Number of credits of a key never seen.
    pub fn start(&self) -> Permits {
        Permits::new(self.start)
    }

    /// Adds credits up to the maximum, unless a grant with this id was made before.
    pub fn grant(&self, state: &mut BalanceState, credits: Permits, id: GrantId) -> Granted {
        if state.grants.contains(&id) {
            return Granted::Repeated;
        }
        let before = self.credits(state);
        let after = before.saturating_add(credits.get()).min(self.max);
        if state.grants.len() >= MAX_GRANTS_KNOWN {
            state.grants.remove(0);
        }
        state.grants.push(id);
        state.credits = Some(after);
        Granted::Added(Permits::new(after - before))
    }

    #[inline]
    fn credits(self, state: &BalanceState) -> u64 {
        state.credits.unwrap_or(self.start).min(self.max)
    }

    /// Sets the credits. A key without grants that has all credits of its start becomes fresh.
    #[inline]
    fn refill(self, state: &mut BalanceState, credits: u64) {
        let is_fresh = credits == self.start && state.grants.is_empty();
        state.credits = (!is_fresh).then_some(credits);
    }
}

impl Reconfigure for Balance {
    /// A balance has no period: the new maximum is the burst.
    fn with_quota(&self, quota: Quota, _origin: Origin) -> Result<AnyAlgorithm, Error> {
        let max = quota.burst_size();
        Ok(Self::new(self.start().min(max), max)?.into())
    }
}

impl Algorithm for Balance {
    type State = BalanceState;

    fn name(&self) -> &'static str {
        "balance"
    }

    fn capacity(&self) -> Permits {
        Permits::new(self.max)
    }

    #[inline]
    fn look(&self, state: &BalanceState, _now: Time, cost: Permits) -> Decision {
        let credits = self.credits(state);
        let left = credits.checked_sub(cost.get());
        let credits = left.unwrap_or(credits);
        let is_fresh = credits == self.start && state.grants.is_empty();
        Decision {
            verdict: left.map_or(Verdict::DenyForever, |_| Verdict::Allow),
            remaining: Permits::new(credits),
            reset_after: if is_fresh { Nanos::ZERO } else { Nanos::MAX },
            more_after: Nanos::ZERO,
        }
    }

    #[inline]
    fn decide(&self, state: &mut BalanceState, now: Time, cost: Permits) -> Decision {
        let decision = self.look(state, now, cost);
        if decision.verdict.allows() && cost > Permits::ZERO {
            // Even if they equal another start: the key has been seen.
            state.credits = Some(decision.remaining.get());
        }
        decision
    }

    fn expires_at(&self, state: &BalanceState, _now: Time) -> Time {
        if state.credits.is_none() {
            Time::ZERO
        } else {
            Time::MAX
        }
    }

    /// Keeps the smaller balance. Ids of grants are not joined: they belong to one key.
    fn stricter(&self, state: &mut BalanceState, other: &BalanceState) {
        let credits = self.credits(state).min(self.credits(other));
        *state = BalanceState::default();
        self.refill(state, credits);
    }

    /// Credits mean the same under any numbers.
    fn keeps_state_of(&self, _old: &Self) -> bool {
        true
    }

    /// The credits spent of those at the start: grants are no usage.
    fn usage(&self, state: &BalanceState, _now: Time) -> Permits {
        self.start() - Permits::new(self.credits(state))
    }

    fn state_with_usage(&self, usage: Permits, _now: Time) -> BalanceState {
        let mut state = BalanceState::default();
        self.refill(&mut state, (self.start() - usage).get());
        state
    }

    /// The maximum; each grant within the span comes on top.
    fn bound(&self, window: Nanos) -> u64 {
        match window {
            Nanos::ZERO => 0,
            _ => self.max,
        }
    }

    fn heap_bytes(&self) -> usize {
        MAX_GRANTS_KNOWN * size_of::<GrantId>()
    }
}

impl Refund for Balance {
    /// Whole, because time pays nothing.
    fn give_back_late(
        &self,
        state: &mut BalanceState,
        now: Time,
        cost: Permits,
        _receipt: Receipt,
    ) {
        self.refund(state, now, cost);
    }

    /// Without a grant a key has at most the credits of its start. A refund to a key that is not
    /// known is dropped.
    fn refund(&self, state: &mut BalanceState, _now: Time, cost: Permits) {
        let most = if state.grants.is_empty() {
            self.start
        } else {
            self.max
        };
        let credits = self.credits(state);
        let after = credits.saturating_add(cost.get()).min(most).max(credits);
        if after > credits {
            self.refill(state, after);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;

    fn balance(start: u64, max: u64) -> Balance {
        Balance::new(Permits::new(start), Permits::new(max)).unwrap()
    }

    fn spend(limit: Balance, state: &mut BalanceState, cost: u64) -> (bool, u64) {
        let decision = limit.decide(state, Time::ZERO, Permits::new(cost));
        (decision.verdict.allows(), decision.remaining.get())
    }

    #[test]
    fn credits_are_spent_and_granted() {
        let limit = balance(4, 9);
        let mut state = BalanceState::default();
        let grant = |state: &mut BalanceState, credits, id| {
            limit.grant(state, Permits::new(credits), GrantId::of(id))
        };
        assert_eq!(spend(limit, &mut state, 2), (true, 2));
        assert_eq!(spend(limit, &mut state, 3), (false, 2));
        assert_eq!(spend(limit, &mut state, 2), (true, 0));
        assert_eq!(grant(&mut state, 8, "a"), Granted::Added(Permits::new(8)));
        assert_eq!(grant(&mut state, 8, "a"), Granted::Repeated);
        assert_eq!(spend(limit, &mut state, 1), (true, 7));
        assert_eq!(grant(&mut state, 8, "b"), Granted::Added(Permits::new(2)));
        assert_eq!(grant(&mut state, 8, "b"), Granted::Repeated);
        assert_eq!(spend(limit, &mut state, 10), (false, 9));
    }

    /// Another start concerns keys never seen, even if a key has just as many credits.
    #[test]
    fn another_start_gives_a_known_key_nothing() {
        let mut state = BalanceState::default();
        assert_eq!(spend(balance(100, 900), &mut state, 100), (true, 0));
        assert_eq!(balance(0, 900).expires_at(&state, Time::ZERO), Time::MAX);
        assert_eq!(spend(balance(50, 900), &mut state, 1), (false, 0));
        let mut state = BalanceState::default();
        assert_eq!(spend(balance(10, 900), &mut state, 5), (true, 5));
        assert_eq!(spend(balance(4, 900), &mut state, 1), (true, 4));
        assert_eq!(spend(balance(10, 900), &mut state, 5), (false, 4));
    }

    #[test]
    fn a_balance_never_expires_once_it_was_used() {
        let limit = balance(4, 9);
        let mut state = BalanceState::default();
        assert_eq!(limit.expires_at(&state, Time::ZERO), Time::ZERO);
        let used = limit.decide(&mut state, Time::ZERO, Permits::ONE);
        assert_eq!(used.reset_after, Nanos::MAX);
        assert_eq!(limit.expires_at(&state, Time::ZERO), Time::MAX);
        limit.refund(&mut state, Time::ZERO, Permits::ONE);
        assert_eq!(state, BalanceState::default());
        // A grant is remembered even where the credits are those of the start.
        let _ = spend(limit, &mut state, 4);
        let _ = limit.grant(&mut state, Permits::new(4), GrantId::of("a"));
        assert_eq!(limit.expires_at(&state, Time::ZERO), Time::MAX);
    }

    #[test]
    fn refunds_stay_below_the_start_until_a_grant() {
        let limit = balance(4, 9);
        let mut state = BalanceState::default();
        let refund = |state: &mut _, cost| limit.refund(state, Time::ZERO, Permits::new(cost));
        let _ = spend(limit, &mut state, 3);
        refund(&mut state, 5);
        assert_eq!(spend(limit, &mut state, 0), (true, 4));
        let _ = limit.grant(&mut state, Permits::new(3), GrantId::of("a"));
        let _ = spend(limit, &mut state, 6);
        refund(&mut state, 6);
        assert_eq!(spend(limit, &mut state, 0), (true, 7));
        refund(&mut state, u64::MAX);
        assert_eq!(spend(limit, &mut state, 0), (true, 9));
    }

    #[test]
    fn the_last_grants_are_known_and_no_more() {
        let limit = balance(0, Quota::MAX_PERMITS);
        let mut state = BalanceState::default();
        let id = |number: usize| GrantId::of(&format!("payment-{number}"));
        for number in 0..=MAX_GRANTS_KNOWN {
            let granted = limit.grant(&mut state, Permits::ONE, id(number));
            assert_eq!(granted, Granted::Added(Permits::ONE), "{number}");
        }
        for number in 1..=MAX_GRANTS_KNOWN {
            let granted = limit.grant(&mut state, Permits::ONE, id(number));
            assert_eq!(granted, Granted::Repeated, "{number}");
        }
        let oldest = limit.grant(&mut state, Permits::ONE, id(0));
        assert_eq!(oldest, Granted::Added(Permits::ONE));
        assert_eq!(state.grants.len(), MAX_GRANTS_KNOWN);
    }

    #[test]
    fn other_numbers_keep_the_credits_up_to_the_maximum() {
        let limit = balance(4, 9);
        let mut state = BalanceState::default();
        let _ = limit.grant(&mut state, Permits::new(3), GrantId::of("a"));
        for (new, credits) in [
            (balance(4, 20), 7),
            (balance(0, 9), 7),
            (balance(9, 9), 7),
            (balance(4, 5), 5),
        ] {
            assert!(new.keeps_state_of(&limit));
            assert_eq!(
                spend(new, &mut state.clone(), 0),
                (true, credits),
                "{new:?}"
            );
        }
        let new = spend(balance(6, 9), &mut BalanceState::default(), 0);
        assert_eq!(new, (true, 6), "a key never seen has the new start");
    }

    #[test]
    fn numbers_out_of_bounds_are_refused() {
        let new = |start, max| Balance::new(Permits::new(start), Permits::new(max));
        assert_eq!(new(0, 0), Err(Error::NoPermits));
        assert_eq!(new(5, 4), Err(Error::Balance));
        let most = Quota::MAX_PERMITS;
        assert!(new(0, 1).is_ok() && new(most, most).is_ok());
        assert_eq!(new(0, most + 1), Err(Error::TooManyPermits));
    }
}
