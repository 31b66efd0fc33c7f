//! Compare: `--compare`, one limit by each algorithm, beside the exact sliding log.

use ratekeeper_core::{AnyAlgorithm, Nanos, Permits, Quota};
use ratekeeper_lab::compared::{self, Compared};
use ratekeeper_policy::Policy;
use ratekeeper_replay::report::ReplayReport;
use ratekeeper_replay::{ORIGIN, Record, Replay};
use serde::Serialize;

use super::choose::{alone, number_of};
use super::session::LogSession;
use super::table::TextTable;
use super::text::{share, write_log};
use crate::{Failure, Output, Result, limits, words};

/// The exact sliding log, with which the others are compared.
const EXACT: &str = "sliding window log";

/// One algorithm at the quota of a limit.
#[derive(Serialize)]
struct ComparedAlgorithm {
    algorithm: &'static str,
    refused: u64,
    clients_hit: u64,
    /// Requests that it decided otherwise than the exact log.
    decided_differently: u64,
}

/// A limit by each algorithm; the exact sliding log comes first.
#[derive(Serialize)]
pub(crate) struct Comparison {
    limit: String,
    requests: u64,
    clients: u64,
    algorithms: Vec<ComparedAlgorithm>,
    /// The log by the first algorithm.
    report: ReplayReport,
}

/// Returns a limit of these numbers; `None` if the algorithm cannot count them.
fn built(by: &Compared, permits: Permits, window: Option<Nanos>) -> Option<AnyAlgorithm> {
    let quota = Quota::new(permits, window?).ok()?;
    (by.build)(quota, ORIGIN)
        .ok()
        .filter(|_| permits > Permits::ZERO)
}

/// Decides the log by each algorithm.
pub(crate) fn compare(
    policy: &Policy,
    limit: &str,
    session: &LogSession<'_>,
    output: &mut Output,
) -> Result<Comparison> {
    let rule = limits::named(policy, limit)?;
    let (number, window) = number_of(rule);
    let mut algorithms: Vec<(&Compared, AnyAlgorithm)> = compared::ALL
        .iter()
        .filter_map(|by| Some((by, built(by, number, window)?)))
        .collect();
    algorithms.sort_by_key(|(by, _)| by.name != EXACT); // stable: the others keep their order
    if algorithms.first().is_none_or(|(by, _)| by.name != EXACT) {
        return Err(Failure::new(format!(
            "a sliding log cannot count `{}`, so there is nothing to compare with",
            rule.text
        ))
        .hint("name a limit with a number and a period, such as \"100/1m\""));
    }
    let variants = rule.variants.numbers();
    let is_kept = variants.iter().any(|variant| {
        let mut algorithms = algorithms.iter();
        algorithms.any(|(by, _)| built(by, variant.quota, variant.window).is_none())
    });
    let policies = algorithms.iter().map(|(by, algorithm)| {
        alone(policy, limit, |rule| {
            rule.limit.algorithm = algorithm.clone();
            rule.text = format!("{}, {}", rule.text, by.name);
            for variant in rule.variants.numbers_mut() {
                let other = built(by, variant.quota, variant.window);
                variant.limit.algorithm = other.unwrap_or(variant.limit.algorithm.clone());
            }
        })
    });
    let policies: Vec<Policy> = policies.collect();
    let mut different = vec![0; algorithms.len()];
    let (log, replays) = session.read(
        policies,
        output,
        |replays: &mut [Replay], record: &Record| {
            let mut exact = None;
            Replay::decide_each(replays, record, |index, answer| {
                let is_allowed = answer.allowed();
                different[index] += u64::from(*exact.get_or_insert(is_allowed) != is_allowed);
            });
        },
    )?;
    let mut report = session.report(&log, &replays[0]);
    if is_kept {
        report.notes.push(format!(
            "limit {limit}: keys with a plan or an override whose numbers an algorithm cannot count keep \
             the policy's algorithm"
        ));
    }
    let rows = algorithms.iter().zip(&replays).zip(different);
    let rows = rows.map(|(((by, _), replay), different)| ComparedAlgorithm {
        algorithm: by.name,
        refused: replay.refused(),
        clients_hit: replay.clients().1,
        decided_differently: different,
    });
    Ok(Comparison {
        limit: format!("{limit} {}", rule.text),
        requests: replays[0].decided(),
        clients: replays[0].clients().0,
        algorithms: rows.collect(),
        report,
    })
}

impl Comparison {
    pub(crate) fn write(&self, output: &mut Output) -> Result<()> {
        write_log(&self.report, output)?;
        let [requests, clients] = [self.requests, self.clients].map(words::count);
        output.line(format!(
            "{}: {requests} requests, {clients} clients",
            self.limit
        ))?;
        let rows = self.algorithms.iter().map(|row| {
            vec![
                row.algorithm.to_owned(),
                share(row.refused, self.requests),
                share(row.clients_hit, self.clients),
                share(row.decided_differently, self.requests),
            ]
        });
        TextTable::new(
            &[
                "algorithm",
                "refused",
                "clients hit",
                "not as the exact log",
            ],
            rows,
        )
        .write(output)
    }
}
