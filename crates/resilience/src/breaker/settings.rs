//! Settings of a breaker: when it opens and how it comes back.

use std::time::Duration;

use crate::Error;

/// Maximum number of rounds of probes: the last has 2^15 probes.
const PROBE_ROUNDS_MAX: u32 = 16;

/// When a [`Breaker`](super::Breaker) opens and how it comes back; see the [module](super) for
/// the reasons of the defaults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BreakerSettings {
    /// How long the end of a call is remembered; at least 10 ns. Default 10 s.
    pub window: Duration,
    /// Calls in the window below which the breaker does not judge. Default 20.
    pub calls_min: u32,
    /// Share of failures that opens, in percent; 1 to 100. Default 50.
    pub failure_percent: u32,
    /// Longest time open at first, above zero. Default 5 s.
    pub open_base: Duration,
    /// Longest time open ever, at least `open_base`. Default 60 s.
    pub open_cap: Duration,
    /// Rounds of probes, 1 to 16: the first has one, each further one twice as many.
    /// Default 3.
    pub probe_rounds: u32,
    /// Time, since the last probe began, after which one that has not ended counts as failed; above
    /// zero. Default 10 s.
    pub probe_patience: Duration,
}

impl Default for BreakerSettings {
    fn default() -> Self {
        Self {
            window: Duration::from_secs(10),
            calls_min: 20,
            failure_percent: 50,
            open_base: Duration::from_secs(5),
            open_cap: Duration::from_secs(60),
            probe_rounds: 3,
            probe_patience: Duration::from_secs(10),
        }
    }
}

impl BreakerSettings {
    pub(super) fn validate(&self) -> Result<(), Error> {
        if !(1..=100).contains(&self.failure_percent) {
            return Err(Error::Percent);
        }
        if !(1..=PROBE_ROUNDS_MAX).contains(&self.probe_rounds) {
            return Err(Error::ProbeRounds);
        }
        if self.open_base.is_zero() || self.open_base > self.open_cap {
            return Err(Error::OpenFor);
        }
        if self.probe_patience.is_zero() {
            return Err(Error::ProbePatience);
        }
        Ok(())
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Breaker, SplitMix};

    #[test]
    fn settings_out_of_bounds_are_refused() {
        let good = BreakerSettings::default();
        for (settings, error) in [
            (
                BreakerSettings {
                    window: Duration::from_nanos(9),
                    ..good
                },
                Error::Window,
            ),
            (
                BreakerSettings {
                    failure_percent: 0,
                    ..good
                },
                Error::Percent,
            ),
            (
                BreakerSettings {
                    failure_percent: 101,
                    ..good
                },
                Error::Percent,
            ),
            (
                BreakerSettings {
                    probe_rounds: 0,
                    ..good
                },
                Error::ProbeRounds,
            ),
            (
                BreakerSettings {
                    probe_rounds: 17,
                    ..good
                },
                Error::ProbeRounds,
            ),
            (
                BreakerSettings {
                    open_base: Duration::ZERO,
                    ..good
                },
                Error::OpenFor,
            ),
            (
                BreakerSettings {
                    open_base: Duration::from_secs(61),
                    ..good
                },
                Error::OpenFor,
            ),
            (
                BreakerSettings {
                    probe_patience: Duration::ZERO,
                    ..good
                },
                Error::ProbePatience,
            ),
        ] {
            assert_eq!(Breaker::new(settings, SplitMix::new(1)).unwrap_err(), error);
        }
    }
}
