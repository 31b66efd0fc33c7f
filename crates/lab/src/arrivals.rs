//! Arrivals: the moments at which checks come, from a rate and a pattern.
//!
//! ```text
//!   4/1s   steady   |   |   |   |   |   |   |   |      evenly
//!          burst    ||||            ||||                N at once, every span
//!          poisson  |  |    ||    |   |       | |       independent of each other
//! ```

use std::fmt;
use std::str::FromStr;

use ratekeeper_core::{Nanos, Quota};
use ratekeeper_resilience::SplitMix;

use crate::random::open_unit;

/// Pattern in which checks arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArrivalPattern {
    /// Evenly.
    Steady,
    /// N at once at the beginning of every span.
    Burst,
    /// Independently of each other, at random.
    Poisson,
}

/// Number of checks per span: `50/s`, `100/1m`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    checks: u64,
    per: Nanos,
}

impl FromStr for Rate {
    type Err = String;

    /// # Errors
    /// A sentence for the user.
    fn from_str(text: &str) -> Result<Self, String> {
        let unit_only = text
            .split_once('/')
            .filter(|(_, span)| span.starts_with(|c: char| c.is_ascii_alphabetic()));
        let spelled = unit_only.map_or(text.to_owned(), |(checks, unit)| {
            format!("{checks}/1{unit}")
        });
        let wrong = |_| "expected CHECKS/PERIOD, for example 50/s or 100/1m".to_owned();
        let quota: Quota = spelled.parse().map_err(wrong)?;
        Ok(Self {
            checks: quota.permits().get(),
            per: quota.per(),
        })
    }
}

impl Rate {
    /// `checks` every `per`; `None` if either is zero.
    pub fn new(checks: u64, per: Nanos) -> Option<Self> {
        (checks > 0 && per > Nanos::ZERO).then_some(Self { checks, per })
    }

    /// Returns the moment of check number `index`, counted from 0, if all come evenly.
    pub fn moment(self, index: u64) -> Nanos {
        let nanos = u128::from(self.per.as_nanos()) * u128::from(index) / u128::from(self.checks);
        Nanos::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Returns the number of checks within `span`, if all come evenly: the first at once, and none
    /// at the end of it.
    pub fn within(self, span: Nanos) -> u64 {
        let exact = u128::from(span.as_nanos()) * u128::from(self.checks);
        let checks = exact.div_ceil(u128::from(self.per.as_nanos())); // up: the first comes at once
        u64::try_from(checks).unwrap_or(u64::MAX)
    }
}

/// Writes `10/s`, `100/1m`.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.per == Nanos::SECOND {
            return write!(f, "{}/s", self.checks);
        }
        write!(f, "{}/{}", self.checks, self.per)
    }
}

/// Returns the moments of `number` checks, counted from the first.
pub fn moments(number: u32, rate: Rate, pattern: ArrivalPattern, seed: u64) -> Vec<Nanos> {
    let checks = rate.checks;
    let indexes = 0..u64::from(number);
    match pattern {
        ArrivalPattern::Steady => indexes.map(|index| rate.moment(index)).collect(),
        ArrivalPattern::Burst => indexes
            .map(|index| rate.moment(index / checks * checks))
            .collect(),
        ArrivalPattern::Poisson => poisson(number, rate.moment(1), seed),
    }
}

/// Gaps with an exponential distribution, their mean `mean`; the first check comes at once.
fn poisson(number: u32, mean: Nanos, seed: u64) -> Vec<Nanos> {
    let mut random = SplitMix::new(seed);
    let mut now = Nanos::ZERO;
    let mut moments = Vec::with_capacity(number as usize);
    for _ in 0..number {
        moments.push(now);
        now = now + exponential(mean, open_unit(&mut random));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(number: u32, rate: &str, pattern: ArrivalPattern) -> Vec<u64> {
        let rate = rate.parse().expect("a rate");
        let moments = moments(number, rate, pattern, 1);
        moments
            .iter()
            .map(|moment| moment.as_nanos() / 1_000_000)
            .collect()
    }

    #[test]
    fn a_pattern_places_its_checks() {
        assert_eq!(
            millis(5, "4/1s", ArrivalPattern::Steady),
            [0, 250, 500, 750, 1000]
        );
        assert_eq!(
            millis(5, "2/s", ArrivalPattern::Burst),
            [0, 0, 1000, 1000, 2000]
        );
        assert_eq!(
            millis(3, "3/1m", ArrivalPattern::Steady),
            [0, 20_000, 40_000]
        );
    }

    #[test]
    fn poisson_keeps_its_rate_and_repeats_with_its_seed() {
        let rate: Rate = "100/s".parse().expect("a rate");
        let run = |seed| moments(10_000, rate, ArrivalPattern::Poisson, seed);
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
        // 10,000 gaps of 10 ms: 100 s, with a standard deviation of 1 %.
        let last = run(7)[9_999].as_secs_f64();
        assert!((96.0..104.0).contains(&last), "{last}");
        assert!(run(7).is_sorted());
    }

    #[test]
    fn a_span_holds_the_checks_before_its_end() {
        let rate: Rate = "4/s".parse().expect("a rate");
        let rows = [(0, 0), (1, 1), (250, 1), (251, 2), (1_000, 4), (1_001, 5)];
        for (millis, checks) in rows {
            assert_eq!(
                rate.within(Nanos::from_millis(millis)),
                checks,
                "{millis} ms"
            );
        }
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
