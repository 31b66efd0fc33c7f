//! Powers and logarithms of two, of `+ - x` only: the same to the bit on every machine.
//!
//! ```text
//!   2^-y      y = (k + 1 - r) / 128:  2^-((k + 1) / 128) from a table, 2^(r / 128) a series
//!   log2 x    x = 2^e x c x (1 + r):  e, log2 c from a table, and ln(1 + r) a series
//! ```
//!
//! The tables are computed at compile time, by longer series.

use core::f64::consts::{LN_2, LOG2_E};

/// Exact below 2^53, to one part in 2^53 above; 2^63 and more are 2^63.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_wrap,
    reason = "the rounding is within the margin, and the value is capped so that it cannot wrap"
)]
#[inline]
pub(super) const fn float(count: u64) -> f64 {
    const MOST: u64 = i64::MAX as u64;
    // Signed: processors convert those in one step.
    (if count > MOST { MOST } else { count }) as i64 as f64
}

/// Down to a whole number below 2^63, or 0; saturating.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rounded down to a whole number; beyond the range, to 0 or the maximum"
)]
#[inline]
pub(super) const fn floor(value: f64) -> u64 {
    let whole = value as i64;
    if whole < 0 { 0 } else { whole as u64 }
}

/// Pieces between a power of two and the next.
const PIECES: usize = 128;
const PIECES_LOG2: u32 = PIECES.trailing_zeros();

/// `ln(2)^i / i!`, from the first to the fifth: Taylor's series of `2^x` at 0. Beyond the
/// fifth it is below 2^-54 on a piece.
const TAYLOR: [f64; 5] = [
    LN_2,
    LN_2 * LN_2 / 2.0,
    LN_2 * LN_2 * LN_2 / 6.0,
    LN_2 * LN_2 * LN_2 * LN_2 / 24.0,
    LN_2 * LN_2 * LN_2 * LN_2 * LN_2 / 120.0,
];

/// `2^-(i / 128)`, from 1 down to a half.
const POWERS: [f64; PIECES + 1] = {
    let mut powers = [1.0; PIECES + 1];
    let mut piece = 1;
    while piece < PIECES {
        powers[piece] = exp(-LN_2 * float(piece as u64) / float(PIECES as u64));
        piece += 1;
    }
    powers[PIECES] = 0.5;
    powers
};

/// `e^x` for small x, term by term until nothing is added; at compile time only.
const fn exp(x: f64) -> f64 {
    let mut sum = 0.0;
    let mut order = 30;
    // From the smallest: 1 + x (1 + x / 2 (1 + x / 3 (..))).
    while order > 0 {
        sum = x / float(order) * (1.0 + sum);
        order -= 1;
    }
    1.0 + sum
}

/// `2^-y` for `y >= 0`, to 2^-51 of itself, never rising with `y`.
///
/// Within a piece each step of the series rises as `y` falls, since its coefficients are
/// positive; where two pieces meet the table caps it.
#[inline]
pub(super) fn half_power(y: f64) -> f64 {
    if y >= 1_000.0 {
        return 0.0;
    }
    let scaled = y * float(PIECES as u64); // exact
    let (whole, part) = split(scaled);
    let piece = usize::from(whole.to_le_bytes()[0]) % PIECES; // the lowest seven bits
    let rest = 1.0 - part; // of a piece, above 0, at most 1
    let x = rest * (1.0 / float(PIECES as u64)); // exact
    // In halves, so that a processor can work on both.
    let (t, xx) = (TAYLOR, x * x);
    let series = (t[0] + t[1] * x) + ((t[2] + t[3] * x) + t[4] * xx) * xx;
    let cap = POWERS[piece];
    let power = POWERS[piece + 1] * (1.0 + x * series);
    let power = if power < cap { power } else { cap };
    power * f64::from_bits((1_023 - (whole >> PIECES_LOG2)) << 52) // x 2^-n
}

/// The whole number below `value`, which is 0 to 2^51, and the rest; both exact.
///
/// Beside 2^52 a float is a whole number, in its lowest bits. That is quicker than to convert it
/// twice, and x86 makes the second conversion wait for the previous value of its register.
#[inline]
fn split(value: f64) -> (u64, f64) {
    const ANCHOR: f64 = 4_503_599_627_370_496.0; // 2^52
    let anchored = value + ANCHOR; // to the nearest
    let part = value - (anchored - ANCHOR);
    let nearest = anchored.to_bits() - ANCHOR.to_bits();
    if part < 0.0 {
        (nearest - 1, part + 1.0)
    } else {
        (nearest, part)
    }
}

/// Pieces of [`log2`]: twice as many, so that its series ends a step earlier.
const LOG_PIECES: usize = 256;
const LOG_PIECES_LOG2: u32 = LOG_PIECES.trailing_zeros();

/// The beginning of the first piece; the last ends at twice that, so that 1 is well inside and a
/// logarithm near 0 is not the difference of two that are near 1.
const FIRST: u64 = 0.6875_f64.to_bits();

const MANTISSA_BITS: u32 = f64::MANTISSA_DIGITS - 1;

/// For each piece, its middle `c`, `1 / c` and `log2 c`.
const LOGS: [(f64, f64, f64); LOG_PIECES] = {
    let mut logs = [(0.0, 0.0, 0.0); LOG_PIECES];
    let mut piece = 0;
    while piece < LOG_PIECES {
        let halves = 2 * piece as u64 + 1;
        let middle = f64::from_bits(FIRST + (halves << (MANTISSA_BITS - LOG_PIECES_LOG2 - 1)));
        logs[piece] = (middle, 1.0 / middle, LOG2_E * ln(middle));
        piece += 1;
    }
    logs
};

/// `ln x` near 1: twice the area tangent of `(x - 1) / (x + 1)`; at compile time only.
const fn ln(x: f64) -> f64 {
    let ratio = (x - 1.0) / (x + 1.0);
    let square = ratio * ratio;
    let mut sum = 0.0;
    let mut order = 40;
    while order > 0 {
        order -= 1;
        sum = 1.0 / float(2 * order + 1) + square * sum;
    }
    2.0 * ratio * sum
}

/// `log2 x` for a normal `x > 0`, to 2^-52 of itself and of a half.
#[inline]
pub(super) fn log2(x: f64) -> f64 {
    let above = x.to_bits().wrapping_sub(FIRST);
    let piece = above >> (MANTISSA_BITS - LOG_PIECES_LOG2) & (LOG_PIECES as u64 - 1);
    let whole = above.cast_signed() >> MANTISSA_BITS; // of the logarithm, from -1,023
    let mantissa = x
        .to_bits()
        .wrapping_sub((whole << MANTISSA_BITS).cast_unsigned());
    let mantissa = f64::from_bits(mantissa);
    let (middle, inverse, log) = LOGS[piece as usize];
    let r = (mantissa - middle) * inverse; // the difference is exact; at most 1/512
    let rr = r * r;
    let low = (1.0 - r / 2.0) + (1.0 / 3.0 - r / 4.0) * rr;
    let series = low + (rr * rr) * (1.0 / 5.0);
    (float((whole + 2_048).cast_unsigned()) - 2_048.0) + (log + LOG2_E * r * series)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_two_are_exact_to_the_margin_and_never_rise() {
        let mut last = 1.0;
        for step in 0..2_000_000_u32 {
            let y = f64::from(step) / 30_000.0; // to 66 half-lives
            let (power, exact) = (half_power(y), (-y).exp2());
            assert!(
                (power - exact).abs() <= exact * 2.0 * f64::EPSILON,
                "2^-{y}"
            );
            assert!(power <= last, "2^-{y} rises");
            last = power;
        }
        // Beside every sixteenth, where two pieces meet.
        for sixteenth in 1..1_000_u32 {
            let y = f64::from(sixteenth) / 16.0;
            let (before, after) = (y.next_down(), y.next_up());
            assert!(half_power(before) >= half_power(y) && half_power(y) >= half_power(after));
        }
    }

    #[test]
    fn a_split_is_the_floor_and_the_rest() {
        let check = |value: f64| {
            let (whole, part) = split(value);
            assert_eq!(
                (whole, part),
                (floor(value), value - value.floor()),
                "{value}"
            );
        };
        for step in 0..1_000_000_u32 {
            check(f64::from(step) / 4_097.0);
            let border = f64::from(step / 8) + 0.5 * f64::from(step % 2);
            check(border);
            check(border.next_up());
            check(border.next_down().max(0.0));
        }
    }

    #[test]
    fn logarithms_are_close_enough_to_guess_with() {
        let check = |x: f64| {
            let (log, exact) = (log2(x), x.log2());
            let error = (log - exact).abs();
            assert!(error <= (exact.abs() + 0.5) * f64::EPSILON, "log2 {x}");
        };
        for step in 1..1_000_000_u32 {
            check(f64::from(step) / 1e6);
            check(1.0 - f64::from(step) / 1e9);
            check(f64::from(step).mul_add(0.001, 1.0).powi(3));
        }
        check(1.0);
        check(f64::MIN_POSITIVE);
        check(f64::MAX);
    }
}
