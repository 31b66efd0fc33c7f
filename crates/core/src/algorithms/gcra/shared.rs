//! GCRA in a shared store: a moment as one decimal number, and the numbers of the twin.
//!
//! ```text
//!   48361057204417 39104          TAT, 19 digits: Redis keeps it in the entry itself
//!   |              |
//!   |              ticks of 1/64 ns, below 64,000
//!   microseconds since 1970, modulo TURN (2.9 years): 19 digits hold no more
//! ```
//!
//! A number of this kind has no horizon: a key is gone once its TAT has passed, so its value
//! is read as the moment nearest to now of all that it may mean. No debt is deeper than
//! twice 1.1 years and 10 s; what lies up to `PAST` behind now is a TAT that has passed.
//!
//! GCRA works with debts only, so states are read on a clock that always shows `PAST`.
//!
//! TATs only move forward, but where something is given back, a key is reset, or a debt is cut.
//! Such a value has a minus sign, keeps it, and stays for the deepest debt there can be: so
//! whoever remembers a later TAT than an unsigned value, or none, knows that the store has lost
//! it, and may teach it anew.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use super::{CLOCK_SLACK_TICKS, Gcra, Tat};
use crate::algorithm::{Denials, Word};
use crate::shared::{Shared, Twin, UnixMicros, double};
use crate::{Nanos, Permits, Time};

/// Ticks of 1/64 ns in a microsecond.
const TICKS: u64 = 64_000;
/// Digits of a number of ticks.
const TICK_DIGITS: usize = 5;
/// Microseconds after which values repeat: `TURN x 100,000` stays below 2^63.
const TURN: u64 = 92_000_000_000_000;
/// How far behind now a value may lie, 116 days.
const PAST: u64 = 10_000_000_000_000;

/// A number of ticks as the twin reads it.
fn micros_and_ticks(ticks: u64) -> [f64; 2] {
    [double(ticks / TICKS), double(ticks % TICKS)]
}

/// Begins the value of a TAT that has been moved back.
const LOWERED: u8 = b'-';

/// When a debt is paid, on the clock of a shared store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Paid {
    micros: u64,
    ticks: u32,
}

impl Paid {
    /// The moment, rounded down to microseconds since 1970.
    pub const fn micros(self) -> UnixMicros {
        UnixMicros::new(self.micros)
    }

    /// The bytes of a state that is paid then.
    pub fn value(self) -> Vec<u8> {
        format!("{}{:05}", self.micros % TURN, self.ticks).into_bytes()
    }

    /// The bytes of such a state, moved back.
    pub fn lowered(self) -> Vec<u8> {
        let mut bytes = vec![LOWERED];
        bytes.extend(self.value());
        bytes
    }

    /// That nothing is owed at this moment.
    pub const fn at(now: UnixMicros) -> Self {
        Self {
            micros: now.get(),
            ticks: 0,
        }
    }
}

/// Debts below it are exact as one double.
const EXACT: u64 = 1 << 53;

impl Gcra {
    /// What a denial costs.
    pub const fn denials(&self) -> Denials {
        self.denials
    }

    /// The span in which the burst and the queue are granted anew. Intervals are rounded up
    /// by a tick at most, so the span is the roundest that such intervals can stand for.
    pub(crate) fn window(&self) -> Nanos {
        let ticks = self.burst.saturating_add(self.queue);
        let rounding = ticks / self.interval; // a tick for each permit
        let round = [1_000_000_000, 1_000_000, 1_000, 1].map(|nanos: u64| nanos << 6);
        let found = round
            .into_iter()
            .find(|unit| ticks >= *unit && ticks % unit <= rounding);
        match found {
            Some(unit) => Nanos::from_nanos((ticks - ticks % unit) >> 6),
            None => Nanos::from_nanos(ticks.div_ceil(1 << 6)), // up: never told too fast
        }
    }

    /// When the debt of a state is paid, whose clock shows `now`; none if nothing is owed.
    pub fn paid(&self, tat: &Tat, now: UnixMicros) -> Option<Paid> {
        let ahead = tat.to_word().checked_sub(PAST * TICKS)?;
        (ahead > 0).then(|| Paid {
            micros: now.get() + ahead / TICKS,
            ticks: (ahead % TICKS) as u32,
        })
    }

    /// The state of a debt that is paid then; none that has been paid.
    pub fn owing(&self, paid: Paid, now: UnixMicros) -> Option<Tat> {
        let ahead = paid.micros.checked_sub(now.get())?;
        let ticks = (PAST + ahead).checked_mul(TICKS)? + u64::from(paid.ticks);
        (ticks > PAST * TICKS).then(|| Tat::from_word(ticks))
    }

    /// Whether these bytes are of a TAT that has been moved back.
    pub fn is_lowered(bytes: &[u8]) -> bool {
        bytes.first() == Some(&LOWERED)
    }

    /// Microseconds that a state which has been moved back must stay, rounded up: nobody who
    /// shares this limit remembers a deeper debt.
    pub const fn lowered_stays(&self) -> u64 {
        (self.deepest - CLOCK_SLACK_TICKS).div_ceil(TICKS)
    }

    /// A twin that is a whole script, and cheaper, for requests of one charge each: see
    /// `gcra/short.lua`. None for limits whose debts may reach 39 hours.
    pub fn short_twin(&self) -> Option<Twin> {
        let full = self.deepest - CLOCK_SLACK_TICKS;
        let limit = self.burst + self.queue;
        let is_counted = self.denials == Denials::Counted;
        // Denials that are counted go up to twice the limit.
        if self.deepest >= EXACT || is_counted && 2 * limit >= EXACT {
            return None;
        }
        let counted = f64::from(u8::from(is_counted));
        Some(Twin {
            source: include_str!("short.lua"),
            numbers: vec![double(limit), double(full), counted],
        })
    }

    /// A cost as the short twin reads it. One of twice the limit is as good as any higher, and
    /// so is one above the deepest debt where denials are free.
    pub fn short_price(&self, cost: Permits) -> f64 {
        let ticks = self.interval.get().saturating_mul(u64::from(cost.get()));
        double(ticks.min(2 * (self.burst + self.queue)).min(EXACT - 1))
    }
}

impl Shared for Gcra {
    const TAG: u8 = b'g';

    fn frame(_now: UnixMicros) -> Time {
        UnixMicros::new(PAST).time()
    }

    fn read(&self, bytes: &[u8], now: UnixMicros) -> Option<Tat> {
        let bytes = bytes.strip_prefix(&[LOWERED]).unwrap_or(bytes);
        let (micros, ticks) = bytes.split_at_checked(bytes.len().checked_sub(TICK_DIGITS)?)?;
        let (micros, ticks) = (digits(micros)?, digits(ticks)?);
        if micros >= TURN || ticks >= TICKS {
            return None;
        }
        let ahead = (micros + TURN - now.get() % TURN + PAST) % TURN;
        Some(Tat::from_word(ahead * TICKS + ticks))
    }

    fn write(&self, tat: &Tat, now: UnixMicros, out: &mut Vec<u8>) {
        let ahead = tat.to_word();
        if ahead > 0 {
            let micros = (now.get() % TURN + ahead / TICKS + (TURN - PAST)) % TURN;
            out.extend_from_slice(format!("{micros}{:05}", ahead % TICKS).as_bytes());
        }
    }

    /// A debt is time, whatever the rate.
    fn shape(&self) -> u64 {
        0
    }

    fn twin(&self) -> Option<Twin> {
        let limit = micros_and_ticks(self.burst + self.queue);
        let deepest = micros_and_ticks(self.deepest);
        let full = micros_and_ticks(self.deepest - CLOCK_SLACK_TICKS);
        let counted = f64::from(u8::from(self.denials == Denials::Counted));
        let mut numbers = vec![counted];
        numbers.extend([limit, deepest, full].as_flattened());
        Some(Twin {
            source: include_str!("../gcra.lua"),
            numbers,
        })
    }

    fn price(&self, cost: Permits) -> [f64; 4] {
        let ticks = self.interval.get().saturating_mul(u64::from(cost.get()));
        let [micros, ticks] = micros_and_ticks(ticks);
        [micros, ticks, 0.0, 0.0]
    }
}

/// A decimal number of at most 18 digits.
fn digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 18 || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = |sum, digit: &u8| sum * 10 + u64::from(digit - b'0');
    Some(text.iter().fold(0, number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws::Random;
    use alloc::string::String;

    fn gcra() -> Gcra {
        Gcra::token_bucket("3/1s".parse().unwrap()).unwrap()
    }

    #[test]
    fn moments_come_back_to_the_tick_whenever_they_are_read() {
        let mut random = Random::new(5);
        for _ in 0..100_000 {
            let now = random.below(1 << 52);
            let bits = 1 + random.below(62);
            let ahead = 1 + random.below(1 << bits);
            let mut text = Vec::new();
            gcra().write(&Tat(ahead), UnixMicros::new(now), &mut text);
            let read = |at| gcra().read(&text, UnixMicros::new(at)).unwrap().0;
            assert_eq!(read(now), ahead);
            let later = random.below(ahead / TICKS + 1);
            assert_eq!(read(now + later), ahead - later * TICKS);
            let earlier = random.below(PAST.min(now + 1));
            assert_eq!(read(now - earlier), ahead + earlier * TICKS);
        }
    }

    #[test]
    fn moments_at_which_debts_are_paid_are_exact() {
        let mut random = Random::new(6);
        for _ in 0..100_000 {
            let now = UnixMicros::new(random.below(1 << 52));
            let bits = 1 + random.below(59);
            let tat = Tat(PAST * TICKS + 1 + random.below(1 << bits));
            let paid = gcra().paid(&tat, now).unwrap();
            assert_eq!(gcra().owing(paid, now), Some(tat));
            for bytes in [paid.value(), paid.lowered()] {
                assert_eq!(gcra().read(&bytes, now), Some(tat));
                let number: i64 = String::from_utf8(bytes).unwrap().parse().unwrap();
                assert_ne!(number, 0, "Redis keeps it in place");
            }
            assert!(Gcra::is_lowered(&paid.lowered()) && !Gcra::is_lowered(&paid.value()));
        }
        let now = UnixMicros::new(7);
        assert_eq!(gcra().paid(&Tat(PAST * TICKS), now), None);
        assert_eq!(gcra().owing(Paid::at(now), now), None);
    }

    #[test]
    fn a_value_is_a_number_that_redis_keeps_in_place() {
        for now in [TURN - 1, TURN * 19 + 12, 1_763_712_345_678_901] {
            let mut text = Vec::new();
            let tat = Tat(PAST * TICKS + 63_999);
            gcra().write(&tat, UnixMicros::new(now), &mut text);
            let number: i64 = String::from_utf8(text).unwrap().parse().unwrap();
            assert_eq!(number.unsigned_abs(), now % TURN * 100_000 + 63_999);
        }
    }

    #[test]
    fn garbage_is_refused() {
        for text in [
            "", "-", "1", "12345", "-12345", "--100000", "x00000", "164000", " 100000", "1e500000",
        ] {
            assert_eq!(
                gcra().read(text.as_bytes(), UnixMicros::new(0)),
                None,
                "{text}"
            );
        }
        let beyond = format!("{TURN}00000");
        assert_eq!(gcra().read(beyond.as_bytes(), UnixMicros::new(0)), None);
        assert_eq!(gcra().read(&[b'1'; 40], UnixMicros::new(0)), None);
    }
}
