//! `try`: draws the outcome of a pattern of checks under a limit.
//!
//! ```text
//!   per-ip  20/1s burst 20  ####################.....  20 allowed, 5 refused, next in 50 ms
//! ```
//!
//! In virtual time, in this process: 25 checks or an hour of them take milliseconds, and the same
//! command draws the same bar. With `--server` the checks go to a running service, in real time.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use ratekeeper::{Clock, SystemClock};
use ratekeeper_core::{Nanos, Permits};
use ratekeeper_lab::arrivals::{self, Rate};
use ratekeeper_policy::{Policy, Rule, RuleMode, WallTime};
use serde_json::{Value, json};

use crate::answers::{LimitAnswer, answers};
use crate::client::Client;
use crate::output::{BAD, GOOD, NAME, WARN, paint};
use crate::request::{CliRequest, DescriptorArgs};
use crate::source::{self, PolicySource};
use crate::trial::{Mark, NextPass, Trial};
use crate::{Exit, Failure, Output, limits, words};

/// Send a pattern of checks against a limit, in virtual time, and draw the decisions
#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct TryArgs {
    /// The policy file [default: ./ratekeeper.toml]
    #[arg(conflicts_with = "server")]
    policy: Option<PathBuf>,
    /// Name of the limit; without it every limit of the policy is tried
    #[arg(long, value_name = "NAME")]
    limit: Option<String>,
    /// Number of checks
    #[arg(
        short = 'n',
        long = "number",
        value_name = "CHECKS",
        default_value_t = 25
    )]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=MAX_CHECKS))]
    number: u32,
    /// Rate of the checks, for example 50/s or 100/1m; without it all come at once
    #[arg(long, value_name = "N/PERIOD")]
    rate: Option<Rate>,
    /// Pattern of the checks: evenly, N at once every PERIOD, or at random [default: steady]
    #[arg(long, value_enum, requires = "rate")]
    pattern: Option<TryPattern>,
    /// With --pattern poisson: seed of the moments; the same seed gives the same moments
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Cost of each check
    #[arg(long, value_name = "PERMITS", default_value_t = 1)]
    cost: u64,
    /// Send the checks to this running service instead, in real time
    #[arg(long, value_name = "URL", requires = "limit")]
    server: Option<String>,
    /// With --server: part of the request, as for `check` [default: ip=192.0.2.1]
    #[arg(long = "part", value_name = "PART=VALUE", requires = "server")]
    #[arg(conflicts_with = "descriptor")]
    parts: Vec<String>,
    #[command(flatten)]
    descriptor: DescriptorArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Examples:
  ratekeeper try --limit per-ip -n 25
  ratekeeper try ratekeeper.toml -n 200 --rate 50/s
  ratekeeper try --limit login -n 100 --rate 10/1m --pattern poisson --seed 7
  ratekeeper try --descriptor plan=pro,user=ada --domain edge
  ratekeeper try --limit per-ip -n 25 --server http://127.0.0.1:8080 --part ip=192.0.2.1

The bar: `#` allowed, `~` allowed after a wait, `.` refused, `:` some of each.

Exit codes: 0 tried, with or without refusals; 2 usage, an error in the policy, or no service.";

/// Maximum number of checks of one call; a store in memory decides them in about a second.
const MAX_CHECKS: i64 = 1_000_000;

/// How checks come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum TryPattern {
    /// Evenly
    Steady,
    /// N at once at the beginning of every PERIOD
    Burst,
    /// Independently of each other, at random
    Poisson,
}

impl From<TryPattern> for arrivals::ArrivalPattern {
    fn from(pattern: TryPattern) -> Self {
        match pattern {
            TryPattern::Steady => Self::Steady,
            TryPattern::Burst => Self::Burst,
            TryPattern::Poisson => Self::Poisson,
        }
    }
}

/// A limit and its trial, in words.
struct Tried {
    name: String,
    text: String,
    mode: String,
    trial: Trial,
}

impl TryArgs {
    pub(crate) fn run(self, output: &mut Output) -> Result<Exit, Failure> {
        let moments = self.moments();
        let (tried, time) = match &self.server {
            Some(server) => (vec![self.ask(server, &moments)?], "real time"),
            None => (self.simulate(&moments, output)?, "virtual time"),
        };
        if self.json {
            output.json(&self.document(&tried, &moments))?;
        } else {
            output.talk(format!("{}, {time}", self.describe(&moments)));
            draw(&tried, output)?;
        }
        Ok(Exit::Done)
    }

    fn moments(&self) -> Vec<Nanos> {
        match self.rate {
            Some(rate) => {
                let pattern = self.pattern.unwrap_or(TryPattern::Steady);
                arrivals::moments(self.number, rate, pattern.into(), self.seed)
            }
            None => vec![Nanos::ZERO; self.number as usize],
        }
    }

    fn simulate(&self, moments: &[Nanos], output: &mut Output) -> Result<Vec<Tried>, Failure> {
        let path = source::path_or_default(self.policy.clone())?;
        let policy = PolicySource::read(&path)?.policy(source::BEGINNING, output)?;
        let rules: Vec<&Rule> = match &self.limit {
            Some(name) => vec![limits::named(&policy, name)?],
            None => policy
                .rules
                .iter()
                .filter(|rule| rule.mode != RuleMode::Off)
                .collect(),
        };
        let rules = self.for_descriptor(&policy, rules)?;
        let tried = rules.into_iter().map(|rule| {
            if rule.mode == RuleMode::Off {
                return Err(
                    Failure::new(format!("the limit `{}` is off", rule.limit.name))
                        .hint("write mode = \"shadow\" to decide without refusing requests"),
                );
            }
            limits::played_always(rule, output);
            Ok(Tried {
                name: rule.limit.name.to_string(),
                text: rule.text.clone(),
                mode: rule.mode.word().into(),
                trial: Trial::run(rule, moments, Permits::new(self.cost)),
            })
        });
        tried.collect()
    }

    /// Returns the `rules` that apply to the descriptor, or all without one.
    fn for_descriptor<'p>(
        &self,
        policy: &'p Policy,
        rules: Vec<&'p Rule>,
    ) -> Result<Vec<&'p Rule>, Failure> {
        let Some(descriptor) = self.descriptor.read()? else {
            return Ok(rules);
        };
        let request = CliRequest {
            cost: Some(self.cost),
            descriptor: Some(descriptor),
            ..CliRequest::default()
        };
        let answers = answers(policy, &request, WallTime::UNKNOWN, None);
        let answer = |rule: &Rule| {
            let mut pairs = policy.rules.iter().zip(&answers);
            let same = |(known, _): &(&Rule, _)| known.limit.name == rule.limit.name;
            pairs.find(same).map(|(_, answer)| answer)
        };
        if let ([rule], Some(_)) = (rules.as_slice(), &self.limit) {
            let name = &rule.limit.name;
            let refused = match answer(rule) {
                Some(LimitAnswer::Not(why)) => format!("does not apply to {request}: {why}"),
                Some(LimitAnswer::Refuses(why)) => format!("refuses {request}: {why}"),
                _ => return Ok(rules),
            };
            let failure = Failure::new(format!("the limit `{name}` {refused}"));
            return Err(failure
                .hint("a limit applies only to descriptors with exactly the entries it names"));
        }
        let applies = |rule: &&Rule| matches!(answer(rule), Some(LimitAnswer::Applies { .. }));
        let rules: Vec<&Rule> = rules.into_iter().filter(applies).collect();
        if rules.is_empty() {
            let failure = Failure::new(format!("no limit of the policy applies to {request}"));
            return Err(
                failure.hint("run `ratekeeper explain` with the same descriptor for the reasons")
            );
        }
        Ok(rules)
    }

    /// Runs the trial at a running service: each check at its moment, or as soon after it as the
    /// service answers.
    fn ask(&self, server: &str, moments: &[Nanos]) -> Result<Tried, Failure> {
        let name = self.limit.as_deref().unwrap_or_default();
        let default = ["ip=192.0.2.1".to_owned()];
        let descriptor = self.descriptor.read()?;
        let parts = match &self.parts[..] {
            [] if descriptor.is_none() => &default[..],
            parts => parts,
        };
        let mut request = CliRequest::from_parts(parts)?;
        request.cost = Some(self.cost);
        request.descriptor = descriptor;
        let body = request.body(name);
        let client = Client::new(server)?;
        let clock = SystemClock::new();
        let mut marks = Vec::with_capacity(moments.len());
        for moment in moments {
            sleep(moment.saturating_sub(clock.now().since(ratekeeper_core::Time::ZERO)));
            let answer = client.post("/v1/check?status=200", &body)?;
            marks.push(mark(limit_of(&answer, name)?));
        }
        let answer = client.post("/v1/peek?status=200", &body)?;
        let limit = limit_of(&answer, name)?;
        Ok(Tried {
            name: name.into(),
            text: String::new(),
            mode: limit["mode"].as_str().unwrap_or("enforce").into(),
            trial: Trial {
                marks,
                next: next(limit),
            },
        })
    }

    /// Describes the checks: `25 checks over 480 ms`.
    fn describe(&self, moments: &[Nanos]) -> String {
        let cost = if self.cost == 1 {
            String::new()
        } else {
            format!(" of cost {}", self.cost)
        };
        let number = words::counted(moments.len(), "check");
        match moments.last() {
            Some(&last) if last > Nanos::ZERO => {
                format!("{number}{cost} over {}", words::span(last))
            }
            _ => format!("{number}{cost} at once"),
        }
    }

    fn document(&self, tried: &[Tried], moments: &[Nanos]) -> Value {
        let limits = tried.iter().map(|one| {
            let next = match one.trial.next {
                NextPass::After(wait) => Value::from(wait.as_millis_ceil()),
                NextPass::Never => Value::Null,
            };
            json!({
                "name": one.name,
                "limit": one.text,
                "mode": one.mode,
                "allowed": one.trial.count(Mark::Allowed),
                "delayed": one.trial.count(Mark::Delayed),
                "refused": one.trial.count(Mark::Refused),
                "next_ms": next,
                "bar": one.trial.bar(),
                "checks_per_cell": one.trial.checks_per_cell(),
            })
        });
        json!({
            "checks": moments.len(),
            "cost": self.cost,
            "span_ms": moments.last().map_or(0, |last| last.as_millis_ceil()),
            "limits": limits.collect::<Vec<_>>(),
        })
    }
}

fn draw(tried: &[Tried], output: &mut Output) -> Result<(), Failure> {
    let width =
        |text: fn(&Tried) -> &str| tried.iter().map(|one| text(one).len()).max().unwrap_or(0);
    let (names, texts) = (width(|one| &one.name), width(|one| &one.text));
    for one in tried {
        // Padded before it is painted, because escapes have no width.
        let name = paint(NAME, &format!("{:<names$}", one.name));
        let text = if texts == 0 {
            String::new()
        } else {
            format!("  {:<texts$}", one.text)
        };
        output.line(format!(
            "  {name}{text}   {}   {}",
            one.trial.painted_bar(),
            sentence(one)
        ))?;
    }
    if let Some(cell) = tried
        .iter()
        .map(|one| one.trial.checks_per_cell())
        .max()
        .filter(|&n| n > 1)
    {
        output.talk(format!(
            "  each character stands for {} checks",
            words::count(cell as u64)
        ));
    }
    Ok(())
}

/// Returns a sentence: `20 allowed, 5 refused, next in 50 ms`.
fn sentence(one: &Tried) -> String {
    let count = |mark| one.trial.count(mark);
    let number = |mark| words::count(count(mark) as u64);
    let mut text = paint(GOOD, &format!("{} allowed", number(Mark::Allowed)));
    if count(Mark::Delayed) > 0 {
        text.push_str(&paint(
            WARN,
            &format!(", {} after a wait", number(Mark::Delayed)),
        ));
    }
    let refused = if one.mode == "shadow" {
        paint(
            WARN,
            &format!("{} would be refused (shadow)", number(Mark::Refused)),
        )
    } else {
        paint(BAD, &format!("{} refused", number(Mark::Refused)))
    };
    let next = match one.trial.next {
        NextPass::After(Nanos::ZERO) => "next at once".into(),
        NextPass::After(wait) => format!("next in {}", words::span(wait)),
        NextPass::Never => "never: the cost is above the capacity of the limit".into(),
    };
    format!("{text}, {refused}, {next}")
}

/// Returns the part of the answer about the limit `name`.
fn limit_of<'a>(answer: &'a Value, name: &str) -> Result<&'a Value, Failure> {
    let limits = answer["limits"].as_array();
    limits
        .into_iter()
        .flatten()
        .find(|limit| limit["name"] == name)
        .ok_or_else(|| {
            Failure::new(format!("the limit `{name}` does not apply to this request")).hint(
                "describe the request with --part, for example --part path=/login --part \
                 method=POST, or a descriptor with --descriptor KEY=VALUE",
            )
        })
}

fn mark(limit: &Value) -> Mark {
    match limit["verdict"].as_str() {
        Some("allow") => Mark::Allowed,
        Some("allow_after") => Mark::Delayed,
        _ => Mark::Refused,
    }
}

fn next(limit: &Value) -> NextPass {
    let millis = |field: &str| Nanos::from_millis(limit[field].as_u64().unwrap_or(0));
    match limit["verdict"].as_str() {
        Some("deny_forever") => NextPass::Never,
        Some("allow_after") => NextPass::After(millis("delay_ms")),
        _ => NextPass::After(millis("retry_after_ms")),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "checks for a running service are sent in real time"
)]
fn sleep(span: Nanos) {
    std::thread::sleep(Duration::from(span));
}
