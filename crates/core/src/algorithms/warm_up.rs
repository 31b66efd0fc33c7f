//! Warm-up: after a rest callers are served slowly first, because caches and pools are cold.
//!
//! The smooth bursty limiter is here too: after a rest a caller may take the saved-up permits at
//! once. Both are post-paid: a request passes as soon as those before it are paid for, and its own
//! price, however high, is paid by the wait of the next caller.
//!
//! ```text
//!   price of a permit
//!   k x T |                    / <- cold: after a rest, the most is stored
//!         |                  / :
//!         |                /   :      a request for c permits takes them from the
//!       T |--------------/     :      store, right to left: its price is the area
//!         |  warm        :area :      under the line; missing permits cost T each
//!         |              : = W :
//!       0 +--------------+-----+----> stored
//!         0          threshold  most
//! ```
//!
//! With `T = 1 / rate`, `W` the warm-up time, `k` the cold factor:
//!
//! ```text
//!                 most                          stored grows 1 per   a stored permit costs
//!   warming up    W / 2T + 2W / (T + kT)        W / most             the area above
//!   bursty        rate x burst time             T                    nothing
//! ```
//!
//! `wait = next - now`; allow iff it is within the caller's patience; then `next` moves on by
//! the price. While `now` is past `next`, permits are stored and `next` stays with `now`.
//!
//! ```text
//!   in Guava          here
//!   acquire(n)        reserve(.., n, Nanos::MAX): the answer holds the wait
//!   tryAcquire(n, t)  reserve(.., n, t); decide(.., n) for t = 0
//!   setRate, getRate  set_rate, rate
//! ```
//!
//! * State: 24 bytes. Numbers are floats and microseconds, and each wait is cut to a whole
//!   microsecond, to agree with Guava to the bit. [GCRA](super::gcra) could not, because it is
//!   exact.
//! * Error: each request is priced up to 3 us too low. Above 250,000/s that dominates.
//! * Worst case: one request may ask for any number of permits, so no number of permits bounds a
//!   span, unless [`WarmUp::with_largest`] bounds a request. Then a span `w` admits the stored
//!   permits that cost nothing, `w / T`, and one largest request. Long run: the rate.
//! * Choose it for a callee that must warm up; else a queue of GCRA, where callers pay for
//!   themselves. Avoid it where costs differ much: 100 permits at 1 per second start at once, and
//!   the next caller waits 100 s.
//! * A clock that steps back waits for `next`.
//! * Laws broken, all for being post-paid: it is not additive (`a`, then `b` waits), and it has
//!   no [`Refund`](crate::Refund): the price is the wait of another request. `remaining` is all
//!   or nothing. A bursty key never seen has a full store, as one that rested; Guava's starts
//!   empty, see [`WarmUp::start`].
//! * Source: D. Andreou, K. Bourrillion et al., Guava, `SmoothRateLimiter` (2012); founding
//!   documents 1 and 2 for the figure.

mod line;
mod reconfigure;
mod stored_form;

use crate::algorithm::{Algorithm, Reserve};
use crate::{Decision, Error, Nanos, Permits, Quota, Share, Time, Verdict, share};
use line::{END_US, PriceLine, RestEffect, float, floor};

/// The cold factor that Guava fixes.
pub const COLD_FACTOR: f64 = 3.0;

/// A post-paid limiter; see the [module](self) for figure and formula.
///
/// ```
/// use ratekeeper_core::{Nanos, Permits, Reserve, Time, Verdict, WarmUp};
///
/// let limit = WarmUp::bursty(1.0, 1.0).unwrap();
/// let mut state = limit.start(Time::ZERO);
/// let mut ask = |permits| {
///     limit.reserve(&mut state, Time::ZERO, Permits::new(permits), Nanos::MAX).verdict
/// };
/// assert_eq!(ask(100), Verdict::Allow);
/// assert_eq!(ask(1), Verdict::AllowAfter(Nanos::from_secs(100)));
/// ```
#[doc(alias("SmoothWarmingUp", "SmoothBursty", "RateLimiter"))]
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct WarmUp {
    line: PriceLine,
    largest: Permits,
}

/// The stored permits of one key, and the moment when it is paid for; `None` if never seen, or at
/// rest for long.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct WarmUpState(Option<WarmUpTicket>);

#[derive(Clone, Copy, PartialEq, Debug)]
struct WarmUpTicket {
    stored: f64,
    next_us: u64,
}

impl WarmUpState {
    /// Number of permits stored after the last request; `None` if there was none.
    pub fn permits(&self) -> Option<f64> {
        self.0.map(|ticket| ticket.stored)
    }

    /// The moment when all requests so far are paid for, to the microsecond; `None` if there was
    /// none.
    pub fn next(&self) -> Option<Time> {
        self.0
            .map(|ticket| Time::ZERO + Nanos::from_micros(ticket.next_us))
    }
}

impl WarmUp {
    /// A limiter of `permits_per_second` that takes `warm_up` to get from cold to warm.
    ///
    /// # Errors
    /// [`Error::Rate`] unless the rate is above zero.
    pub fn warming_up(permits_per_second: f64, warm_up: impl Into<Nanos>) -> Result<Self, Error> {
        Self::with_cold_factor(permits_per_second, warm_up, COLD_FACTOR)
    }

    /// As [`WarmUp::warming_up`], where a permit costs `cold_factor` times as much when cold.
    ///
    /// # Errors
    /// [`Error::Rate`] unless the rate is above zero and the factor at least 1.
    pub fn with_cold_factor(
        permits_per_second: f64,
        warm_up: impl Into<Nanos>,
        cold_factor: f64,
    ) -> Result<Self, Error> {
        if cold_factor.is_nan() || cold_factor < 1.0 {
            return Err(Error::Rate);
        }
        let warm_up_us = float(micros(warm_up.into()));
        Self::new(
            permits_per_second,
            RestEffect::Cools {
                warm_up_us,
                cold_factor,
            },
        )
    }

    /// A limiter of `permits_per_second` that saves up for at most `burst_seconds`.
    ///
    /// # Errors
    /// [`Error::Rate`] unless the rate is above zero and the burst time not below.
    pub fn bursty(permits_per_second: f64, burst_seconds: f64) -> Result<Self, Error> {
        if burst_seconds.is_nan() || burst_seconds < 0.0 {
            return Err(Error::Rate);
        }
        Self::new(
            permits_per_second,
            RestEffect::Saves {
                seconds: burst_seconds,
            },
        )
    }

    fn new(permits_per_second: f64, rest: RestEffect) -> Result<Self, Error> {
        Ok(Self {
            line: PriceLine::new(permits_per_second, rest)?,
            largest: Permits::MAX,
        })
    }

    /// The same limit, where no request may ask for more than `largest`.
    #[must_use]
    pub fn with_largest(self, largest: impl Into<Permits>) -> Self {
        let largest = largest.into();
        Self { largest, ..self }
    }

    /// Number of whole permits that a rested key has saved up; `None` if rest cools it down.
    pub(crate) fn saved_up(&self) -> Option<u64> {
        let most = floor(self.line.most);
        (!self.line.cools()).then_some(most)
    }

    /// Permits per second.
    pub fn rate(&self) -> f64 {
        1e6 / self.line.stable_us
    }

    /// A key as Guava makes it at `now`: warming up it is cold, bursty it has nothing stored.
    pub fn start(&self, now: Time) -> WarmUpState {
        WarmUpState(Some(WarmUpTicket {
            stored: match self.line.rest {
                RestEffect::Cools { .. } => self.line.most,
                RestEffect::Saves { .. } => 0.0,
            },
            next_us: micros(now.since(Time::ZERO)),
        }))
    }

    /// The state at `now`, with the permits stored during a rest.
    fn seen(&self, state: &WarmUpState, now: Time) -> WarmUpTicket {
        let now_us = micros(now.since(Time::ZERO));
        let Some(ticket) = state.0 else {
            return WarmUpTicket {
                stored: self.line.most,
                next_us: now_us,
            };
        };
        if now_us <= ticket.next_us {
            return ticket;
        }
        let stored = ticket.stored + float(now_us - ticket.next_us) / self.line.cooldown_us;
        if stored < self.line.most {
            return rested_in_part(stored, now_us);
        }
        WarmUpTicket {
            stored: self.line.most,
            next_us: now_us,
        }
    }

    /// The state after `cost` is taken.
    fn after(&self, ticket: WarmUpTicket, cost: Permits) -> WarmUpTicket {
        let cost = cost.as_f64();
        let (price, from_store) = self.line.price(ticket.stored, cost);
        WarmUpTicket {
            stored: ticket.stored - from_store,
            next_us: ticket.next_us.saturating_add(price).min(END_US),
        }
    }

    fn decision(
        &self,
        verdict: Verdict,
        state: &WarmUpState,
        now: Time,
        max_wait: Nanos,
    ) -> Decision {
        let wait = state
            .0
            .map_or(Nanos::ZERO, |ticket| wait(ticket.next_us, now));
        let more_after = wait.saturating_sub(max_wait);
        let open = more_after == Nanos::ZERO;
        Decision {
            verdict,
            remaining: if open { self.largest } else { Permits::ZERO },
            reset_after: self.expires_at(state, now).since(now),
            more_after,
        }
    }
}

impl Algorithm for WarmUp {
    type State = WarmUpState;

    fn name(&self) -> &'static str {
        match self.line.rest {
            RestEffect::Cools { .. } => "warm-up",
            RestEffect::Saves { .. } => "smooth bursty",
        }
    }

    fn capacity(&self) -> Permits {
        self.largest
    }

    fn decide(&self, state: &mut WarmUpState, now: Time, cost: Permits) -> Decision {
        self.reserve(state, now, cost, Nanos::ZERO)
    }

    /// The moment when the store is full.
    fn expires_at(&self, state: &WarmUpState, _now: Time) -> Time {
        let Some(ticket) = state.0 else {
            return Time::ZERO;
        };
        let is_full = |us: u64| ticket.stored + float(us) / self.line.cooldown_us >= self.line.most;
        let mut rest_us = floor((self.line.most - ticket.stored) * self.line.cooldown_us);
        // Rounding is off by a few units in the last place: go up until the store is full.
        let mut step = 1;
        while !is_full(rest_us) && rest_us < END_US {
            rest_us = rest_us.saturating_add(step);
            step *= 2;
        }
        Time::ZERO + Nanos::from_micros(ticket.next_us.saturating_add(rest_us))
    }

    /// Keeps the later of the two tickets, with the stored permits at that moment that serve
    /// slower.
    fn stricter(&self, state: &mut WarmUpState, other: &WarmUpState) {
        let (Some(mine), Some(theirs)) = (state.0, other.0) else {
            if state.0.is_none() {
                *state = *other;
            }
            return;
        };
        let next_us = mine.next_us.max(theirs.next_us);
        let then = Time::ZERO + Nanos::from_micros(next_us);
        let stored =
            [mine, theirs].map(|ticket| self.seen(&WarmUpState(Some(ticket)), then).stored);
        let stored = match self.line.rest {
            RestEffect::Cools { .. } => stored[0].max(stored[1]),
            RestEffect::Saves { .. } => stored[0].min(stored[1]),
        };
        *state = WarmUpState(Some(WarmUpTicket { stored, next_us }));
    }

    /// Permits are stored and tickets are due at any rate.
    fn keeps_state_of(&self, old: &Self) -> bool {
        self.line.cools() == old.line.cools()
    }

    /// As [`WarmUp::set_rate`]; a key never seen stays so.
    fn rescale(&self, state: &mut WarmUpState, old: &Self, now: Time, _promised: Nanos) {
        if state.0.is_some() && self.line != old.line {
            *state = WarmUpState(Some(self.rescaled(old.seen(state, now), old)));
        }
    }

    fn least_served(&self, kept: Quota) -> Share {
        match self.saved_up() {
            Some(saved_up) => Share::new(saved_up.saturating_add(1), kept.permits().get()),
            None => Share::one_in(share::gap(self), kept),
        }
    }

    fn bound(&self, window: Nanos) -> u64 {
        let Some(last) = window.as_nanos().checked_sub(1) else {
            return 0;
        };
        if self.largest == Permits::MAX {
            return u64::MAX;
        }
        // Each request but the last is paid for within the span, as microseconds are counted,
        // out of the store or by its price, of which up to `cut_us` is lost.
        let (saved, cut_us) = match self.line.rest {
            RestEffect::Cools { .. } => (0.0, 3.0),
            RestEffect::Saves { .. } => (self.line.most, 1.0),
        };
        let paid_us = self.line.stable_us - cut_us;
        if paid_us < 1.0 {
            return u64::MAX;
        }
        let counted_us = float(last / 1_000 + u64::from(last > 0));
        floor(saved + counted_us / paid_us).saturating_add(self.largest.get())
    }
}

impl Reserve for WarmUp {
    fn reserve(
        &self,
        state: &mut WarmUpState,
        now: Time,
        cost: Permits,
        max_wait: Nanos,
    ) -> Decision {
        if cost > self.largest {
            return self.decision(Verdict::DenyForever, state, now, max_wait);
        }
        let wait = state
            .0
            .map_or(Nanos::ZERO, |ticket| wait(ticket.next_us, now));
        if cost > Permits::ZERO && wait > max_wait {
            let retry_after = wait.saturating_sub(max_wait);
            return self.decision(Verdict::Deny { retry_after }, state, now, max_wait);
        }
        if cost > Permits::ZERO {
            *state = WarmUpState(Some(self.after(self.seen(state, now), cost)));
        }
        let verdict = match wait {
            Nanos::ZERO => Verdict::Allow,
            _ if cost == Permits::ZERO => Verdict::Allow,
            wait => Verdict::AllowAfter(wait),
        };
        self.decision(verdict, state, now, max_wait)
    }
}

/// Rounded down: a ticket that is due within this microsecond is due.
fn micros(span: Nanos) -> u64 {
    span.as_nanos() / 1_000
}

/// The time from `now` to a ticket.
fn wait(next_us: u64, now: Time) -> Nanos {
    Nanos::from_micros(next_us).saturating_sub(now.since(Time::ZERO))
}

/// The state of a key that has not rested fully: a call of its own, so that a fully rested key
/// jumps past the division.
#[cold]
const fn rested_in_part(stored: f64, next_us: u64) -> WarmUpTicket {
    WarmUpTicket { stored, next_us }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws::{self, Random};
    use crate::oracles::{self, Reach};

    fn at(millis: u64) -> Time {
        Time::ZERO + Nanos::from_millis(millis)
    }

    /// Two a second, four seconds from cold to warm.
    fn warming_up() -> WarmUp {
        WarmUp::warming_up(2.0, Nanos::from_secs(4)).unwrap()
    }

    /// The waits in ms of single permits, asked for one after the other from `now` on.
    fn waits(
        limit: &WarmUp,
        state: &mut WarmUpState,
        now: u64,
        count: usize,
    ) -> std::vec::Vec<u64> {
        let mut now = at(now);
        let mut ask = || match limit.reserve(state, now, Permits::ONE, Nanos::MAX).verdict {
            Verdict::AllowAfter(wait) => {
                now = now + wait;
                wait.as_millis_ceil()
            }
            _ => 0,
        };
        (0..count).map(|_| ask()).collect()
    }

    #[test]
    fn stored_permits_keep_their_share_under_new_parameters() {
        let saves = |rate, seconds| WarmUp::bursty(rate, seconds).unwrap();
        let cools = |rate, seconds| WarmUp::warming_up(rate, Nanos::from_secs(seconds)).unwrap();
        for (old, new) in [
            (saves(10.0, 1.0), saves(100.0, 1.0)),
            (saves(100.0, 1.0), saves(1.0, 30.0)),
            (cools(10.0, 10), cools(1.0, 10)),
            (cools(1.0, 60), cools(50.0, 4)),
        ] {
            let mut state = WarmUpState(Some(WarmUpTicket {
                stored: old.line.most / 4.0,
                next_us: 7_000_000,
            }));
            new.rescale(&mut state, &old, Time::ZERO, Nanos::ZERO);
            let stored = state.permits().unwrap() / new.line.most;
            assert!((stored - 0.25).abs() < 1e-9, "{stored} of {new:?}");
            assert_eq!(state.next(), Some(Time::ZERO + Nanos::from_secs(7)), "debt");
            let mut never = WarmUpState::default();
            new.rescale(&mut never, &old, Time::ZERO, Nanos::ZERO);
            assert_eq!(never, WarmUpState::default());
        }
    }

    #[test]
    fn a_cold_limiter_serves_slowly_and_speeds_up() {
        let (limit, mut state) = (warming_up(), WarmUpState::default());
        let cold = [0, 1_375, 1_125, 875, 625, 500, 500, 500];
        assert_eq!(waits(&limit, &mut state, 0, 8), cold);
        // The last one is paid for at 6 s; 8 permits are stored 4 s later, and it is cold.
        assert_eq!(limit.expires_at(&state, at(0)), at(10_000));
        assert_eq!(waits(&limit, &mut state, 10_000, 8), cold);
        // Half the rest, half as cold: at the threshold, warm.
        assert_eq!(waits(&limit, &mut state, 18_000, 3), [0, 500, 500]);
    }

    #[test]
    fn a_bursty_limiter_serves_its_saved_permits_at_once() {
        let (limit, mut state) = (WarmUp::bursty(2.0, 1.0).unwrap(), WarmUpState::default());
        assert_eq!(waits(&limit, &mut state, 0, 5), [0, 0, 0, 500, 500]);
        let mut as_in_guava = limit.start(at(0));
        assert_eq!(waits(&limit, &mut as_in_guava, 0, 3), [0, 500, 500]);
    }

    #[test]
    fn the_next_caller_pays() {
        let limit = WarmUp::bursty(1.0, 0.0).unwrap();
        let mut state = WarmUpState::default();
        let hundred = limit.decide(&mut state, at(0), Permits::new(100));
        assert_eq!(hundred.verdict, Verdict::Allow);
        let patience = Nanos::from_secs(40);
        let next = limit.reserve(&mut state, at(0), Permits::ONE, patience);
        let retry_after = Nanos::from_secs(60);
        assert_eq!(next.verdict, Verdict::Deny { retry_after });
        let next = limit.reserve(&mut state, at(60_000), Permits::ONE, patience);
        assert_eq!(next.verdict, Verdict::AllowAfter(patience));
        let most = limit.with_largest(Permits::new(10));
        let asked = most.decide(&mut WarmUpState::default(), at(0), Permits::new(11));
        assert_eq!(asked.verdict, Verdict::DenyForever);
    }

    /// Maximum number of permits that a span admits, one after the other, with a largest request
    /// last.
    fn greedy(limit: &WarmUp, mut state: WarmUpState, start: Time, span: Nanos) -> u64 {
        let mut admitted = 0;
        let mut now = start;
        loop {
            let before = state;
            if !limit.decide(&mut state, now, Permits::ONE).verdict.allows() {
                let next = state.next().unwrap();
                if next.since(start) >= span {
                    return admitted;
                }
                now = next;
                continue;
            }
            admitted += 1;
            let next = state.next().unwrap().max(now);
            if next.since(start) >= span {
                let last = limit.decide(&mut before.clone(), now, limit.capacity());
                assert!(last.verdict.allows());
                return admitted - 1 + limit.capacity().get();
            }
        }
    }

    #[test]
    fn the_worst_case_is_reached() {
        let ten = Permits::new(10);
        let bursty = WarmUp::bursty(10.0, 1.0).unwrap().with_largest(ten);
        let late = Nanos::from_nanos(999); // the microsecond it begins in counts as a whole
        for (nanos, most) in [
            (1, 20), // ten saved up, and ten to be paid for by the next
            (99_998_000, 20),
            (100_000_000, 21),
            (150_000_000, 21),
            (1_000_000_000, 30),
            (1_500_000_000, 35),
        ] {
            let span = Nanos::from_nanos(nanos);
            let greedy = greedy(&bursty, WarmUpState::default(), at(5_000) + late, span);
            assert_eq!((greedy, bursty.bound(span)), (most, most), "{nanos}");
        }
        let warming = warming_up().with_largest(ten);
        let mut warm = WarmUpState::default();
        let _ = waits(&warming, &mut warm, 0, 20); // until nothing is stored
        let start = warm.next().unwrap() + late;
        for (nanos, most) in [
            (1, 10),
            (499_990_000, 10),
            (500_000_000, 11),
            (1_900_000_000, 13),
        ] {
            let span = Nanos::from_nanos(nanos);
            let greedy = greedy(&warming, warm, start, span);
            assert_eq!((greedy, warming.bound(span)), (most, most), "{nanos}");
        }
    }

    #[test]
    fn a_new_rate_keeps_the_share_of_stored_permits() {
        let (mut limit, mut state) = (warming_up(), WarmUpState::default());
        limit.set_rate(&mut state, at(0), 4.0).unwrap();
        assert_eq!(state.permits(), Some(16.0), "the limiter is still cold");
        assert!((limit.rate() - 4.0).abs() < 1e-12);
        assert_eq!(limit.set_rate(&mut state, at(0), 0.0), Err(Error::Rate));
        assert_eq!(WarmUp::bursty(f64::NAN, 1.0), Err(Error::Rate));
        assert_eq!(
            WarmUp::with_cold_factor(1.0, Nanos::SECOND, 0.9),
            Err(Error::Rate)
        );
    }

    #[test]
    fn warm_up_keeps_the_laws_that_apply_to_post_paid_limits() {
        let mut random = Random::new(21);
        let ten = Permits::new(10);
        let bursty = WarmUp::bursty(5.0, 2.0).unwrap();
        for limit in [
            warming_up(),
            bursty,
            warming_up().with_largest(ten),
            bursty.with_largest(ten),
        ] {
            let (mut state, mut other) = (WarmUpState::default(), WarmUpState::default());
            let (mut now, mut admitted) = (at(1_000), std::vec::Vec::new());
            for _ in 0..3_000 {
                now = now + Nanos::from_nanos(random.below(900_000_000));
                let cost = Permits::new(random.below(12));
                let decision = laws::decide(&limit, &mut state, now, cost, Reach::Edges);
                if decision.verdict.allows() {
                    admitted.push((now, cost));
                }
                oracles::monotone(&limit, &state, now, Reach::Edges);
                oracles::remaining(&limit, &state, now, Reach::Edges);
                oracles::expires_at(&limit, &state, now, Reach::Edges);
                if random.below(3) == 0 {
                    let _ = limit.decide(&mut other, now, Permits::ONE);
                }
                laws::stricter_is_stricter(&limit, &state, &other, now, Reach::Edges);
            }
            laws::bounded(&limit, &admitted);
        }
    }
}
