//! Bench: one limit on the bench, with the states of many keys.
//!
//! ```text
//!   Bench { algorithm, Box<dyn States> }
//!                          |
//!                 Keyed<Gcra> | Keyed<Window> | ...    one line of the table each
//! ```
//!
//! The store behind the service keeps states for strangers: hashed, bounded, shared. Here
//! keys are small numbers, nothing is shared, and what only some algorithms can do (wait,
//! take back) can be asked of those that can. The decisions are the same functions.

use ratekeeper_core::{
    Algorithm, AnyAlgorithm, Decision, Gcra, Nanos, Permits, Refund, Reserve, Time, Verdict,
};

/// A key. Keys are numbered from 0, because a bench holds the states of all below the largest:
/// callers bound them.
pub type KeyId = usize;

/// Maximum number of keys of a workload.
pub const MAX_KEYS: usize = 1 << 20;

/// Requests of the largest cost that may pass at once before a limit is held to be endless:
/// one for most, more where what was saved up is given away in single permits.
const MOST_FILLS: u32 = 100_000;

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
    states: Box<dyn States>,
}

impl Bench {
    /// A limit that has seen nobody.
    pub fn new(algorithm: AnyAlgorithm) -> Self {
        Self {
            states: states_of(&algorithm),
            algorithm,
        }
    }

    /// The limit.
    pub const fn algorithm(&self) -> &AnyAlgorithm {
        &self.algorithm
    }

    /// Decides and charges.
    pub fn decide(&mut self, key: KeyId, now: Time, cost: Permits) -> Decision {
        self.states.decide(key, now, cost)
    }

    /// Says what [`decide`](Self::decide) would say; charges nothing.
    pub fn look(&mut self, key: KeyId, now: Time, cost: Permits) -> Decision {
        self.states.look(key, now, cost)
    }

    /// Decides, willing to wait up to `max_wait`; none if this algorithm cannot promise a
    /// later moment.
    pub fn reserve(
        &mut self,
        key: KeyId,
        now: Time,
        cost: Permits,
        max_wait: Nanos,
    ) -> Option<Decision> {
        self.states.reserve(key, now, cost, max_wait)
    }

    /// Gives back what was charged and not used, and says how things stand; none if this
    /// algorithm cannot take back.
    pub fn refund(&mut self, key: KeyId, now: Time, cost: Permits) -> Option<Decision> {
        self.states.refund(key, now, cost)?;
        Some(self.look(key, now, Permits::ZERO))
    }

    /// Forgets a key.
    pub fn reset(&mut self, key: KeyId) {
        self.states.reset(key);
    }

    /// Changes the limit at `now`. States are kept if they mean the same under the new
    /// numbers; if not, what was used is charged to fresh ones, as a reload does.
    pub fn set(&mut self, algorithm: AnyAlgorithm, now: Time) {
        if !self.states.adopt(&algorithm, now) {
            let mut fresh = states_of(&algorithm);
            for key in 0..self.states.keys() {
                let left = self.states.look(key, now, Permits::ZERO).remaining;
                let used = self.algorithm.capacity() - left; // never below 0
                let used = used.min(algorithm.capacity());
                if used > Permits::ZERO {
                    let _ = fresh.decide(key, now, used);
                }
            }
            self.states = fresh;
        }
        self.algorithm = algorithm;
    }

    /// Whether a refusal changes anything: found by trying it. True also where it changes
    /// only what is written down, or where the limit cannot be filled at once.
    pub fn counts_refusals(&self) -> bool {
        self.states.counts_refusals()
    }
}

/// The states of a limit, whichever algorithm it is.
trait States: std::fmt::Debug {
    fn keys(&self) -> usize;
    fn decide(&mut self, key: KeyId, now: Time, cost: Permits) -> Decision;
    fn look(&mut self, key: KeyId, now: Time, cost: Permits) -> Decision;
    fn reserve(&mut self, key: KeyId, now: Time, cost: Permits, max: Nanos) -> Option<Decision>;
    fn refund(&mut self, key: KeyId, now: Time, cost: Permits) -> Option<()>;
    fn reset(&mut self, key: KeyId);
    /// Takes the new numbers, if the states mean the same under them.
    fn adopt(&mut self, new: &AnyAlgorithm, now: Time) -> bool;
    /// Whether a refusal changes a state.
    fn counts_refusals(&self) -> bool;
}

/// The table of algorithms: variant, and what it can do beside deciding.
macro_rules! table {
    ($($variant:ident: $($can:ident)*;)*) => {
        fn states_of(algorithm: &AnyAlgorithm) -> Box<dyn States> {
            match algorithm {$(
                AnyAlgorithm::$variant(algorithm) => Box::new(
                    Keyed::new(algorithm.clone(), |any| match any {
                        AnyAlgorithm::$variant(algorithm) => Some(algorithm),
                        _ => None,
                    })$(.$can())*
                ),
            )*}
        }
    };
}

table! {
    Gcra: refunds reserves patient;
    Window: refunds;
    SubBuckets: refunds;
    Interval: refunds;
    Log: refunds;
    Hybrid: refunds;
    Exponential: refunds;
    WarmUp: reserves;
    Concurrency: refunds;
}

type ReserveOf<A> = fn(&A, &mut <A as Algorithm>::State, Time, Permits, Nanos) -> Decision;
type RefundOf<A> = fn(&A, &mut <A as Algorithm>::State, Time, Permits);

/// The states of one algorithm, by key.
struct Keyed<A: Algorithm> {
    algorithm: A,
    states: Vec<Kept<A::State>>,
    /// The same algorithm among all.
    of: fn(&AnyAlgorithm) -> Option<&A>,
    reserve: Option<ReserveOf<A>>,
    refund: Option<RefundOf<A>>,
    /// Makes the algorithm willing to promise moments that far ahead.
    patient: Option<fn(A, Nanos) -> A>,
    /// The longest wait that was asked for.
    patience: Nanos,
}

/// The state of a key, and until when it can be read for what it is: a debt of 2017 means
/// nothing in 2090.
#[derive(Clone, Debug, Default)]
struct Kept<S> {
    state: S,
    until: Time,
}

impl<A: Algorithm> Keyed<A> {
    fn new(algorithm: A, of: fn(&AnyAlgorithm) -> Option<&A>) -> Self {
        Self {
            algorithm,
            states: Vec::new(),
            of,
            reserve: None,
            refund: None,
            patient: None,
            patience: Nanos::ZERO,
        }
    }

    /// Long waits are part of a limit: it then believes the debts they leave.
    fn made_patient(&self, algorithm: A) -> A {
        match self.patient {
            Some(patient) if self.patience > Nanos::ZERO => patient(algorithm, self.patience),
            _ => algorithm,
        }
    }

    /// Calls `with` on the algorithm and the state of a key, which is a fresh one if the old has
    /// lasted out.
    fn with<T>(&mut self, key: KeyId, now: Time, with: impl FnOnce(&A, &mut A::State) -> T) -> T {
        if key >= self.states.len() {
            self.states.resize(key + 1, Kept::default()); // callers bound it
        }
        let (algorithm, kept) = (&self.algorithm, &mut self.states[key]);
        if now > kept.until {
            kept.state = A::State::default();
        }
        let done = with(algorithm, &mut kept.state);
        kept.until = algorithm.expires_at(&kept.state, now).max(now) + algorithm.lasts();
        done
    }
}

impl<A: Refund> Keyed<A> {
    fn refunds(self) -> Self {
        Self {
            refund: Some(A::refund),
            ..self
        }
    }
}

impl<A: Reserve> Keyed<A> {
    fn reserves(self) -> Self {
        Self {
            reserve: Some(A::reserve),
            ..self
        }
    }
}

impl Keyed<Gcra> {
    fn patient(self) -> Self {
        Self {
            patient: Some(Gcra::with_patience),
            ..self
        }
    }
}

impl<A: Algorithm + Clone> States for Keyed<A> {
    fn keys(&self) -> usize {
        self.states.len()
    }

    fn decide(&mut self, key: KeyId, now: Time, cost: Permits) -> Decision {
        self.with(key, now, |algorithm, state| {
            algorithm.decide(state, now, cost)
        })
    }

    fn look(&mut self, key: KeyId, now: Time, cost: Permits) -> Decision {
        self.with(key, now, |algorithm, state| {
            algorithm.look(state, now, cost)
        })
    }

    fn reserve(&mut self, key: KeyId, now: Time, cost: Permits, max: Nanos) -> Option<Decision> {
        let reserve = self.reserve?;
        if max > self.patience {
            self.patience = max;
            self.algorithm = self.made_patient(self.algorithm.clone());
        }
        Some(self.with(key, now, |algorithm, state| {
            reserve(algorithm, state, now, cost, max)
        }))
    }

    fn refund(&mut self, key: KeyId, now: Time, cost: Permits) -> Option<()> {
        let refund = self.refund?;
        self.with(key, now, |algorithm, state| {
            refund(algorithm, state, now, cost);
        });
        Some(())
    }

    fn reset(&mut self, key: KeyId) {
        if let Some(kept) = self.states.get_mut(key) {
            *kept = Kept::default();
        }
    }

    fn adopt(&mut self, new: &AnyAlgorithm, now: Time) -> bool {
        let Some(new) = (self.of)(new).filter(|new| new.keeps_state_of(&self.algorithm)) else {
            return false;
        };
        for kept in &mut self.states {
            new.rescale(&mut kept.state, &self.algorithm, now);
        }
        self.algorithm = self.made_patient(new.clone());
        true
    }

    fn counts_refusals(&self) -> bool {
        let (algorithm, mut state) = (&self.algorithm, A::State::default());
        let all = algorithm.capacity();
        let mut refusal_changes = |now| {
            for _ in 0..MOST_FILLS {
                let before = state.clone();
                match algorithm.decide(&mut state, now, all).verdict {
                    Verdict::Deny { .. } => return state != before,
                    Verdict::DenyForever => return true,
                    Verdict::Allow | Verdict::AllowAfter(_) => {}
                }
            }
            true
        };
        // And a moment later: a full log of attempts looks alike until time has passed.
        refusal_changes(Time::ZERO) || refusal_changes(Time::ZERO + Nanos::from_nanos(1))
    }
}

impl<A: Algorithm> std::fmt::Debug for Keyed<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.states).finish()
    }
}

#[cfg(test)]
mod tests {
    use ratekeeper_core::{Denials, Edge, Exponential, Hybrid, Log, SubBuckets, WarmUp, Window};

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
    fn whether_refusals_count_is_found_by_trying() {
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
    fn what_pays_afterwards_is_filled_permit_by_permit() {
        let bursty = WarmUp::bursty(10.0, 1.0).unwrap();
        let one_by_one = bursty.with_largest(Permits::ONE);
        assert!(!Bench::new(one_by_one.into()).counts_refusals());
    }

    #[test]
    fn what_an_algorithm_cannot_do_it_does_not_answer() {
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
    fn a_promise_is_remembered() {
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
        let rows: [(AnyAlgorithm, u32); 3] = [
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
            assert_eq!(bench.algorithm(), &limit);
        }
    }
}
