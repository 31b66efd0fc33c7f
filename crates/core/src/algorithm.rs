//! The traits every algorithm implements, and the laws they must keep.
//!
//! ```text
//!              +----------------------- pure -----------------------+
//!   (state,    |  decide: judge, then charge if the verdict allows  |   (state',
//!    now,   -->|  look:   judge only                                |-->  decision)
//!    cost)     |  give_back: undo what time has not paid            |
//!              +----------------------------------------------------+
//! ```
//!
//! # Laws
//!
//! They hold while charges expire before time ends, 584 years after the clock's zero, and while
//! no state is left unused for longer than it [lasts](Algorithm::lasts). `laws.rs` (feature
//! `testing`) checks them for every algorithm; the file of an algorithm names the laws that it
//! breaks, and why.
//!
//! * **Denial is free.** A denial leaves the state equivalent (except [`Denials::Counted`], and
//!   [strikes](Algorithm::counts_strikes)).
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
//! * **Stricter is stricter.** After `stricter(a, b)`, a cost is allowed only if both allow it.

use core::fmt;

use crate::{Decision, LeaseId, Nanos, Permits, Quota, Receipt, Share, Time, Verdict};

/// The cost of a denied request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Denials {
    /// Zero: a client that keeps trying is served as soon as one that waits.
    #[default]
    Free,
    /// The cost of the request, up to one further quota: a client that keeps trying is denied
    /// until it pauses, for a finite time. A cost above the capacity is charged up to there too,
    /// although it never fits, because it may be the cost of work done already.
    Counted,
}

/// The holder of lent permits, for algorithms that limit concurrency.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Lend {
    /// No named holder: the permits come back by [`Refund::refund`], or when their lease ends.
    #[default]
    Unnamed,
    /// This name: the permits come back when it releases them, or when their lease ends.
    To(LeaseId),
    /// Nothing is lent: the request is only judged.
    Nothing,
}

/// A rate limiting algorithm: a pure transition `(state, now, cost) -> (state', decision)`.
///
/// `State::default()` is a key never seen, which is the same as a key idle long enough.
pub trait Algorithm {
    /// The state of one key.
    type State: Clone + Default + PartialEq + fmt::Debug;

    /// The algorithm's name, for people: `token bucket`, `calendar window`.
    fn name(&self) -> &'static str;

    /// The largest cost that can ever be allowed.
    fn capacity(&self) -> Permits;

    /// The cost of a denial.
    fn denials(&self) -> Denials {
        Denials::Free
    }

    /// Returns true if the limit remembers its own denials, although they cost nothing, because
    /// they lead to a ban.
    fn counts_strikes(&self) -> bool {
        false
    }

    /// The period in which the [`capacity`](Self::capacity) is granted anew: `w` of the
    /// `RateLimit-Policy` field. `None` for calendar windows, exponential counters, warm-up and
    /// concurrency.
    ///
    /// ```
    /// use ratekeeper_core::{Algorithm, Gcra, Nanos};
    /// let bucket = Gcra::token_bucket("10/1s".parse().unwrap()).unwrap();
    /// assert_eq!(bucket.window(), Some(Nanos::SECOND));
    /// ```
    fn window(&self) -> Option<Nanos> {
        None
    }

    /// The end of the window, on a grid, of a calendar or of the key, that a first request at
    /// `now` falls into; with sub-buckets, the end of its sub-bucket. `None` without windows.
    fn window_end(&self, _now: Time) -> Option<Time> {
        None
    }

    /// Returns true if permits come back one by one, not window by window.
    fn refills_one_by_one(&self) -> bool {
        false
    }

    /// Returns true if time pays for one charge after the other, as in a bucket: where permits of
    /// earlier charges come back, it pays sooner for later ones.
    fn is_paid_in_order(&self) -> bool {
        false
    }

    /// Returns the decision of [`decide`](Self::decide) without charging.
    ///
    /// If the verdict allows, `remaining` and `reset_after` are those *after* the charge.
    fn look(&self, state: &Self::State, now: Time, cost: Permits) -> Decision {
        self.decide(&mut state.clone(), now, cost)
    }

    /// Decides whether `cost` may be spent at `now`, and charges it if so.
    fn decide(&self, state: &mut Self::State, now: Time, cost: Permits) -> Decision;

    /// Charges `cost` if it may pass now, without any wait; returns true if it was charged. A
    /// denial is not counted.
    #[inline]
    fn take(&self, state: &mut Self::State, now: Time, cost: Permits) -> bool {
        let passes = self.look(state, now, cost).verdict == Verdict::Allow;
        passes && self.decide(state, now, cost).verdict == Verdict::Allow
    }

    /// As [`decide`](Self::decide); an algorithm that lends permits lends them to `lend`.
    #[inline]
    fn lend(&self, state: &mut Self::State, now: Time, cost: Permits, _lend: Lend) -> Decision {
        self.decide(state, now, cost)
    }

    /// Drops permits with a lease that has ended, and returns their number. Changes no decision.
    #[inline]
    fn lapse(&self, _state: &mut Self::State, _now: Time) -> u64 {
        0
    }

    /// The moment from which the state acts as `Default` and may be forgotten. Not after `now` if
    /// it does already.
    fn expires_at(&self, state: &Self::State, now: Time) -> Time;

    /// How long after its last use, and after its expiry, a state is still read correctly.
    fn lasts(&self) -> Nanos {
        Nanos::MAX
    }

    /// Makes `state` at least as strict as both itself and `other`.
    ///
    /// Stores use it when memory runs out, so that an evicted key does not come back with a
    /// better state than it had.
    fn stricter(&self, state: &mut Self::State, other: &Self::State);

    /// Returns true if a state written under `old` means the same under `self`, so that a change
    /// of parameters can keep it. If not, its [`usage`](Self::usage) is carried over.
    fn keeps_state_of(&self, old: &Self) -> bool;

    /// Converts a kept state to these parameters, so that the usage stays the same permits. For a
    /// store that knows when the parameters change; a state that is not converted can still be
    /// read. Moments up to `promised` ahead were promised under `old`, and stay.
    fn rescale(&self, _state: &mut Self::State, _old: &Self, _now: Time, _promised: Nanos) {}

    /// Converts a state of `old` to these parameters: [rescaled](Self::rescale) if it means the
    /// same, otherwise fresh but for its usage.
    fn carry(&self, state: &mut Self::State, old: &Self, now: Time, promised: Nanos) {
        if self.keeps_state_of(old) {
            return self.rescale(state, old, now, promised);
        }
        *state = self.state_with_usage(old.usage(state, now), now);
    }

    /// Takes the place of `old`: kept states that no request leaves under these parameters are
    /// read as they are.
    fn succeed(&mut self, _old: &Self) {}

    /// The part of the capacity that is used at `now`.
    fn usage(&self, state: &Self::State, now: Time) -> Permits {
        self.capacity() - self.look(state, now, Permits::ZERO).remaining
    }

    /// A state with this usage at `now`, at most the capacity, as if it were charged at this
    /// moment: carries a key over to other parameters, or to another algorithm, and begins a key
    /// that may have been evicted.
    fn state_with_usage(&self, usage: Permits, now: Time) -> Self::State {
        let mut state = Self::State::default();
        let _ = self.decide(&mut state, now, usage.min(self.capacity()));
        state
    }

    /// Maximum number of permits that any half-open span of length `window` can admit.
    fn bound(&self, window: Nanos) -> u64;

    /// The minimum share of requests served in the long run to a client that sends at most
    /// `kept.permits()` of cost 1 in any span of `kept.per()`, and has the limit to itself.
    ///
    /// `kept` is the quota of the limit: for a bucket its size, in the time that refills it; for
    /// a calendar the quota of one window. A client that never exceeds a concurrency limit is
    /// always served.
    ///
    /// Exact, with two exceptions: for an exponential counter it is at most one permit of N too
    /// low, and where refused requests are counted and not all are served, no share is certain.
    fn least_served(&self, _kept: Quota) -> Share {
        Share::ALL
    }

    /// Maximum number of heap bytes of one state, which a store must account for beside the state
    /// itself.
    fn heap_bytes(&self) -> usize {
        0
    }

    /// The minimum time from `now` until `total` permits have been granted to callers that
    /// request them one after the other; zero if not known.
    fn at_least(&self, _state: &Self::State, _now: Time, _total: Permits) -> Nanos {
        Nanos::ZERO
    }
}

/// Algorithms that can take back a charge.
///
/// Not all can: a post-paid charge is paid by the wait of the request that came next.
pub trait Refund: Algorithm {
    /// Gives back `cost` of the charge of `receipt`, as far as time has not paid for it. At the
    /// moment of the charge this undoes it; later the state is never better than if the charge had
    /// been smaller by `cost`.
    fn give_back(&self, state: &mut Self::State, now: Time, cost: Permits, receipt: Receipt) {
        if now == receipt.made {
            self.refund(state, now, cost);
        } else {
            self.give_back_late(state, now, cost, receipt);
        }
    }

    /// Implements [`give_back`](Self::give_back) at another moment than that of the charge.
    fn give_back_late(&self, state: &mut Self::State, now: Time, cost: Permits, receipt: Receipt);

    /// Gives `cost` as a gift, of whatever charge the state still holds; never makes the state
    /// better than fresh. With gifts, more than [`Algorithm::bound`] can pass.
    fn refund(&self, state: &mut Self::State, now: Time, cost: Permits);
}

/// Algorithms that can promise a later moment: shaping and waiting.
pub trait Reserve: Algorithm {
    /// As [`Algorithm::decide`], but accepts a wait of up to `max_wait`: returns
    /// `AllowAfter(wait)` with the cost charged already, or a denial.
    ///
    /// The wait is never longer than the limit allows at all, even if `max_wait` is.
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
