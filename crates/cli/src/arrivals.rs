//! Arrivals: the moments at which checks come, from a rate and a pattern.
//!
//! ```text
//!   4/1s   steady   |   |   |   |   |   |   |   |      evenly
//!          burst    ||||            ||||                N at once, every span
//!          poisson  |  |    ||    |   |       | |       independent of each other
//! ```

use std::str::FromStr;

use clap::ValueEnum;
use ratekeeper_core::{Nanos, Quota};

/// How checks come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Pattern {
    /// Evenly
    Steady,
    /// N at once at the beginning of every SPAN
    Burst,
    /// Independently of each other, at random
    Poisson,
}

/// So many checks a span: `50/s`, `100/1m`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rate {
    checks: u32,
    per: Nanos,
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unit_only = text
            .split_once('/')
            .filter(|(_, span)| span.starts_with(|c: char| c.is_ascii_alphabetic()));
        let spelled = unit_only.map_or(text.to_owned(), |(checks, unit)| {
            format!("{checks}/1{unit}")
        });
        let wrong = |_| "write checks and span, as in 50/s or 100/1m".to_owned();
        let quota: Quota = spelled.parse().map_err(wrong)?;
        Ok(Self {
            checks: quota.permits().get(),
            per: quota.per(),
        })
    }
}

/// The moments of `number` checks, counted from the first.
pub(crate) fn moments(number: u32, rate: Rate, pattern: Pattern, seed: u64) -> Vec<Nanos> {
    let checks = u64::from(rate.checks);
    let per = u128::from(rate.per.as_nanos());
    let share = |index: u64, of: u128| {
        let nanos = per * u128::from(index) / of;
        Nanos::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    };
    let indexes = 0..u64::from(number);
    match pattern {
        Pattern::Steady => indexes.map(|index| share(index, checks.into())).collect(),
        Pattern::Burst => indexes.map(|index| share(index / checks, 1)).collect(),
        Pattern::Poisson => poisson(number, share(1, checks.into()), seed),
    }
}

/// Gaps with an exponential distribution, their mean `mean`; the first check comes at once.
fn poisson(number: u32, mean: Nanos, seed: u64) -> Vec<Nanos> {
    let mut random = SplitMix(seed);
    let mut now = Nanos::ZERO;
    let mut moments = Vec::with_capacity(number as usize);
    for _ in 0..number {
        moments.push(now);
        now = now + exponential(mean, random.open_unit());
    }
    moments
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a random gap: a float that saturates is exact enough"
)]
fn exponential(mean: Nanos, unit: f64) -> Nanos {
    Nanos::from_nanos((-unit.ln() * mean.as_nanos() as f64) as u64)
}

/// `SplitMix64` (G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number
/// generators", 2014): eight bytes of state, the same numbers on every machine.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Above 0, at most 1: its logarithm is finite.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit a float exactly")]
    fn open_unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(number: u32, rate: &str, pattern: Pattern) -> Vec<u64> {
        let rate = rate.parse().expect("a rate");
        let moments = moments(number, rate, pattern, 1);
        moments
            .iter()
            .map(|moment| moment.as_nanos() / 1_000_000)
            .collect()
    }

    #[test]
    fn a_pattern_places_its_checks() {
        assert_eq!(millis(5, "4/1s", Pattern::Steady), [0, 250, 500, 750, 1000]);
        assert_eq!(millis(5, "2/s", Pattern::Burst), [0, 0, 1000, 1000, 2000]);
        assert_eq!(millis(3, "3/1m", Pattern::Steady), [0, 20_000, 40_000]);
    }

    #[test]
    fn poisson_keeps_its_rate_and_repeats_with_its_seed() {
        let rate: Rate = "100/s".parse().expect("a rate");
        let run = |seed| moments(10_000, rate, Pattern::Poisson, seed);
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
        // 10,000 gaps of 10 ms: 100 s, with a standard deviation of 1 %.
        let last = run(7)[9_999].as_secs_f64();
        assert!((96.0..104.0).contains(&last), "{last}");
        assert!(run(7).is_sorted());
    }

    #[test]
    fn a_rate_reads_with_and_without_a_number_of_units() {
        for text in ["50/s", "50/1s"] {
            assert_eq!(
                text.parse(),
                Ok(Rate {
                    checks: 50,
                    per: Nanos::SECOND
                })
            );
        }
        for text in ["", "50", "0/s", "50/", "50/fortnight", "x/s"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }
}
