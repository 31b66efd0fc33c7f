//! Cell: one key, one word, compare-exchange. Skeleton.

use std::marker::PhantomData;

use ratekeeper_core::{Algorithm, Decision, Permits, Time, Word};

/// The state of one limit and one key, shared by threads.
#[derive(Debug, Default)]
pub struct Cell<A: Algorithm>(PhantomData<A>);

impl<A: Algorithm> Cell<A>
where
    A::State: Word,
{
    /// Decides and charges.
    pub fn decide(&self, _algorithm: &A, _now: Time, _cost: Permits) -> Decision {
        todo!()
    }
}
