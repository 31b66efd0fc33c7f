//! The algorithms of the closed set as traits, with optional calls that only some of them have.
//!
//! ```text
//!   Algorithm + StoredForm + Reconfigure  --list-->  Listed  --->  AnyAlgorithm, Visitor
//! ```

use core::fmt;

use super::{AnyAlgorithm, AnyState};
use crate::{
    Algorithm, Decision, Error, GrantId, Granted, LeaseId, Nanos, Origin, Permits, Quota, Receipt,
    StoredForm, Time,
};

/// The same limit with other parameters.
pub trait Reconfigure: Algorithm + Sized {
    /// See [`AnyAlgorithm::with_quota`].
    ///
    /// # Errors
    /// When the algorithm cannot hold such a quota.
    fn with_quota(&self, quota: Quota, origin: Origin) -> Result<AnyAlgorithm, Error>;

    /// See [`AnyAlgorithm::on_clock`]. Unchanged if the limit depends on spans only.
    #[must_use]
    fn on_clock(&self, _from: Origin, _to: Origin) -> Self
    where
        Self: Clone,
    {
        self.clone()
    }

    /// See [`AnyAlgorithm::with_patience`].
    #[must_use]
    fn with_patience(&self, _longest_wait: Nanos) -> Self
    where
        Self: Clone,
    {
        self.clone()
    }
}

/// An algorithm of the closed set, with the calls that only some have as optional ones.
pub trait Listed:
    Reconfigure
    + StoredForm<State: Send>
    + Into<AnyAlgorithm>
    + Clone
    + fmt::Debug
    + Send
    + Sync
    + 'static
{
    /// True if permits are lent, and come back: [`Concurrency`](crate::Concurrency).
    const LENDS: bool = false;

    /// True if a store may forget no state for another key of the limit: permits on loan, and
    /// credits.
    const KEEPS: bool = Self::LENDS;

    /// Returns this algorithm, if `any` is one.
    fn of(any: &AnyAlgorithm) -> Option<&Self>;

    /// Calls `view` with the state, or with that of a key never seen if `any` is of another
    /// algorithm.
    fn with_state<T>(any: &AnyState, view: impl FnOnce(&Self::State) -> T) -> T;

    /// Returns the state; one of another algorithm is first replaced by that of a key never seen.
    fn own_state(any: &mut AnyState) -> &mut Self::State;

    /// Wraps a state.
    fn any_state(state: Self::State) -> AnyState;

    /// As [`Refund::give_back`](crate::Refund::give_back); `None` if the algorithm cannot take back
    /// a charge.
    fn try_give_back(
        &self,
        _state: &mut Self::State,
        _now: Time,
        _cost: Permits,
        _receipt: Receipt,
    ) -> Option<()> {
        None
    }

    /// As [`Refund::refund`](crate::Refund::refund); `None` if the algorithm cannot take back a
    /// charge.
    fn try_refund(&self, _state: &mut Self::State, _now: Time, _cost: Permits) -> Option<()> {
        None
    }

    /// As [`Reserve::reserve`](crate::Reserve::reserve); `None` if the algorithm cannot promise a
    /// later moment.
    fn try_reserve(
        &self,
        _state: &mut Self::State,
        _now: Time,
        _cost: Permits,
        _max_wait: Nanos,
    ) -> Option<Decision> {
        None
    }

    /// As [`WithBans::ban`](crate::WithBans::ban); `None` if the limit has no ban.
    fn try_ban(&self, _state: &mut Self::State, _now: Time, _span: Nanos) -> Option<()> {
        None
    }

    /// As [`Balance::grant`](crate::Balance::grant); `None` if the limit is no balance.
    fn try_grant(
        &self,
        _state: &mut Self::State,
        _credits: Permits,
        _id: GrantId,
    ) -> Option<Granted> {
        None
    }

    /// As [`Concurrency::release`](crate::Concurrency::release); nothing if the algorithm does not
    /// lend.
    fn try_release(&self, _state: &mut Self::State, _now: Time, _id: LeaseId) -> Permits {
        Permits::ZERO
    }

    /// As [`Concurrency::renew`](crate::Concurrency::renew); `None` if the algorithm does not lend.
    fn try_renew(&self, _state: &mut Self::State, _now: Time, _id: LeaseId) -> Option<Nanos> {
        None
    }

    /// Returns the permits on loan at `now`; 0 if the algorithm does not lend.
    fn on_loan(&self, _state: &Self::State, _now: Time) -> u64 {
        0
    }
}

/// The algorithms that a limit may have: one of the closed set, or all of them ([`AnyAlgorithm`]).
/// A program contains the code of those that it names.
pub trait AlgorithmSet: Into<AnyAlgorithm> {
    /// Calls the visitor with the algorithm; `None` if it is not one of these.
    fn visit<V: Visitor>(any: &AnyAlgorithm, visitor: V) -> Option<V::Output>;
}

impl<A: Listed + Into<AnyAlgorithm>> AlgorithmSet for A {
    fn visit<V: Visitor>(any: &AnyAlgorithm, visitor: V) -> Option<V::Output> {
        A::of(any).map(|algorithm| visitor.visit(algorithm))
    }
}

impl AlgorithmSet for AnyAlgorithm {
    fn visit<V: Visitor>(any: &AnyAlgorithm, visitor: V) -> Option<V::Output> {
        Some(any.visit(visitor))
    }
}

/// An operation on any algorithm of the closed set.
pub trait Visitor {
    /// The result.
    type Output;

    /// Called with the algorithm.
    fn visit<A: Listed>(self, algorithm: &A) -> Self::Output;
}
