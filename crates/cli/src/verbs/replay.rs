//! `replay`: an access log decided by a policy: which clients would its limits have hit?
//!
//! ```text
//!   policy, log --replay--> counts --> text | JSON | page | exit code
//!                  |
//!                  +--choose, compare: the same limit with other numbers, by other algorithms
//! ```

use std::path::PathBuf;

use clap::Args;
use ratekeeper_replay::ORIGIN;
use serde_json::json;

use crate::output::unwritable;
use crate::replay::choose::choose;
use crate::replay::compare::compare;
use crate::replay::condition::Condition;
use crate::replay::session::{LogArgs, LogSession};
use crate::replay::{page, text};
use crate::source::PolicySource;
use crate::{Exit, Failure, Output, Result};

/// Decide the requests of an access log by a policy: which clients would its limits have hit?
#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct ReplayArgs {
    /// The policy file
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
  ratekeeper replay ratekeeper.toml access.log --compare per-ip
  ratekeeper replay ratekeeper.toml access.log --fail-if 'refused > 0.1%'
  ratekeeper replay ratekeeper.toml app.jsonl --format 'json time=ts client=peer.ip path=url'

Exit codes: 0 replayed; 1 a condition of --fail-if is met; 2 usage, or an error.";

impl ReplayArgs {
    pub(crate) fn run(self, output: &mut Output) -> Result<Exit> {
        let source = PolicySource::read(&self.policy)?;
        let policy = source.policy(ORIGIN, output)?;
        let (paths, args) = (&*self.logs, &self.log);
        let session = LogSession { paths, args };
        for condition in &self.fail_if {
            condition.check(&policy)?;
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
                .map_err(|why| unwritable(path, &why))?;
        }
        match (&choice, &report) {
            (Some(choice), _) if self.json => output.json(&choice.json())?,
            (Some(choice), _) => choice.write(output)?,
            (None, Some(report)) if self.json => output.json(&json!(report))?,
            (None, Some(report)) => text::write(report, output)?,
            (None, None) => {}
        }
        let is_met = |it: &&Condition| report.as_ref().is_some_and(|report| it.is_met(report));
        let met: Vec<_> = self.fail_if.iter().filter(is_met).collect();
        for condition in &met {
            output.talk(format!("--fail-if: {}", condition.text));
        }
        Ok(Exit::done_if(met.is_empty()))
    }
}
