//! Play: a workload against a limit, moment by moment.
//!
//! ```text
//!   arrivals --+
//!              +--> all requests of a moment   --> decide --> passed: counted
//!   waiting ---+                                      |
//!      ^                                              v
//!      +---- asks again: every 10 ms, retry_after .. refused --> gives up
//! ```
//!
//! A refused request leaves no trace, unless the limit counts refusals. So when a limit of one key
//! has refused one request of a moment, the others of that moment are refused without a decision:
//! the eight phases take 20,000 decisions in place of six million.

use std::collections::{BTreeMap, VecDeque};

use ratekeeper::{Block as _, Clock as _, SystemClock};
use ratekeeper_core::{Algorithm as _, Nanos, Time, Verdict};

use crate::bench::{Bench, KeyId};
use crate::report::{AdmissionCounts, Report, ReportRow, Stop};
use crate::series::CountSeries;
use crate::workload::{AfterRefusal, Pause, ReportRows, Workload, WorkloadPhase};

/// Maximum number of decisions of one play.
pub const MAX_DECISIONS: u64 = 20_000_000;
/// With clients that never give up: time without an admission, beyond any promised moment, after
/// which the limit is held never to admit again.
pub const DROUGHT: Nanos = Nanos::from_secs(120);

/// Plays a workload and returns the report: in the time of `clock`, which should start at zero now,
/// or in virtual time without one.
pub fn play(bench: &mut Bench, workload: &Workload, clock: Option<&SystemClock>) -> Report {
    let mut play = Play::new(bench, workload, clock);
    let mut phases = workload.phases.iter();
    let played = phases.try_fold(Time::ZERO, |start, phase| play.phase(phase, start));
    play.stop = played.err();
    play.close_row();
    play.report()
}

/// A request that has come and not yet passed.
#[derive(Clone, Copy, Debug)]
struct SimulatedClient {
    key: KeyId,
    came: Time,
    /// Attempts so far.
    attempts: u32,
}

/// Requests that are decided at one moment, in order.
type Crowd = VecDeque<SimulatedClient>;

struct Play<'a> {
    bench: &'a mut Bench,
    workload: &'a Workload,
    /// `None` in virtual time, where every moment is reached at once.
    clock: Option<&'a SystemClock>,
    /// Refused requests, by the moment at which they come again.
    waiting: BTreeMap<Time, Crowd>,
    /// True if one refusal applies to all requests of the same moment.
    stands_for_all: bool,
    rows: Vec<ReportRow>,
    series: CountSeries,
    passes: Option<Vec<Time>>,
    decisions: u64,
    /// Last moment at which anything happened: a pass, a refusal, the end of a phase.
    end: Time,
    /// When the limit last admitted, and the moment that it promised when it then refused.
    admitted_last: Time,
    promised: Option<Time>,
    stop: Option<Stop>,
}

impl<'a> Play<'a> {
    fn new(bench: &'a mut Bench, workload: &'a Workload, clock: Option<&'a SystemClock>) -> Self {
        let arrivals = workload.phases.iter().flat_map(|phase| &phase.arrivals);
        let one_key = arrivals.into_iter().all(|arrival| arrival.key == 0);
        Self {
            stands_for_all: one_key && !bench.counts_refusals(),
            bench,
            workload,
            clock,
            waiting: BTreeMap::new(),
            rows: Vec::new(),
            series: CountSeries::new(),
            passes: one_key.then(Vec::new),
            decisions: 0,
            end: Time::ZERO,
            admitted_last: Time::ZERO,
            promised: None,
            stop: None,
        }
    }

    /// Plays one phase, and returns when the next may start.
    fn phase(&mut self, phase: &WorkloadPhase, start: Time) -> Result<Time, Stop> {
        self.open_rows(phase, start);
        (self.admitted_last, self.promised) = (start, None);
        let mut arrivals = phase.arrivals.iter().peekable();
        loop {
            let next_arrival = arrivals.peek().map(|arrival| start + arrival.at);
            let next_attempt = self.waiting.first_key_value().map(|(moment, _)| *moment);
            let Some(moment) = next_arrival.into_iter().chain(next_attempt).min() else {
                break;
            };
            let now = self.reach(moment);
            self.end = self.end.max(now);
            let mut crowd = self.waiting.remove(&moment).unwrap_or_default();
            while let Some(arrival) = arrivals.next_if(|arrival| start + arrival.at == moment) {
                self.row(now).offered += 1;
                self.series.at(now).offered += 1;
                crowd.push_back(SimulatedClient {
                    key: arrival.key,
                    came: now,
                    attempts: 0,
                });
            }
            self.ask(crowd, moment, now)?;
        }
        self.end = self.reach((start + phase.span).max(self.end));
        self.close_row();
        Ok(self.end)
    }

    /// Returns the time at which `moment` is reached: that moment, or later.
    fn reach(&self, moment: Time) -> Time {
        let Some(clock) = self.clock else {
            return moment;
        };
        let mut now = clock.now();
        while now < moment {
            clock.sleep(moment.since(now));
            now = clock.now();
        }
        now
    }

    /// Decides all requests of the crowd, in order; a refused client may come again.
    fn ask(&mut self, mut crowd: Crowd, moment: Time, now: Time) -> Result<(), Stop> {
        while let Some(client) = crowd.pop_front() {
            let verdict = self.decide(client.key, now)?;
            let Some(wait) = self.settle(client, verdict, now) else {
                continue;
            };
            self.promised.get_or_insert(now + wait);
            if let AfterRefusal::Poll { every } = self.workload.refused
                && self.stands_for_all
            {
                crowd.push_front(client);
                self.refuse(crowd.len() as u64, now);
                let there = self.waiting.entry(moment + every).or_default();
                if there.is_empty() {
                    *there = crowd; // no copy: a crowd moves as a whole
                } else {
                    there.append(&mut crowd);
                }
                return self.check_drought(now);
            }
            self.refuse(1, now);
            let attempts = client.attempts + 1;
            let next = match self.workload.refused {
                AfterRefusal::Leave => None,
                AfterRefusal::Poll { every } => {
                    self.check_drought(now)?;
                    Some(moment + every)
                }
                AfterRefusal::Retry {
                    pause,
                    attempts: most,
                } => {
                    let pause = match pause {
                        Pause::Stated => wait,
                        Pause::Fixed(every) => every,
                    };
                    Some(now + pause).filter(|_| attempts < most && pause < Nanos::MAX)
                }
            };
            let Some(next) = next else {
                self.row(now).gave_up += 1;
                continue;
            };
            let there = self.waiting.entry(next).or_default();
            there.push_back(SimulatedClient { attempts, ..client });
        }
        Ok(())
    }

    fn decide(&mut self, key: KeyId, now: Time) -> Result<Verdict, Stop> {
        if self.decisions >= MAX_DECISIONS {
            return Err(Stop::TooMany);
        }
        self.decisions += 1;
        Ok(self.bench.decide(key, now, self.workload.cost).verdict)
    }

    /// Counts a request that passes. Returns the `retry_after` of one that is refused.
    fn settle(&mut self, client: SimulatedClient, verdict: Verdict, now: Time) -> Option<Nanos> {
        let wait = match verdict {
            Verdict::Allow => Nanos::ZERO,
            Verdict::AllowAfter(wait) => wait,
            denied => return Some(denied.retry_after().unwrap_or(Nanos::MAX)),
        };
        let passes = now + wait;
        let waited = passes.since(client.came);
        let counts = self.row(passes);
        counts.admitted += 1;
        counts.delayed += u64::from(wait > Nanos::ZERO);
        counts.waited += u64::from(waited > Nanos::ZERO);
        counts.wait_total += u128::from(waited.as_nanos());
        counts.wait_max = counts.wait_max.max(waited);
        self.series.at(passes).admitted += 1;
        if let Some(list) = &mut self.passes {
            list.push(passes);
        }
        self.end = self.end.max(passes);
        (self.admitted_last, self.promised) = (now, None);
        None
    }

    fn refuse(&mut self, count: u64, now: Time) {
        self.row(now).refused += count;
        self.series.at(now).refused += count;
    }

    /// Returns an error if clients that never give up are asking in vain.
    fn check_drought(&self, now: Time) -> Result<(), Stop> {
        let Some(promised) = self.promised else {
            return Ok(());
        };
        if !matches!(self.workload.refused, AfterRefusal::Poll { .. }) {
            return Ok(());
        }
        let capacity = self.bench.algorithm().capacity();
        if self.workload.cost > capacity {
            return Err(Stop::NeverFits { capacity });
        }
        if now.since(self.admitted_last) <= DROUGHT || now <= promised {
            return Ok(());
        }
        let (row, since) = (self.rows.len() - 1, self.admitted_last);
        Err(if self.bench.counts_refusals() {
            Stop::RefusalsCount { row, since }
        } else {
            Stop::Drought { row, since }
        })
    }

    /// Ends the row of a phase at the last moment at which anything happened.
    fn close_row(&mut self) {
        if self.workload.rows == ReportRows::Phases
            && let Some(row) = self.rows.last_mut()
        {
            row.end = self.end;
        }
    }

    fn open_rows(&mut self, phase: &WorkloadPhase, start: Time) {
        let row = |start, end| ReportRow {
            start,
            end,
            rate: phase.rate,
            counts: AdmissionCounts::default(),
        };
        match self.workload.rows {
            ReportRows::Phases => self.rows.push(row(start, start)),
            ReportRows::Intervals { length, count } => {
                for _ in 0..count {
                    let start = self.rows.last().map_or(start, |row| row.end);
                    self.rows.push(row(start, start + length));
                }
            }
        }
    }

    /// Returns the row of a moment.
    fn row(&mut self, moment: Time) -> &mut AdmissionCounts {
        let ReportRows::Intervals { length, count } = self.workload.rows else {
            let row = self.rows.last_mut();
            return &mut row.expect("a phase opens its row first").counts;
        };
        let index = moment.as_nanos() / length.as_nanos().max(1);
        let index = usize::try_from(index).unwrap_or(usize::MAX).min(count);
        if index == self.rows.len() {
            let start = self.rows.last().map_or(Time::ZERO, |row| row.end);
            self.rows.push(ReportRow {
                start,
                end: start,
                rate: None,
                counts: AdmissionCounts::default(),
            });
        }
        let row = &mut self.rows[index];
        row.end = row.end.max(moment);
        &mut row.counts
    }

    fn report(mut self) -> Report {
        let mut total = AdmissionCounts::default();
        for row in &self.rows {
            total.add(&row.counts);
        }
        if let Some(passes) = &mut self.passes {
            passes.sort_unstable(); // a delayed request passes later than some that came later
        }
        Report {
            rows: self.rows,
            total,
            end: self.end,
            series: self.series,
            stop: self.stop,
            decisions: self.decisions,
            passes: self.passes,
            cost: self.workload.cost,
        }
    }
}

#[cfg(test)]
mod tests {
    use ratekeeper_core::{AnyAlgorithm, Denials, Gcra, Permits, Window};

    use super::*;
    use crate::arrivals::ArrivalPattern;
    use crate::workload::Traffic;

    fn bucket(quota: &str) -> Gcra {
        Gcra::token_bucket(quota.parse().unwrap()).unwrap()
    }

    fn traffic(rate: &str, secs: u64) -> Traffic {
        Traffic {
            rate: rate.parse().unwrap(),
            span: Nanos::from_secs(secs),
            seed: 1,
        }
    }

    fn run(limit: impl Into<AnyAlgorithm>, workload: &Workload) -> Report {
        play(&mut Bench::new(limit.into()), workload, None)
    }

    #[test]
    fn real_time_comes_to_no_moment_before_its_time() {
        let (mut bench, workload) = (Bench::new(bucket("1/1s").into()), Workload::eight_phases());
        let clock = SystemClock::new();
        let play = Play::new(&mut bench, &workload, Some(&clock));
        let moment = clock.now() + Nanos::from_millis(2);
        assert!(play.reach(moment) >= moment);
        assert!(play.reach(Time::ZERO) > Time::ZERO, "a moment that is past");
        let virtual_time = Play::new(&mut bench, &workload, None);
        assert_eq!(virtual_time.reach(moment), moment);
    }

    #[test]
    fn a_client_that_leaves_after_a_refusal_is_counted_once() {
        let workload = Workload::patterned(traffic("20/s", 10), ArrivalPattern::Steady).unwrap();
        let report = run(bucket("10/1s"), &workload);
        let AdmissionCounts {
            offered,
            admitted,
            refused,
            gave_up,
            ..
        } = report.total;
        // 10 saved up, and one every 100 ms from the first taken to 9.95 s.
        assert_eq!((offered, admitted), (200, 109));
        assert_eq!((refused, gave_up), (91, 91));
        assert_eq!(report.rows.len(), 10);
        assert_eq!(report.rows[0].counts.admitted, 19);
        assert_eq!(report.rows[9].counts.admitted, 10);
        assert_eq!(report.end, Time::ZERO + Nanos::from_secs(10));
        assert_eq!(report.most_within(Nanos::SECOND), Some(19), "its bound");
    }

    #[test]
    fn a_client_that_waits_for_retry_after_is_served_at_the_second_attempt() {
        let burst = Workload::retrying(traffic("2/s", 1), Pause::Stated, 5).unwrap();
        let report = run(bucket("1/1s"), &burst);
        let AdmissionCounts {
            admitted,
            refused,
            gave_up,
            waited,
            ..
        } = report.total;
        assert_eq!((admitted, refused, gave_up, waited), (2, 1, 0, 1));
        assert_eq!(report.total.wait_max, Nanos::from_millis(500));
        let later = report.rows.last().unwrap();
        assert_eq!(
            (report.rows.len(), later.counts.admitted),
            (11, 1),
            "after the end"
        );
    }

    #[test]
    fn impatient_clients_are_refused_and_give_up() {
        let pause = Pause::Fixed(Nanos::from_millis(100));
        let workload = Workload::retrying(traffic("2/s", 1), pause, 3).unwrap();
        let AdmissionCounts {
            admitted,
            refused,
            gave_up,
            ..
        } = run(bucket("1/1s"), &workload).total;
        assert_eq!((admitted, refused, gave_up), (1, 3, 1));
    }

    #[test]
    fn a_queue_lets_pass_later() {
        let queue = Gcra::leaky_queue("10/1s".parse().unwrap(), Permits::new(5)).unwrap();
        let workload = Workload::patterned(traffic("20/s", 1), ArrivalPattern::Burst).unwrap();
        let total = run(queue, &workload).total;
        assert_eq!((total.admitted, total.delayed, total.refused), (6, 5, 14));
        assert_eq!(total.wait_max, Nanos::from_millis(500));
        assert_eq!(total.wait_mean(), Some(Nanos::from_millis(250)));
    }

    #[test]
    fn a_limit_that_counts_refusals_stops_the_simulation() {
        let strict = bucket("10/1s").with_denials(Denials::Counted);
        let report = run(strict, &Workload::eight_phases());
        let Some(Stop::RefusalsCount { row, since }) = report.stop else {
            panic!("{:?}", report.stop);
        };
        assert_eq!(row, 4, "20 a second is more than it admits");
        assert!(report.end.since(since) > DROUGHT);
        assert!(report.end.since(since) < DROUGHT + Nanos::SECOND);
    }

    #[test]
    fn a_slow_limit_is_not_taken_for_a_dead_one() {
        let mut workload = Workload::eight_phases();
        workload.phases.truncate(1);
        let report = run(bucket("1/1h"), &workload);
        assert_eq!(report.stop, None);
        assert_eq!(report.total.admitted, 10);
        assert_eq!(report.end, Time::ZERO + Nanos::from_secs(9 * 3_600));
    }

    #[test]
    fn a_cost_above_the_capacity_never_fits() {
        let workload = Workload::eight_phases().with_cost(Permits::new(11));
        let capacity = Permits::new(10);
        let report = run(bucket("10/1s"), &workload);
        assert_eq!(report.stop, Some(Stop::NeverFits { capacity }));
    }

    #[test]
    fn one_refusal_stands_for_all_without_changing_the_outcome() {
        let quota = "10/1s".parse().unwrap();
        let limits: [AnyAlgorithm; 3] = [
            bucket("10/1s").into(),
            Window::fixed(quota, Nanos::ZERO).unwrap().into(),
            Window::two_window(quota, Nanos::ZERO).unwrap().into(),
        ];
        let mut workload = Workload::eight_phases();
        workload.phases.truncate(6);
        for limit in limits {
            let quick = run(limit.clone(), &workload);
            let mut bench = Bench::new(limit);
            let mut play = Play::new(&mut bench, &workload, None);
            play.stands_for_all = false;
            let mut start = Time::ZERO;
            for phase in &workload.phases {
                start = play.phase(phase, start).unwrap();
            }
            let thorough = play.report();
            assert!(thorough.decisions > 10 * quick.decisions);
            let decisions = quick.decisions;
            assert_eq!(
                Report {
                    decisions,
                    ..thorough
                },
                quick
            );
        }
    }

    #[test]
    fn many_keys_have_a_limit_each() {
        let workload = Workload::zipf(traffic("1000/s", 10), 100, 1.0).unwrap();
        let report = run(bucket("10/1s"), &workload);
        assert_eq!(report.most_within(Nanos::SECOND), None);
        assert!(report.total.admitted > 2_000, "more than one key could get");
        assert_eq!(
            report.total.offered,
            report.total.admitted + report.total.refused
        );
    }
}
