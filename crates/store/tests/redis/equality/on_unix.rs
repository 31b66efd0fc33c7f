//! GCRA on the clock of the store.

use ratekeeper_core::{Algorithm, AnyAlgorithm, Decision, Gcra, Nanos, Permits, Tat, Time};

use super::ORIGIN;

/// GCRA on the clock of the store. Its units count from the clock's zero, if a microsecond is no
/// whole number of them.
#[derive(Clone, Debug)]
pub(super) struct OnUnix(pub(super) Gcra);

impl OnUnix {
    pub(super) fn at(now: Time) -> Time {
        now + Nanos::from_nanos(ORIGIN.as_unix_nanos())
    }
}

impl From<OnUnix> for AnyAlgorithm {
    fn from(gcra: OnUnix) -> Self {
        gcra.0.into()
    }
}

impl Algorithm for OnUnix {
    type State = Tat;

    fn name(&self) -> &'static str {
        self.0.name()
    }
    fn capacity(&self) -> Permits {
        self.0.capacity()
    }
    fn decide(&self, tat: &mut Tat, now: Time, cost: Permits) -> Decision {
        self.0.decide(tat, Self::at(now), cost)
    }
    fn expires_at(&self, tat: &Tat, now: Time) -> Time {
        ORIGIN.time_at(self.0.expires_at(tat, Self::at(now)).as_nanos())
    }
    fn stricter(&self, tat: &mut Tat, other: &Tat) {
        self.0.stricter(tat, other);
    }
    fn keeps_state_of(&self, old: &Self) -> bool {
        self.0.keeps_state_of(&old.0)
    }
    fn rescale(&self, tat: &mut Tat, old: &Self, now: Time, promised: Nanos) {
        self.0.rescale(tat, &old.0, Self::at(now), promised);
    }
    fn succeed(&mut self, old: &Self) {
        self.0.succeed(&old.0);
    }
    fn bound(&self, window: Nanos) -> u64 {
        self.0.bound(window)
    }
}
