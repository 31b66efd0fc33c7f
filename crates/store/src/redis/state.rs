//! State: what one limit remembers of one key, whichever its algorithm.
//!
//! ```text
//!   bytes of the store --read--> State --decide, refund--> State' --write--> bytes
//! ```

use ratekeeper_core::{
    Algorithm, AnyAlgorithm, AnyState, Decision, Gcra, LeaseId, Lend, Nanos, Paid, Permits, Shared,
    UnixMicros,
};

/// A state; each is read, changed and written by the limit that it belongs to. At first, that
/// of a key never seen.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct State(AnyState);

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

/// Runs `$make` for each algorithm, with its name in [`AnyAlgorithm`] and [`AnyState`].
macro_rules! each {
    ($make:ident) => {
        $make!(
            Gcra,
            Window,
            SubBuckets,
            Interval,
            Log,
            Hybrid,
            Exponential,
            WarmUp,
            Concurrency
        )
    };
}

impl State {
    /// The state of these bytes; `None` if they are none of this limit.
    pub(super) fn read(algorithm: &AnyAlgorithm, bytes: &[u8], now: UnixMicros) -> Option<Self> {
        macro_rules! read {
            ($($variant:ident),*) => {
                match algorithm {
                    $(AnyAlgorithm::$variant(algorithm) => {
                        AnyState::$variant(algorithm.read(bytes, now)?)
                    })*
                }
            };
        }
        Some(Self(each!(read)))
    }

    /// Its bytes; none if it is that of a key never seen.
    pub(super) fn write(&self, algorithm: &AnyAlgorithm, now: UnixMicros) -> Vec<u8> {
        let mut bytes = Vec::new();
        macro_rules! write {
            ($($variant:ident),*) => {
                match (algorithm, &self.0) {
                    (_, AnyState::Fresh) => {}
                    $((AnyAlgorithm::$variant(algorithm), AnyState::$variant(state)) => {
                        algorithm.write(state, now, &mut bytes);
                    })*
                    _ => unreachable!("a state stays with the limit that read it"),
                }
            };
        }
        each!(write);
        bytes
    }

    pub(super) fn look(
        &self,
        algorithm: &AnyAlgorithm,
        now: UnixMicros,
        cost: Permits,
    ) -> Decision {
        algorithm.look(&self.0, now.time(), cost)
    }

    /// Decides and charges; limits of concurrency lend as `lend` says.
    pub(super) fn decide(
        &mut self,
        algorithm: &AnyAlgorithm,
        now: UnixMicros,
        cost: Permits,
        lend: Lend,
    ) -> Decision {
        algorithm.lend(&mut self.0, now.time(), cost, lend)
    }

    /// Takes back what a name holds; says how many permits that were.
    pub(super) fn release(
        &mut self,
        algorithm: &AnyAlgorithm,
        now: UnixMicros,
        id: LeaseId,
    ) -> Permits {
        match (algorithm.concurrency(), &mut self.0) {
            (Some(loans), AnyState::Concurrency(leases)) => loans.release(leases, now.time(), id),
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
        match (algorithm.concurrency(), &mut self.0) {
            (Some(loans), AnyState::Concurrency(leases)) => loans.renew(leases, now.time(), id),
            _ => None,
        }
    }

    /// Gives back; nothing, if the algorithm takes nothing back.
    pub(super) fn refund(&mut self, algorithm: &AnyAlgorithm, now: UnixMicros, cost: Permits) {
        let _ = algorithm.try_refund(&mut self.0, now.time(), cost);
    }

    /// Under a token bucket: which, and when its debt is paid if anything is owed.
    pub(super) fn paid<'a>(
        &self,
        algorithm: &'a AnyAlgorithm,
        now: UnixMicros,
    ) -> Option<(&'a Gcra, Option<Paid>)> {
        match (algorithm, &self.0) {
            (AnyAlgorithm::Gcra(gcra), AnyState::Gcra(tat)) => Some((gcra, gcra.paid(tat, now))),
            (AnyAlgorithm::Gcra(gcra), _) => Some((gcra, None)),
            _ => None,
        }
    }

    /// Takes over what is remembered of it, if that is more than the value found says.
    pub(super) fn learn(
        &mut self,
        algorithm: &AnyAlgorithm,
        value: &[u8],
        hint: Paid,
        now: UnixMicros,
    ) {
        if !Gcra::is_lowered(value)
            && let Some((gcra, paid)) = self.paid(algorithm, now)
            && paid < Some(hint)
            && let Some(tat) = gcra.owing(hint, now)
        {
            self.0 = AnyState::Gcra(tat);
        }
    }

    /// The state under newer numbers: the same if it means the same, else what was used of
    /// the old limit, charged to a fresh state of the new one.
    pub(super) fn carried(&self, old: &AnyAlgorithm, new: &AnyAlgorithm, now: UnixMicros) -> Self {
        if new.keeps_state_of(old) {
            return self.clone();
        }
        let left = self.look(old, now, Permits::ZERO).remaining;
        let used = old.capacity() - left;
        let mut state = Self::default();
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
        let now = now.time();
        let span = algorithm.expires_at(&self.0, now).since(now);
        span.as_nanos().div_ceil(1_000)
    }
}
