//! Bench: one limit, with the states of many keys.
//!
//! ```text
//!   Bench { algorithm, states: [key 0, key 1, ..] }
//! ```
//!
//! The store behind the service is built for untrusted keys: hashed, bounded, shared. Here keys are
//! small numbers, nothing is shared, and the calls that only some algorithms have (wait, take back)
//! return `None` where the algorithm lacks them. The decisions are the same functions.

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
    /// Longest wait that a reservation has asked for.
    patience: Nanos,
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
            patience: Nanos::ZERO,
        }
    }

    /// The limit.
    pub const fn algorithm(&self) -> &AnyAlgorithm {
        &self.algorithm
    }

    /// Decides and charges.
    pub fn decide(&mut self, key: KeyId, now: Time, cost: Permits) -> Decision {
        self.with(key, now, |limit, state| limit.decide(state, now, cost))
    }

    /// Returns the decision that [`decide`](Self::decide) would make; charges nothing.
    pub fn look(&mut self, key: KeyId, now: Time, cost: Permits) -> Decision {
        self.with(key, now, |limit, state| limit.look(state, now, cost))
    }

    /// Decides, waiting up to `max_wait`; `None` if this algorithm cannot promise a later moment.
    pub fn reserve(
        &mut self,
        key: KeyId,
        now: Time,
        cost: Permits,
        max_wait: Nanos,
    ) -> Option<Decision> {
        if max_wait > self.patience {
            // Long waits are part of a limit: it then believes the debts they leave.
            self.patience = max_wait;
            self.algorithm = self.algorithm.with_patience(max_wait);
        }
        self.with(key, now, |limit, state| {
            limit.try_reserve(state, now, cost, max_wait).ok()
        })
    }

    /// Gives back an unused charge, and returns the decision about a cost of 0; `None` if this
    /// algorithm cannot refund.
    pub fn refund(&mut self, key: KeyId, now: Time, cost: Permits) -> Option<Decision> {
        self.with(key, now, |limit, state| {
            limit.try_refund(state, now, cost).ok()
        })?;
        Some(self.look(key, now, Permits::ZERO))
    }

    /// Forgets a key.
    pub fn reset(&mut self, key: KeyId) {
        if let Some(kept) = self.states.get_mut(key) {
            *kept = KeyState::default();
        }
    }

    /// Changes the limit at `now`. States are kept if they mean the same under the new parameters;
    /// otherwise their usage is carried over, as by a reload.
    pub fn set(&mut self, mut algorithm: AnyAlgorithm, now: Time) {
        let old = &self.algorithm;
        algorithm.succeed(old);
        if algorithm.keeps_state_of(old) {
            for kept in &mut self.states {
                algorithm.rescale(&mut kept.state, old, now, self.patience);
            }
        } else {
            for kept in &mut self.states {
                let usage = if now > kept.until {
                    Permits::ZERO
                } else {
                    old.usage(&kept.state, now)
                };
                let state = algorithm.state_with_usage(usage, now);
                *kept = KeyState {
                    until: read_until(&algorithm, &state, now),
                    state,
                };
            }
        }
        self.algorithm = algorithm;
        if self.patience > Nanos::ZERO {
            self.algorithm = self.algorithm.with_patience(self.patience);
        }
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

    /// Calls `with` on the limit and the state of a key, which is a fresh one if the old one has
    /// expired.
    fn with<T>(
        &mut self,
        key: KeyId,
        now: Time,
        with: impl FnOnce(&AnyAlgorithm, &mut AnyState) -> T,
    ) -> T {
        if key >= self.states.len() {
            self.states.resize(key + 1, KeyState::default()); // callers bound it
        }
        let (limit, kept) = (&self.algorithm, &mut self.states[key]);
        if now > kept.until {
            kept.state = AnyState::default();
        }
        let done = with(limit, &mut kept.state);
        kept.until = read_until(limit, &kept.state, now);
        done
    }
}

/// Returns the time until which a state can be read correctly.
fn read_until(limit: &AnyAlgorithm, state: &AnyState, now: Time) -> Time {
    limit.expires_at(state, now).max(now) + limit.lasts()
}

#[cfg(test)]
mod tests {
    use ratekeeper_core::{
        Denials, Edge, Exponential, Gcra, Hybrid, Log, SubBuckets, WarmUp, Window,
    };

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
            assert_eq!(
                bench.look(0, year(2200), Permits::ZERO).remaining,
                Permits::new(2)
            );
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

    #[test]
    fn an_unsupported_call_returns_none() {
        let wait = Nanos::from_secs(9);
        let ask = |limit: AnyAlgorithm| {
            let mut bench = Bench::new(limit);
            let _ = bench.decide(0, Time::ZERO, Permits::ONE);
            bench.reserve(0, Time::ZERO, Permits::ONE, wait)
        };
        let wait = ask(bucket("1/1s").into()).unwrap().verdict;
        assert_eq!(wait, Verdict::AllowAfter(Nanos::SECOND));
        assert_eq!(ask(fixed("1/1s").into()), None);
        let warm_up = WarmUp::bursty(1.0, 0.0).unwrap().into();
        assert_eq!(ask(warm_up).unwrap().verdict, wait, "post-paid");
        let mut bench = Bench::new(WarmUp::bursty(1.0, 0.0).unwrap().into());
        assert_eq!(bench.refund(0, Time::ZERO, Permits::ONE), None);
        let hybrid = Hybrid::quota_linear("2/1s".parse().unwrap()).unwrap();
        let mut bench = Bench::new(hybrid.into());
        assert!(bench.refund(0, Time::ZERO, Permits::ONE).is_some());
    }

    #[test]
    fn a_new_limit_keeps_its_promises() {
        let mut bench = Bench::new(bucket("1/1m").into());
        let ask = |bench: &mut Bench| {
            let hour = Nanos::from_secs(3_600);
            bench
                .reserve(0, Time::ZERO, Permits::ONE, hour)
                .unwrap()
                .verdict
        };
        assert_eq!(ask(&mut bench), Verdict::Allow);
        for minutes in 1..5 {
            let wait = Nanos::from_secs(60 * minutes);
            assert_eq!(ask(&mut bench), Verdict::AllowAfter(wait));
        }
        bench.set(bucket("1/1m").into(), Time::ZERO);
        let retry_after = Nanos::from_secs(300);
        let denied = bench.decide(0, Time::ZERO, Permits::ONE).verdict;
        assert_eq!(denied, Verdict::Deny { retry_after });
    }

    #[test]
    fn a_changed_limit_carries_what_was_used() {
        let rows: [(AnyAlgorithm, u64); 3] = [
            (bucket("20/2s").into(), 13), // the debt is kept: 0.7 s of 2 s
            (fixed("10/1s").into(), 3),   // 7 were used
            (fixed("5/1s").into(), 0),
        ];
        for (limit, left) in rows {
            let mut bench = Bench::new(bucket("10/1s").into());
            let _ = bench.decide(3, Time::ZERO, Permits::new(7));
            bench.set(limit.clone(), Time::ZERO);
            let found = bench.look(3, Time::ZERO, Permits::ZERO).remaining.get();
            assert_eq!(found, left, "{limit:?}");
            let now = bench.algorithm();
            let of = |limit: &AnyAlgorithm| (limit.name(), limit.capacity());
            assert_eq!(of(now), of(&limit));
        }
    }
}
