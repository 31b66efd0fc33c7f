//! Bench: one limit, with the states of many keys.
//!
//! ```text
//!   Bench { algorithm, states: [key 0, key 1, ..] }
//! ```
//!
//! The store behind the service is built for untrusted keys: hashed, bounded, shared. Here keys are
//! small numbers, and nothing is shared. The decisions are the same functions.

use ratekeeper_core::{
    Algorithm as _, AnyAlgorithm, AnyState, Decision, Nanos, Permits, Time, Verdict,
};

/// A key. Keys are numbered from 0 and callers must bound them, because a bench holds the states of
/// all keys up to the largest.
pub type KeyId = usize;

/// Maximum number of keys of a workload.
pub const MAX_KEYS: usize = 1 << 20;

/// Maximum number of requests of the largest cost that may pass at once before a limit counts as
/// endless: one passes for most limits, more where saved permits are granted one by one.
const MAX_FILLS: u32 = 100_000;

/// A limit and the states of its keys; see the module.
///
/// ```
/// use ratekeeper_core::{Gcra, Permits, Time};
/// use ratekeeper_lab::Bench;
/// let gcra = Gcra::token_bucket("2/1s".parse().unwrap()).unwrap();
/// let mut bench = Bench::new(gcra.into());
/// let mut admitted = |key| bench.decide(key, Time::ZERO, Permits::ONE).verdict.allows();
/// assert!(admitted(0) && admitted(0) && !admitted(0));
/// assert!(admitted(1), "another key");
/// ```
#[derive(Debug)]
pub struct Bench {
    algorithm: AnyAlgorithm,
    states: Vec<KeyState>,
}

/// The state of a key, and the time until which it can be read correctly: a debt of 2017 means
/// nothing in 2090.
#[derive(Clone, Debug, Default)]
struct KeyState {
    state: AnyState,
    until: Time,
}

impl Bench {
    /// Creates a bench without any state.
    pub fn new(algorithm: AnyAlgorithm) -> Self {
        Self {
            algorithm,
            states: Vec::new(),
        }
    }

    /// The limit.
    pub const fn algorithm(&self) -> &AnyAlgorithm {
        &self.algorithm
    }

    /// Decides and charges. A key whose state has expired begins afresh.
    pub fn decide(&mut self, key: KeyId, now: Time, cost: Permits) -> Decision {
        if key >= self.states.len() {
            self.states.resize(key + 1, KeyState::default()); // callers bound it
        }
        let (limit, kept) = (&self.algorithm, &mut self.states[key]);
        if now > kept.until {
            kept.state = AnyState::default();
        }
        let decision = limit.decide(&mut kept.state, now, cost);
        kept.until = limit.expires_at(&kept.state, now).max(now) + limit.lasts();
        decision
    }

    /// Returns true if a refusal changes a state, which is found by trying. Also true if it changes
    /// only a record, or if the limit cannot be filled at once.
    pub fn counts_refusals(&self) -> bool {
        let (limit, mut state) = (&self.algorithm, AnyState::default());
        let all = limit.capacity();
        let mut refusal_changes = |now| {
            for _ in 0..MAX_FILLS {
                let before = state.clone();
                match limit.decide(&mut state, now, all).verdict {
                    Verdict::Allow | Verdict::AllowAfter(_) => {}
                    Verdict::DenyForever => return true,
                    Verdict::Deny { .. } | Verdict::Ban { .. } | Verdict::Banned { .. } => {
                        return state != before;
                    }
                }
            }
            true
        };
        // And a moment later: a full log of attempts looks alike until time has passed.
        refusal_changes(Time::ZERO) || refusal_changes(Time::ZERO + Nanos::from_nanos(1))
    }
}

#[cfg(test)]
mod tests {
    use ratekeeper_core::{Denials, Edge, Exponential, Gcra, Log, SubBuckets, WarmUp, Window};

    use super::*;

    fn bucket(quota: &str) -> Gcra {
        Gcra::token_bucket(quota.parse().unwrap()).unwrap()
    }

    fn fixed(quota: &str) -> Window {
        Window::fixed(quota.parse().unwrap(), Nanos::ZERO).unwrap()
    }

    #[test]
    fn keys_are_apart_beyond_those_of_a_workload() {
        let mut bench = Bench::new(bucket("1/1s").into());
        for key in MAX_KEYS - 1..MAX_KEYS + 2 {
            let decided = bench.decide(key, Time::ZERO, Permits::ONE);
            assert_eq!(decided.verdict, Verdict::Allow, "{key}");
        }
    }

    #[test]
    fn a_state_of_2017_means_nothing_in_2090() {
        let year = |year: u64| Time::from_nanos((year - 1970) * 31_556_952_000_000_000);
        let limits: [AnyAlgorithm; 2] = [bucket("2/1s").into(), fixed("2/1s").into()];
        for limit in limits {
            let mut bench = Bench::new(limit);
            for now in (2017..2100).map(year) {
                let mut ask = || bench.decide(0, now, Permits::ONE).verdict;
                assert_eq!([ask(), ask()], [Verdict::Allow; 2], "{now:?}");
                assert!(!ask().allows(), "{now:?}");
            }
            let of_2200 = bench.decide(0, year(2200), Permits::ZERO);
            assert_eq!(of_2200.remaining, Permits::new(2));
        }
    }

    #[test]
    fn a_trial_finds_if_refusals_count() {
        for denials in [Denials::Free, Denials::Counted] {
            let counts = denials == Denials::Counted;
            let quota = "10/1s".parse().unwrap();
            let two_window = Window::two_window(quota, Nanos::ZERO).unwrap();
            let sub_buckets = SubBuckets::sub_buckets(quota, 6, Edge::Full, Nanos::ZERO).unwrap();
            let log = Log::sliding(quota).unwrap();
            let limits: [AnyAlgorithm; 7] = [
                log.with_denials(denials).into(),
                Exponential::new(quota)
                    .unwrap()
                    .with_denials(denials)
                    .into(),
                two_window.with_denials(denials).into(),
                sub_buckets.with_denials(denials).into(),
                bucket("10/1s").with_denials(denials).into(),
                bucket("1/1s").with_denials(denials).into(),
                fixed("10/1s").with_denials(denials).into(),
            ];
            for limit in limits {
                assert_eq!(
                    Bench::new(limit.clone()).counts_refusals(),
                    counts,
                    "{limit:?}"
                );
            }
        }
    }

    #[test]
    fn a_post_paid_limit_is_filled_permit_by_permit() {
        let bursty = WarmUp::bursty(10.0, 1.0).unwrap();
        let one_by_one = bursty.with_largest(Permits::ONE);
        assert!(!Bench::new(one_by_one.into()).counts_refusals());
    }
}
