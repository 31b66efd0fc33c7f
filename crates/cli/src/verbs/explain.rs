//! `explain`: the limits that a request must pass, and why; the maximum that each admits.

mod document;
mod lines;

use std::path::PathBuf;

use clap::Args;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use ratekeeper::{Clock, SystemClock};
use ratekeeper_core::{Mode, Origin, Time};
use ratekeeper_policy::{Policy, ProxySettings, Rule, RuleMode, WallTime};

use self::document::document;
pub(crate) use self::lines::{about, allowance, parts};
use crate::answers::{AppliedLimit, LimitAnswer, answers, keys_in_words};
use crate::output::{BAD, GOOD, NAME, WARN, paint};
use crate::place::{self, Place};
use crate::request::{CliRequest, RequestArgs};
use crate::source::{self, PolicySource};
use crate::{Exit, Failure, Output, Result, limits, words};

/// Show which limits apply to a request and why, and the maximum and minimum of each
#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct ExplainArgs {
    /// The policy file [default: ./ratekeeper.toml]
    policy: Option<PathBuf>,
    #[command(flatten)]
    request: RequestArgs,
    /// Time of the request, to show which limits are active and when its windows end:
    /// 2026-03-29T02:30+01:00, or without an offset the time in the policy's zone
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Examples:
  ratekeeper explain
  ratekeeper explain edge.toml --request 'POST /login' --ip 192.0.2.1
  ratekeeper explain --request 'GET /search?q=x' --header 'x-api-key: k1' --attr plan=pro --json
  ratekeeper explain --descriptor plan=pro,user=ada --domain edge
  ratekeeper explain --request 'POST /signup' --ip 192.0.2.1 --at 2026-03-29T02:30+01:00
  ratekeeper explain --at 2026-03-29T02:30+01:00

Exit codes: 0 explained; 2 usage, or an error in the policy.";

impl ExplainArgs {
    pub(crate) fn run(self, output: &mut Output) -> Result<Exit> {
        let path = source::path_or_default(self.policy.clone())?;
        let request = self.request.read()?;
        let source = PolicySource::read(&path)?;
        let at = self.at.as_deref();
        let at = at.map(|text| moment(text, zone_of(&source))).transpose()?;
        let origin = at
            .as_ref()
            .map_or_else(|| SystemClock::new().origin(), origin);
        let policy = source.policy(origin, output)?;
        if let Some(config) = &policy.settings.envoy_files.config {
            output.talk(format!(
                "the limits of `{}` are not shown here: `ratekeeper validate` checks them",
                config.display()
            ));
        }
        let wall = wall(&policy);
        let answers = request
            .as_ref()
            .map(|request| answers(&policy, request, wall, at.as_ref()));
        if self.json {
            output.json(&document(&policy, request.as_ref(), answers.as_deref()))?;
            return Ok(Exit::Done);
        }
        match (&request, answers) {
            (Some(request), Some(answers)) => write_text(&policy, request, &answers, output)?,
            _ => list(&policy, output)?,
        }
        Ok(Exit::Done)
    }
}

/// Reads the time of `--at`: with an offset, or in `zone`.
fn moment(text: &str, zone: TimeZone) -> Result<Zoned> {
    if let Ok(timestamp) = text.parse::<Timestamp>() {
        return Ok(timestamp.to_zoned(zone));
    }
    let local = text
        .parse::<DateTime>()
        .ok()
        .and_then(|local| local.to_zoned(zone).ok());
    local.ok_or_else(|| {
        Failure::new(format!("`{text}` is not a time")).hint(
            "write for example 2026-03-29T02:30+01:00, 2026-03-29T01:30Z, or local time: \
             2026-03-29T02:30",
        )
    })
}

/// Returns the policy's time zone, or that of this machine.
fn zone_of(source: &PolicySource) -> TimeZone {
    let policy = source.parse(Origin::UNIX).map(|loaded| loaded.policy);
    let name = policy.ok().and_then(|policy| policy.settings.timezone);
    let zone = name.and_then(|name| words::zone(&name));
    zone.unwrap_or_else(TimeZone::system)
}

/// Returns the time of the request, which is the zero of the policy's clock.
fn wall(policy: &Policy) -> WallTime {
    WallTime::new(policy.origin, Time::ZERO)
}

fn origin(at: &Zoned) -> Origin {
    let nanos = at.timestamp().as_nanosecond();
    Origin::from_unix_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
}

/// Lists all limits, without a request.
fn list(policy: &Policy, output: &mut Output) -> Result<()> {
    for rule in written(policy) {
        output.line(format!("{}  {}", paint(NAME, &rule.limit.name), mode(rule)))?;
        for line in lines::about(policy, rule, wall(policy)) {
            output.line(line)?;
        }
    }
    for source in policy.geo.iter().flat_map(place::sources) {
        output.line(format!("{}  {source}", paint(NAME, "[geo]")))?;
    }
    let proxy = policy.settings.listen.proxy.iter();
    for adaptive in proxy.flat_map(adaptive_limits) {
        output.line(format!("{}  {adaptive}", paint(NAME, "[listen.proxy]")))?;
    }
    output.talk(format!(
        "{}; use --request or --descriptor to see which apply",
        words::counted(written(policy).count(), "limit")
    ));
    Ok(())
}

/// Returns the adaptive limits of the gateway's upstream and of its routes in words.
fn adaptive_limits(proxy: &ProxySettings) -> Vec<String> {
    let routes = proxy.routes.iter().map(|route| {
        let of = format!(" of the route `{}`", route.name);
        (of, route.adaptive_concurrency.as_ref())
    });
    let usual = (String::new(), proxy.adaptive_concurrency.as_ref());
    let all = std::iter::once(usual).chain(routes);
    let texts = all.filter_map(|(of, bounds)| {
        let bounds = bounds?;
        let priority = bounds.priority.as_ref().map(|priority| {
            let fields = limits::fields(&priority.matcher);
            format!("; the last {}% are for {fields}", priority.last_percent)
        });
        Some(format!(
            "adaptive_concurrency{of}: from {} to {} requests wait for a response at a time{}",
            bounds.min,
            bounds.max,
            priority.unwrap_or_default()
        ))
    });
    texts.collect()
}

/// Returns the limits as they are written; extras are shown with the limit they belong to.
pub(super) fn written(policy: &Policy) -> impl Iterator<Item = &Rule> {
    policy.rules.iter().filter(|rule| !rule.is_extra())
}

/// Writes the answer of each limit to the request.
fn write_text(
    policy: &Policy,
    request: &CliRequest,
    answers: &[LimitAnswer],
    output: &mut Output,
) -> Result<()> {
    output.talk(request.to_string());
    if let Some(place) = Place::of(policy, request) {
        output.line(format!("{}  {place}", paint(NAME, "[geo]")))?;
    }
    let each = policy.rules.iter().zip(answers);
    let each: Vec<_> = each.filter(|(rule, _)| !rule.is_extra()).collect();
    for (rule, answer) in &each {
        let name = paint(NAME, &rule.limit.name);
        match answer {
            LimitAnswer::Applies(applied) => {
                output.line(format!(
                    "{name}  {}  {}",
                    paint(GOOD, "applies"),
                    mode(rule)
                ))?;
                write_applied(policy, rule, applied, output)?;
            }
            LimitAnswer::Refuses(why) => {
                output.line(format!("{name}  {}  {}", paint(BAD, "refuses"), mode(rule)))?;
                output.line(format!("    because   {why}"))?;
            }
            LimitAnswer::Not(why) => {
                output.line(format!("{name}  {}: {why}", paint(WARN, "does not apply")))?;
            }
        }
    }
    let answers = each.iter().map(|(_, answer)| answer);
    let applying = answers.filter(|it| !matches!(it, LimitAnswer::Not(_)));
    let applying = applying.count();
    let verb = if applying == 1 { "applies" } else { "apply" };
    output.talk(format!(
        "{applying} of {} {verb}",
        words::counted(each.len(), "limit")
    ));
    Ok(())
}

/// Writes how a limit counts the request.
fn write_applied(
    policy: &Policy,
    rule: &Rule,
    applied: &AppliedLimit,
    output: &mut Output,
) -> Result<()> {
    let key = match applied.key.as_slice() {
        [] => "all".into(),
        key => key.join(", "),
    };
    let cost = match &rule.unit {
        Some(unit) => unit.show(applied.cost.get()).to_string(),
        None => applied.cost.to_string(),
    };
    let missing = || format!(", since {} is missing", keys_in_words(rule));
    let because = applied.fallback.then(missing).unwrap_or_default();
    output.line(format!("    counts    {key}, cost {cost}{because}"))?;
    for key in &applied.more {
        output.line(format!("    and       {}, cost {cost}", key.join(", ")))?;
    }
    if rule.percent.is_some() && rule.mode == RuleMode::Enforce {
        let effect = match applied.mode {
            Mode::Shadow => "in shadow mode: not among the enforced keys",
            _ => "enforced: among the enforced keys",
        };
        output.line(format!("    this key  {effect}"))?;
    }
    let held = applied.numbers.as_ref();
    if let Some(held) = held {
        output.line(format!("    numbers   by {}", held.by))?;
    }
    let other = held.and_then(|held| held.rule.as_ref());
    for line in lines::numbers(policy, other.unwrap_or(rule), wall(policy)) {
        output.line(line)?;
    }
    let end = applied.window_ends.as_ref().map(words::clock_time);
    end.map_or(Ok(()), |end| output.line(format!("    until     {end}")))
}

fn mode(rule: &Rule) -> String {
    let mode = format!("({}, line {})", rule.mode.as_ref(), rule.line);
    if rule.mode == RuleMode::Enforce {
        mode
    } else {
        paint(WARN, &mode)
    }
}
