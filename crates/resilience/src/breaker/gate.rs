//! Gate: generation and phase of a breaker in one word.

/// Generation and phase in one word, so that one load suffices, and late reports are recognised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BreakerGate(pub(super) u64);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Closed,
    Open,
    HalfOpen,
}

impl BreakerGate {
    pub(super) const fn new(generation: u64, phase: Phase) -> Self {
        Self((generation << 2) | phase as u64)
    }

    pub(super) const fn generation(self) -> u64 {
        self.0 >> 2
    }

    pub(super) const fn phase(self) -> Phase {
        match self.0 & 3 {
            0 => Phase::Closed,
            1 => Phase::Open,
            _ => Phase::HalfOpen,
        }
    }
}
