//! The price line: the cost of a permit by the number of stored permits.
//!
//! ```text
//!   k x T |              / : <- cold
//!       T |------------/   :          taking c of s stored: the area from s - c to s,
//!         | threshold  :   : most     each part cut to whole microseconds
//!       0 +------------+---+----> stored
//! ```

use crate::Error;

/// The effect of time without requests.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum RestEffect {
    /// The limiter cools down.
    Cools { warm_up_us: f64, cold_factor: f64 },
    /// Permits are saved up, for at most `seconds`.
    Saves { seconds: f64 },
}

/// The prices of stored and of fresh permits.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct PriceLine {
    pub(super) rest: RestEffect,
    /// T, in microseconds.
    pub(super) stable_us: f64,
    /// The time of rest that stores one permit.
    pub(super) cooldown_us: f64,
    pub(super) most: f64,
    /// The number of stored permits beyond which each costs more than T.
    threshold: f64,
    /// Microseconds by which the price rises with each stored permit beyond the threshold.
    slope: f64,
}

impl PriceLine {
    pub(super) fn new(permits_per_second: f64, rest: RestEffect) -> Result<Self, Error> {
        if permits_per_second.is_nan() || permits_per_second <= 0.0 {
            return Err(Error::Rate);
        }
        let stable_us = 1e6 / permits_per_second;
        let mut line = Self {
            rest,
            stable_us,
            cooldown_us: stable_us,
            most: 0.0,
            threshold: 0.0,
            slope: 0.0,
        };
        match rest {
            RestEffect::Saves { seconds } => line.most = seconds * permits_per_second,
            RestEffect::Cools {
                warm_up_us,
                cold_factor,
            } => {
                let cold_us = stable_us * cold_factor;
                line.threshold = 0.5 * warm_up_us / stable_us;
                line.most = line.threshold + 2.0 * warm_up_us / (stable_us + cold_us);
                line.slope = (cold_us - stable_us) / (line.most - line.threshold);
                line.cooldown_us = warm_up_us / line.most;
            }
        }
        Ok(line)
    }

    /// Returns true if rest cools down, rather than saving up.
    pub(super) const fn cools(&self) -> bool {
        matches!(self.rest, RestEffect::Cools { .. })
    }

    /// The price of `cost` permits in microseconds, and the number of them taken from `stored`.
    #[inline]
    pub(super) fn price(&self, stored: f64, cost: f64) -> (u64, f64) {
        if stored < cost {
            let fresh = floor((cost - stored) * self.stable_us);
            let price = self.price_of_stored(stored, stored);
            return (price.saturating_add(fresh), stored);
        }
        (self.price_of_stored(stored, cost), cost)
    }

    #[inline]
    fn price_of_stored(&self, stored: f64, permits: f64) -> u64 {
        if !self.cools() {
            return 0;
        }
        let price_at = |above: f64| self.stable_us + above * self.slope;
        let area = |above: f64, taken: f64| {
            floor(taken * (price_at(above) + price_at(above - taken)) / 2.0)
        };
        let above = stored - self.threshold;
        if above >= permits {
            return area(above, permits);
        }
        if above > 0.0 {
            let warm = floor(self.stable_us * (permits - above));
            return area(above, above).saturating_add(warm);
        }
        floor(self.stable_us * permits)
    }
}

/// The last microsecond that Guava's clock can represent.
pub(super) const END_US: u64 = u64::MAX >> 1;

/// Exact below 2^53; times beyond the end are the end.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_wrap,
    reason = "microseconds below 285 years are exact and do not wrap"
)]
#[inline]
pub(super) fn float(count: u64) -> f64 {
    count.min(END_US) as i64 as f64 // signed: processors convert those in one step
}

/// Rounds down to a whole number that Guava's clock can represent; NaN becomes 0.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rounded down to a whole number; beyond the range, to 0 or the maximum"
)]
#[inline]
pub(super) fn floor(value: f64) -> u64 {
    (value as i64).max(0) as u64
}
