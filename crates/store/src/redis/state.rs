//! State: what one limit remembers of one key, whichever its algorithm.
//!
//! ```text
//!   bytes of the store --read--> State --decide, refund--> State' --write--> bytes
//! ```

use ratekeeper_core::{
    Algorithm, Allowance, AnyAlgorithm, Buckets, Decision, LeaseId, Leases, Lend, Level, Logged,
    Missing, Nanos, Permits, Refund, Shared, Stored, Tat, Time, UnixMicros, WindowState,
};

/// A state; each is read, changed and written by the limit that it belongs to.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum State {
    Gcra(Tat),
    Window(WindowState<[u32; 2]>),
    SubBuckets(WindowState<Buckets>),
    Interval(Missing),
    Log(Logged),
    Hybrid(Allowance),
    Exponential(Level),
    WarmUp(Stored),
    Concurrency(Leases),
}

/// Runs `$body` with `$algorithm` and `$state` bound to what they are.
macro_rules! with_state {
    ($any:expr, $some:expr, ($algorithm:ident, $state:ident) => $body:expr) => {
        match ($any, $some) {
            (AnyAlgorithm::Gcra($algorithm), State::Gcra($state)) => $body,
            (AnyAlgorithm::Window($algorithm), State::Window($state)) => $body,
            (AnyAlgorithm::SubBuckets($algorithm), State::SubBuckets($state)) => $body,
            (AnyAlgorithm::Interval($algorithm), State::Interval($state)) => $body,
            (AnyAlgorithm::Log($algorithm), State::Log($state)) => $body,
            (AnyAlgorithm::Hybrid($algorithm), State::Hybrid($state)) => $body,
            (AnyAlgorithm::Exponential($algorithm), State::Exponential($state)) => $body,
            (AnyAlgorithm::WarmUp($algorithm), State::WarmUp($state)) => $body,
            (AnyAlgorithm::Concurrency($algorithm), State::Concurrency($state)) => $body,
            _ => unreachable!("a state stays with the limit that read it"),
        }
    };
}

/// Runs `$body` with `$algorithm` bound to whichever it is, and makes a [`State`] of it.
macro_rules! state_of {
    ($any:expr, $algorithm:ident => $body:expr) => {
        match $any {
            AnyAlgorithm::Gcra($algorithm) => State::Gcra($body),
            AnyAlgorithm::Window($algorithm) => State::Window($body),
            AnyAlgorithm::SubBuckets($algorithm) => State::SubBuckets($body),
            AnyAlgorithm::Interval($algorithm) => State::Interval($body),
            AnyAlgorithm::Log($algorithm) => State::Log($body),
            AnyAlgorithm::Hybrid($algorithm) => State::Hybrid($body),
            AnyAlgorithm::Exponential($algorithm) => State::Exponential($body),
            AnyAlgorithm::WarmUp($algorithm) => State::WarmUp($body),
            AnyAlgorithm::Concurrency($algorithm) => State::Concurrency($body),
        }
    };
}

/// Runs `$body` with `$algorithm` bound to whichever it is.
macro_rules! with_shared {
    ($any:expr, $algorithm:ident => $body:expr) => {
        match $any {
            AnyAlgorithm::Gcra($algorithm) => $body,
            AnyAlgorithm::Window($algorithm) => $body,
            AnyAlgorithm::SubBuckets($algorithm) => $body,
            AnyAlgorithm::Interval($algorithm) => $body,
            AnyAlgorithm::Log($algorithm) => $body,
            AnyAlgorithm::Hybrid($algorithm) => $body,
            AnyAlgorithm::Exponential($algorithm) => $body,
            AnyAlgorithm::WarmUp($algorithm) => $body,
            AnyAlgorithm::Concurrency($algorithm) => $body,
        }
    };
}
pub(super) use with_shared;

impl State {
    /// Of a key never seen.
    pub(super) fn fresh(algorithm: &AnyAlgorithm) -> Self {
        state_of!(algorithm, algorithm => state_default(algorithm))
    }

    /// The state of these bytes; `None` if they are none of this limit.
    pub(super) fn read(algorithm: &AnyAlgorithm, bytes: &[u8], now: UnixMicros) -> Option<Self> {
        Some(state_of!(algorithm, algorithm => algorithm.read(bytes, now)?))
    }

    /// Its bytes; none if it is that of a key never seen.
    pub(super) fn write(&self, algorithm: &AnyAlgorithm, now: UnixMicros) -> Vec<u8> {
        let mut bytes = Vec::new();
        with_state!(algorithm, self, (algorithm, state) => {
            algorithm.write(state, now, &mut bytes);
        });
        bytes
    }

    pub(super) fn look(
        &self,
        algorithm: &AnyAlgorithm,
        now: UnixMicros,
        cost: Permits,
    ) -> Decision {
        with_state!(algorithm, self, (algorithm, state) => {
            algorithm.look(state, frame(algorithm, now), cost)
        })
    }

    /// Decides and charges; limits of concurrency lend as `lend` says.
    pub(super) fn decide(
        &mut self,
        algorithm: &AnyAlgorithm,
        now: UnixMicros,
        cost: Permits,
        lend: Lend,
    ) -> Decision {
        with_state!(algorithm, self, (algorithm, state) => {
            algorithm.lend(state, frame(algorithm, now), cost, lend)
        })
    }

    /// Takes back what a name holds; says how many permits that were.
    pub(super) fn release(
        &mut self,
        algorithm: &AnyAlgorithm,
        now: UnixMicros,
        id: LeaseId,
    ) -> Permits {
        match (algorithm, self) {
            (AnyAlgorithm::Concurrency(loans), Self::Concurrency(leases)) => {
                loans.release(leases, now.time(), id)
            }
            _ => Permits::ZERO,
        }
    }

    /// Lets the lease of a name run anew; says how long, unless it has ended.
    pub(super) fn renew(
        &mut self,
        algorithm: &AnyAlgorithm,
        now: UnixMicros,
        id: LeaseId,
    ) -> Option<Nanos> {
        match (algorithm, self) {
            (AnyAlgorithm::Concurrency(loans), Self::Concurrency(leases)) => {
                loans.renew(leases, now.time(), id)
            }
            _ => None,
        }
    }

    /// Gives back, if the algorithm can take back a charge.
    pub(super) fn refund(&mut self, algorithm: &AnyAlgorithm, now: UnixMicros, cost: Permits) {
        match (algorithm, self) {
            (AnyAlgorithm::Gcra(a), Self::Gcra(state)) => a.refund(state, frame(a, now), cost),
            (AnyAlgorithm::Window(a), Self::Window(state)) => a.refund(state, now.time(), cost),
            (AnyAlgorithm::SubBuckets(a), Self::SubBuckets(state)) => {
                a.refund(state, now.time(), cost);
            }
            (AnyAlgorithm::Interval(a), Self::Interval(state)) => a.refund(state, now.time(), cost),
            (AnyAlgorithm::Log(a), Self::Log(state)) => a.refund(state, now.time(), cost),
            (AnyAlgorithm::Exponential(a), Self::Exponential(state)) => {
                a.refund(state, now.time(), cost);
            }
            (AnyAlgorithm::Concurrency(a), Self::Concurrency(state)) => {
                a.refund(state, now.time(), cost);
            }
            _ => {}
        }
    }

    /// The state under newer numbers: the same if it means the same, else what was used of
    /// the old limit, charged to a fresh state of the new one.
    pub(super) fn carried(&self, old: &AnyAlgorithm, new: &AnyAlgorithm, now: UnixMicros) -> Self {
        if keeps(old, new) {
            return self.clone();
        }
        let left = self.look(old, now, Permits::ZERO).remaining;
        let used = old.capacity() - left;
        let mut state = Self::fresh(new);
        let _ = state.decide(
            new,
            now,
            Permits::new(used.get().min(new.capacity().get())),
            Lend::Unnamed,
        );
        state
    }

    /// Microseconds from `now` until it may be forgotten, rounded up.
    pub(super) fn lasts(&self, algorithm: &AnyAlgorithm, now: UnixMicros) -> u64 {
        let span = with_state!(algorithm, self, (algorithm, state) => {
            algorithm.expires_at(state).since(frame(algorithm, now))
        });
        span.as_nanos().div_ceil(1_000)
    }
}

/// Whether states of the old limit mean the same under the new one.
fn keeps(old: &AnyAlgorithm, new: &AnyAlgorithm) -> bool {
    match (old, new) {
        (AnyAlgorithm::Gcra(old), AnyAlgorithm::Gcra(new)) => new.keeps_state_of(old),
        (AnyAlgorithm::Window(old), AnyAlgorithm::Window(new)) => new.keeps_state_of(old),
        (AnyAlgorithm::SubBuckets(old), AnyAlgorithm::SubBuckets(new)) => new.keeps_state_of(old),
        (AnyAlgorithm::Interval(old), AnyAlgorithm::Interval(new)) => new.keeps_state_of(old),
        (AnyAlgorithm::Log(old), AnyAlgorithm::Log(new)) => new.keeps_state_of(old),
        (AnyAlgorithm::Hybrid(old), AnyAlgorithm::Hybrid(new)) => new.keeps_state_of(old),
        (AnyAlgorithm::Exponential(old), AnyAlgorithm::Exponential(new)) => new.keeps_state_of(old),
        (AnyAlgorithm::WarmUp(old), AnyAlgorithm::WarmUp(new)) => new.keeps_state_of(old),
        (AnyAlgorithm::Concurrency(old), AnyAlgorithm::Concurrency(new)) => new.keeps_state_of(old),
        _ => false,
    }
}

fn state_default<A: Algorithm>(_: &A) -> A::State {
    A::State::default()
}

/// `now` on the clock of the algorithm's states.
fn frame<A: Shared>(_: &A, now: UnixMicros) -> Time {
    A::frame(now)
}
