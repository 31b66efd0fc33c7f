//! `explain`: the limits that a request must pass, and why; the maximum that each admits.

mod document;

use std::path::PathBuf;

use clap::Args;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use ratekeeper::{Clock, SystemClock};
use ratekeeper_core::{Algorithm as _, LimitScope, Mode, Origin, Time};
use ratekeeper_policy::{Allowance, MissingKey, Policy, Role, Rule, RuleMode, WallTime};

use self::document::document;
use crate::answers::{LimitAnswer, answers, keys_in_words};
use crate::output::{BAD, GOOD, NAME, WARN, paint};
use crate::place::{self, Place};
use crate::request::{CliRequest, RequestArgs};
use crate::source::{self, PolicySource};
use crate::{Exit, Failure, Output, limits, words};

/// Show which limits apply to a request and why, and the maximum and minimum of each
#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct Explain {
    /// The policy file [default: ./ratekeeper.toml]
    policy: Option<PathBuf>,
    #[command(flatten)]
    request: RequestArgs,
    /// Time of the request, to show which limits are active and when its windows end:
    /// 2026-03-29T02:30+01:00, or local time without an offset
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

impl Explain {
    pub(crate) fn run(self, output: &mut Output) -> Result<Exit, Failure> {
        let path = source::path_or_default(self.policy.clone())?;
        let request = self.request.read()?;
        let at = self.at.as_deref().map(moment).transpose()?;
        let origin = at
            .as_ref()
            .map_or_else(|| SystemClock::new().origin(), origin);
        let source = PolicySource::read(&path)?;
        let policy = source.policy(origin, output)?;
        let at = at.map(|at| in_zone_of(&policy, at));
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

/// Reads the time of `--at`: with an offset, or in the local zone.
fn moment(text: &str) -> Result<Zoned, Failure> {
    let zone = TimeZone::system();
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

/// Converts the time to the policy's time zone.
fn in_zone_of(policy: &Policy, at: Zoned) -> Zoned {
    let name = policy.settings.timezone.as_deref();
    let zone = name.and_then(|name| TimeZone::get(name).ok());
    match zone {
        Some(zone) => at.with_time_zone(zone),
        None => at,
    }
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
fn list(policy: &Policy, output: &mut Output) -> Result<(), Failure> {
    for rule in written(policy) {
        output.line(format!("{}  {}", paint(NAME, &rule.limit.name), mode(rule)))?;
        let fields = limits::fields(&rule.matcher);
        let requests = match fields.join(", ") {
            fields if fields.is_empty() => limits::requests(rule),
            fields if rule.is_for_descriptors() => {
                format!("{} where {fields}", limits::requests(rule))
            }
            fields => fields,
        };
        output.line(format!("    for       {requests}"))?;
        output.line(format!(
            "    counts by {}{}",
            limits::key(rule),
            missing(rule)
        ))?;
        for exemption in &rule.exemptions {
            output.line(format!("    exempt    {}", limits::exemption(exemption)))?;
        }
        numbers(policy, rule, output)?;
        others(policy, rule, output)?;
    }
    for source in policy.geo.iter().flat_map(place::sources) {
        output.line(format!("{}  {source}", paint(NAME, "[geo]")))?;
    }
    output.talk(format!(
        "{}; use --request or --descriptor to see which apply",
        words::counted(written(policy).count(), "limit")
    ));
    Ok(())
}

/// Returns the limits as they are written; extras are shown with the limit they belong to.
fn written(policy: &Policy) -> impl Iterator<Item = &Rule> {
    policy.rules.iter().filter(|rule| !rule.is_extra())
}

fn missing(rule: &Rule) -> String {
    if rule.key.is_empty() || limits::key(rule) == "all" {
        return String::new();
    }
    match &rule.missing_key {
        MissingKey::Skip => ", skips requests without it".into(),
        MissingKey::Deny => ", refuses requests without it".into(),
        MissingKey::Shared => ", requests without it together".into(),
        MissingKey::Use(part) if rule.key.contains(part) => String::new(),
        MissingKey::Use(part) => format!(", requests without it by {part}"),
    }
}

/// Writes the answer of each limit to the request.
fn write_text(
    policy: &Policy,
    request: &CliRequest,
    answers: &[LimitAnswer],
    output: &mut Output,
) -> Result<(), Failure> {
    output.talk(request.to_string());
    if let Some(place) = Place::of(policy, request) {
        output.line(format!("{}  {place}", paint(NAME, "[geo]")))?;
    }
    let each = || {
        policy
            .rules
            .iter()
            .zip(answers)
            .filter(|(rule, _)| !rule.is_extra())
    };
    for (rule, answer) in each() {
        let name = paint(NAME, &rule.limit.name);
        match answer {
            LimitAnswer::Applies {
                key,
                cost,
                fallback,
                window_ends,
                numbers: held,
                mode: of_key,
            } => {
                output.line(format!(
                    "{name}  {}  {}",
                    paint(GOOD, "applies"),
                    mode(rule)
                ))?;
                let key = if key.is_empty() {
                    "all".into()
                } else {
                    key.join(", ")
                };
                let because = if *fallback {
                    format!(", since {} is missing", keys_in_words(rule))
                } else {
                    String::new()
                };
                let cost = match &rule.unit {
                    Some(unit) => unit.show(cost.get()).to_string(),
                    None => cost.to_string(),
                };
                output.line(format!("    counts    {key}, cost {cost}{because}"))?;
                if rule.percent.is_some() && rule.mode == RuleMode::Enforce {
                    let effect = match of_key {
                        Mode::Shadow => "in shadow mode: not among the enforced keys",
                        _ => "enforced: among the enforced keys",
                    };
                    output.line(format!("    this key  {effect}"))?;
                }
                if let Some(held) = held {
                    output.line(format!("    numbers   by {}", held.by))?;
                }
                let other = held.as_ref().and_then(|held| held.rule.as_deref());
                numbers(policy, other.unwrap_or(rule), output)?;
                if let Some(end) = window_ends {
                    output.line(format!("    until     {}", words::clock_time(end)))?;
                }
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
    let applying = each()
        .filter(|(_, answer)| !matches!(answer, LimitAnswer::Not(_)))
        .count();
    let verb = if applying == 1 { "applies" } else { "apply" };
    output.talk(format!(
        "{applying} of {} {verb}",
        words::counted(each().count(), "limit")
    ));
    Ok(())
}

fn numbers(policy: &Policy, rule: &Rule, output: &mut Output) -> Result<(), Failure> {
    if let Some(times) = limits::active(rule, wall(policy)) {
        output.line(format!("    active    {times}"))?;
    }
    output.line(format!(
        "    limit     {}: {}",
        rule.text,
        rule.limit.algorithm.name()
    ))?;
    if let Some(attribute) = rule.variants.day_attribute() {
        output.line(format!(
            "    months    begin on the day of the key in attr:{attribute}, on day 1 without one"
        ))?;
    }
    output.line(format!("    at worst  {}", limits::worst_case(rule)))?;
    output.line(format!("    at least  {}", limits::at_least(rule)))?;
    if let Some(alert) = limits::alert(rule) {
        output.line(format!("    alert     {alert}"))?;
    }
    if let Some(ban) = limits::ban(rule) {
        output.line(format!("    ban       {ban}"))?;
    }
    if let Some(field) = rule.body_fields().next() {
        output.line(format!(
            "    body      read by the proxy listener and the tower layer; other callers send \
             `{field}` as an attribute"
        ))?;
    }
    for correction in limits::corrections(rule) {
        output.line(format!("    results   {correction}"))?;
    }
    if let Some(value) = limits::distinct(policy, rule) {
        output.line(format!(
            "    values    different values of {value} are counted, each once in a window"
        ))?;
    }
    if let Some(priority) = limits::priority(rule) {
        output.line(format!("    priority  {priority}"))?;
    }
    alternatives(policy, rule, output)?;
    trials(policy, rule, output)?;
    if rule.limit.algorithm.concurrency().is_some() {
        output
            .line("    taken by  POST /v1/acquire or the gateway; a check tests if one is free")?;
    }
    if let Some(redis) = &policy.settings.redis {
        output.line(format!(
            "    store     deadline {}, then on_store_error = \"{}\"; late charges are kept",
            words::span(redis.deadline),
            limits::on_store_error(rule)
        ))?;
    }
    Ok(())
}

/// Writes the alternatives of a limit, which are asked when it denies.
fn alternatives(policy: &Policy, rule: &Rule, output: &mut Output) -> Result<(), Failure> {
    let mut names = Vec::new();
    for other in limits::alternatives(policy, rule) {
        let (text, worst) = (&other.text, limits::worst_case(other));
        let line = match &other.role {
            Role::Soft => format!("soft      {text} more, with a warning"),
            Role::Elastic(gate) => {
                let (signal, below) = (gate.signal().name(), gate.below());
                format!("elastic   {text} more while `{signal}` is below {below}")
            }
            Role::Limit | Role::Allowance | Role::Candidate | Role::Seen => {
                names.push(&*other.limit.name);
                continue;
            }
        };
        output.line(format!("    {line}; at worst {worst}"))?;
    }
    if !names.is_empty() {
        output.line(format!("    otherwise {}", names.join(", ")))?;
    }
    let together = limits::together(policy, rule);
    together.map_or(Ok(()), |most| output.line(format!("    together  {most}")))?;
    Ok(())
}

/// Writes how a limit is tried before it is enforced, and the limits that it replaces.
fn trials(policy: &Policy, rule: &Rule, output: &mut Output) -> Result<(), Failure> {
    let names = limits::replaced(policy, rule).join(", ");
    if !names.is_empty() {
        let not_yet = match rule.mode {
            RuleMode::Enforce => "",
            RuleMode::Shadow | RuleMode::Off => " once it is enforced",
        };
        output.line(format!(
            "    replaces  {names}{not_yet}: not asked where this limit applies"
        ))?;
    }
    if let Some(route) = &rule.on_limit {
        output.line(format!(
            "    on limit  the gateway sends the request to the route `{route}`"
        ))?;
    }
    if let Some(share) = rule.percent {
        output.line(format!(
            "    percent   enforced for {share} of its keys, in shadow mode for the others"
        ))?;
    }
    if let Some(candidate) = limits::candidate(policy, rule) {
        output.line(format!(
            "    candidate {}, tried on the requests that pass, refuses none; at worst {}",
            candidate.text,
            limits::worst_case(candidate)
        ))?;
    }
    if rule.limit.scope == LimitScope::Node {
        output.line("    scope     each process counts by itself, in a shared store as well")?;
    }
    Ok(())
}

/// Writes the numbers of a limit for plans, and how many keys have numbers of their own.
fn others(policy: &Policy, rule: &Rule, output: &mut Output) -> Result<(), Failure> {
    let plans = policy.plans.iter().flat_map(|plans| rule.plans(plans));
    let plans: Vec<_> = plans
        .map(|(name, allowance)| match allowance {
            Allowance::Own => format!("{name} {}", rule.text),
            Allowance::Unlimited => format!("{name} unlimited"),
            Allowance::Blocked => format!("{name} blocked"),
            Allowance::Variant(index) => {
                let variant = rule.variants.numbers().get(index as usize);
                let text = variant.map_or("", |variant| variant.text.as_str());
                format!("{name} {text}")
            }
        })
        .collect();
    if !plans.is_empty() {
        output.line(format!("    plans     {}", plans.join(", ")))?;
    }
    match rule.variants.overrides().len() {
        0 => Ok(()),
        count => output.line(format!("    overrides {}", words::counted(count, "key"))),
    }
}

fn mode(rule: &Rule) -> String {
    let mode = format!("({}, line {})", limits::mode(rule), rule.line);
    if rule.mode == RuleMode::Enforce {
        mode
    } else {
        paint(WARN, &mode)
    }
}
