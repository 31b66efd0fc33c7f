//! `diff`: what changes between two policies, in words and on a log.
//!
//! ```text
//!   old, new --> limits added, removed, changed: fields, worst cases
//!   log --> decided by both --> newly refused, newly allowed, by key
//! ```

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use clap::Args;
use ratekeeper::Answer;
use ratekeeper_policy::{Policy, Rule, WallTime};
use ratekeeper_replay::{ORIGIN, Record, Replay};
use serde_json::{Value, json};

use crate::output::{BAD, GOOD, NAME, paint};
use crate::replay::session::{LogArgs, LogSession, line_counts};
use crate::replay::table::TextTable;
use crate::replay::text::share;
use crate::source::PolicySource;
use crate::verbs::explain::{allowance, parts};
use crate::{Exit, Output, Result, words};

/// Compare two policies: their limits, and the requests of a log that they decide differently
#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct DiffArgs {
    /// The policy that is in use
    old: PathBuf,
    /// The policy to compare with it
    new: PathBuf,
    /// Also decide this log by both; may be repeated
    #[arg(long = "log", value_name = "LOG")]
    logs: Vec<PathBuf>,
    #[command(flatten)]
    log: LogArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Examples:
  ratekeeper diff ratekeeper.toml next.toml
  ratekeeper diff ratekeeper.toml next.toml --log access.log --log access.log.1.gz

Exit codes: 0 no limit differs; 1 limits differ; 2 usage, or an error.";

/// Keys whose decisions differ that are listed.
const LISTED: usize = 10;
/// Keys whose decisions differ that are counted apart; further ones are counted together.
const MAX_KEYS: usize = 100_000;

/// A field of a limit by its path, in the old and in the new policy.
type FieldChange = (&'static str, Option<String>, Option<String>);

/// Requests that the two policies decide differently.
#[derive(Default)]
struct Decisions {
    requests: u64,
    lines: String,
    newly_refused: u64,
    newly_allowed: u64,
    /// By limit and key: newly refused, newly allowed.
    keys: HashMap<String, (u64, u64)>,
}

impl DiffArgs {
    pub(crate) fn run(self, output: &mut Output) -> Result<Exit> {
        let read =
            |path: &Path, output: &mut Output| PolicySource::read(path)?.policy(ORIGIN, output);
        let (old, new) = (read(&self.old, output)?, read(&self.new, output)?);
        let changes = changes(&old, &new);
        let is_same = changes.is_empty();
        let decisions = match &*self.logs {
            [] => None,
            logs => Some(self.decide(logs, [old, new], output)?),
        };
        if self.json {
            let decisions = decisions.as_ref().map(Decisions::json);
            output.json(&json!({ "limits": changes, "log": decisions }))?;
        } else {
            write(&changes, output)?;
            decisions.map_or(Ok(()), |decisions| decisions.write(output))?;
        }
        Ok(Exit::done_if(is_same))
    }

    fn decide(
        &self,
        logs: &[PathBuf],
        policies: [Policy; 2],
        output: &mut Output,
    ) -> Result<Decisions> {
        let args = &self.log;
        let session = LogSession { paths: logs, args };
        let mut all = Decisions::default();
        let (log, replays) = session.read(
            policies,
            output,
            |replays: &mut [Replay], record: &Record| {
                let answers: Vec<Answer> = replays.iter_mut().map(|it| it.decide(record)).collect();
                let allowed: Vec<bool> = answers.iter().map(Answer::allowed).collect();
                if allowed[0] == allowed[1] {
                    return;
                }
                let refusing = usize::from(allowed[0]);
                let mut key = replays[refusing].refused_key(&answers[refusing]);
                if all.keys.len() >= MAX_KEYS && !all.keys.contains_key(&key) {
                    key = "further keys".into();
                }
                let counts = all.keys.entry(key).or_default();
                if allowed[0] {
                    counts.0 += 1;
                    all.newly_refused += 1;
                } else {
                    counts.1 += 1;
                    all.newly_allowed += 1;
                }
            },
        )?;
        all.requests = replays[0].decided();
        all.lines = line_counts(&log, all.requests);
        Ok(all)
    }
}

/// Returns the fields that differ, by limit.
fn changes(old: &Policy, new: &Policy) -> BTreeMap<String, Vec<FieldChange>> {
    let [old, new] = [old, new].map(limits);
    let none = BTreeMap::new();
    let names = old.keys().chain(new.keys()).cloned();
    let changes = names.filter_map(|name| {
        let (before, after) = (
            old.get(&name).unwrap_or(&none),
            new.get(&name).unwrap_or(&none),
        );
        let mut fields: Vec<&str> = before.keys().chain(after.keys()).copied().collect();
        fields.sort_unstable();
        fields.dedup();
        let differ = fields
            .into_iter()
            .filter(|field| before.get(*field) != after.get(*field));
        let change = |field| (field, before.get(field).cloned(), after.get(field).cloned());
        let changes: Vec<FieldChange> = differ.map(change).collect();
        (!changes.is_empty()).then_some((name, changes))
    });
    changes.collect()
}

/// Returns the parts of each limit in words, as `explain` lists them, by its name.
fn limits(policy: &Policy) -> BTreeMap<String, BTreeMap<&'static str, String>> {
    let limits = policy.rules.iter().map(|rule| {
        let mut fields = BTreeMap::new();
        let told = parts(policy, rule, WallTime::UNKNOWN).0.into_iter();
        // These words describe a moment, and only count overrides.
        let told = told.filter(|(label, _)| !["active", "overrides"].contains(label));
        let own = [
            ("mode", rule.mode.word().to_owned()),
            ("status", rule.refusal.status.to_string()),
            ("overrides", overrides(rule)),
            (
                "on_store_error",
                format!("{:?}", rule.limit.outage).to_lowercase(),
            ),
            (
                "active",
                rule.active
                    .as_ref()
                    .map_or(String::new(), ToString::to_string),
            ),
        ];
        for (label, text) in told.chain(own).filter(|(_, text)| !text.is_empty()) {
            let field: &mut String = fields.entry(label).or_default();
            *field += if field.is_empty() { "" } else { "; " };
            *field += &text;
        }
        (rule.limit.name.to_string(), fields)
    });
    limits.collect()
}

/// Returns the numbers that overrides set, each with the number of its keys.
fn overrides(rule: &Rule) -> String {
    let mut keys: BTreeMap<String, usize> = BTreeMap::new();
    for found in rule.variants.overrides() {
        let until = found
            .until_unix_nanos
            .map(|nanos| words::day(nanos / 1_000_000_000));
        let until = until.map_or(String::new(), |day| format!(" until {day}"));
        *keys
            .entry(format!("{}{until}", allowance(rule, found.allowance)))
            .or_default() += 1;
    }
    let each = keys
        .iter()
        .map(|(text, keys)| format!("{text} for {}", words::counted(*keys, "key")));
    each.collect::<Vec<_>>().join(", ")
}

fn write(changes: &BTreeMap<String, Vec<FieldChange>>, output: &mut Output) -> Result<()> {
    if changes.is_empty() {
        return output.line("no limit differs");
    }
    for (name, fields) in changes {
        let name = paint(NAME, name);
        if fields.iter().all(|(_, old, _)| old.is_none()) {
            output.line(format!("{name}: {}", paint(GOOD, "added")))?;
        } else if fields.iter().all(|(_, _, new)| new.is_none()) {
            output.line(format!("{name}: {}", paint(BAD, "removed")))?;
        } else {
            output.line(format!("{name}: changed"))?;
        }
        for (field, old, new) in fields {
            let change = match (old, new) {
                (Some(old), Some(new)) => format!("{old} -> {new}"),
                (Some(value), None) | (None, Some(value)) => value.clone(),
                (None, None) => continue,
            };
            output.line(format!("  {field}: {change}"))?;
        }
    }
    Ok(())
}

impl Decisions {
    /// Returns the keys whose decisions differ most.
    fn worst(&self) -> Vec<(&String, &(u64, u64))> {
        let mut keys: Vec<_> = self.keys.iter().collect();
        keys.sort_by_key(|(key, counts)| (Reverse(counts.0 + counts.1), *key));
        keys.truncate(LISTED);
        keys
    }

    fn json(&self) -> Value {
        let keys = self.worst().into_iter().map(|(key, (refused, allowed))| {
            json!({"key": key, "newly_refused": refused, "newly_allowed": allowed})
        });
        json!({
            "requests": self.requests,
            "newly_refused": self.newly_refused,
            "newly_allowed": self.newly_allowed,
            "keys": keys.collect::<Vec<_>>(),
        })
    }

    fn write(&self, output: &mut Output) -> Result<()> {
        output.line(format!(
            "\n{}\nnewly refused {}, newly allowed {}",
            self.lines,
            share(self.newly_refused, self.requests),
            share(self.newly_allowed, self.requests)
        ))?;
        let keys = self.worst().into_iter();
        let rows = keys.map(|(key, (refused, allowed))| {
            vec![key.clone(), words::count(*refused), words::count(*allowed)]
        });
        TextTable::new(&["key", "newly refused", "newly allowed"], rows).write(output)
    }
}
