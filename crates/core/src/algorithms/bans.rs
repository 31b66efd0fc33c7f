//! Bans: a limit that shuts out a key which it has refused too often.
//!
//! A ban stands on top of any limit that admits or denies at once. Each refusal by that limit is a
//! *strike*; the strike that makes `after` within `within` begins a ban. While it stands every
//! request of the key is refused, charges nothing and is no strike. The next ban is `growth` times
//! as long if it begins within `within` of the last one's end, up to `longest`.
//!
//! ```text
//!                strikes = 3/24h, first = 1h, growth = 2
//!
//!   refused by the limit:   x   x   x                        x x x
//!   -----------------------------------[######]--------------------[############]------> time
//!                                  3rd strike                   3rd strike
//!                                   1h banned                    2h banned
//!   refused by the ban:                 ....  no strikes             ..  .  .
//! ```
//!
//! ```text
//!   now < ends                       banned until `ends`, whatever the cost
//!   denied by the limit, cost > 0    one strike; `after` in (now - within, now] begin a ban:
//!                                      length = first, or length x growth if now < ends + within
//!                                      ends   = now + min(length, longest)
//! ```
//!
//! * State: that of the limit, 8 bytes a strike, `after` at most, and 24 bytes; on the heap, from
//!   the first request on. Strikes are a [log](super::log), so their count is exact.
//! * Worst case: that of the limit. Long run: nothing for a key that goes on being refused.
//! * Choose it where a refusal is a sign of abuse: log-ins, sign-ups, card numbers. Avoid it where
//!   a busy client is refused now and then.
//! * Made for callers that are refused, not for a queue of waiters: a look at a request that would
//!   begin a ban returns the wait of that ban.
//! * A cost that never fits is refused without a strike, because it is not a sign of haste.
//! * A clock that steps back prolongs a ban by the step, and strikes as in a log.
//! * A key that a full store forgets loses its ban, and begins like any newcomer: the ban of one
//!   key must not shut out others.
//! * Laws: those of the limit, but "denial is free": a denial by the limit itself is remembered.
//!   `reset_after` is that of the limit and the ban; strikes outlast it, and
//!   `expires_at` is not before they are forgotten.
//! * No twin: a shared store exchanges the state.
//! * Source: C. Jaquier, `Fail2Ban` (2004), `maxretry`, `findtime`, `bantime`, and
//!   `bantime.increment` (2020).

mod any;
mod stored_form;
mod terms;

use alloc::boxed::Box;

use crate::algorithm::{Algorithm, Denials};
use crate::{
    AnyAlgorithm, Decision, Error, Log, LogState, Nanos, Permits, Quota, Share, Time, Verdict,
};
use terms::CONSTANT;
pub use terms::{BanTerms, MAX_BAN, MAX_STRIKES};

/// A limit with bans; see the [module](self) for figure and formula.
///
/// ```
/// use ratekeeper_core::{Algorithm, BanTerms, Gcra, Nanos, Permits, Time, Verdict, WithBans};
/// let hour = Nanos::from_secs(3_600);
/// let terms = BanTerms {
///     strikes: "3/24h".parse().unwrap(),
///     first: hour,
///     growth_thousandths: 2_000,
///     longest: Nanos::from_secs(86_400),
/// };
/// let logins = WithBans::new(Gcra::token_bucket("1/1m".parse().unwrap()).unwrap(), terms).unwrap();
/// let mut state = Default::default();
/// let mut ask = || logins.decide(&mut state, Time::ZERO, Permits::ONE).verdict;
/// let retry_after = Nanos::from_secs(60);
/// assert_eq!(ask(), Verdict::Allow);
/// assert_eq!([ask(), ask()], [Verdict::Deny { retry_after }; 2]);
/// assert_eq!(ask(), Verdict::Ban { retry_after: hour }, "the third refusal");
/// assert_eq!(ask(), Verdict::Banned { retry_after: hour }, "and all that follow");
/// ```
#[doc(alias("fail2ban", "lockout", "jail", "penalty box"))]
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct WithBans<A> {
    limit: Box<A>,
    terms: BanTerms,
    strikes: Log,
}

/// A limit of any algorithm with bans.
pub type Banning = WithBans<AnyAlgorithm>;

/// The state of one key; `None` for a key never seen.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct BanState<S>(Option<Box<BanRecord<S>>>);

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct BanRecord<S> {
    /// The state of the limit.
    used: S,
    strikes: LogState,
    /// The end of the current ban, or of the last.
    ends: Time,
    /// End and length of the last ban that strikes began; zero if there was none.
    struck_out_until: Time,
    length: Nanos,
}

impl<S> Default for BanState<S> {
    fn default() -> Self {
        Self(None)
    }
}

impl<S: Default> BanState<S> {
    fn record(&mut self) -> &mut BanRecord<S> {
        self.0.get_or_insert_with(Box::default)
    }

    fn of_limit(used: S) -> Self {
        Self(Some(Box::new(BanRecord {
            used,
            ..BanRecord::default()
        })))
    }
}

impl<A: Algorithm> WithBans<A> {
    /// The same limit, with bans.
    ///
    /// # Errors
    /// [`Error::Ban`] if `terms` are out of bounds: 1 to [`MAX_STRIKES`] strikes, lengths above
    /// zero and up to [`MAX_BAN`], and the first no longer than the longest; or if `limit` counts
    /// denials, because a ban charges nothing;
    /// [`Error::WindowTooLong`] if strikes count for more than 146 years.
    pub fn new(limit: A, terms: BanTerms) -> Result<Self, Error> {
        let is_bounded = terms.strikes.permits() <= Permits::new(MAX_STRIKES.into())
            && terms.first > Nanos::ZERO
            && terms.first <= terms.longest
            && terms.longest <= MAX_BAN
            && terms.growth_thousandths >= CONSTANT;
        if !is_bounded || limit.denials() == Denials::Counted {
            return Err(Error::Ban);
        }
        Ok(Self {
            limit: Box::new(limit),
            strikes: Log::sliding(terms.strikes)?,
            terms,
        })
    }

    /// The limit under the ban.
    pub const fn limit(&self) -> &A {
        &self.limit
    }

    /// The terms.
    pub const fn terms(&self) -> BanTerms {
        self.terms
    }

    /// Bans the key for `span` from `now`, at most [`MAX_BAN`]; replaces a ban that stands. A span
    /// of zero lifts it: strikes and earlier bans are forgotten, the usage of the limit stays.
    pub fn ban(&self, state: &mut BanState<A::State>, now: Time, span: Nanos) {
        if span > Nanos::ZERO {
            state.record().ends = now + span.min(MAX_BAN);
        } else if let Some(record) = &mut state.0 {
            **record = BanRecord {
                used: core::mem::take(&mut record.used),
                ..BanRecord::default()
            };
        }
    }

    fn decide_in(&self, record: &mut BanRecord<A::State>, now: Time, cost: Permits) -> Decision {
        if now < record.ends {
            return self.banned(record, now, cost);
        }
        let decision = self.limit.decide(&mut record.used, now, cost);
        if !is_strike(&decision, cost) {
            return decision;
        }
        let strike = self.strikes.decide(&mut record.strikes, now, Permits::ONE);
        if strike.remaining > Permits::ZERO {
            return decision;
        }
        record.length = self.next_length(record, now);
        record.ends = now + record.length;
        record.struck_out_until = record.ends;
        record.strikes = LogState::default();
        shut_out(decision, record.ends.since(now), |retry_after| {
            Verdict::Ban { retry_after }
        })
    }

    fn look_in(&self, record: &BanRecord<A::State>, now: Time, cost: Permits) -> Decision {
        if now < record.ends {
            return self.banned(record, now, cost);
        }
        let decision = self.limit.look(&record.used, now, cost);
        if !is_strike(&decision, cost) {
            return decision;
        }
        let strike = self.strikes.look(&record.strikes, now, Permits::ONE);
        if strike.remaining > Permits::ZERO {
            return decision;
        }
        let ends = now + self.next_length(record, now);
        shut_out(decision, ends.since(now), |retry_after| Verdict::Ban {
            retry_after,
        })
    }

    /// The decision about a key that is banned now.
    fn banned(&self, record: &BanRecord<A::State>, now: Time, cost: Permits) -> Decision {
        let mut decision = self.limit.look(&record.used, now, cost);
        if decision.verdict.allows() {
            decision = self.limit.look(&record.used, now, Permits::ZERO); // nothing is charged
        }
        shut_out(decision, record.ends.since(now), |retry_after| {
            Verdict::Banned { retry_after }
        })
    }

    /// The length of a ban that begins at `now`.
    fn next_length(&self, record: &BanRecord<A::State>, now: Time) -> Nanos {
        let is_further = record.length > Nanos::ZERO && now < self.forgotten_at(record);
        if is_further {
            self.terms.after_ban_of(record.length)
        } else {
            self.terms.first
        }
    }

    /// The moment from which the last ban that strikes began makes the next no longer.
    fn forgotten_at(&self, record: &BanRecord<A::State>) -> Time {
        match record.length {
            Nanos::ZERO => Time::ZERO,
            _ => record.struck_out_until + self.terms.strikes.per(),
        }
    }
}

/// The decision of a limit about a key that is banned for `ban`, too. The limit may deny for
/// longer.
fn shut_out(limit: Decision, ban: Nanos, verdict: fn(Nanos) -> Verdict) -> Decision {
    let some_after = match limit.remaining {
        Permits::ZERO => limit.more_after,
        _ => Nanos::ZERO,
    };
    Decision {
        verdict: match limit.verdict {
            Verdict::DenyForever => Verdict::DenyForever,
            other => verdict(other.retry_after().unwrap_or_default().max(ban)),
        },
        remaining: Permits::ZERO,
        reset_after: limit.reset_after.max(ban),
        more_after: some_after.max(ban),
    }
}

/// Returns true if the limit itself refused a request that could have passed.
fn is_strike(decision: &Decision, cost: Permits) -> bool {
    matches!(decision.verdict, Verdict::Deny { .. }) && cost > Permits::ZERO
}

impl<A: Algorithm> Algorithm for WithBans<A> {
    type State = BanState<A::State>;

    fn name(&self) -> &'static str {
        self.limit.name()
    }

    fn capacity(&self) -> Permits {
        self.limit.capacity()
    }

    fn counts_strikes(&self) -> bool {
        true
    }

    fn window(&self) -> Option<Nanos> {
        self.limit.window()
    }

    fn window_end(&self, now: Time) -> Option<Time> {
        self.limit.window_end(now)
    }

    fn refills_one_by_one(&self) -> bool {
        self.limit.refills_one_by_one()
    }

    fn is_paid_in_order(&self) -> bool {
        self.limit.is_paid_in_order()
    }

    /// Clones no state.
    fn look(&self, state: &Self::State, now: Time, cost: Permits) -> Decision {
        match &state.0 {
            Some(record) => self.look_in(record, now, cost),
            None => self.look_in(&BanRecord::default(), now, cost),
        }
    }

    fn decide(&self, state: &mut Self::State, now: Time, cost: Permits) -> Decision {
        if let Some(record) = &mut state.0 {
            return self.decide_in(record, now, cost);
        }
        let mut record = BanRecord::default();
        let decision = self.decide_in(&mut record, now, cost);
        if record != BanRecord::default() {
            state.0 = Some(Box::new(record));
        }
        decision
    }

    fn expires_at(&self, state: &Self::State, now: Time) -> Time {
        let Some(record) = &state.0 else {
            return Time::ZERO;
        };
        self.limit
            .expires_at(&record.used, now)
            .max(self.strikes.expires_at(&record.strikes, now))
            .max(self.forgotten_at(record))
            .max(record.ends)
    }

    fn lasts(&self) -> Nanos {
        self.limit.lasts()
    }

    fn stricter(&self, state: &mut Self::State, other: &Self::State) {
        let Some(other) = &other.0 else { return };
        let record = state.record();
        self.limit.stricter(&mut record.used, &other.used);
        self.strikes.stricter(&mut record.strikes, &other.strikes);
        record.ends = record.ends.max(other.ends);
        record.struck_out_until = record.struck_out_until.max(other.struck_out_until);
        record.length = record.length.max(other.length);
    }

    /// Always: [`rescale`](Self::rescale) carries the usage over where it has another meaning, so
    /// that a ban outlives a change of the limit.
    fn keeps_state_of(&self, _old: &Self) -> bool {
        true
    }

    fn rescale(&self, state: &mut Self::State, old: &Self, now: Time, promised: Nanos) {
        let Some(record) = &mut state.0 else { return };
        self.limit
            .carry(&mut record.used, &old.limit, now, promised);
    }

    fn succeed(&mut self, old: &Self) {
        self.limit.succeed(&old.limit);
    }

    fn usage(&self, state: &Self::State, now: Time) -> Permits {
        match &state.0 {
            Some(record) => self.limit.usage(&record.used, now),
            None => Permits::ZERO,
        }
    }

    fn state_with_usage(&self, usage: Permits, now: Time) -> Self::State {
        match self.limit.state_with_usage(usage, now) {
            fresh if fresh == A::State::default() => BanState::default(),
            used => BanState::of_limit(used),
        }
    }

    fn bound(&self, window: Nanos) -> u64 {
        self.limit.bound(window)
    }

    /// None where the limit refuses some requests of such a client, because it is banned then.
    fn least_served(&self, kept: Quota) -> Share {
        self.limit.least_served(kept).counting(Denials::Counted)
    }

    fn heap_bytes(&self) -> usize {
        size_of::<BanRecord<A::State>>() + self.limit.heap_bytes() + self.strikes.heap_bytes()
    }

    fn at_least(&self, state: &Self::State, now: Time, total: Permits) -> Nanos {
        match &state.0 {
            Some(record) => self.limit.at_least(&record.used, now, total),
            None => self.limit.at_least(&A::State::default(), now, total),
        }
    }
}

#[cfg(test)]
mod tests;
