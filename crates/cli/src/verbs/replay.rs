//! `replay`: an access log decided by a policy: which clients would its limits have hit?
//!
//! ```text
//!   policy, log --replay--> counts --> text | JSON | page | exit code
//!                  |
//!                  +--choose, compare: the same limit with other numbers, by other algorithms
//! ```

use std::path::PathBuf;

use clap::Args;
use ratekeeper::Outcome;
use ratekeeper_core::{Nanos, Verdict};
use ratekeeper_policy::Policy;
use ratekeeper_replay::{ORIGIN, Record, Replay};
use serde_json::{Value, json};

use crate::replay::choose::choose;
use crate::replay::compare::compare;
use crate::replay::condition::Condition;
use crate::replay::session::{LogArgs, LogSession, line_counts};
use crate::replay::{page, text};
use crate::source::PolicySource;
use crate::{Exit, Failure, Output};

/// Decide the requests of an access log by a policy: which clients would its limits have hit?
#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct ReplayArgs {
    /// The policy file, or a quota for each client, such as 100/1m
    #[arg(value_name = "POLICY|QUOTA")]
    policy: PathBuf,
    /// Files of the log, also compressed by gzip or zstd; - is standard input
    #[arg(required = true, value_name = "LOG")]
    logs: Vec<PathBuf>,
    #[command(flatten)]
    log: LogArgs,
    /// Try other numbers for this limit, and name the smallest that touches at most 0.1 % of clients
    #[arg(long, value_name = "LIMIT", conflicts_with_all = ["compare", "fail_if"])]
    choose: Option<String>,
    /// Decide this limit by each algorithm, beside the exact sliding log
    #[arg(long, value_name = "LIMIT", conflicts_with_all = ["html", "fail_if"])]
    compare: Option<String>,
    /// Also write the report to this file, as a page that needs no network
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print each decision, as a line of JSON, in place of the report
    #[arg(long, conflicts_with_all = ["choose", "compare", "html", "fail_if", "json"])]
    each: bool,
    /// Exit with 1 if more is refused, or more clients are hit: 'refused > 0.1%', 'LIMIT.clients > 5'
    #[arg(long, value_name = "CONDITION")]
    fail_if: Vec<Condition>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Examples:
  ratekeeper replay ratekeeper.toml access.log
  ratekeeper replay ratekeeper.toml access.log.*.gz access.log --html report.html
  ratekeeper replay ratekeeper.toml access.log --choose per-ip
  ratekeeper replay 20/1m access.log --choose per-ip
  ratekeeper replay ratekeeper.toml access.log --compare per-ip
  ratekeeper replay ratekeeper.toml access.log --fail-if 'refused > 0.1%'
  ratekeeper replay ratekeeper.toml app.jsonl --format 'json time=ts client=peer.ip path=url'
  ratekeeper replay ratekeeper.toml events.jsonl --format 'json time=at attr:user=id' --each

Exit codes: 0 replayed; 1 a condition of --fail-if is met; 2 usage, or an error.";

impl ReplayArgs {
    pub(crate) fn run(self, output: &mut Output) -> Result<Exit, Failure> {
        let source = PolicySource::of_quota_or_file(&self.policy)?;
        let policy = source.policy(ORIGIN, output)?;
        let session = self.log.session(&self.logs);
        for condition in &self.fail_if {
            condition.check(&policy)?;
        }
        if self.each {
            return print_each(policy, &session, output);
        }
        if let Some(limit) = &self.compare {
            let comparison = compare(&policy, limit, &session, output)?;
            if self.json {
                output.json(&json!(comparison))?;
            } else {
                comparison.write(output)?;
            }
            return Ok(Exit::Done);
        }
        let choice = self.choose.as_ref();
        let choice = choice.map(|limit| choose(&source, &policy, limit, &session, output));
        let choice = choice.transpose()?;
        if choice.is_some() && self.html.is_some() && !session.is_repeatable() {
            return Err(Failure::new(
                "--html with --choose reads the log again; name a file",
            ));
        }
        let report = match (&choice, &self.html) {
            (Some(_), None) => None,
            _ => Some(session.report_of(policy, output)?),
        };
        if let (Some(path), Some(report)) = (&self.html, &report) {
            std::fs::write(path, page::page(&source.name, report, choice.as_ref()))
                .map_err(|why| Failure::new(format!("cannot write `{}`: {why}", path.display())))?;
        }
        match (&choice, &report) {
            (Some(choice), _) if self.json => output.json(&choice.json())?,
            (Some(choice), _) => choice.write(output)?,
            (None, Some(report)) if self.json => output.json(&json!(report))?,
            (None, Some(report)) => text::write(report, output)?,
            (None, None) => {}
        }
        let met = |condition: &Condition| report.as_ref().is_some_and(|it| condition.is_met(it));
        let mut met = self
            .fail_if
            .iter()
            .filter(|condition| met(condition))
            .peekable();
        let exit = Exit::done_if(met.peek().is_none());
        for condition in met {
            output.talk(format!("--fail-if: {condition}"));
        }
        Ok(exit)
    }
}

/// Prints each decision on a line.
fn print_each(policy: Policy, session: &LogSession, output: &mut Output) -> Result<Exit, Failure> {
    // The progress of the log is written to `output` meanwhile.
    let (mut lines, mut written) = (Output::new(), Ok(()));
    let (log, replays) = session.read([policy], output, |replays: &mut [Replay], record| {
        for replay in replays {
            let decision = decision(replay, record);
            written = std::mem::replace(&mut written, Ok(())).and_then(|()| lines.json(&decision));
        }
    })?;
    written?;
    output.talk(line_counts(&log, replays[0].decided()));
    Ok(Exit::Done)
}

/// Decides a request, and returns its answer as the service would give it.
fn decision(replay: &mut Replay, record: &Record) -> Value {
    let answer = replay.decide(record);
    let limit = |outcome: Outcome<'_>| {
        let (verdict, delay) = match outcome.decision.verdict {
            _ if !outcome.is_asked => ("not_asked", None),
            Verdict::Allow => ("allow", None),
            Verdict::AllowAfter(delay) => ("allow_after", Some(delay)),
            Verdict::DenyForever => ("deny_forever", None),
            _ => ("deny", None),
        };
        let retry_after = outcome.decision.verdict.retry_after();
        json!({
            "name": &*outcome.rule.limit.name,
            "key": replay.key_words(&outcome),
            "verdict": verdict,
            "remaining": outcome.remaining().get(),
            "retry_after_ms": retry_after.map(Nanos::as_millis_ceil),
            "delay_ms": delay.map(Nanos::as_millis_ceil),
        })
    };
    json!({
        "at_us": record.at() / 1_000, // down: the finest unit of most logs
        "client": record.client(),
        "path": record.path_and_query().0,
        "allowed": answer.allowed(),
        "limits": answer.outcomes().map(limit).collect::<Vec<Value>>(),
    })
}
