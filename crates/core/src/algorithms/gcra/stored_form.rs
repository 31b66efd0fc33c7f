//! GCRA in a shared store: a moment, the numbers of its writer, and the numbers of the twin.
//!
//! ```text
//!   6 bytes  2 bytes  /1/6e8/100          [^130] [~1763712345678901] [+7000]
//!   |        |         |     |
//!   |        |         |     burst, and after another `/` the queue if there is one
//!   |        |         rate: permits in nanoseconds, in lowest terms: 1 in 6 x 10^8
//!   |        ticks of 1/64 ns, below 64,000
//!   TAT: microseconds since 1970, modulo TURN_MICROS (2.9 years)
//! ```
//!
//! A limit of other numbers reads the same usage in permits: see `reconfigure.rs`. If it holds fewer
//! than are used, it cuts the debt, and its value ends with `+` and the units that were cut, paid
//! after the rest: a process with the higher numbers still counts them. A debt that only a
//! higher burst of the writer explains, at the same rate, has `^` and its permits behind the
//! numbers: a process that never had that burst would assume that a clock was set back, and forgive
//! it. `~` precedes the last moment that was promised, in microseconds since 1970, where the queue
//! of these numbers would not have promised it: the debt after that moment is used permits. Twins
//! read values of their own numbers without such ends; others are read here.
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
//! value is negative (-1 - TAT), stays so, and for the deepest possible debt. So a process that
//! remembers a later TAT than a positive value, or than no value, knows that the store has lost
//! it, and may write it again.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use super::grid::{TICKS_PER_MICRO as TICKS, Units as _};
use super::reconfigure::{Owed, converted};
use super::writer::{BEYOND, EARLIER, PROMISED, Writer, mark};
use super::{CLOCK_SLACK_TICKS, FARTHEST_TICKS, Gcra, Tat};
use crate::algorithm::{Algorithm as _, Denials};
use crate::stored_form::{KeptValue, LuaTwin, StoredForm, UnixMicros, double};
use crate::{Nanos, Permits};

/// Bits of the microseconds of a value; above them, 16 bits of ticks.
const MICROS_BITS: u32 = 48;
const MICROS_MASK: u64 = (1 << MICROS_BITS) - 1;
/// Values repeat after as many microseconds, which stay below 2^47.
const TURN_MICROS: u64 = 92_000_000_000_000;
/// Maximum distance of a value behind now, 116 days.
const PAST_MICROS: u64 = 10_000_000_000_000;
/// Maximum excess of a debt before it is cut.
const SLACK_MICROS: u64 = CLOCK_SLACK_TICKS / TICKS;
/// Debts below this number of units are exact as one double.
const EXACT: u64 = 1 << 53;

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
        let moment = (paid.micros % TURN_MICROS) | (u64::from(paid.ticks) << MICROS_BITS);
        let mut bytes = moment.to_le_bytes().to_vec();
        bytes.extend(self.name());
        bytes
    }

    /// Returns the permits of this debt if only earlier parameters of the rate explain it.
    fn earlier_debt(&self, debt: u64) -> Option<u64> {
        let is_earlier = self.own_deepest() < debt && debt <= self.earlier;
        is_earlier.then(|| debt.div_ceil(self.interval.get()))
    }

    /// Returns true if only earlier parameters of the rate explain the debt of a state.
    pub fn is_earlier(&self, tat: &Tat, now: UnixMicros) -> bool {
        let now = self.grid.at(now.time());
        let debt = self.grid.units(tat.ahead(now), now);
        self.earlier_debt(debt).is_some()
    }

    /// Marks the bytes of a state as moved back.
    pub fn lower(bytes: &mut [u8]) {
        let micros = bytes.iter_mut().take(6);
        micros.for_each(|byte| *byte = !*byte);
    }

    /// Returns true if these are the bytes of a state under the same numbers.
    pub fn wrote(&self, bytes: &[u8]) -> bool {
        let writer = bytes.get(8..).and_then(Writer::of);
        writer.is_some_and(|writer| writer.is(self))
    }

    /// Reads a value of any numbers.
    fn owed(&self, bytes: &[u8], now: UnixMicros) -> Option<Owed> {
        let (moment, name) = bytes.split_first_chunk()?;
        let moment = u64::from_le_bytes(*moment);
        let (micros, ticks) = (moment & MICROS_MASK, moment >> MICROS_BITS);
        let micros = if Self::is_lowered(bytes) {
            micros ^ MICROS_MASK
        } else {
            micros
        };
        if micros >= TURN_MICROS || ticks >= TICKS {
            return None;
        }
        let from_past =
            (micros + TURN_MICROS - now.get() % TURN_MICROS + PAST_MICROS) % TURN_MICROS;
        // Modulo 2^64, as moments are: PAST_MICROS lies behind now.
        let ahead = from_past.wrapping_sub(PAST_MICROS).wrapping_mul(TICKS);
        let ahead = ahead.wrapping_add(ticks);
        let moment = self.grid.at(now.time());
        let tat = Tat::after(moment, ahead);
        let writer = Writer::of(name)?;
        let (is_own, beyond) = (writer.is(self), writer.beyond);
        let ticks = |until: u64| until.saturating_sub(now.get()).saturating_mul(TICKS);
        let promised = writer.promised.map(ticks);
        if is_own && writer.earlier == 0 && beyond == 0 {
            return Some(Owed {
                tat,
                promised,
                beyond,
            });
        }
        let limit = writer.limit()?;
        // A deeper one is of a clock that was set back.
        let is_earlier = self.deepest < tat.ahead(moment) && tat.ahead(moment) <= limit.deepest;
        let past = match tat.ahead(moment) {
            0 => limit.grid.units_in_ticks(ahead.wrapping_neg(), moment),
            _ => 0,
        };
        let mut owed = Owed {
            tat,
            promised,
            beyond: beyond.saturating_sub(past),
        };
        if !is_own || is_earlier {
            owed = converted(self, owed, &limit, now.time(), Nanos::ZERO);
        }
        let ahead = owed.tat.ahead(moment);
        if !is_own && ahead > self.deepest {
            let deepest = self.deepest_debt(); // as the decision will cut it
            owed.tat = Tat::after(moment, self.grid.ticks(deepest, moment));
            let cut = self.grid.units(ahead, moment) - deepest;
            owed.beyond = owed.beyond.saturating_add(cut);
        }
        Some(owed)
    }

    /// Returns the end of its values: its numbers.
    fn name(&self) -> Vec<u8> {
        let (permits, nanos) = self.grid.rate(self.interval.get());
        let (mut digits, mut zeros) = (nanos, 0);
        while digits > 0 && digits.is_multiple_of(10) {
            (digits, zeros) = (digits / 10, zeros + 1);
        }
        let burst = self.permits_in(self.burst).get();
        match self.permits_in(self.queue).get() {
            0 => format!("/{permits}/{digits}e{zeros}/{burst}"),
            queue => format!("/{permits}/{digits}e{zeros}/{burst}/{queue}"),
        }
        .into_bytes()
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
        let last = bytes.get(5); // of the microseconds
        last.is_some_and(|byte| byte & 0x80 != 0)
    }

    /// Returns the microseconds that a state must stay after it has been moved back, rounded up: no
    /// process that shares this limit remembers a deeper debt.
    pub const fn lowered_stays(&self) -> u64 {
        (self.deepest - CLOCK_SLACK_TICKS).div_ceil(TICKS)
    }
}

/// Returns units as the twin reads them: whole microseconds, and units below a microsecond.
fn micros_and_units(units: u64, per_micro: u64) -> [f64; 2] {
    [double(units / per_micro), double(units % per_micro)]
}

impl StoredForm for Gcra {
    const TAG: u8 = b'g';

    fn read(&self, bytes: &[u8], now: UnixMicros) -> Option<Tat> {
        self.owed(bytes, now).map(|owed| owed.tat)
    }

    /// The debt itself tells how deep debts under earlier numbers of the writer were.
    fn succeed_writer(&mut self, value: &[u8], now: UnixMicros) {
        let writer = value.get(8..).and_then(Writer::of);
        let Some(mut writer) = writer.and_then(|writer| writer.limit()) else {
            return;
        };
        let moment = writer.grid.at(now.time());
        let debt = writer.read(value, now).map_or(0, |tat| tat.ahead(moment));
        writer.most = writer.most.max(writer.grid.units(debt, moment));
        self.succeed(&writer);
    }

    fn write(&self, tat: &Tat, now: UnixMicros, out: &mut Vec<u8>) {
        let moment = self.grid.at(now.time());
        let ahead = tat.0.wrapping_sub(moment.ticks);
        let from_past = ahead.wrapping_add(PAST_MICROS * TICKS);
        if *tat != Tat::default() && from_past < TURN_MICROS * TICKS {
            let past_micros = now.get() % TURN_MICROS + (TURN_MICROS - PAST_MICROS);
            let paid = Paid {
                micros: past_micros + from_past / TICKS,
                ticks: (from_past % TICKS) as u32,
            };
            out.extend(self.value(paid));
            let debt = self.grid.units(tat.ahead(moment), moment);
            if let Some(permits) = self.earlier_debt(debt) {
                mark(out, EARLIER, permits);
            }
        }
    }

    fn keep_beyond(&self, kept: &mut KeptValue, found: &[u8], now: UnixMicros) {
        let Some(owed) = self.owed(found, now) else {
            return;
        };
        let moment = self.grid.at(now.time());
        let after = self.read(&kept.bytes, now).unwrap_or_default();
        let (before, after) = (owed.tat.ahead(moment), after.ahead(moment));
        let own = self.promised(self.grid.units(after, moment), 0, moment);
        let own = self.grid.ticks(own, moment);
        // A charge may promise a later moment; a refund leaves the last promised one.
        let promised = owed
            .promised
            .map(|promised| promised.max(if after > before { own } else { 0 }))
            .filter(|promised| promised.abs_diff(own) > self.grid.max_ticks(1));
        if owed.beyond == 0 && (promised.is_none() || kept.bytes.is_empty()) {
            return;
        }
        if kept.bytes.is_empty() {
            kept.bytes = self.value(self.paid_by(now));
        }
        if let Some(promised) = promised {
            mark(
                &mut kept.bytes,
                PROMISED,
                now.get() + promised.div_ceil(TICKS),
            );
        }
        if owed.beyond > 0 {
            // Longer, the moment of the value would be read as one ahead.
            let paid_after = (self.grid.max_ticks(owed.beyond) / TICKS + 1).min(PAST_MICROS / 2);
            kept.micros = kept.micros.saturating_add(paid_after);
            mark(&mut kept.bytes, BEYOND, owed.beyond);
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

    /// `None` for limits without a twin, and for debts that may reach 2^53 units: 39 hours at
    /// 64,000 in a microsecond, 34 days at 3,000 (3 permits a second).
    fn short_twin(&self) -> Option<LuaTwin> {
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

    /// A cost of twice the limit acts like any higher one, and so does one above the deepest debt
    /// where denials are free.
    fn short_price(&self, cost: Permits) -> f64 {
        double(
            self.price_of(cost)
                .min(2 * (self.burst + self.queue))
                .min(EXACT - 1),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws::Random;

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
            let mut bytes = gcra().value(paid);
            for is_lowered in [false, true] {
                assert_eq!(Gcra::is_lowered(&bytes), is_lowered);
                assert_eq!(gcra().read(&bytes, now), Some(state));
                assert!(bytes.len() == 16 && bytes.ends_with(b"/3/1e9/3"));
                Gcra::lower(&mut bytes);
            }
        }
        let now = UnixMicros::new(7);
        assert_eq!(gcra().paid(&tat(7, 0), now), None);
        assert_eq!(gcra().paid(&Tat::default(), now), None);
        assert_eq!(gcra().owing(gcra().paid_by(now), now), None);
    }

    /// Debts of any size that numbers of others keep beyond a state.
    #[test]
    fn every_debt_beyond_a_state_is_read_back() {
        let now = UnixMicros::new(1_763_712_345_678_901);
        for beyond in [1, 10_u64.pow(18) - 1, 10_u64.pow(18), u64::MAX] {
            let mut bytes = gcra().value(gcra().paid_by(now));
            bytes.extend(format!("+{beyond}").into_bytes());
            let owed = gcra().owed(&bytes, now);
            assert_eq!(owed.map(|owed| owed.beyond), Some(beyond));
        }
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
        let check = |moment: [u8; 8], name: &str, is_read: bool| {
            let bytes = [&moment[..], name.as_bytes()].concat();
            let read = gcra().read(&bytes, UnixMicros::new(0));
            assert_eq!(read.is_some(), is_read, "{moment:?}{name}");
        };
        let moment = [1, 2, 3, 4, 5, 0, 0xff, 0x7f];
        for name in [
            "/3/1e9/3",
            "/4/2e9/5",
            "/4/2e9/5/6",
            "/3/1e9/3+7",
            "/4/2e9/5/6+18446744073709551615",
            "/4/2e9/5/6^7~18446744073709551615+18446744073709551615",
        ] {
            check(moment, name, true);
        }
        for name in [
            "",
            "/",
            "/3",
            "/3/x/3",
            "/3/1e9",
            "/3/1e9/3/",
            "/3/1e9/3/1/1",
            "/3/1e99/3",
            "/3/1e9/3+",
            "/3/1000/3",
            "/0/1e9/3",
            "/3/0e9/3",
            "/3/1e9/0",
            "3/1e9/3",
            "/-3/1e9/3",
            "/3/1e9/3+-1",
            "/3/1e9/3~",
            "/3/1e9/3+1~1",
            "/3/1e9/3~1^1",
            "/3/1e9/3/1+1+1",
            "/99999999999999999/1e1/3",
        ] {
            check(moment, name, false);
        }
        // Too many ticks, and a moment beyond the turn.
        check([1, 2, 3, 4, 5, 0, 0xff, 0xff], "/3/1e9/3", false);
        check(
            [0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0, 0],
            "/3/1e9/3",
            false,
        );
        for short in [&b""[..], b"-", b"1234567", b"0000000"] {
            assert_eq!(gcra().read(short, UnixMicros::new(0)), None);
        }
    }
}
