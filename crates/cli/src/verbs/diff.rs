//! `diff`: what changes between two policies, in words and on a log.
//!
//! ```text
//!   old, new --> limits added, removed, changed: fields, worst cases; other tables as written
//!   log --> decided by both --> newly refused, newly allowed, by key
//! ```

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::Args;
use ratekeeper::Answer;
use ratekeeper_policy::{Policy, Rule, WallTime};
use ratekeeper_replay::report::ReplayReport;
use ratekeeper_replay::{ORIGIN, Record, Replay};
use ratekeeper_server::read_envoy_files;
use serde_json::{Value, json};

use crate::output::{BAD, GOOD, NAME, paint};
use crate::replay::session::{LogArgs, LogSession};
use crate::replay::table::TextTable;
use crate::replay::text::{share, write_log};
use crate::source::PolicySource;
use crate::verbs::explain::{allowance, parts};
use crate::{Exit, Failure, Output, Result, words};

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

Exit codes: 0 the policies do not differ; 1 they differ; 2 usage, or an error.";

/// Keys whose decisions differ that are listed.
const LISTED: usize = 10;
/// Keys whose decisions differ that are counted apart; further ones are counted together.
const MAX_KEYS: usize = 100_000;

/// The words of `explain` that tell all of a field of a limit, by its own name.
const TOLD: &str = "alert ban cost limit mode on_store_error percent plans priority status";
/// Those that tell a field by another name.
const RENAMED: [(&str, &str); 4] = [
    ("bucket", "limit"),
    ("key", "counts by"),
    ("match", "for"),
    ("missing_key", "counts by"),
];

/// Fields in words or as they are written, by limit or table.
type Fields = BTreeMap<String, BTreeMap<String, String>>;

/// A field, in the old and in the new policy.
type FieldChange = (String, Option<String>, Option<String>);

/// The fields that differ, by limit or table.
type Changes = BTreeMap<String, Vec<FieldChange>>;

/// Requests that the two policies decide differently.
struct Decisions {
    /// The log by the new policy, with the notes of both.
    report: ReplayReport,
    /// By limit and key: newly allowed and newly refused, in the order of the policies that refuse.
    keys: HashMap<String, [u64; 2]>,
}

impl DiffArgs {
    pub(crate) fn run(self, output: &mut Output) -> Result<Exit> {
        let [old, new] = [&self.old, &self.new].map(|path| PolicySource::read(path));
        let sources = [old?, new?];
        let [old, new] = sources.each_ref().map(|it| it.policy(ORIGIN, output));
        let policies = [old?, new?];
        let written = sources.each_ref().map(written);
        let is_reordered = written[0].overrides != written[1].overrides;
        let names = policies.each_ref().map(limits);
        let limits = changes(&names, &written.each_ref().map(|it| &it.limits));
        let none = Fields::new();
        let mut tables = changes(&written.map(|it| it.tables), &[&none, &none]);
        let files = sources[0].files.that_differ(&sources[1].files);
        let change = |name: &str| (name.to_owned(), Some("old".into()), Some("new text".into()));
        let mut files: Vec<FieldChange> = files.map(change).collect();
        let [old, new] = [&self.old, &self.new];
        if envoy_files(old, &policies[0])? != envoy_files(new, &policies[1])? {
            files.push(change("[envoy]"));
        }
        if !files.is_empty() {
            tables.insert("files".into(), files);
        }
        if is_reordered {
            let order = ("order".into(), Some("old".into()), Some("new".into()));
            tables.entry("[[override]]".into()).or_insert(vec![order]);
        }
        let decisions = match &*self.logs {
            [] => None,
            logs => Some(self.decide(logs, policies, output)?),
        };
        let is_same = limits.is_empty() && tables.is_empty();
        if self.json {
            let decisions = decisions.as_ref().map(Decisions::json);
            output.json(&json!({ "limits": limits, "tables": tables, "log": decisions }))?;
        } else {
            if is_same {
                output.line("the policies do not differ")?;
            }
            write(&limits, &names, output)?;
            write(&tables, &names, output)?;
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
        let mut keys: HashMap<String, [u64; 2]> = HashMap::new();
        let (log, replays) = session.read(
            policies,
            output,
            |replays: &mut [Replay], record: &Record| {
                let answers: Vec<Answer> = replays.iter_mut().map(|it| it.decide(record)).collect();
                if answers[0].allowed() == answers[1].allowed() {
                    return;
                }
                let refusing = usize::from(answers[0].allowed());
                let mut key = replays[refusing].refused_key(&answers[refusing]);
                if keys.len() >= MAX_KEYS && !keys.contains_key(&key) {
                    key = "further keys".into();
                }
                keys.entry(key).or_default()[refusing] += 1;
            },
        )?;
        let mut report = session.report(&log, &replays[1]);
        let old = session.report(&log, &replays[0]).notes.into_iter();
        let old: Vec<_> = old.filter(|note| !report.notes.contains(note)).collect();
        report.notes.extend(old);
        Ok(Decisions { report, keys })
    }
}

/// Returns what differs: in words, and of the fields as they are written those that no word tells.
fn changes([old, new]: &[Fields; 2], written: &[&Fields; 2]) -> Changes {
    let none = BTreeMap::new();
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let changes = names.into_iter().filter_map(|name| {
        let [before, after] = [old, new].map(|fields| fields.get(name));
        let mut changes = differing(before.unwrap_or(&none), after.unwrap_or(&none));
        if before.is_some() && after.is_some() {
            let [before, after] = written.map(|fields| fields.get(name).unwrap_or(&none));
            // A long list ends with the number of its further values.
            let is_whole =
                |text: &Option<String>| !text.as_deref().is_some_and(|it| it.contains(" more"));
            let told = |field: &str| {
                let own = TOLD.split(' ').map(|name| (name, name));
                let mut words = own.chain(RENAMED).filter(|(name, _)| *name == field);
                words.any(|(_, word)| {
                    let mut changes = changes.iter().filter(|(name, ..)| name == word);
                    changes.any(|(_, old, new)| is_whole(old) && is_whole(new))
                })
            };
            let mut untold = differing(before, after);
            untold.retain(|(field, ..)| !told(field));
            changes.extend(untold);
        }
        (!changes.is_empty()).then(|| (name.clone(), changes))
    });
    changes.collect()
}

/// Returns the names and the texts of the files of Envoy's rate limit service that a policy names.
fn envoy_files(path: &Path, policy: &Policy) -> Result<Vec<(Option<OsString>, String)>> {
    let Some(config) = &policy.settings.envoy_files.config else {
        return Ok(Vec::new());
    };
    let files = read_envoy_files(&path.with_file_name(config)).map_err(Failure::new)?;
    let name = |file: &str| Path::new(file).file_name().map(OsStr::to_owned);
    let files = files.into_iter().map(|file| (name(&file.name), file.text));
    Ok(files.collect())
}

fn differing(
    before: &BTreeMap<String, String>,
    after: &BTreeMap<String, String>,
) -> Vec<FieldChange> {
    let fields: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let change = |field: &String| {
        let [before, after] = [before, after].map(|fields| fields.get(field).cloned());
        (field.clone(), before, after)
    };
    let changes = fields.into_iter().map(change);
    changes.filter(|(_, old, new)| old != new).collect()
}

/// A policy as it is written: the fields of its limits by name, and those of its other tables.
#[derive(Default)]
struct Written {
    limits: Fields,
    tables: Fields,
    /// In their order: of two that fit a key, the first may apply.
    overrides: Option<toml::Value>,
}

fn written(source: &PolicySource) -> Written {
    let mut all = Written::default();
    let policy: toml::Table = source.text.parse().unwrap_or_default(); // it is right
    all.overrides = policy.get("override").cloned();
    let texts = |fields: &toml::Table| -> BTreeMap<String, String> {
        let fields = fields.iter();
        fields
            .map(|(field, value)| (field.clone(), value.to_string()))
            .collect()
    };
    for (name, value) in policy {
        match value {
            toml::Value::Table(fields) => {
                all.tables.insert(format!("[{name}]"), texts(&fields));
            }
            toml::Value::Array(entries) => {
                for entry in &entries {
                    let limit = entry.get("name").and_then(toml::Value::as_str);
                    if let (Some(fields), Some(limit), "limit") = (entry.as_table(), limit, &*name)
                    {
                        all.limits.insert(limit.to_owned(), texts(fields));
                    } else {
                        let entries = all.tables.entry(format!("[[{name}]]")).or_default();
                        entries.insert(entry.to_string(), String::new());
                    }
                }
            }
            value => {
                let fields = all.tables.entry("policy".into()).or_default();
                fields.insert(name, value.to_string());
            }
        }
    }
    all
}

/// Returns the parts of each limit in words, as `explain` lists them, by its name.
fn limits(policy: &Policy) -> Fields {
    let limits = policy.rules.iter().map(|rule| {
        let mut fields = BTreeMap::new();
        let told = parts(policy, rule, WallTime::UNKNOWN).0.into_iter();
        // These words describe a moment, and only count overrides.
        let told = told.filter(|(label, _)| !["active", "overrides"].contains(label));
        let outage = format!("{:?}", rule.limit.outage).to_lowercase();
        let active = rule.active.as_ref().map(ToString::to_string);
        let own = [
            ("mode", rule.mode.as_ref().to_owned()),
            ("status", rule.refusal.status.to_string()),
            ("overrides", overrides(rule)),
            ("on_store_error", outage),
            ("active", active.unwrap_or_default()),
        ];
        for (label, text) in told.chain(own).filter(|(_, text)| !text.is_empty()) {
            let field: &mut String = fields.entry(label.to_owned()).or_default();
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
        let mut text = allowance(rule, found.allowance).to_owned();
        if let Some(nanos) = found.until_unix_nanos {
            text += " until ";
            text += &words::day(nanos / 1_000_000_000);
        }
        *keys.entry(text).or_default() += 1;
    }
    let each = keys
        .iter()
        .map(|(text, keys)| format!("{text} for {}", words::counted(*keys, "key")));
    each.collect::<Vec<_>>().join(", ")
}

/// Writes changes; a limit is new or gone if one of the two policies does not have it.
fn write(changes: &Changes, [old, new]: &[Fields; 2], output: &mut Output) -> Result<()> {
    for (name, fields) in changes {
        let shown = paint(NAME, name);
        let state = match (old.contains_key(name), new.contains_key(name)) {
            (false, true) => paint(GOOD, "added"),
            (true, false) => paint(BAD, "removed"),
            _ => "changed".into(),
        };
        let is_one_sided = old.contains_key(name) != new.contains_key(name);
        output.line(format!("{shown}: {state}"))?;
        for (field, old, new) in fields {
            let change = match (old.as_deref(), new.as_deref()) {
                (Some(""), _) => format!("removed {field}"),
                (_, Some("")) => format!("added {field}"),
                (Some(value), None) | (None, Some(value)) if is_one_sided => {
                    format!("{field}: {value}")
                }
                (old, new) => {
                    let [old, new] = [old, new].map(|value| value.unwrap_or("none"));
                    format!("{field}: {old} -> {new}")
                }
            };
            output.line(format!("  {change}"))?;
        }
    }
    Ok(())
}

impl Decisions {
    /// Returns the newly allowed and the newly refused requests.
    fn all(&self) -> [u64; 2] {
        [0, 1].map(|policy| self.keys.values().map(|counts| counts[policy]).sum())
    }

    /// Returns the keys whose decisions differ most.
    fn worst(&self) -> Vec<(&String, [u64; 2])> {
        let mut keys: Vec<_> = self
            .keys
            .iter()
            .map(|(key, counts)| (key, *counts))
            .collect();
        keys.sort_by_key(|(key, [allowed, refused])| (Reverse(allowed + refused), *key));
        keys.truncate(LISTED);
        keys
    }

    fn json(&self) -> Value {
        let [allowed, refused] = self.all();
        let keys = self.worst().into_iter().map(|(key, [allowed, refused])| {
            json!({"key": key, "newly_refused": refused, "newly_allowed": allowed})
        });
        json!({
            "lines": self.report.lines,
            "skipped": self.report.skipped,
            "notes": self.report.notes,
            "requests": self.report.decided,
            "newly_refused": refused,
            "newly_allowed": allowed,
            "keys": keys.collect::<Vec<_>>(),
        })
    }

    fn write(&self, output: &mut Output) -> Result<()> {
        let decided = self.report.decided;
        let [allowed, refused] = self.all().map(|count| share(count, decided));
        output.line("")?;
        write_log(&self.report, output)?;
        output.line(format!("newly refused {refused}, newly allowed {allowed}"))?;
        let rows = self.worst().into_iter().map(|(key, [allowed, refused])| {
            vec![key.clone(), words::count(refused), words::count(allowed)]
        });
        TextTable::new(&["key", "newly refused", "newly allowed"], rows).write(output)
    }
}
