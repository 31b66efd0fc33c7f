//! The stored form of any algorithm; see [`StoredForm`].

use alloc::vec::Vec;

use super::{AnyAlgorithm, AnyState, Listed};
use crate::{KeptValue, LuaTwin, Permits, StoredForm, UnixMicros};

/// The form of a state in a store that many processes share; see [`StoredForm`].
impl AnyAlgorithm {
    /// See [`StoredForm::TAG`].
    pub fn tag(&self) -> u8 {
        dispatch!(self, _algorithm: A => A::TAG)
    }

    /// See [`StoredForm::shape`].
    pub fn shape(&self) -> u64 {
        dispatch!(self, algorithm => algorithm.shape())
    }

    /// See [`StoredForm::twin`].
    pub fn twin(&self) -> Option<LuaTwin> {
        dispatch!(self, algorithm => algorithm.twin())
    }

    /// See [`StoredForm::price`].
    pub fn price(&self, cost: Permits) -> [f64; 4] {
        dispatch!(self, algorithm => algorithm.price(cost))
    }

    /// See [`StoredForm::short_twin`].
    pub fn short_twin(&self) -> Option<LuaTwin> {
        dispatch!(self, algorithm => algorithm.short_twin())
    }

    /// See [`StoredForm::short_price`].
    pub fn short_price(&self, cost: Permits) -> f64 {
        dispatch!(self, algorithm => algorithm.short_price(cost))
    }

    /// See [`StoredForm::read`].
    pub fn read(&self, bytes: &[u8], now: UnixMicros) -> Option<AnyState> {
        dispatch!(self, algorithm: A => {
            algorithm.read(bytes, now).map(A::any_state)
        })
    }

    /// See [`StoredForm::succeed_writer`].
    pub fn succeed_writer(&mut self, value: &[u8], now: UnixMicros) {
        dispatch!(self, algorithm => algorithm.succeed_writer(value, now));
    }

    /// See [`StoredForm::write`].
    pub fn write(&self, state: &AnyState, now: UnixMicros, out: &mut Vec<u8>) {
        dispatch!(self, algorithm: A => A::with_state(state, |state| {
            algorithm.write(state, now, out);
        }));
    }

    /// See [`StoredForm::keep_beyond`].
    pub fn keep_beyond(&self, kept: &mut KeptValue, found: &[u8], now: UnixMicros) {
        dispatch!(self, algorithm => algorithm.keep_beyond(kept, found, now));
    }
}
