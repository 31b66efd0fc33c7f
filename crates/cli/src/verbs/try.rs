//! `try`: draws the outcome of a pattern of checks under a limit.
//!
//! ```text
//!   per-ip  20/1s burst 20  ####################.....  20 allowed, 5 refused, next in 50 ms
//! ```
//!
//! In virtual time, in this process: 25 checks or an hour of them take milliseconds, and the same
//! command draws the same bar. `simulate` plays other traffic, of several clients.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use ratekeeper_core::{Nanos, Permits};
use ratekeeper_lab::arrivals::Rate;
use ratekeeper_policy::{Policy, Rule, RuleMode, WallTime};
use serde_json::{Value, json};

use crate::answers::{LimitAnswer, answers};
use crate::output::{BAD, GOOD, NAME, WARN, paint};
use crate::request::{CliRequest, DescriptorArgs};
use crate::source::{self, PolicySource};
use crate::trial::{Mark, Trial};
use crate::{Exit, Failure, Output, Result, limits, words};

/// Check a limit many times, at once or at a rate, in virtual time, and draw the decisions
#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct TryArgs {
    /// The policy file [default: ./ratekeeper.toml]
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
    /// Cost of each check, unless the limit fixes it [default: that of a plain request]
    #[arg(long, value_name = "PERMITS")]
    cost: Option<u64>,
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
  ratekeeper try --descriptor plan=pro,user=ada --domain edge

The bar: `#` allowed, `~` allowed after a wait, `.` refused, `:` some of each.

Exit codes: 0 tried, with or without refusals; 2 usage, or an error in the policy.";

/// Maximum number of checks of one call, which take less than a second.
const MAX_CHECKS: i64 = 1_000_000;

/// A limit and its trial.
struct Tried<'p> {
    /// With the numbers that hold for the descriptor.
    rule: Cow<'p, Rule>,
    cost: Permits,
    trial: Trial,
}

impl TryArgs {
    pub(crate) fn run(self, output: &mut Output) -> Result<Exit> {
        let moments = self.moments();
        let path = source::path_or_default(self.policy.clone())?;
        let policy = PolicySource::read(&path)?.policy(source::BEGINNING, output)?;
        let tried = self.simulate(&policy, &moments, output)?;
        if self.json {
            output.json(&Self::document(&tried, &moments))?;
        } else {
            output.talk(format!("{}, virtual time", self.describe(&moments)));
            draw(&tried, output)?;
        }
        Ok(Exit::Done)
    }

    fn moments(&self) -> Vec<Nanos> {
        let moment = |index| self.rate.map_or(Nanos::ZERO, |rate| rate.moment(index));
        (0..u64::from(self.number)).map(moment).collect()
    }

    fn simulate<'p>(
        &self,
        policy: &'p Policy,
        moments: &[Nanos],
        output: &mut Output,
    ) -> Result<Vec<Tried<'p>>> {
        let all = policy.rules.iter();
        let rules = match &self.limit {
            Some(name) => vec![limits::named(policy, name)?],
            None => all.filter(|rule| rule.mode != RuleMode::Off).collect(),
        };
        let rules = self.for_descriptor(policy, rules)?;
        let tried = rules.into_iter().map(|(rule, cost)| {
            if rule.mode == RuleMode::Off {
                return Err(
                    Failure::new(format!("the limit `{}` is off", rule.limit.name))
                        .hint("write mode = \"shadow\" to decide without refusing requests"),
                );
            }
            limits::played_always(&rule, output);
            let trial = Trial::run(&rule, moments, cost);
            Ok(Tried { rule, cost, trial })
        });
        tried.collect()
    }

    /// Returns the `rules` that apply to the descriptor, or all without one, with their costs.
    fn for_descriptor<'p>(
        &self,
        policy: &'p Policy,
        rules: Vec<&'p Rule>,
    ) -> Result<Vec<(Cow<'p, Rule>, Permits)>> {
        let Some(descriptor) = self.descriptor.read()? else {
            let usual = |rule: &'p Rule| rule.cost.usual(self.cost.map(Permits::new));
            let rules = rules.into_iter();
            return Ok(rules
                .map(|rule| (Cow::Borrowed(rule), usual(rule)))
                .collect());
        };
        let request = CliRequest {
            cost: self.cost,
            descriptor: Some(descriptor),
            ..CliRequest::default()
        };
        let answers = answers(policy, &request, WallTime::UNKNOWN, None);
        let mut answered: Vec<_> = policy.rules.iter().zip(answers).collect();
        answered.retain(|(known, _)| rules.iter().any(|rule| rule.limit.name == known.limit.name));
        if let ([(rule, answer)], Some(_)) = (answered.as_slice(), &self.limit) {
            let name = &rule.limit.name;
            let refused = match answer {
                LimitAnswer::Not(why) => Some(format!("does not apply to {request}: {why}")),
                LimitAnswer::Refuses(why) => Some(format!("refuses {request}: {why}")),
                LimitAnswer::Applies(_) => None,
            };
            if let Some(refused) = refused {
                let failure = Failure::new(format!("the limit `{name}` {refused}"));
                return Err(failure.hint(
                    "a limit applies only to descriptors with exactly the entries it names",
                ));
            }
        }
        let applied = answered.into_iter().filter_map(|(rule, answer)| {
            let LimitAnswer::Applies(applied) = answer else {
                return None;
            };
            let held = applied.numbers.and_then(|numbers| numbers.rule);
            let held = held.map(|mut held| {
                held.limit.name = Arc::clone(&rule.limit.name); // without the numbers
                Cow::Owned(held)
            });
            Some((held.unwrap_or(Cow::Borrowed(rule)), applied.cost))
        });
        let applied: Vec<_> = applied.collect();
        if applied.is_empty() {
            let failure = Failure::new(format!("no limit of the policy applies to {request}"));
            return Err(
                failure.hint("run `ratekeeper explain` with the same descriptor for the reasons")
            );
        }
        Ok(applied)
    }

    /// Describes the checks: `25 checks over 480 ms`.
    fn describe(&self, moments: &[Nanos]) -> String {
        let cost = words::of_cost(self.cost.map_or(Permits::ONE, Permits::new));
        let number = words::counted(moments.len(), "check");
        match moments.last() {
            Some(&last) if last > Nanos::ZERO => {
                format!("{number}{cost} over {}", words::span(last))
            }
            _ => format!("{number}{cost} at once"),
        }
    }

    fn document(tried: &[Tried<'_>], moments: &[Nanos]) -> Value {
        let limits = tried.iter().map(|one| {
            json!({
                "name": &*one.rule.limit.name,
                "limit": one.rule.text,
                "cost": one.cost.get(),
                "mode": one.rule.mode.as_ref(),
                "allowed": one.trial.count(Mark::Allowed),
                "delayed": one.trial.count(Mark::Delayed),
                "refused": one.trial.count(Mark::Refused),
                "next_ms": one.trial.next.map(Nanos::as_millis_ceil),
                "bar": one.trial.bar(),
                "checks_per_cell": one.trial.checks_per_cell(),
            })
        });
        json!({
            "checks": moments.len(),
            "span_ms": moments.last().map_or(0, |last| last.as_millis_ceil()),
            "limits": limits.collect::<Vec<_>>(),
        })
    }
}

fn draw(tried: &[Tried<'_>], output: &mut Output) -> Result<()> {
    let width = |text: fn(&Rule) -> &str| tried.iter().map(|one| text(&one.rule).len()).max();
    let names = width(|rule| &rule.limit.name).unwrap_or(0);
    let texts = width(|rule| &rule.text).unwrap_or(0);
    for one in tried {
        // Padded before it is painted, because escapes have no width.
        let name = paint(NAME, &format!("{:<names$}", one.rule.limit.name));
        output.line(format!(
            "  {name}  {:<texts$}   {}   {}",
            one.rule.text,
            one.trial.painted_bar(),
            sentence(one)
        ))?;
    }
    let cells = tried.iter().map(|one| one.trial.checks_per_cell());
    if let Some(cell) = cells.max().filter(|checks| *checks > 1) {
        output.talk(format!(
            "  each character stands for {} checks",
            words::count(cell)
        ));
    }
    Ok(())
}

/// Returns a sentence: `20 allowed, 5 refused, next in 50 ms`.
fn sentence(one: &Tried<'_>) -> String {
    let count = |mark| one.trial.count(mark);
    let number = |mark| words::count(count(mark));
    let mut text = paint(GOOD, &format!("{} allowed", number(Mark::Allowed)));
    if count(Mark::Delayed) > 0 {
        let delayed = format!(", {} after a wait", number(Mark::Delayed));
        text.push_str(&paint(WARN, &delayed));
    }
    let refused = if one.rule.mode == RuleMode::Shadow {
        paint(
            WARN,
            &format!("{} would be refused (shadow)", number(Mark::Refused)),
        )
    } else {
        paint(BAD, &format!("{} refused", number(Mark::Refused)))
    };
    let next = match one.trial.next {
        Some(Nanos::ZERO) => "next at once".into(),
        Some(wait) => format!("next in {}", words::span(wait)),
        None if one.cost <= one.rule.quota => "never by waiting: the rest is granted".into(),
        None => "never: the cost is above the capacity of the limit".into(),
    };
    format!("{text}, {refused}, {next}")
}
