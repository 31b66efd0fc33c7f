//! The traits every algorithm implements, and the laws they must keep.
//!
//! ```text
//!              +----------------------- pure -----------------------+
//!   (state,    |  decide: judge, then charge if the verdict allows  |   (state',
//!    now,   -->|  look:   judge only                                |-->  decision)
//!    cost)     |  refund: give back, never more than was owed       |
//!              +----------------------------------------------------+
//! ```
//!
//! # Laws
//!
//! They hold while what is charged expires before time ends, 584 years after the clock's
//! zero, and while no state is left alone for longer than it [lasts](Algorithm::lasts).
//! `laws.rs` (feature `testing`) checks them for every algorithm; a file names those it
//! breaks, and why.
//!
//! * **Denial is free.** A denial leaves the state equivalent (except [`Denials::Counted`]).
//! * **Looking is free.** `look` and cost 0 change nothing.
//! * **Exact wait.** Denied with `retry_after = r`: denied at `now + r - 1 ns`, allowed at
//!   `now + r`.
//! * **Exact remainder.** Cost `remaining` is allowed now, cost `remaining + 1` is not.
//! * **Exact increase.** After `more_after`, and no sooner, more than `remaining` is allowed.
//! * **Exact reset.** After `reset_after`, and from `expires_at` on, the state acts as
//!   `Default`: forgetting it changes nothing.
//! * **No gift from a bad clock.** A clock that steps back never admits more.
//! * **Additive.** Cost `a + b` at one instant is the same as `a` and then `b`.
//! * **Bounded.** Any span `w` admits at most `bound(w)`.
//! * **Stricter is stricter.** After `stricter(a, b)`, what is allowed is allowed by both.

use core::fmt;

use crate::{Decision, LeaseId, Nanos, Permits, Quota, Share, Time, Verdict};

/// What a denied request costs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Denials {
    /// Nothing: a client that keeps trying is served as soon as one that waits.
    #[default]
    Free,
    /// As much as an allowed one, up to one further quota: a client that keeps trying
    /// stays out until it pauses; the lock-out is finite. A cost above the capacity too is
    /// recorded up to there, though it never fits: it may be the price of what has been done.
    Counted,
}

/// To whom permits are lent that come back, by an algorithm that counts what is at work.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Lend {
    /// To nobody in particular: they come back by [`Refund::refund`], or at their expiry.
    #[default]
    Unnamed,
    /// To this name: they come back when it releases them, or at their expiry.
    To(LeaseId),
    /// Nothing is lent: whether something is free is all that counts.
    Nothing,
}

/// A rate limiting algorithm: a pure transition `(state, now, cost) -> (state', decision)`.
///
/// `State::default()` is a key never seen, which is the same as a key idle long enough.
pub trait Algorithm {
    /// What is remembered for one key.
    type State: Clone + Default + PartialEq + fmt::Debug;

    /// The algorithm's name, for people: `token bucket`, `calendar window`.
    fn name(&self) -> &'static str;

    /// The largest cost that can ever be allowed.
    fn capacity(&self) -> Permits;

    /// The cost of a denial.
    fn denials(&self) -> Denials {
        Denials::Free
    }

    /// The span in which the [`capacity`](Self::capacity) is granted anew: `w` of the
    /// `RateLimit-Policy` field. `None` for spans of the calendar, for usage that fades, for
    /// warm-up, and for loans.
    ///
    /// ```
    /// use ratekeeper_core::{Algorithm, Gcra, Nanos};
    /// let bucket = Gcra::token_bucket("10/1s".parse().unwrap()).unwrap();
    /// assert_eq!(bucket.window(), Some(Nanos::SECOND));
    /// ```
    fn window(&self) -> Option<Nanos> {
        None
    }

    /// The end of the window of the clock, the calendar or the key that a first request at
    /// `now` falls into; of sub-buckets the end of its sub-bucket. `None` without windows.
    fn window_end(&self, _now: Time) -> Option<Time> {
        None
    }

    /// Returns true if permits come back one by one, not window by window.
    fn refills_one_by_one(&self) -> bool {
        false
    }

    /// What [`decide`](Self::decide) would say; nothing is charged.
    ///
    /// Where the verdict allows, `remaining` and `reset_after` are those *after* the charge.
    fn look(&self, state: &Self::State, now: Time, cost: Permits) -> Decision {
        self.decide(&mut state.clone(), now, cost)
    }

    /// Decides whether `cost` may be spent at `now`, and charges it if so.
    fn decide(&self, state: &mut Self::State, now: Time, cost: Permits) -> Decision;

    /// Charges `cost` if it may pass at this instant, without any wait; says whether it did. A
    /// denial is not counted.
    #[inline]
    fn take(&self, state: &mut Self::State, now: Time, cost: Permits) -> bool {
        let passes = self.look(state, now, cost).verdict == Verdict::Allow;
        passes && self.decide(state, now, cost).verdict == Verdict::Allow
    }

    /// As [`decide`](Self::decide); an algorithm that lends permits lends them as `lend` says.
    #[inline]
    fn lend(&self, state: &mut Self::State, now: Time, cost: Permits, _lend: Lend) -> Decision {
        self.decide(state, now, cost)
    }

    /// Lets go of permits on loan whose time is over; says how many. It changes no decision.
    #[inline]
    fn lapse(&self, _state: &mut Self::State, _now: Time) -> u64 {
        0
    }

    /// From this moment on the state acts as `Default`: it may be forgotten. Not after `now`
    /// if it does already.
    fn expires_at(&self, state: &Self::State, now: Time) -> Time;

    /// How long after its last use, and after it expired, a state is still read for what it is.
    fn lasts(&self) -> Nanos {
        Nanos::MAX
    }

    /// Makes `state` at least as strict as both itself and `other`.
    ///
    /// The store uses it when memory runs out: a key that was pushed out must not come back
    /// with a better state than it had.
    fn stricter(&self, state: &mut Self::State, other: &Self::State);

    /// The state of a key that begins at `now` and may have been pushed out: at least as
    /// strict as `floor`, the strictest of all that were, and as a key never seen.
    fn begin(&self, floor: &Self::State, _now: Time) -> Self::State {
        floor.clone()
    }

    /// Returns true if a state written under `old` means the same under `self`, so that a change
    /// of parameters can keep it. If not, its [`usage`](Self::usage) is carried over.
    fn keeps_state_of(&self, old: &Self) -> bool;

    /// Converts a kept state to these parameters: unused burst keeps its fraction of the capacity,
    /// debt keeps its duration. For a store that knows when the parameters change; a state that is
    /// not converted can still be read.
    fn rescale(&self, _state: &mut Self::State, _old: &Self, _now: Time) {}

    /// The part of the capacity that is used at `now`.
    fn usage(&self, state: &Self::State, now: Time) -> Permits {
        self.capacity() - self.look(state, now, Permits::ZERO).remaining
    }

    /// A state with this usage at `now`, at most the capacity: carries a key over to other
    /// parameters, or to another algorithm.
    fn state_with_usage(&self, usage: Permits, now: Time) -> Self::State {
        let mut state = Self::State::default();
        let _ = self.decide(&mut state, now, usage.min(self.capacity()));
        state
    }

    /// The most that any half-open span of length `window` can admit, in permits.
    fn bound(&self, window: Nanos) -> u64;

    /// The least share of its requests that a client is served in the long run which sends at
    /// most `kept.permits()` of cost 1 in any span of `kept.per()`, and has the limit to itself.
    ///
    /// `kept` is the quota that the limit was made of: of a bucket its size, in the time that
    /// refills it; of a calendar the quota of one window. A client that never has more at work
    /// than a limit of concurrency allows is always served.
    ///
    /// Exact, but for two: of an exponential counter it is at most one permit of N too low, and
    /// where refused requests are counted and not all are served, no share is certain.
    fn least_served(&self, _kept: Quota) -> Share {
        Share::ALL
    }

    /// The most bytes that one state keeps on the heap: what a store must account for beside
    /// the state itself.
    fn heap_bytes(&self) -> usize {
        0
    }

    /// How long at least, from `now` on, until `total` permits have been granted to those who
    /// ask for them one after the other; zero if that is not known.
    fn at_least(&self, _state: &Self::State, _now: Time, _total: Permits) -> Nanos {
        Nanos::ZERO
    }
}

/// Algorithms that can take back a charge.
///
/// Not all can: a post-paid charge is paid by the wait of the request that came next.
pub trait Refund: Algorithm {
    /// Gives back `cost` that was charged and not used; never makes the state better than
    /// fresh. What can no longer be given back (its window is over) is dropped.
    fn refund(&self, state: &mut Self::State, now: Time, cost: Permits);
}

/// Algorithms that can promise a later moment: shaping and waiting.
pub trait Reserve: Algorithm {
    /// As [`Algorithm::decide`], but willing to wait up to `max_wait`: the answer is
    /// `AllowAfter(wait)` with the cost charged already, or a denial.
    ///
    /// Waits no longer than the limit promises at all, whatever `max_wait` says.
    fn reserve(
        &self,
        state: &mut Self::State,
        now: Time,
        cost: Permits,
        max_wait: Nanos,
    ) -> Decision;
}

/// States that fit one word, so that one compare-exchange makes a decision atomic.
pub trait WordState: Copy + Default {
    /// The state as a word; `Default` is 0.
    fn to_word(self) -> u64;
    /// The state of a word.
    fn from_word(word: u64) -> Self;
}
