//! Powers and logarithms of two, of `+ - x /` only: the same to the bit on every machine.

/// Exact below 2^53, to one part in 2^53 above.
#[expect(
    clippy::cast_precision_loss,
    reason = "the rounding is within the margin"
)]
pub(super) fn float(count: u64) -> f64 {
    count as f64
}

/// Down to a whole number; saturating.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float becomes the whole number below it, 0 or u64::MAX beyond the range"
)]
pub(super) fn floor(value: f64) -> u64 {
    value as u64
}

/// `2^(i / 16)`, rounded to the nearest.
const SIXTEENTHS: [f64; 17] = [
    1.0,
    1.044_273_782_427_413_8,
    1.090_507_732_665_257_7,
    1.138_788_634_756_691_6,
    1.189_207_115_002_721,
    1.241_857_812_073_484,
    1.296_839_554_651_009_6,
    1.354_255_546_936_892_7,
    core::f64::consts::SQRT_2,
    1.476_826_145_939_499_3,
    1.542_210_825_407_940_7,
    1.610_490_331_949_254_3,
    1.681_792_830_507_429,
    1.756_252_160_373_299_5,
    1.834_008_086_409_342_4,
    1.915_206_561_397_147_4,
    2.0,
];

/// `ln(2)^i / i!`, from the first to the seventh: Taylor's series of `2^x` at 0. Beyond the
/// seventh it is below 2^-51 on a sixteenth.
const TAYLOR: [f64; 7] = [
    core::f64::consts::LN_2,
    0.240_226_506_959_100_72,
    5.550_410_866_482_158e-2,
    9.618_129_107_628_477e-3,
    1.333_355_814_642_844_3e-3,
    1.540_353_039_338_161e-4,
    1.525_273_380_405_984_1e-5,
];

/// `2^-y` for `y >= 0`, to 2^-50, never rising with `y`.
///
/// With `y = n + 1 - f`, `0 < f <= 1`: `2^f` from the table and a polynomial of positive
/// coefficients, each step of which rises with `f`; then exact halvings.
pub(super) fn half_power(y: f64) -> f64 {
    let halvings = floor(y);
    if halvings >= 1_000 {
        return 0.0;
    }
    let fraction = 1.0 - (y - float(halvings));
    let sixteenth = floor(fraction * 16.0);
    let step = usize::try_from(sixteenth).unwrap_or(0).min(16);
    let rest = fraction - float(sixteenth) / 16.0;
    // In halves, so that a processor can work on both.
    let (t, x, xx) = (TAYLOR, rest, rest * rest);
    let low = (t[0] + t[1] * x) + (t[2] + t[3] * x) * xx;
    let high = (t[4] + t[5] * x) + t[6] * xx;
    let series = 1.0 + x * (low + high * (xx * xx));
    let power = (SIXTEENTHS[step] * series).min(SIXTEENTHS[(step + 1).min(16)]);
    power * f64::from_bits((1_022 - halvings) << 52) // x 2^-(n + 1)
}

/// From a third to a seventeenth: the series of the area tangent.
const ODD_PARTS: [f64; 8] = [
    1.0 / 3.0,
    1.0 / 5.0,
    1.0 / 7.0,
    1.0 / 9.0,
    1.0 / 11.0,
    1.0 / 13.0,
    1.0 / 15.0,
    1.0 / 17.0,
];

/// `log2 x` for a normal `x > 0`, to 2^-45 of itself and one.
///
/// With `x = 2^e x m`, `1 <= m < 2`, and `s = (m - r) / (m + r)`, `r` the root of 2:
/// `e + 1/2 + 2 / ln 2 x (s + s^3 / 3 + .. + s^17 / 17)`.
pub(super) fn log2(x: f64) -> f64 {
    const MANTISSA: u64 = (1 << 52) - 1;
    let exponent = (x.to_bits() >> 52) & 0x7ff;
    let mantissa = f64::from_bits((x.to_bits() & MANTISSA) | 1_023 << 52);
    let root = core::f64::consts::SQRT_2;
    let s = (mantissa - root) / (mantissa + root);
    let square = s * s;
    let (t, x, xx) = (ODD_PARTS, square, square * square);
    let low = (t[0] + t[1] * x) + (t[2] + t[3] * x) * xx;
    let high = (t[4] + t[5] * x) + (t[6] + t[7] * x) * xx;
    let series = 1.0 + x * (low + high * (xx * xx));
    float(exponent) - 1_022.5 + 2.0 * core::f64::consts::LOG2_E * s * series
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
                (power - exact).abs() <= exact * 4.0 * f64::EPSILON,
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
        assert_eq!(half_power(0.0).to_bits(), 1.0_f64.to_bits());
    }

    #[test]
    fn logarithms_are_close_enough_to_guess_with() {
        for step in 0..1_000_000_u32 {
            let x = f64::from(step).mul_add(0.001, 1.0).powi(3);
            let (log, exact) = (log2(x), x.log2());
            let error = (log - exact).abs();
            assert!(error <= (exact + 1.0) * 128.0 * f64::EPSILON, "log2 {x}");
        }
    }
}
