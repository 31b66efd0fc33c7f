//! `overrides`: lists, sets and removes overrides in the file of a running service.

use clap::{Args, Subcommand};
use serde_json::Value;

use crate::client::CallArgs;
use crate::output::{NAME, paint};
use crate::{Exit, Output, Result, words};

/// List, set and remove overrides in a running service: other numbers for single keys
#[derive(Subcommand)]
#[command(after_help = HELP)]
pub(crate) enum OverrideAct {
    /// List the overrides of the file that the policy names
    List {
        /// Name of a limit in the policy [default: all]
        limit: Option<String>,
        /// Maximum number of overrides
        #[arg(long, value_name = "COUNT", default_value = "20")]
        top: u32,
        #[command(flatten)]
        call: CallArgs,
    },
    /// Set the numbers of a key, in place of earlier ones
    Set {
        #[command(flatten)]
        subject: SubjectArgs,
        /// The numbers: 600/1m, unlimited, blocked
        #[arg(value_name = "NUMBERS")]
        set: String,
        /// End: 2036-12-31T00:00:00Z [default: none]
        #[arg(long, value_name = "TIME")]
        until: Option<String>,
        /// Reason, for the record
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        #[command(flatten)]
        call: CallArgs,
    },
    /// Remove the override of a key
    Remove {
        #[command(flatten)]
        subject: SubjectArgs,
        #[command(flatten)]
        call: CallArgs,
    },
}

#[derive(Args)]
pub(crate) struct SubjectArgs {
    /// Name of the limit in the policy
    limit: String,
    /// Value of its key, as in the file: acme-* is a pattern, acme-\* one key; PART=VALUE;PART=VALUE
    /// for a key of several parts
    key: String,
}

const HELP: &str = "\
Examples:
  ratekeeper overrides list
  ratekeeper overrides set api acme 600/1m --until 2036-12-31T00:00:00Z --reason 'contract 4711'
  ratekeeper overrides set api-model 'attr:tenant=acme;attr:model=large' 50/1m
  ratekeeper overrides remove api acme

These call the admin listener, with the token in RATEKEEPER_ADMIN_TOKEN if there is one. The service
edits the file that the policy names, as in overrides = \"overrides.csv\".

Exit codes: 0 done; 1 no such override; 2 usage, refused, or no service.";

const PATH: &str = "/v1/overrides";

impl OverrideAct {
    pub(crate) fn run(self, output: &mut Output) -> Result<Exit> {
        match self {
            Self::List { limit, top, call } => {
                let top = top.to_string();
                let mut query = vec![("top", &*top)];
                query.extend(limit.as_deref().map(|limit| ("limit", limit)));
                let answer = call.client()?.call("GET", PATH, &query)?;
                if call.json {
                    output.json(&answer)?;
                } else {
                    let overrides = answer["overrides"].as_array().into_iter().flatten();
                    overrides.map(line).try_for_each(|text| output.line(text))?;
                    let count = answer["count"].as_u64().unwrap_or_default();
                    let count = words::counted(count, "override");
                    output.talk(format!("{count} in {}", text(&answer["file"])));
                }
                Ok(Exit::done_if(answer["count"] != 0))
            }
            Self::Set {
                subject,
                set,
                until,
                reason,
                call,
            } => {
                let mut query = subject.query();
                query.push(("set", &set));
                query.extend(until.as_deref().map(|until| ("until", until)));
                query.extend(reason.as_deref().map(|reason| ("reason", reason)));
                let answer = call.client()?.call("PUT", PATH, &query)?;
                call.show(&answer, output, line(&answer))?;
                Ok(Exit::Done)
            }
            Self::Remove { subject, call } => {
                let answer = call.client()?.call("DELETE", PATH, &subject.query())?;
                let file = text(&answer["file"]);
                let done = if answer["removed"] == 0 {
                    format!("not in {file}")
                } else {
                    format!("removed from {file}")
                };
                call.show(&answer, output, format!("{}: {done}", subject_of(&answer)))?;
                Ok(Exit::done_if(answer["removed"] != 0))
            }
        }
    }
}

impl SubjectArgs {
    fn query(&self) -> Vec<(&str, &str)> {
        vec![("limit", &*self.limit), ("key", &*self.key)]
    }
}

/// `api acme: 600/1m until 2036-12-31T00:00:00Z (contract 4711), line 3`
fn line(one: &Value) -> String {
    let stated = |field: &str| one[field].is_string().then(|| text(&one[field]));
    let until = stated("until").map(|until| format!(" until {until}"));
    let reason = stated("reason").map(|reason| format!(" ({reason})"));
    let ended = (one["in_force"] != true).then(|| ", not in force".to_owned());
    let notes: String = [until, reason, ended].into_iter().flatten().collect();
    let (subject, set) = (subject_of(one), text(&one["set"]));
    format!("{subject}: {set}{notes}, line {}", one["line"])
}

fn subject_of(one: &Value) -> String {
    let limit = paint(NAME, &text(&one["limit"]));
    format!("{limit} {}", text(&one["key"]))
}

/// Returns the text of a file: no line breaks, no escapes of a terminal.
fn text(value: &Value) -> String {
    let text = value.as_str().unwrap_or_default();
    text.escape_debug().to_string()
}
