//! Report: the results of a replay in words and numbers, for a terminal, a page and JSON.

#![expect(
    missing_docs,
    reason = "the names are those of the JSON, which the guide explains"
)]

use std::net::IpAddr;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use ratekeeper_core::Key;
use ratekeeper_policy::{KeyPart, Rule, RuleMode};
use serde::Serialize;

use crate::log::RequestLog;
pub use crate::log::SkippedLines;
use crate::replay::{Replay, parts};
use crate::tally::{HOUR, LimitTally, RequestCounts};
use crate::timestamp::{MILLI, SECOND};

/// The results of a replay. Times are texts in the zone of the report.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ReplayReport {
    /// Lines of all files: those that were decided, and those that were skipped.
    pub lines: u64,
    pub decided: u64,
    pub skipped: u64,
    pub skipped_lines: Vec<SkippedLines>,
    /// Each file, its format, and the moment that its times state.
    pub files: Vec<String>,
    pub from: Option<String>,
    pub to: Option<String>,
    pub resolution: &'static str,
    pub out_of_order: u64,
    /// Lines that came too late to be put in order.
    pub late: u64,
    /// What the log does not have, and what was used in its place.
    pub notes: Vec<String>,
    /// All limits together: what clients would have seen.
    pub all: CountsReport,
    pub limits: Vec<ReplayedLimit>,
}

/// Counts of requests, of clients and by hour.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct CountsReport {
    pub requests: u64,
    pub refused: u64,
    pub clients: u64,
    pub clients_hit: u64,
    /// Start of each hour with requests, the requests, and the refused ones.
    pub hours: Vec<(String, u64, u64)>,
}

/// Counts of one limit.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ReplayedLimit {
    pub name: String,
    pub limit: String,
    pub mode: &'static str,
    /// Where the gateway sends the requests that it denies, in place of refusing them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_limit: Option<String>,
    #[serde(flatten)]
    pub counts: CountsReport,
    /// The refused requests without those of shadow mode, or of keys outside `percent`.
    pub enforced: u64,
    pub key_missing: u64,
    pub first_refused: Option<String>,
    pub worst: Vec<KeyReport>,
    /// The clients that it refused most, and how often.
    pub worst_clients: Vec<(String, u32)>,
}

/// One of the keys that a limit refused most.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct KeyReport {
    pub key: String,
    pub refused: u64,
    pub first: String,
    pub last: String,
}

/// Number of keys of a limit that are listed.
const WORST: usize = 10;

fn moment(unix_nanos: u64, zone: &TimeZone) -> String {
    let at = Timestamp::from_nanosecond(i128::from(unix_nanos)).unwrap_or(Timestamp::MAX);
    at.to_zoned(zone.clone())
        .strftime("%Y-%m-%dT%H:%M:%S%:z")
        .to_string()
}

impl ReplayReport {
    /// Reports the decisions of `replay` about all requests of `log`, with times in `zone`.
    pub fn new(log: &RequestLog, replay: &Replay, zone: &TimeZone) -> Self {
        let summary = &log.summary;
        let files = summary.formats.iter().map(|(path, format)| {
            format!(
                "{}: format {format}; {}",
                path.display(),
                format.time_words()
            )
        });
        let span = replay.tally.span;
        let limits = replay.tally.limits.iter().zip(replay.policy.rules.iter());
        Self {
            lines: log.lines(),
            decided: replay.decided(),
            skipped: log.skipped(),
            skipped_lines: summary.skipped.values().cloned().collect(),
            files: files.collect(),
            from: span.map(|(from, _)| moment(from, zone)),
            to: span.map(|(_, to)| moment(to, zone)),
            resolution: match summary.resolution {
                SECOND => "1 s",
                MILLI => "1 ms",
                _ => "1 us",
            },
            out_of_order: summary.out_of_order.saturating_sub(log.late),
            late: log.late,
            notes: notes(log, replay),
            all: CountsReport::new(&replay.tally.all, zone),
            limits: limits
                .filter(|(limit, rule)| limit.counts.requests > 0 || is_own(rule))
                .map(|(limit, rule)| ReplayedLimit::new(limit, rule, replay, zone))
                .collect(),
        }
    }
}

/// Returns true for a limit of the policy's text, false for a part of another.
fn is_own(rule: &Rule) -> bool {
    !rule.limit.name.contains('+')
}

impl CountsReport {
    fn new(counts: &RequestCounts, zone: &TimeZone) -> Self {
        let hours = counts.hours.iter();
        Self {
            requests: counts.requests,
            refused: counts.refused,
            clients: counts.clients(),
            clients_hit: counts.clients_hit(),
            hours: hours
                .map(|it| (moment(it.hour * HOUR, zone), it.requests, it.refused))
                .collect(),
        }
    }
}

impl ReplayedLimit {
    fn new(limit: &LimitTally, rule: &Rule, replay: &Replay, zone: &TimeZone) -> Self {
        let worst = limit
            .worst_keys(WORST)
            .into_iter()
            .map(|(key, tally)| KeyReport {
                key: describe_key(rule, Key::from_bytes(key), replay),
                refused: tally.refused,
                first: moment(tally.first, zone),
                last: moment(tally.last, zone),
            });
        let clients = limit.counts.worst_clients(WORST).into_iter();
        Self {
            name: rule.limit.name.to_string(),
            limit: rule.text.clone(),
            mode: rule.mode.into(),
            on_limit: rule.on_limit.as_ref().map(|route| format!("route:{route}")),
            counts: CountsReport::new(&limit.counts, zone),
            enforced: limit.enforced,
            key_missing: limit.key_missing,
            first_refused: limit.first_refused.map(|at| moment(at, zone)),
            worst: worst.collect(),
            worst_clients: clients
                .map(|(number, refused)| (replay.clients.words(number), refused))
                .collect(),
        }
    }
}

/// Returns a key in words, `ip=192.0.2.1`, with the names of clients that have no address in the
/// log.
pub(crate) fn describe_key(rule: &Rule, key: Key<'_>, replay: &Replay) -> String {
    let words: Vec<String> = rule
        .key_parts()
        .zip(key.display_parts())
        .map(|(part, value)| {
            // `~ip=5f00::/64` in place of a part that was missing.
            let start = if value.starts_with("~ip=") { 4 } else { 0 };
            let (before, value) = value.split_at(start);
            let address = value
                .split('/')
                .next()
                .and_then(|text| text.parse::<IpAddr>().ok());
            let name = address.and_then(|address| replay.clients.name(address));
            format!("{part}={before}{}", name.unwrap_or(value))
        })
        .collect();
    match (words.is_empty(), rule.key_parts().next()) {
        (true, None) => "all requests".into(),
        // Nothing was counted: the engine refuses without a key.
        (true, Some(_)) => "keys that are blocked or missing".into(),
        _ => words.join(" "),
    }
}

/// Returns what a reader has to know about the numbers.
fn notes(log: &RequestLog, replay: &Replay) -> Vec<String> {
    let mut notes = Vec::new();
    let names = replay.clients.names();
    if names > 0 {
        notes.push(format!(
            "{names} of the clients are named by a text that is not an address: each is counted by it, and \
             no network or country fits it"
        ));
    }
    if log.summary.lacks_zone {
        notes.push("times without an offset are read in the zone of --zone".into());
    }
    if log.late > 0 {
        notes.push(format!(
            "too late to be put in order (--reorder), and decided where they are: {} of the lines",
            log.late
        ));
    }
    let plans = replay.policy.plans.as_ref();
    if let Some(plans) = plans.filter(|_| !replay.policy.rules.is_empty()) {
        notes.push(format!(
            "plans are those that the lines show; a request without one has plan {}",
            plans.default_plan()
        ));
    }
    for (rule, limit) in replay.policy.rules.iter().zip(&replay.tally.limits) {
        if is_own(rule) && rule.mode != RuleMode::Off {
            notes.extend(
                limit_notes(rule, limit, replay)
                    .map(|note| format!("limit {}: {note}", rule.limit.name)),
            );
        }
    }
    notes
}

fn limit_notes(rule: &Rule, limit: &LimitTally, replay: &Replay) -> impl Iterator<Item = String> {
    let is_read = |unseen: &&KeyPart| parts(rule).any(|part| part == **unseen);
    let unseen = replay.unseen.iter().filter(is_read);
    let unseen: Vec<String> = unseen.map(|part| format!("`{part}`")).collect();
    let lent = rule.limit.algorithm.concurrency().is_some();
    let decided = (limit.key_missing > 0).then(|| {
        let all = replay.decided();
        format!(
            "; `missing_key` decided {} of {all} requests",
            limit.key_missing
        )
    });
    let lacks = (!unseen.is_empty()).then(|| {
        let decided = decided.unwrap_or_default();
        format!("the log has no {}{decided}", unseen.join(", "))
    });
    let idle = (limit.counts.requests == 0 && unseen.is_empty())
        .then(|| "no request of the log is for it".to_owned());
    let at_once = (lent && !replay.has_durations)
        .then(|| "the log has no durations, so each request ends at once".to_owned());
    let correction = rule.correction.as_ref();
    let unknown = correction.filter(|it| it.is_estimate || it.settle.is_some());
    let unknown = unknown.map(|_| "a log has no actual cost, so each estimate stays".to_owned());
    let mut sets = correction
        .iter()
        .flat_map(|it| it.count.iter().chain(&it.reset_on));
    let results = sets.any(|set| !set.outcomes.is_empty() || replay.results == 0);
    let results = results.then(|| {
        "the log lacks a status or an outcome that `count` or `reset_on` names".to_owned()
    });
    [lacks, idle, at_once, unknown, results]
        .into_iter()
        .flatten()
}
