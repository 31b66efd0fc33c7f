//! Workload: which clients ask at which moments, and their behaviour when refused.
//!
//! ```text
//!   phases     |.|.|.|.. |||||| ######   each phase when the one before has been served
//!   constant   | | | | | | | | | | | |
//!   bursty     |||         |||           a span's worth at once
//!   poisson    |  ||  |    | ||     |    independent of each other
//!   on-off     | | | |         | | | |   evenly, with pauses
//!   zipf       a aba cab a  a abd a      poisson, from many keys, few of them busy
//!   retry      |x |x | x x|              evenly; a refused request comes again
//! ```

use ratekeeper_core::{Nanos, Permits};
use ratekeeper_resilience::SplitMix;

use crate::arrivals::{self, ArrivalPattern, Rate};
use crate::axis::clock_span;
use crate::bench::{KeyId, MAX_KEYS};
use crate::random::Zipf;

/// Maximum number of requests of one workload, 24 bytes each.
pub const MAX_REQUESTS: u64 = 10_000_000;

/// Requests and their clients.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Workload {
    /// Phases in sequence: each starts when the one before is over and its requests have been
    /// served or have given up.
    pub phases: Vec<WorkloadPhase>,
    /// Behaviour of a client that is refused.
    pub refused: AfterRefusal,
    /// Cost of each request.
    pub cost: Permits,
    /// Division of the time in the report.
    pub rows: ReportRows,
}

/// Requests that come at planned moments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkloadPhase {
    /// In order of time.
    pub arrivals: Vec<Arrival>,
    /// Minimum length of the phase.
    pub span: Nanos,
    /// Rate of the requests, where it is one number.
    pub rate: Option<Rate>,
}

/// One request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// Time since the beginning of the phase.
    pub at: Nanos,
    /// Key of the client.
    pub key: KeyId,
}

/// Behaviour of a client that is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AfterRefusal {
    /// It goes away.
    Leave,
    /// It asks again at this pace until it is served.
    Poll {
        /// The pause between two attempts.
        every: Nanos,
    },
    /// It tries again, up to a number of attempts.
    Retry {
        /// The pause before the next attempt.
        pause: Pause,
        /// Maximum number of attempts, the first included.
        attempts: u32,
    },
}

/// Pause of a refused client before it tries again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pause {
    /// The `retry_after` of the refusal.
    Stated,
    /// A fixed pause, whatever the `retry_after`.
    Fixed(Nanos),
}

/// Division of the time in a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReportRows {
    /// A row for each phase.
    Phases,
    /// Rows of equal length, and one for everything later.
    Intervals {
        /// Length of a row.
        length: Nanos,
        /// Number of rows.
        count: usize,
    },
}

/// Requests per second of the eight phases (founding document 0).
const EIGHT: [u64; 8] = [1, 2, 5, 10, 20, 25, 50, 100];
/// Length of a phase, in seconds.
const PHASE: u64 = 10;
/// Pause before a refused request of the eight phases asks again.
const POLL: Nanos = Nanos::from_millis(10);
/// Maximum number of rows of a report about one stretch of traffic: their length is round.
const INTERVALS: u64 = 10;

/// The traffic of a workload with a rate and an end.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Traffic {
    /// Rate of the requests.
    pub rate: Rate,
    /// Length of the traffic.
    pub span: Nanos,
    /// Seed of all random parts: the same seed gives the same requests.
    pub seed: u64,
}

/// A workload is larger than [`MAX_REQUESTS`] or [`MAX_KEYS`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooLarge {
    /// Number wanted.
    pub wanted: u64,
    /// Maximum number.
    pub most: u64,
}

impl Workload {
    /// The eight phases of founding document 0: from 1 to 100 requests a second, ten seconds
    /// each; a refused request asks again every 10 ms until it is served.
    pub fn eight_phases() -> Self {
        let phases = EIGHT.iter().filter_map(|&per_second| {
            let rate = Rate::new(per_second, Nanos::SECOND)?;
            let arrivals = (0..per_second * PHASE).map(|index| one(rate.moment(index)));
            Some(WorkloadPhase {
                arrivals: arrivals.collect(),
                span: Nanos::from_secs(PHASE),
                rate: Some(rate),
            })
        });
        Self {
            phases: phases.collect(),
            refused: AfterRefusal::Poll { every: POLL },
            cost: Permits::ONE,
            rows: ReportRows::Phases,
        }
    }

    /// Creates requests that come evenly, in bursts or at random.
    ///
    /// # Errors
    /// [`TooLarge`].
    pub fn patterned(traffic: Traffic, pattern: ArrivalPattern) -> Result<Self, TooLarge> {
        let mean = traffic.requests()?;
        let number = match pattern {
            ArrivalPattern::Steady | ArrivalPattern::Burst => mean,
            // Eight standard deviations more: as good as certain to reach the end.
            ArrivalPattern::Poisson => mean + 8 * (mean.isqrt() + 1),
        };
        let moments = arrivals::moments(number, traffic.rate, pattern, traffic.seed);
        let arrivals = moments.into_iter().map(one);
        Ok(Self::stretch(traffic, arrivals.collect()))
    }

    /// Creates requests that come evenly while `on` lasts, then none while `off` lasts, and again.
    ///
    /// # Errors
    /// [`TooLarge`].
    pub fn on_off(traffic: Traffic, on: Nanos, off: Nanos) -> Result<Self, TooLarge> {
        let number = traffic.requests()?;
        let (on, cycle) = (on.as_nanos(), (on + off).as_nanos().max(1));
        let moments = (0..u64::from(number)).map(|index| traffic.rate.moment(index));
        let sent = moments.filter(|moment| moment.as_nanos() % cycle < on);
        Ok(Self::stretch(traffic, sent.map(one).collect()))
    }

    /// Creates requests of `keys` clients at random; the client of rank `k` has a share of `1 /
    /// k^exponent`.
    ///
    /// # Errors
    /// [`TooLarge`].
    pub fn zipf(traffic: Traffic, keys: u32, exponent: f64) -> Result<Self, TooLarge> {
        let most = MAX_KEYS as u64;
        if u64::from(keys) > most {
            let wanted = keys.into();
            return Err(TooLarge { wanted, most });
        }
        let mut workload = Self::patterned(traffic, ArrivalPattern::Poisson)?;
        let zipf = Zipf::new(keys, exponent);
        let mut random = SplitMix::new(!traffic.seed); // moments and keys are independent
        let arrivals = workload
            .phases
            .iter_mut()
            .flat_map(|phase| &mut phase.arrivals);
        for arrival in arrivals {
            arrival.key = zipf.draw(&mut random);
        }
        Ok(workload)
    }

    /// Creates requests that come evenly, from clients that try again when they are refused.
    ///
    /// # Errors
    /// [`TooLarge`].
    pub fn retrying(traffic: Traffic, pause: Pause, attempts: u32) -> Result<Self, TooLarge> {
        let calm = Self::patterned(traffic, ArrivalPattern::Steady)?;
        Ok(Self {
            refused: AfterRefusal::Retry { pause, attempts },
            ..calm
        })
    }

    /// The same requests, each at another cost.
    #[must_use]
    pub fn with_cost(self, cost: Permits) -> Self {
        Self { cost, ..self }
    }

    /// Number of requests.
    pub fn requests(&self) -> usize {
        self.phases.iter().map(|phase| phase.arrivals.len()).sum()
    }

    /// Creates one stretch of traffic, reported in at most ten intervals.
    fn stretch(traffic: Traffic, mut arrivals: Vec<Arrival>) -> Self {
        arrivals.retain(|arrival| arrival.at < traffic.span); // random gaps may run over
        let length = clock_span(traffic.span, INTERVALS);
        let count = traffic.span.as_nanos().div_ceil(length.as_nanos()); // up: they cover it
        Self {
            phases: vec![WorkloadPhase {
                arrivals,
                span: traffic.span,
                rate: Some(traffic.rate),
            }],
            refused: AfterRefusal::Leave,
            cost: Permits::ONE,
            rows: ReportRows::Intervals {
                length,
                count: usize::try_from(count).unwrap_or(usize::MAX),
            },
        }
    }
}

impl Traffic {
    fn requests(self) -> Result<u32, TooLarge> {
        let wanted = self.rate.within(self.span);
        let most = MAX_REQUESTS;
        u32::try_from(wanted)
            .ok()
            .filter(|_| wanted <= most)
            .ok_or(TooLarge { wanted, most })
    }
}

/// Creates a request of the first key.
const fn one(at: Nanos) -> Arrival {
    Arrival { at, key: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic(rate: &str, secs: u64) -> Traffic {
        Traffic {
            rate: rate.parse().unwrap(),
            span: Nanos::from_secs(secs),
            seed: 1,
        }
    }

    fn millis(workload: &Workload) -> Vec<u64> {
        let arrivals = workload.phases.iter().flat_map(|phase| &phase.arrivals);
        arrivals
            .map(|arrival| arrival.at.as_nanos() / 1_000_000)
            .collect()
    }

    #[test]
    fn eight_phases_of_ten_seconds_each() {
        let workload = Workload::eight_phases();
        assert_eq!(workload.requests(), 2_130);
        for phase in &workload.phases {
            assert_eq!(phase.span, Nanos::from_secs(10));
        }
        assert_eq!(millis(&workload)[9..12], [9_000, 0, 500]);
    }

    #[test]
    fn a_workload_places_its_requests() {
        let steady = Workload::patterned(traffic("2/s", 2), ArrivalPattern::Steady).unwrap();
        assert_eq!(millis(&steady), [0, 500, 1_000, 1_500]);
        let burst = Workload::patterned(traffic("2/s", 2), ArrivalPattern::Burst).unwrap();
        assert_eq!(millis(&burst), [0, 0, 1_000, 1_000]);
        let second = Nanos::SECOND;
        let on_off = Workload::on_off(traffic("2/s", 4), second, second).unwrap();
        assert_eq!(millis(&on_off), [0, 500, 2_000, 2_500]);
    }

    #[test]
    fn random_requests_stay_within_their_span() {
        let zipf = Workload::zipf(traffic("100/s", 10), 50, 1.0).unwrap();
        assert!(millis(&zipf).iter().all(|at| *at < 10_000));
        assert!(
            (900..1_100).contains(&zipf.requests()),
            "{}",
            zipf.requests()
        );
        let keys = zipf.phases[0].arrivals.iter().map(|arrival| arrival.key);
        assert!(keys.clone().all(|key| key < 50));
        assert!(keys.clone().filter(|key| *key == 0).count() > 150);
        assert_eq!(zipf, Workload::zipf(traffic("100/s", 10), 50, 1.0).unwrap());
    }

    #[test]
    fn a_workload_that_is_too_large_is_refused_with_its_size() {
        let wanted = 11_000_000;
        let error = Workload::patterned(traffic("1000000/s", 11), ArrivalPattern::Steady);
        let most = MAX_REQUESTS;
        assert_eq!(error.unwrap_err(), TooLarge { wanted, most });
        let error = Workload::zipf(traffic("1/s", 1), 2_000_000, 1.0).unwrap_err();
        assert_eq!(error.most, MAX_KEYS as u64);
    }
}
