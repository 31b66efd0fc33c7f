//! Recipe: the parameters of a limit, of all sizes that the twins hold.

use ratekeeper_core::laws::Random;
use ratekeeper_core::{Denials, Nanos, Permits, Quota};

/// Bits of the largest quota.
pub(super) const BITS: u64 = Quota::MAX_PERMITS.ilog2() as u64 + 1;

/// Parameters of a limit. Limits that differ in the seed only understand each other's states.
#[derive(Clone, Copy)]
pub(super) struct Recipe {
    pub(super) per: Nanos,
    pub(super) phase: Nanos,
    pub(super) kind: u64,
    pub(super) seed: u64,
}

impl Recipe {
    pub(super) fn new(random: &mut Random) -> Self {
        Self {
            per: span(random),
            phase: span(random),
            kind: random.next(),
            seed: random.next(),
        }
    }

    pub(super) fn random(&self) -> Random {
        Random::new(self.seed)
    }

    pub(super) fn quota(&self, random: &mut Random, bits: u64) -> Quota {
        Quota::new(Permits::new(number(random, bits)), self.per).unwrap()
    }
}

/// As many small numbers as large ones.
pub(super) fn quota_of_any_size(random: &mut Random) -> Quota {
    let bits = [6, 16, BITS][usize::try_from(random.below(3)).unwrap()];
    Quota::new(Permits::new(number(random, bits)), span(random)).unwrap()
}

pub(super) fn below(random: &mut Random, end: Permits) -> u64 {
    random.below(end.get())
}

/// As many numbers of one length in bits as of another; now and then the largest quota.
pub(super) fn number(random: &mut Random, bits: u64) -> u64 {
    let most = 1 << random.below(bits + 1);
    match random.below(16) {
        0 if bits == BITS => Quota::MAX_PERMITS,
        _ => 1 + random.below(most).min(Quota::MAX_PERMITS - 1),
    }
}

/// From a few microseconds to a year; as many whole microseconds and seconds as nanoseconds.
pub(super) fn span(random: &mut Random) -> Nanos {
    let most = 1 << (10 + random.below(45));
    let step = [1, 1_000, 1_000_000_000][usize::try_from(random.below(3)).unwrap()];
    let span: u64 = 1 + random.below(most);
    Nanos::from_nanos(span.next_multiple_of(step))
}

pub(super) fn denials(random: &mut Random) -> Denials {
    if random.below(3) == 0 {
        Denials::Counted
    } else {
        Denials::Free
    }
}
