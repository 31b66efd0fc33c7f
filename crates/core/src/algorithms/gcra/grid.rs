//! Grid: the units in which a limit counts debts, so that each permit takes whole units.
//!
//! ```text
//!   a state    |.....|.....|.....|.....|.....|.....|    ticks of 1/64 ns, any limit reads them
//!                 ceil v           ^ floor, and exact
//!   a debt     |   |   |   |   |   |   |   |   |   |    units: M of them in P ns, T = k units
//!              ^ whole nanoseconds are whole units where P is 1
//! ```
//!
//! Rounding `T = span / permits` to a tick would add an error for each permit: a client that
//! keeps to 3 a second would be refused, or one that does not would gain. So debts are counted in
//! units, of which `T` is a whole number `k`, and only the moment that is stored is rounded to a
//! tick, up. No unit is shorter than a tick, so each unit has a tick of its own, and the debt
//! read is the debt written. Errors do not add up.
//!
//! With the rate in lowest terms, `n` permits in `p` ns:
//!
//! ```text
//!   rate            n              M               P      k                  exact for moments of
//!   1, 5, 100/1s    1 2 4 .. 64    64              1      64 p / n           nanoseconds
//!   3, 7, 60/1s     up to 64       n               1      p                  nanoseconds
//!   333, 1001/1s    D <= 64,000    D x c <= 64,000 1000   p M / 1000 n       microseconds
//!   99999/1s        more           n k             p      64 p / n, down     p ns
//!                   D = 1000 n / gcd(1000 n, p): parts of a microsecond
//! ```
//!
//! At other moments the clock is rounded down to a unit, of 1/64 to 1/32 ns. A span of the
//! quota is a whole number of units wherever it begins, so that a client that takes at most
//! the quota in each span is never refused; another one may pass a unit early, once in a while,
//! and never more than the rate in the long run.

use crate::{Error, Nanos, Quota, Time};

/// Ticks in a nanosecond; states are kept in ticks.
pub(super) const TICKS: u64 = 64;
/// Ticks in a microsecond: the maximum number of units in it.
pub(super) const TICKS_PER_MICRO: u64 = 1_000 * TICKS;
/// Maximum period, 4.5 years, so that no product passes 128 bits.
const MAX_PERIOD: u64 = 1 << 57;

/// The units of a limit: `per_period` of them in `period` nanoseconds, counted from the clock's
/// zero; at most one in a tick.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Grid {
    /// M.
    per_period: u64,
    /// P, in nanoseconds.
    period: u64,
    /// 2^64 / M, rounded down: turns a division into a multiplication.
    reciprocal: u64,
}

/// A moment on a grid.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// Since the clock's zero, modulo 2^64.
    pub(super) ticks: u64,
    /// How far past a unit it lies, in Pths of one.
    past: u64,
}

/// Converts debts between units and ticks.
pub(super) trait Units: Copy {
    /// Returns the moment on the grid.
    fn at(self, time: Time) -> Moment;
    /// Returns the units of a debt of `ticks` from `now` on: the fewest that last as long.
    fn units(self, ticks: u64, now: Moment) -> u64;
    /// Returns the ticks that a debt of `units` lasts from `now` on, rounded up.
    fn ticks(self, units: u64, now: Moment) -> u64;
}

/// Units that are ticks: the grid of most limits, and the fast way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticks;

impl Units for Ticks {
    #[inline]
    fn at(self, time: Time) -> Moment {
        Moment {
            ticks: time.as_nanos().wrapping_mul(TICKS),
            past: 0,
        }
    }
    #[inline]
    fn units(self, ticks: u64, _now: Moment) -> u64 {
        ticks
    }
    #[inline]
    fn ticks(self, units: u64, _now: Moment) -> u64 {
        units
    }
}

impl Units for &Grid {
    fn at(self, time: Time) -> Moment {
        let (m, p) = (u128::from(self.per_period), u128::from(self.period));
        let past = match self.period {
            1 => 0, // a nanosecond is a whole number of units
            period => narrow(u128::from(time.as_nanos() % period) * m % p),
        };
        Moment {
            past,
            ..Ticks.at(time)
        }
    }
    fn units(self, ticks: u64, now: Moment) -> u64 {
        match (self.per_period, ticks.checked_sub(1)) {
            (TICKS, _) | (_, None) => ticks,
            (_, Some(before)) => 1 + self.units_in_ticks(before, now),
        }
    }
    fn ticks(self, units: u64, now: Moment) -> u64 {
        // Products that fit a word, which is nearly all of them, divide ten times faster.
        match self.per_period {
            TICKS => units,
            _ if self.period == 1 && units < 1 << 57 => self.divided_up(units * TICKS),
            _ => self.ticks_slowly(units, now),
        }
    }
}

impl Moment {
    /// The clock's zero.
    pub(super) const ZERO: Self = Self { ticks: 0, past: 0 };
}

impl Grid {
    /// Returns the grid of a quota, and the number of units in a permit.
    ///
    /// # Errors
    /// [`Error::TooFast`] if a permit takes no unit, [`Error::TooLong`] if its units or their
    /// period do not fit a word.
    pub(super) fn of(quota: Quota) -> Result<(Self, u64), Error> {
        let (permits, per) = (quota.permits().get(), quota.per().as_nanos());
        let common = gcd(permits, per);
        let (permits, per) = (permits / common, per / common);
        let in_micros = permits * 1_000; // below 2^63
        let parts = in_micros / gcd(in_micros, per); // T is a number of such parts of 1 us
        let (per_period, period) = if TICKS.is_multiple_of(permits) {
            (TICKS, 1)
        } else if permits <= TICKS {
            (permits, 1)
        } else if parts <= TICKS_PER_MICRO {
            (TICKS_PER_MICRO / parts * parts, 1_000)
        } else if per <= MAX_PERIOD {
            (TICKS * per / permits * permits, per) // down: no unit is shorter than a tick
        } else {
            return Err(Error::TooLong);
        };
        // A whole number in each case.
        let interval =
            u128::from(per_period) * u128::from(per) / (u128::from(period) * u128::from(permits));
        if interval == 0 {
            return Err(Error::TooFast);
        }
        let grid = Self {
            per_period,
            period,
            reciprocal: u64::MAX / per_period,
        };
        Ok((grid, u64::try_from(interval).map_err(|_| Error::TooLong)?))
    }

    /// Returns the number of units in a microsecond, if that is a whole number.
    pub(super) const fn units_per_micro(&self) -> Option<u64> {
        match self.period {
            1 => Some(1_000 * self.per_period),
            1_000 => Some(self.per_period),
            _ => None,
        }
    }

    /// Returns true if units are ticks.
    pub(super) const fn is_ticks(&self) -> bool {
        self.per_period == TICKS
    }

    /// Returns the beginning of the unit that contains `now`.
    pub(super) fn unit_start(&self, now: Moment) -> Moment {
        let since = u128::from(TICKS) * u128::from(now.past) / u128::from(self.per_period);
        Moment {
            ticks: now.ticks.wrapping_sub(narrow(since)), // not a tick too early
            past: 0,
        }
    }

    /// Returns the rate in lowest terms: permits of `interval` units, and nanoseconds.
    pub(super) fn rate(&self, interval: u64) -> (u64, u64) {
        let units = gcd(self.per_period, self.period);
        let (m, p) = (self.per_period / units, self.period / units);
        let common = gcd(m, interval);
        (m / common, p * (interval / common)) // a permit takes 1.1 years at most
    }

    /// Returns true if so many permits of `interval` units take so many nanoseconds.
    pub(super) fn grants(&self, permits: u64, interval: u64, nanos: u64) -> bool {
        let units = u128::from(permits) * u128::from(interval);
        let time = units.checked_mul(self.period.into());
        time == Some(u128::from(nanos) * u128::from(self.per_period))
    }

    /// Returns the number of units that end within `ticks` of `now`.
    #[inline]
    pub(super) fn units_in_ticks(&self, ticks: u64, now: Moment) -> u64 {
        let wide = u128::from(ticks) * u128::from(self.per_period);
        if self.period == 1 {
            return narrow(wide / u128::from(TICKS));
        }
        divide(wide + u128::from(TICKS * now.past), TICKS * self.period)
    }

    /// Returns the number of units that end within `span` of `now`.
    pub(super) fn units_in(&self, span: Nanos, now: Moment) -> u64 {
        let wide = u128::from(span.as_nanos()) * u128::from(self.per_period);
        narrow((wide + u128::from(now.past)) / u128::from(self.period))
    }

    /// Returns the maximum number of units that end within `nanos` nanoseconds of any moment.
    pub(super) fn max_units_in(&self, nanos: u64) -> u128 {
        let wide = u128::from(nanos) * u128::from(self.per_period);
        wide.div_ceil(u128::from(self.period)) // up: one may end just after it began
    }

    /// Returns the maximum number of ticks that `units` take, wherever they begin; saturating.
    pub(super) fn max_ticks(&self, units: u64) -> u64 {
        let wide = u128::from(units) * u128::from(self.period);
        let wide = wide.saturating_mul(u128::from(TICKS));
        narrow(wide.div_ceil(u128::from(self.per_period)))
    }

    fn ticks_slowly(&self, units: u64, now: Moment) -> u64 {
        let wide = u128::from(units) * u128::from(self.period);
        let wide = wide.saturating_sub(u128::from(now.past)) * u128::from(TICKS);
        match u64::try_from(wide) {
            Ok(word) if word <= u64::MAX - self.per_period => self.divided_up(word),
            _ => narrow(wide.div_ceil(u128::from(self.per_period))),
        }
    }

    /// Returns `number / per_period`, rounded up.
    #[inline]
    fn divided_up(&self, number: u64) -> u64 {
        let number = number + (self.per_period - 1);
        let product = u128::from(number) * u128::from(self.reciprocal);
        let low = (product >> 64) as u64; // the upper half
        let rest = number - low * self.per_period;
        low + u64::from(rest >= self.per_period) // one at most: see the field
    }
}

/// Returns the quotient, rounded down; most dividends fit a word, which divides faster.
fn divide(wide: u128, by: u64) -> u64 {
    match u64::try_from(wide) {
        Ok(word) => word / by,
        Err(_) => narrow(wide / u128::from(by)),
    }
}

fn narrow(wide: u128) -> u64 {
    u64::try_from(wide).unwrap_or(u64::MAX)
}

const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}
