//! `simulate`: plays a workload against a limit, or against every algorithm, and reports the
//! result.
//!
//! ```text
//!   workload --lab--> report --> table and plot | JSON | SVG
//!   events   --lab--> a line of answer for each line
//! ```

use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use ratekeeper::{Clock as _, SystemClock};
use ratekeeper_core::{Algorithm as _, Nanos, Origin, Permits, Time};
use ratekeeper_lab::arrivals::{ArrivalPattern, Rate};
use ratekeeper_lab::workload::{Pause, TooLarge, Traffic};
use ratekeeper_lab::{Bench, Workload, play};
use serde_json::json;

use crate::simulation::subject::{LimitSource, Subject};
use crate::simulation::table::{self, SimulatedLimit};
use crate::simulation::{document, events, picture};
use crate::{Exit, Failure, Output, Result, source, words};

/// Play a workload against a limit, or against every algorithm, in virtual time
#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct SimulateArgs {
    #[command(flatten)]
    limit: LimitSource,
    /// Compare every algorithm at the same quota, side by side
    #[arg(long, conflicts_with_all = ["events", "real_time"])]
    compare: bool,
    /// Pattern of the requests
    #[arg(long, value_enum, default_value_t = WorkloadKind::Phases)]
    workload: WorkloadKind,
    /// Rate of requests, for example 50/s or 100/1m [default: twice the quota; with zipf, twice
    /// the quota for each ten clients]
    #[arg(long, value_name = "N/PERIOD")]
    rate: Option<Rate>,
    /// Duration of the requests, for example 10s [default: ten times the period of the quota]
    #[arg(long = "for", value_name = "DURATION")]
    span: Option<Nanos>,
    /// With on-off: durations with and without requests [default: the period of the quota]
    #[arg(long, value_name = "DURATION/DURATION")]
    on_off: Option<OnOff>,
    /// With zipf: number of clients
    #[arg(long, default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    keys: u32,
    /// With zipf: how much busier the busy clients are; with 0 all are equally busy
    #[arg(long, default_value_t = 1.0, value_parser = exponent)]
    exponent: f64,
    /// With retry: fixed wait before each further attempt [default: the wait in the refusal]
    #[arg(long, value_name = "DURATION")]
    retry_every: Option<Nanos>,
    /// With retry: number of attempts after which a client gives up
    #[arg(long, default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000))]
    attempts: u32,
    /// Cost of each request, unless the limit fixes it [default: that of a plain request]
    #[arg(long, value_name = "PERMITS")]
    cost: Option<u64>,
    /// Seed of the requests; the same seed gives the same requests
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Play in real time, by the machine's clock
    #[arg(long, conflicts_with = "events")]
    real_time: bool,
    /// Answer these events instead of a workload: JSON lines of a file, or of stdin (-)
    #[arg(long, value_name = "FILE|-", conflicts_with_all = ["svg", "workload"])]
    events: Option<PathBuf>,
    /// Write an SVG picture to this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const HELP: &str = r#"Examples:
  ratekeeper simulate --limit 10/1s
  ratekeeper simulate --limit 10/1s --compare --svg compare.svg
  ratekeeper simulate ratekeeper.toml --limit per-ip --workload bursty --rate 100/1s --for 10s
  ratekeeper simulate --limit 'bucket = { size = 40, refill = "20/1s" }' --workload retry
  echo '{"at_us": 0, "op": "check", "cost": 3}' | ratekeeper simulate --limit 10/1s --events -

Events: {"at_us": 0, "op": "check|peek|reserve|refund|reset|set", "cost": 1, "max_wait_us": 0,
"key": "k", "limit": "100/1m"}. Only `at_us` is required, microseconds since 1970 in UTC;
`max_wait_us` belongs to reserve, `limit` to set.

Exit codes: 0 simulated, with or without refusals; 1 a phase can never finish (with --compare
reported, but not an error); 2 usage, an error in the policy, or events that could not be
answered."#;

/// Pattern of the requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum WorkloadKind {
    /// Eight phases of ten seconds, 1/s to 100/s; refused requests repeat every 10 ms
    Phases,
    /// Evenly
    Constant,
    /// N at once at the beginning of every period
    Bursty,
    /// At random, independently of each other
    Poisson,
    /// Evenly for a while, then not at all for a while
    OnOff,
    /// Many clients at random, few of them busy
    Zipf,
    /// Evenly, from clients that try again when they are refused
    Retry,
}

/// `5s/10s`
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct OnOff {
    on: Nanos,
    off: Nanos,
}

impl std::str::FromStr for OnOff {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "expected two durations, for example 5s/10s".to_owned();
        let (on, off) = text.split_once('/').ok_or_else(wrong)?;
        let span = |text: &str| text.parse::<Nanos>().map_err(|_| wrong());
        let (on, off) = (span(on)?, span(off)?);
        if on == Nanos::ZERO {
            return Err("the duration with requests must be above zero".into());
        }
        Ok(Self { on, off })
    }
}

fn exponent(text: &str) -> Result<f64, String> {
    let number = text
        .parse::<f64>()
        .ok()
        .filter(|number| (0.0..=10.0).contains(number));
    number.ok_or_else(|| "expected a number from 0 to 10".into())
}

impl SimulateArgs {
    pub(crate) fn run(self, output: &mut Output) -> Result<Exit> {
        let clock = self.real_time.then(SystemClock::new);
        let origin = match (&clock, &self.events) {
            (Some(clock), _) => clock.origin(),
            (None, Some(_)) => Origin::UNIX, // events are in Unix time
            (None, None) => source::BEGINNING,
        };
        let subject = self.limit.subject(origin, output)?;
        if let Some(path) = &self.events {
            return answer_events(path, subject, origin);
        }
        let workload = self.workload(&subject)?;
        let title = self.title(&subject, &workload);
        let subjects = if self.compare {
            subject.compared(origin, output)?
        } else {
            vec![subject]
        };
        let outcomes: Vec<SimulatedLimit> = subjects
            .into_iter()
            .map(|subject| {
                let mut bench = Bench::new(subject.algorithm.clone());
                let report = play(&mut bench, &workload, clock.as_ref());
                SimulatedLimit { subject, report }
            })
            .collect();
        if let Some(path) = &self.svg {
            picture::write(path, &title, &outcomes)?;
        }
        self.write_report(&title, &workload, &outcomes, output)?;
        let stopped = outcomes.iter().any(|outcome| outcome.report.stop.is_some());
        Ok(Exit::done_if(!stopped || self.compare))
    }

    fn workload(&self, subject: &Subject) -> Result<Workload> {
        let cost = subject.cost.usual(self.cost.map(Permits::new));
        if self.workload == WorkloadKind::Phases {
            if self.rate.is_some() || self.span.is_some() {
                let failure = Failure::new("the eight phases have fixed rates and durations");
                return Err(failure.hint(
                    "use --rate and --for with another workload, for example --workload constant",
                ));
            }
            return Ok(Workload::eight_phases().with_cost(cost));
        }
        let traffic = self.traffic(subject)?;
        let workload = match self.workload {
            WorkloadKind::Phases | WorkloadKind::Constant => {
                Workload::patterned(traffic, ArrivalPattern::Steady)
            }
            WorkloadKind::Bursty => Workload::patterned(traffic, ArrivalPattern::Burst),
            WorkloadKind::Poisson => Workload::patterned(traffic, ArrivalPattern::Poisson),
            WorkloadKind::OnOff => {
                let window = subject.window;
                let OnOff { on, off } = self.on_off.unwrap_or(OnOff {
                    on: window,
                    off: window,
                });
                Workload::on_off(traffic, on, off)
            }
            WorkloadKind::Zipf => Workload::zipf(traffic, self.keys, self.exponent),
            WorkloadKind::Retry => {
                let pause = self.retry_every.map_or(Pause::Stated, Pause::Fixed);
                Workload::retrying(traffic, pause, self.attempts)
            }
        };
        Ok(workload.map_err(too_large)?.with_cost(cost))
    }

    /// Returns the traffic of the options, or twice the quota for ten times its span.
    fn traffic(&self, subject: &Subject) -> Result<Traffic> {
        let usual = subject.quota.and_then(|quota| {
            let clients = match self.workload {
                WorkloadKind::Zipf => self.keys.div_ceil(10), // up: at least one
                _ => 1,
            };
            let twice = quota.permits().get().saturating_mul(2);
            Rate::new(twice.saturating_mul(clients.into()), quota.per())
        });
        let rate = self.rate.or(usual).ok_or_else(|| {
            Failure::new(format!(
                "no default rate of requests follows from `{}`",
                subject.text
            ))
            .hint("set a rate, for example --rate 50/s")
        })?;
        let usual = Nanos::from_nanos(subject.window.as_nanos().saturating_mul(10));
        Ok(Traffic {
            rate,
            span: self.span.unwrap_or(usual),
            seed: self.seed,
        })
    }

    /// Returns the title, `phases against 10/1s, seed 1`.
    fn title(&self, subject: &Subject, workload: &Workload) -> String {
        let kind = self.workload.to_possible_value();
        let kind = kind.as_ref().map_or("", |value| value.get_name());
        let by = if self.compare {
            String::new()
        } else {
            format!(" ({})", subject.algorithm.name())
        };
        let requests = words::counted(workload.requests(), "request");
        let cost = words::of_cost(workload.cost);
        let text = &subject.text;
        format!(
            "{kind}: {requests}{cost} against {text}{by}, seed {}",
            self.seed
        )
    }

    fn write_report(
        &self,
        title: &str,
        workload: &Workload,
        outcomes: &[SimulatedLimit],
        output: &mut Output,
    ) -> Result<()> {
        let time = if self.real_time { "real" } else { "virtual" };
        if self.json {
            let limits: Vec<_> = outcomes.iter().map(document::outcome).collect();
            return output.json(&json!({
                "title": title,
                "seed": self.seed,
                "time": time,
                "cost": workload.cost.get(),
                "limits": limits,
            }));
        }
        output.talk(format!("{title}, {time} time"));
        if self.compare {
            table::compared(outcomes, workload, output)?;
        } else {
            for outcome in outcomes {
                table::one(outcome, workload.rows, output)?;
                if let Some(worst) = table::worst(outcome) {
                    output.line(format!("  {worst}"))?;
                }
                if outcome.report.end > Time::ZERO {
                    output.line("")?;
                    table::draw(&outcome.report, workload.rows, Output::width(), output)?;
                }
            }
        }
        for outcome in outcomes {
            if let Some(reason) = table::reason(&outcome.report) {
                output.talk(format!("{}: {reason}", outcome.subject.name));
            }
        }
        Ok(())
    }
}

fn answer_events(path: &Path, subject: Subject, origin: Origin) -> Result<Exit> {
    let tally = if path == Path::new("-") {
        events::answer(io::stdin().lock(), subject, origin)?
    } else {
        let file = std::fs::File::open(path)
            .map_err(|why| Failure::new(format!("cannot open `{}`: {why}", path.display())))?;
        events::answer(file, subject, origin)?
    };
    if tally.wrong == 0 {
        return Ok(Exit::Done);
    }
    let lines = words::counted(tally.lines, "line");
    Err(Failure::new(format!(
        "{} of {lines} could not be answered",
        words::count(tally.wrong)
    )))
}

fn too_large(error: TooLarge) -> Failure {
    let TooLarge { wanted, most } = error;
    let message = format!(
        "a workload of {} requests or keys is too large; the maximum is {}",
        words::count(wanted),
        words::count(most)
    );
    Failure::new(message).hint("reduce --rate, --for or --keys")
}
