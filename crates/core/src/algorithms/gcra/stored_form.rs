//! GCRA in a shared store: a moment as one decimal number, and the numbers of the twin.
//!
//! ```text
//!   48361057204417 39104 /1/600000000/100          TAT, and the numbers of its writer
//!   |              |      |           |
//!   |              |      |           burst, and after another `/` the queue if there is one
//!   |              |      rate: permits in nanoseconds, in lowest terms
//!   |              ticks of 1/64 ns, below 64,000
//!   microseconds since 1970, modulo TURN_MICROS (2.9 years)
//! ```
//!
//! A limit of other numbers reads the same usage in permits: see `reconfigure.rs`. Twins read values
//! of their own numbers only; others are read here.
//!
//! A key is gone once its TAT has passed, so of all moments that its value may mean, the nearest
//! to now is read. No debt is deeper than twice 1.1 years and 10 s; a moment up to `PAST_MICROS`
//! behind now is a TAT that has passed.
//!
//! Twins count debts in the units of the limit's grid, as the core does: whole microseconds, and
//! units below the number that a microsecond holds. A limit with no such number for its grid, of
//! more than 64,000 permits in its span in lowest terms, has no twin.
//!
//! TATs only move forward, except on a refund, when a key is reset, or when a debt is cut. Such a
//! value has a minus sign, keeps it, and stays for the deepest possible debt. So a process that
//! remembers a later TAT than an unsigned value, or than no value, knows that the store has lost
//! it, and may write it again.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use super::grid::{TICKS_PER_MICRO as TICKS, Units as _};
use super::{CLOCK_SLACK_TICKS, FARTHEST_TICKS, Gcra, Tat};
use crate::algorithm::{Algorithm as _, Denials};
use crate::stored_form::{LuaTwin, StoredForm, UnixMicros, double};
use crate::{Nanos, Permits, Quota};

/// Digits of a number of ticks.
const TICK_DIGITS: usize = 5;
/// Values repeat after as many microseconds: `TURN_MICROS x 100,000` stays below 2^63.
const TURN_MICROS: u64 = 92_000_000_000_000;
/// Maximum distance of a value behind now, 116 days.
const PAST_MICROS: u64 = 10_000_000_000_000;
/// Maximum excess of a debt before it is cut.
const SLACK_MICROS: u64 = CLOCK_SLACK_TICKS / TICKS;
/// Debts below this number of units are exact as one double.
const EXACT: u64 = 1 << 53;
/// The first byte of the value of a TAT that has been moved back.
const LOWERED: u8 = b'-';

/// The moment at which a debt is paid, on the clock of a shared store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Paid {
    micros: u64,
    ticks: u32,
}

impl Paid {
    /// Returns the moment, rounded down to microseconds since 1970.
    pub const fn micros(self) -> UnixMicros {
        UnixMicros::new(self.micros)
    }
}

impl Gcra {
    /// Returns the bytes of a state that is paid at `paid`.
    pub fn value(&self, paid: Paid) -> Vec<u8> {
        let mut bytes = format!("{}{:05}", paid.micros % TURN_MICROS, paid.ticks).into_bytes();
        bytes.extend(self.name());
        bytes
    }

    /// Returns the bytes of such a state that has been moved back.
    pub fn lowered_value(&self, paid: Paid) -> Vec<u8> {
        let mut bytes = vec![LOWERED];
        bytes.extend(self.value(paid));
        bytes
    }

    /// Returns true if these are the bytes of a state under the same numbers.
    pub fn wrote(&self, bytes: &[u8]) -> bool {
        bytes.ends_with(&self.name())
    }

    /// Returns the end of its values: its numbers.
    fn name(&self) -> Vec<u8> {
        let (permits, nanos) = self.grid.rate(self.interval.get());
        let burst = self.permits_in(self.burst).get();
        match self.permits_in(self.queue).get() {
            0 => format!("/{permits}/{nanos}/{burst}"),
            queue => format!("/{permits}/{nanos}/{burst}/{queue}"),
        }
        .into_bytes()
    }

    /// Returns a limit with the numbers of a name, without its first `/`.
    fn named(name: &[u8]) -> Option<Self> {
        let mut numbers = name.split(|&byte| byte == b'/').map(decimal);
        let mut next = || numbers.next().flatten();
        let quota = Quota::new(Permits::new(next()?), Nanos::from_nanos(next()?)).ok()?;
        let quota = quota.with_burst(Permits::new(next()?)).ok()?;
        Self::new(quota, Permits::new(next().unwrap_or(0))).ok()
    }

    /// Returns the moment at which the debt of a state is paid; `None` if nothing is owed.
    pub fn paid(&self, tat: &Tat, now: UnixMicros) -> Option<Paid> {
        let ahead = tat.ahead(self.grid.at(now.time()));
        (ahead > 0).then(|| Paid {
            micros: now.get() + ahead / TICKS,
            ticks: (ahead % TICKS) as u32,
        })
    }

    /// Returns the last moment at which a debt can have been paid, if nothing is owed at `now`: the
    /// beginning of the unit that contains `now`.
    pub fn paid_by(&self, now: UnixMicros) -> Paid {
        let moment = self.grid.at(now.time());
        let past = moment
            .ticks
            .wrapping_sub(self.grid.unit_start(moment).ticks);
        let micros = past.div_ceil(TICKS); // up: the rest is in ticks
        Paid {
            micros: now.get() - micros,
            ticks: ((micros * TICKS - past) % TICKS) as u32,
        }
    }

    /// Returns the state of a debt that is paid at `paid`; `None` if that has passed.
    pub fn owing(&self, paid: Paid, now: UnixMicros) -> Option<Tat> {
        let ahead = paid.micros.checked_sub(now.get())?;
        let ahead = ahead.checked_mul(TICKS)?.checked_add(paid.ticks.into())?;
        let tat = || Tat::after(self.grid.at(now.time()), ahead);
        (0 < ahead && ahead <= FARTHEST_TICKS).then(tat)
    }

    /// Returns true if these are the bytes of a TAT that has been moved back.
    pub fn is_lowered(bytes: &[u8]) -> bool {
        bytes.first() == Some(&LOWERED)
    }

    /// Returns the microseconds that a state must stay after it has been moved back, rounded up: no
    /// process that shares this limit remembers a deeper debt.
    pub const fn lowered_stays(&self) -> u64 {
        (self.deepest - CLOCK_SLACK_TICKS).div_ceil(TICKS)
    }

    /// Returns a twin that is a whole script, and cheaper, for requests of one charge each: see
    /// `gcra/short.lua`. `None` for limits without a twin, and for debts that may reach 2^53
    /// units: 39 hours at 64,000 in a microsecond, 34 days at 3,000 (3 permits a second).
    pub fn short_twin(&self) -> Option<LuaTwin> {
        let per_micro = self.grid.units_per_micro()?;
        let full = self.deepest_debt();
        let limit = self.burst + self.queue;
        let is_counted = self.denials == Denials::Counted;
        // Denials that are counted go up to twice the limit.
        if full + SLACK_MICROS * per_micro >= EXACT || is_counted && 2 * limit >= EXACT {
            return None;
        }
        let counted = f64::from(u8::from(is_counted));
        Some(LuaTwin {
            name: self.name(),
            source: include_str!("short.lua"),
            numbers: vec![double(limit), double(full), counted, double(per_micro)],
        })
    }

    /// Returns a cost as the short twin reads it. A cost of twice the limit acts like any higher
    /// one, and so does one above the deepest debt where denials are free.
    pub fn short_price(&self, cost: Permits) -> f64 {
        double(
            self.price_of(cost)
                .min(2 * (self.burst + self.queue))
                .min(EXACT - 1),
        )
    }
}

/// Returns units as the twin reads them: whole microseconds, and units below a microsecond.
fn micros_and_units(units: u64, per_micro: u64) -> [f64; 2] {
    [double(units / per_micro), double(units % per_micro)]
}

impl StoredForm for Gcra {
    const TAG: u8 = b'g';

    fn read(&self, bytes: &[u8], now: UnixMicros) -> Option<Tat> {
        let bytes = bytes.strip_prefix(&[LOWERED]).unwrap_or(bytes);
        let (bytes, name) = bytes.split_at(bytes.iter().position(|&byte| byte == b'/')?);
        let (micros, ticks) = bytes.split_at_checked(bytes.len().checked_sub(TICK_DIGITS)?)?;
        let (micros, ticks) = (decimal(micros)?, decimal(ticks)?);
        if micros >= TURN_MICROS || ticks >= TICKS {
            return None;
        }
        let from_past =
            (micros + TURN_MICROS - now.get() % TURN_MICROS + PAST_MICROS) % TURN_MICROS;
        // Modulo 2^64, as moments are: PAST_MICROS lies behind now.
        let ahead = from_past.wrapping_sub(PAST_MICROS).wrapping_mul(TICKS);
        let moment = self.grid.at(now.time());
        let mut tat = Tat::after(moment, ahead.wrapping_add(ticks));
        if name != self.name() {
            self.rescale(&mut tat, &Self::named(&name[1..])?, now.time(), Nanos::ZERO);
        }
        Some(tat)
    }

    fn write(&self, tat: &Tat, now: UnixMicros, out: &mut Vec<u8>) {
        let ahead = tat.0.wrapping_sub(self.grid.at(now.time()).ticks);
        let from_past = ahead.wrapping_add(PAST_MICROS * TICKS);
        if *tat != Tat::default() && from_past < TURN_MICROS * TICKS {
            let past_micros = now.get() % TURN_MICROS + (TURN_MICROS - PAST_MICROS);
            let paid = Paid {
                micros: past_micros + from_past / TICKS,
                ticks: (from_past % TICKS) as u32,
            };
            out.extend(self.value(paid));
        }
    }

    /// 0, because a value has the numbers of its writer.
    fn shape(&self) -> u64 {
        0
    }

    fn twin(&self) -> Option<LuaTwin> {
        let per_micro = self.grid.units_per_micro()?;
        let full = self.deepest_debt();
        let debts = [
            self.burst + self.queue,
            full + SLACK_MICROS * per_micro,
            full,
        ];
        let counted = f64::from(u8::from(self.denials == Denials::Counted));
        let mut numbers = vec![counted, double(per_micro)];
        numbers.extend(
            debts
                .map(|units| micros_and_units(units, per_micro))
                .as_flattened(),
        );
        Some(LuaTwin {
            name: self.name(),
            source: include_str!("../gcra.lua"),
            numbers,
        })
    }

    fn price(&self, cost: Permits) -> [f64; 4] {
        let per_micro = self.grid.units_per_micro();
        let price = |per_micro| micros_and_units(self.price_of(cost), per_micro);
        let [micros, units] = per_micro.map_or([0.0; 2], price); // without a twin, it is not read
        [micros, units, 0.0, 0.0]
    }
}

/// Returns a decimal number of at most 18 digits.
fn decimal(text: &[u8]) -> Option<u64> {
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

    /// The TAT `ahead` ticks after `now`; before it if negative.
    fn tat(now: u64, ahead: i64) -> Tat {
        Tat::after(
            gcra().grid.at(UnixMicros::new(now).time()),
            ahead.cast_unsigned(),
        )
    }

    #[test]
    fn stored_moments_are_exact_to_the_tick_at_any_time_of_reading() {
        let mut random = Random::new(5);
        for _ in 0..100_000 {
            let now = random.below(1 << 52);
            let bits = 1 + random.below(62);
            let from_past = 1 + random.below(1 << bits).min(TURN_MICROS * TICKS - 2);
            let state = tat(
                now,
                from_past.cast_signed() - (PAST_MICROS * TICKS).cast_signed(),
            );
            let mut text = Vec::new();
            gcra().write(&state, UnixMicros::new(now), &mut text);
            let read = |at| gcra().read(&text, UnixMicros::new(at)).unwrap();
            assert_eq!(read(now), state);
            let later = random.below(from_past / TICKS + 1);
            assert_eq!(read(now + later), state);
            let room = (TURN_MICROS * TICKS - 1 - from_past) / TICKS;
            let earlier = random.below(now.min(room) + 1);
            assert_eq!(read(now - earlier), state);
        }
    }

    #[test]
    fn the_moment_at_which_a_debt_is_paid_is_exact() {
        let mut random = Random::new(6);
        for _ in 0..100_000 {
            let now = UnixMicros::new(random.below(1 << 52));
            let bits = 1 + random.below(59);
            let state = tat(now.get(), 1 + random.below(1 << bits).cast_signed());
            let paid = gcra().paid(&state, now).unwrap();
            assert_eq!(gcra().owing(paid, now), Some(state));
            for bytes in [gcra().value(paid), gcra().lowered_value(paid)] {
                assert_eq!(gcra().read(&bytes, now), Some(state));
                assert!(
                    String::from_utf8(bytes)
                        .unwrap()
                        .ends_with("/3/1000000000/3")
                );
            }
            assert!(
                Gcra::is_lowered(&gcra().lowered_value(paid))
                    && !Gcra::is_lowered(&gcra().value(paid))
            );
        }
        let now = UnixMicros::new(7);
        assert_eq!(gcra().paid(&tat(7, 0), now), None);
        assert_eq!(gcra().paid(&Tat::default(), now), None);
        assert_eq!(gcra().owing(gcra().paid_by(now), now), None);
    }

    #[test]
    fn a_value_of_other_numbers_is_read_as_the_same_permits() {
        let limit = |text: &str| Gcra::token_bucket(text.parse().unwrap()).unwrap();
        let now = UnixMicros::new(1_763_712_345_678_901);
        for (old, used, new, left) in [
            ("10/10h", 10, "20/10h", 10),
            ("100/1h", 50, "1000/1h", 950),
            ("100/1m", 100, "100/1h", 0),
            ("3/1s", 2, "99999/7s", 99_997),
        ] {
            let (old, new, mut tat) = (limit(old), limit(new), Tat::default());
            assert!(old.take(&mut tat, now.time(), Permits::new(used)));
            let mut bytes = Vec::new();
            old.write(&tat, now, &mut bytes);
            let read = new.read(&bytes, now).unwrap();
            let seen = new.look(&read, now.time(), Permits::ZERO);
            assert_eq!(seen.remaining.get(), left, "{new:?}");
        }
    }

    #[test]
    fn garbage_is_refused() {
        for text in [
            "",
            "-",
            "1",
            "12345",
            "100000",
            "100000/",
            "100000/3/x/3",
            "-12345/3/1000000000/3",
            "--100000/3/1000000000/3",
            "164000/3/1000000000/3",
            "1e500000/3/1000000000/3",
        ] {
            assert_eq!(
                gcra().read(text.as_bytes(), UnixMicros::new(0)),
                None,
                "{text}"
            );
        }
        let beyond = format!("{TURN_MICROS}00000/3/1000000000/3");
        assert_eq!(gcra().read(beyond.as_bytes(), UnixMicros::new(0)), None);
        assert_eq!(gcra().read(&[b'1'; 40], UnixMicros::new(0)), None);
    }
}
