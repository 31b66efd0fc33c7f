//! Cell: one limit and one key, one word, no lock.
//!
//! ```text
//!        load ----> decide on a copy ----> changed? --no--> return (a plain load, no write)
//!          ^                                  |
//!          |                                 yes
//!          +------ lost the race ---- compare-exchange ----> return
//! ```
//!
//! A denial writes nothing, so any number of threads can be denied at once, each from its own
//! copy of the cache line. An allowed request moves the line to the core that runs it, and never
//! overwrites a charge it has not seen: a thread that loses the race decides again.
//!
//! The modifications of one location have one total order, and a compare-exchange reads the
//! newest of it, so every charge is decided on the state that the charge before it left. A change
//! releases what its thread did before, and acquires what those before it released: a limiter that
//! looks after a charge sees a change of its numbers which that charge has followed.
//!
//! Each cell fills a cache line of its own (two, for processors that fetch lines in pairs):
//! neighbours in an array do not slow each other down.

use core::fmt;
use core::marker::PhantomData;
#[cfg(not(loom))]
use core::sync::atomic::{AtomicU64, Ordering};

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};

use crate::{Algorithm, Decision, Permits, Receipt, Refund, Time, WordState};

/// The state of one limit and one key, shared by threads.
///
/// Callers pass the algorithm, so that a change of its parameters needs no change here, and the
/// time, by any clock that they have. It needs no standard library, only 64-bit atomics.
///
/// ```
/// use ratekeeper_core::{Cell, Gcra, Nanos, Permits, Quota, Time};
///
/// static PULSES: Cell<Gcra> = Cell::new();
///
/// let limit = Gcra::token_bucket(Quota::per_second(2))?;
/// let at = |millis| Time::ZERO + Nanos::from_millis(millis); // of a timer of the machine
/// let ask = |millis| PULSES.decide(&limit, at(millis), Permits::ONE).verdict.allows();
/// assert_eq!([ask(0), ask(0), ask(0), ask(500)], [true, true, false, true]);
/// # Ok::<(), ratekeeper_core::Error>(())
/// ```
#[repr(align(128))]
pub struct Cell<A> {
    word: AtomicU64,
    algorithm: PhantomData<fn(&A)>,
}

impl<A> Cell<A> {
    /// A cell that has never been charged.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self {
            word: AtomicU64::new(0), // `WordState`: the default is 0
            algorithm: PhantomData,
        }
    }

    /// A cell that has never been charged.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self {
            word: AtomicU64::new(0),
            algorithm: PhantomData,
        }
    }

    /// Forgets all charges; returns true if there were any.
    pub fn reset(&self) -> bool {
        self.word.swap(0, Ordering::AcqRel) != 0
    }
}

impl<A: Algorithm<State: WordState>> Cell<A> {
    /// Decides and charges.
    #[inline]
    pub fn decide(&self, algorithm: &A, now: Time, cost: Permits) -> Decision {
        self.update(|state| algorithm.decide(state, now, cost))
    }

    /// Returns the decision that [`decide`](Self::decide) would make; charges nothing.
    #[inline]
    pub fn look(&self, algorithm: &A, now: Time, cost: Permits) -> Decision {
        algorithm.look(&self.state(), now, cost)
    }

    /// Gives back a cost that was charged and not used.
    pub fn give_back(&self, algorithm: &A, now: Time, cost: Permits, receipt: Receipt)
    where
        A: Refund,
    {
        self.update(|state| algorithm.give_back(state, now, cost, receipt));
    }

    /// Returns the current state.
    #[inline]
    pub fn state(&self) -> A::State {
        A::State::from_word(self.word.load(Ordering::Relaxed))
    }

    /// Replaces `old` by `new`; returns false if `old` is not the state any more.
    #[inline]
    pub fn replace(&self, old: &A::State, new: &A::State) -> bool {
        let (old, new) = (old.to_word(), new.to_word());
        old == new
            || self
                .word
                .compare_exchange(old, new, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    }

    /// Applies `transition` to the state atomically: it runs once more for each race that it
    /// loses.
    #[expect(
        clippy::inline_always,
        reason = "a function call costs as much as the decision: 5 ns"
    )]
    #[inline(always)]
    pub fn update<T>(&self, transition: impl Fn(&mut A::State) -> T) -> T {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let mut state = A::State::from_word(word);
            let answer = transition(&mut state);
            let next = state.to_word();
            if next == word {
                return answer;
            }
            // Weak: a spurious failure costs one more turn of the loop.
            let swapped =
                self.word
                    .compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Relaxed);
            match swapped {
                Ok(_) => return answer,
                Err(newest) => word = newest,
            }
        }
    }
}

impl<A> Default for Cell<A> {
    fn default() -> Self {
        Self::new()
    }
}

impl<A> fmt::Debug for Cell<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cell")
            .field(&self.word.load(Ordering::Relaxed))
            .finish()
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;
    use crate::{Gcra, Nanos, Verdict};

    fn bucket(quota: &str) -> Gcra {
        Gcra::token_bucket(quota.parse().unwrap()).unwrap()
    }

    #[test]
    fn burst_then_pace_then_reset() {
        let (gcra, cell, now) = (bucket("3/3s"), Cell::new(), Time::ZERO);
        assert!(!cell.reset());
        let charges = [2, 1, 0].map(|left| {
            let decision = cell.decide(&gcra, now, Permits::ONE);
            assert_eq!(decision.remaining.get(), left);
            decision
        });
        let denied = Verdict::Deny {
            retry_after: Nanos::SECOND,
        };
        assert_eq!(cell.decide(&gcra, now, Permits::ONE).verdict, denied);
        assert_eq!(cell.look(&gcra, now, Permits::ONE).verdict, denied);
        cell.give_back(&gcra, now, Permits::ONE, Receipt::of(&charges[2], now));
        assert_eq!(cell.look(&gcra, now, Permits::ONE).verdict, Verdict::Allow);
        assert!(cell.reset());
        assert_eq!(cell.look(&gcra, now, Permits::ZERO).remaining.get(), 3);
    }

    #[test]
    fn cells_do_not_share_a_cache_line() {
        assert_eq!(align_of::<Cell<Gcra>>(), 128);
        assert_eq!(size_of::<Cell<Gcra>>(), 128);
    }

    #[test]
    fn threads_admit_exactly_the_burst() {
        const THREADS: u64 = 8;
        let gcra = bucket("1000/1s");
        for cost in [1, 3] {
            let cell = Cell::new();
            let admitted: u64 = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..THREADS)
                    .map(|_| {
                        scope.spawn(|| {
                            let decide = |_: &u64| {
                                cell.decide(&gcra, Time::ZERO, Permits::new(cost))
                                    .verdict
                                    .allows()
                            };
                            u64::try_from((0..1000).filter(decide).count()).unwrap()
                        })
                    })
                    .collect();
                threads.into_iter().map(|t| t.join().unwrap()).sum()
            });
            assert_eq!(admitted, 1000 / cost);
        }
    }
}

/// Every schedule of two and three threads; `RUSTFLAGS="--cfg loom" cargo test -p
/// ratekeeper-core --lib schedules`.
#[cfg(loom)]
#[cfg(test)]
mod schedules {
    use std::format;
    use std::vec::Vec;

    use loom::sync::Arc;
    use loom::thread;

    use super::*;
    use crate::Gcra;

    fn bucket(quota: &str) -> Gcra {
        Gcra::token_bucket(quota.parse().unwrap()).unwrap()
    }

    /// `threads` threads, each asking for `each` permits one by one: exactly as many pass
    /// as the burst holds.
    fn admits_exactly(burst: u64, threads: u64, each: u64) {
        loom::model(move || {
            let gcra = bucket(&format!("{burst}/1s"));
            let cell = Arc::new(Cell::new());
            let ask = move |cell: &Cell<Gcra>| {
                let mut allowed = 0;
                for _ in 0..each {
                    let decision = cell.decide(&gcra, Time::ZERO, Permits::ONE);
                    allowed += u64::from(decision.verdict.allows());
                }
                allowed
            };
            let others: Vec<_> = (1..threads)
                .map(|_| {
                    let cell = Arc::clone(&cell);
                    thread::spawn(move || ask(&cell))
                })
                .collect();
            let mut admitted = ask(&cell);
            for other in others {
                admitted += other.join().unwrap();
            }
            assert_eq!(admitted, burst.min(threads * each));
        });
    }

    #[test]
    fn two_threads_admit_exactly_the_bound() {
        admits_exactly(3, 2, 2);
    }

    #[test]
    fn three_threads_admit_exactly_the_bound() {
        admits_exactly(2, 3, 1);
    }

    /// One thread refunds its charge while another asks: never more than the burst at a time, and
    /// nothing is lost.
    #[test]
    fn refunds_neither_lose_nor_make_permits() {
        loom::model(|| {
            let gcra = bucket("1/1s");
            let cell = Arc::new(Cell::new());
            let first = cell.decide(&gcra, Time::ZERO, Permits::ONE);
            assert!(first.verdict.allows());
            let other = {
                let cell = Arc::clone(&cell);
                let receipt = Receipt::of(&first, Time::ZERO);
                thread::spawn(move || cell.give_back(&gcra, Time::ZERO, Permits::ONE, receipt))
            };
            let decision = cell.decide(&gcra, Time::ZERO, Permits::ONE);
            other.join().unwrap();
            let left = cell.look(&gcra, Time::ZERO, Permits::ZERO).remaining.get();
            assert_eq!(left, u64::from(!decision.verdict.allows()));
        });
    }

    /// A reset is not undone by a charge that started before it.
    #[test]
    fn resets_are_not_undone() {
        loom::model(|| {
            let gcra = bucket("2/1s");
            let cell = Arc::new(Cell::new());
            let _ = cell.decide(&gcra, Time::ZERO, Permits::ONE);
            let other = {
                let cell = Arc::clone(&cell);
                thread::spawn(move || cell.decide(&gcra, Time::ZERO, Permits::ONE))
            };
            assert!(cell.reset());
            let _ = other.join().unwrap();
            let left = cell.look(&gcra, Time::ZERO, Permits::ZERO).remaining.get();
            assert!(
                (1..=2).contains(&left),
                "at most the charge made after the reset remains"
            );
        });
    }
    /// Numbers are changed: first noted, then the state is converted, here to the same word again. A
    /// charge by the old numbers that follows sees the note.
    #[test]
    fn a_charge_behind_a_change_sees_its_note() {
        loom::model(|| {
            let gcra = bucket("3/1s");
            let (cell, noted) = (Arc::new(Cell::<Gcra>::new()), Arc::new(AtomicU64::new(0)));
            let state = |word| <Gcra as Algorithm>::State::from_word(word);
            let other = {
                let (cell, noted) = (Arc::clone(&cell), Arc::clone(&noted));
                thread::spawn(move || {
                    noted.store(1, Ordering::Release);
                    let first = cell.update(|it| core::mem::replace(it, state(7)));
                    cell.update(|it| *it = if *it == state(7) { state(0) } else { *it });
                    first != state(0) // the charge came first
                })
            };
            let old = cell.state();
            let mut new = old;
            let _ = gcra.decide(&mut new, Time::ZERO, Permits::ONE);
            let is_charged = old == state(0) && cell.replace(&old, &new);
            let is_noted = noted.load(Ordering::Acquire) == 1;
            let was_first = other.join().unwrap();
            assert!(!is_charged || is_noted || was_first);
        });
    }
}
