//! Counter: nanoseconds from the processor's counter, kept true by the machine's clock.
//!
//! Reading the machine's clock takes a fifth of a decision in memory, and delays it further: no
//! instruction may overtake the reading, so each decision waits for the memory of the one before.
//! Reading the processor's counter takes 9 ns, and other instructions may overtake it. But its rate
//! is only known to 1/10,000, and it may jump when a machine sleeps or is migrated.
//!
//! ```text
//!   counted   ------+------+------+---------> ns, by the counter
//!                   |      |      |
//!   offset          o1     o2     o3          the machine's clock - counted, taken anew
//!                                             when 10 ms have been counted
//!   now = counted + offset
//! ```
//!
//! Counting takes two multiplications, and no division or shift by a value that is not a constant,
//! because each step on the path from the counter to the changed word delays the next decision. The
//! processor does the remaining work while it reads the counter.
//!
//! The error is the drift of the counter in 10 ms, a microsecond at most, and as much for a reading
//! that took its time. Racing threads see backward steps of that size anyway, and the laws of
//! algorithms demand that no step back gives permits away.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Counted nanoseconds after which the offset is taken anew.
const FRESH: u64 = 10_000_000;
/// A reading of the machine's clock that took longer was interrupted, and is not used.
const PROMPT: u64 = 1_000;

/// A rate is believed when the readings that it was measured by are as many times apart as they
/// are vague: that long the counter is right to a microsecond in 10 ms.
const PRECISION: u64 = 10_000;
/// Nanoseconds for which a rate is measured before the counter is given up. The machine's clock
/// is read in 20 to 50 ns, so that half a millisecond, or one, will do.
const MEASURED_FOR: u64 = 20_000_000;
/// Readings at the start of a measurement, of which the promptest counts.
const FIRST_READINGS: usize = 8;

/// Nanoseconds of one step of the counter: a whole number, and a part of 2^64.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CounterStep {
    whole: u64,
    part: u64,
}

impl CounterStep {
    /// The step of a counter that takes `steps`, at least one, in `nanos`.
    fn new(nanos: u64, steps: u64) -> Self {
        let rest = u128::from(nanos % steps) << u64::BITS;
        let part = rest / u128::from(steps); // rounded down
        Self {
            whole: nanos / steps,
            part: u64::try_from(part).expect("a rest is less than a step"),
        }
    }

    /// Measures a counter by the machine's clock; spins for about half a millisecond. `None` if the
    /// counter stands still, steps back, or was interrupted all the time.
    pub(crate) fn measure(count: impl Fn() -> u64, ask: impl Fn() -> u64) -> Option<Self> {
        let read = || CounterReading::new(&count, &ask);
        let first = (0..FIRST_READINGS).filter_map(|_| read());
        let first = first.min_by_key(|reading| reading.vague)?;
        loop {
            let last = read()?;
            let steps = last.count.checked_sub(first.count)?;
            let nanos = last.nanos.checked_sub(first.nanos)?;
            if steps / PRECISION >= first.vague.saturating_add(last.vague) {
                return Some(Self::new(nanos, steps));
            }
            if nanos > MEASURED_FOR {
                return None;
            }
        }
    }

    /// Returns the nanoseconds of `steps` steps. They wrap, and go on from 0: only differences
    /// count.
    #[inline]
    pub(crate) fn nanos(self, steps: u64) -> u64 {
        let parts = u128::from(steps) * u128::from(self.part);
        let rest = (parts >> u64::BITS) as u64; // the upper half
        steps.wrapping_mul(self.whole).wrapping_add(rest)
    }
}

/// The counter and the machine's clock, read together.
struct CounterReading {
    count: u64,
    nanos: u64,
    /// Steps of the counter meanwhile, and one more for the step that it was in.
    vague: u64,
}

impl CounterReading {
    fn new(count: impl Fn() -> u64, ask: impl Fn() -> u64) -> Option<Self> {
        let (before, nanos, after) = (count(), ask(), count());
        Some(Self {
            count: before,
            nanos,
            vague: after.checked_sub(before)?.saturating_add(1),
        })
    }
}

/// The offset from counted time to the machine's clock.
#[derive(Debug)]
pub(crate) struct CounterOffset {
    /// The machine's clock minus the counted time.
    offset: AtomicI64,
    /// The counted time when the offset was taken.
    taken_at: AtomicU64,
}

/// A clone takes its own offset.
impl Clone for CounterOffset {
    fn clone(&self) -> Self {
        Self::new(self.taken_at.load(Ordering::Relaxed))
    }
}

impl CounterOffset {
    /// An offset that is not taken yet, and is due at `counted`, the current reading.
    pub(crate) const fn new(counted: u64) -> Self {
        Self {
            offset: AtomicI64::new(0),
            taken_at: AtomicU64::new(counted.wrapping_sub(FRESH)),
        }
    }

    /// Returns the time by the machine's clock, in nanoseconds: when `counted` was read, or now if
    /// the machine's clock has to be read.
    #[inline]
    pub(crate) fn nanos(
        &self,
        counted: u64,
        count: impl Fn() -> u64,
        ask: impl Fn() -> u64,
    ) -> u64 {
        // Acquire: a thread that sees a new moment sees the offset taken at it. A negative age,
        // because the counter was set back, is a very long time.
        let age = counted.wrapping_sub(self.taken_at.load(Ordering::Acquire));
        let nanos = counted.wrapping_add_signed(self.offset.load(Ordering::Relaxed));
        // Before 0: by the last microsecond, or by an offset taken after the counter jumped.
        let negative = nanos.cast_signed() < 0;
        if age >= FRESH || negative {
            return self.take(count, ask);
        }
        nanos
    }

    #[cold]
    fn take(&self, count: impl Fn() -> u64, ask: impl Fn() -> u64) -> u64 {
        let before = count();
        let nanos = ask();
        let after = count();
        if after.wrapping_sub(before) <= PROMPT {
            let offset = nanos.wrapping_sub(after).cast_signed();
            self.offset.store(offset, Ordering::Relaxed);
            self.taken_at.store(after, Ordering::Release); // publishes the offset
        }
        nanos
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// A counter and a clock that move by themselves when read.
    struct Machine {
        counter: Cell<u64>,
        clock: Cell<u64>,
        /// The time that reading the clock takes.
        slow: Cell<u64>,
        offset: CounterOffset,
    }

    impl Machine {
        fn new(counter: u64) -> Self {
            Self {
                counter: Cell::new(counter),
                clock: Cell::new(0),
                slow: Cell::new(20),
                offset: CounterOffset::new(counter),
            }
        }

        /// Lets time pass; the counter counts `counted` of it.
        fn pass(&self, nanos: u64, counted: u64) {
            self.clock.set(self.clock.get() + nanos);
            self.counter.set(self.counter.get() + counted);
        }

        /// Returns the error of the answer.
        fn error(&self) -> u64 {
            let ask = || {
                self.pass(self.slow.get(), self.slow.get());
                self.clock.get()
            };
            let count = || self.counter.get();
            let nanos = self.offset.nanos(self.counter.get(), count, ask);
            nanos.abs_diff(self.clock.get())
        }
    }

    #[test]
    fn a_counter_with_a_wrong_rate_returns_the_right_time() {
        for (nanos, counted) in [
            (100_000, 100_010),
            (100_000, 99_990),
            (30_000_000, 30_003_000),
        ] {
            let machine = Machine::new(7);
            for _ in 0..10_000 {
                machine.pass(nanos, counted);
                assert!(machine.error() <= 1_010, "{nanos} ns counted as {counted}");
            }
        }
    }

    #[test]
    fn a_jump_of_the_counter_is_detected() {
        const HOUR: u64 = 3_600_000_000_000;
        let machine = Machine::new(2 * HOUR);
        assert_eq!(machine.error(), 0);
        machine.pass(1_000, 1_000);
        assert_eq!(machine.error(), 0);
        machine.counter.set(5 * HOUR);
        assert_eq!(machine.error(), 0, "the counter jumped ahead");
        machine.counter.set(3);
        assert_eq!(machine.error(), 0, "the counter jumped back to its start");
        machine.pass(1_000, 1_000);
        assert_eq!(machine.error(), 0);
    }

    #[test]
    fn no_moment_is_before_zero() {
        let machine = Machine::new(7);
        assert_eq!(machine.error(), 0);
        // An offset taken by another thread after a jump, seen by one that counted before it.
        machine.offset.offset.store(-1_000_000, Ordering::Relaxed);
        machine.pass(1_000, 1_000);
        assert_eq!(machine.error(), 0);
    }

    #[test]
    fn a_counter_may_start_anywhere_and_wrap_around() {
        for first in [0, u64::MAX / 2, u64::MAX - 5_000] {
            let machine = Machine::new(first);
            for _ in 0..100 {
                machine.counter.set(machine.counter.get().wrapping_add(100));
                machine.clock.set(machine.clock.get() + 100);
                assert_eq!(machine.error(), 0, "from {first}");
            }
        }
    }

    #[test]
    fn a_copy_takes_its_own_offset() {
        let machine = Machine::new(1_000);
        assert_eq!(machine.error(), 0);
        let copy = machine.offset.clone().clone();
        let counted = machine.counter.get();
        assert_eq!(copy.nanos(counted, || counted, || 7), 7);
    }

    #[test]
    fn steps_of_any_length_are_counted() {
        // Nanoseconds per step, as a fraction.
        for (nanos, steps) in [(1, 1), (10, 26), (125, 3), (1_000, 24), (1, 5), (1_000, 1)] {
            let step = CounterStep::new(nanos, steps);
            for count in [0, 1, 26, 2_600_000_000, 1 << 50] {
                let exact = u128::from(count) * u128::from(nanos) / u128::from(steps);
                let off = exact - u128::from(step.nanos(count)); // the part is rounded down
                assert!(off <= 1, "{count} of {nanos}/{steps}");
            }
        }
    }

    /// Measures a counter that takes `steps` in `nanos`, which the clock tells in `slow(reading)`.
    fn measured((nanos, steps): (u64, u64), slow: impl Fn(u32) -> u64) -> Option<CounterStep> {
        let (clock, readings) = (Cell::new(0), Cell::new(0));
        let ask = || {
            let took = slow(readings.replace(readings.get() + 1));
            clock.set(clock.get() + took);
            clock.replace(clock.get() + 5)
        };
        CounterStep::measure(|| 7_000 + clock.get() * steps / nanos, ask)
    }

    #[test]
    fn a_rate_is_measured_to_a_ten_thousandth() {
        let interrupted = |reading| if reading % 3 == 0 { 50_000 } else { 20 };
        for rate in [(1, 1), (10, 26), (1_000, 24)] {
            for step in [measured(rate, |_| 20), measured(rate, interrupted)] {
                let second = 1_000_000_000;
                let counted = step.unwrap().nanos(second * rate.1 / rate.0);
                assert!(counted.abs_diff(second) <= second / PRECISION, "{rate:?}");
            }
        }
    }

    #[test]
    fn a_counter_that_cannot_be_measured_is_given_up() {
        assert!(measured((1, 0), |_| 20).is_none(), "it stands still");
        assert!(measured((1, 1), |_| 50_000).is_none(), "always interrupted");
        let back = Cell::new(u64::MAX);
        let count = || back.replace(back.get() - 1);
        assert!(CounterStep::measure(count, || 0).is_none(), "it steps back");
    }

    #[test]
    fn an_interrupted_reading_sets_no_offset() {
        let machine = Machine::new(0);
        machine.slow.set(PROMPT + 1);
        assert_eq!(machine.error(), 0);
        assert_eq!(
            machine.offset.offset.load(Ordering::Relaxed),
            0,
            "the offset is not set"
        );
        machine.slow.set(PROMPT);
        assert_eq!(machine.error(), 0);
        let before = machine.clock.get();
        machine.pass(5, 5);
        assert_eq!(machine.error(), 0);
        assert_eq!(
            machine.clock.get(),
            before + 5,
            "the clock is not read again"
        );
    }
}
