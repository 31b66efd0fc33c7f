//! `bans`: lists, adds and lifts the bans of a limit, in a running service.

use std::cmp::Reverse;
use std::collections::HashSet;

use clap::{Args, Subcommand};
use ratekeeper_core::Nanos;
use serde_json::Value;

use crate::client::{CallArgs, Client, KeyArgs, key_text};
use crate::output::{BAD, GOOD, NAME, paint};
use crate::{Exit, Failure, Output, words};

/// List, add and lift the bans of a limit in a running service
#[derive(Args)]
#[command(after_help = HELP, arg_required_else_help = true)]
pub(crate) struct BansArgs {
    #[command(subcommand)]
    act: BanAct,
}

#[derive(Subcommand)]
enum BanAct {
    /// List the banned keys of a limit, those with the longest bans first
    List {
        /// Name of the limit in the policy
        limit: String,
        /// Maximum number of keys
        #[arg(long, value_name = "COUNT", default_value = "20")]
        top: u32,
        #[command(flatten)]
        call: CallArgs,
    },
    /// Ban a key from now on; this replaces an earlier ban
    Add {
        #[command(flatten)]
        subject: KeyArgs,
        /// Length of the ban: 30m, 1h, 7d
        #[arg(long, value_name = "DURATION")]
        r#for: Nanos,
        #[command(flatten)]
        call: CallArgs,
    },
    /// Lift the ban of a key, and forget its refusals
    Lift {
        #[command(flatten)]
        subject: KeyArgs,
        #[command(flatten)]
        call: CallArgs,
    },
}

const HELP: &str = "\
Examples:
  ratekeeper bans list login
  ratekeeper bans add login 192.0.2.1 --for 24h
  ratekeeper bans lift login 192.0.2.1
  ratekeeper bans list login --top 100 --json --server http://127.0.0.1:9090

These call the admin listener, with the token in RATEKEEPER_ADMIN_TOKEN if there is one. Listing
bans scans all keys in Redis, a few thousand at a time.

Exit codes: 0 done; 1 no key is banned, or was; 2 usage, or no service.";

impl BansArgs {
    pub(crate) fn run(self, output: &mut Output) -> Result<Exit, Failure> {
        match self.act {
            BanAct::List { limit, top, call } => {
                let answer = list(&call.client()?, &limit, top)?;
                let bans = answer["bans"].as_array().map_or(&[][..], Vec::as_slice);
                if call.json {
                    output.json(&answer)?;
                } else {
                    bans.iter().try_for_each(|ban| output.line(line(ban)))?;
                    output.talk(format!(
                        "{} of {}",
                        words::counted(bans.len(), "ban"),
                        paint(NAME, &limit)
                    ));
                }
                Ok(found(!bans.is_empty()))
            }
            BanAct::Add {
                subject,
                r#for: span,
                call,
            } => {
                let span = span.to_string();
                let mut query = query(&subject);
                query.push(("for", &span));
                let answer = call.client()?.post_query("/v1/bans", &query)?;
                call.show(&answer, output, line(&answer))?;
                Ok(Exit::Done)
            }
            BanAct::Lift { subject, call } => {
                let answer = call.client()?.delete("/v1/bans", &query(&subject))?;
                let was_banned = answer["was_banned"] == true;
                let done = if was_banned {
                    "lifted"
                } else {
                    "was not banned"
                };
                let text = format!("{}: {done}", key_text(&answer));
                call.show(&answer, output, text)?;
                Ok(found(was_banned))
            }
        }
    }
}

/// Returns the list of bans with the `top` longest; a shared store answers in parts.
fn list(client: &Client, limit: &str, top: u32) -> Result<Value, Failure> {
    let count = top.to_string();
    let query = [("limit", limit), ("top", &*count)];
    let mut answer = client.get("/v1/bans", &query)?;
    while let Some(next) = answer["next"].as_str() {
        let part = client.get("/v1/bans", &[&query[..], &[("from", next)]].concat())?;
        let mut bans = taken(&mut answer);
        answer = part;
        bans.append(&mut taken(&mut answer));
        bans.sort_by_key(|ban| Reverse(ban["ends_after_ms"].as_u64()));
        // A key is found twice if it moves to another server meanwhile.
        let mut seen = HashSet::new();
        bans.retain(|ban| seen.insert(ban["key"].clone()));
        bans.truncate(usize::try_from(top).unwrap_or(usize::MAX));
        answer["bans"] = bans.into();
    }
    Ok(answer)
}

fn taken(answer: &mut Value) -> Vec<Value> {
    match answer["bans"].take() {
        Value::Array(bans) => bans,
        _ => Vec::new(),
    }
}

/// Returns the query about a key.
fn query(subject: &KeyArgs) -> Vec<(&str, &str)> {
    let limit = ("limit", &*subject.limit);
    std::iter::once(limit).chain(subject.values()).collect()
}

fn found(any: bool) -> Exit {
    if any { Exit::Done } else { Exit::Denied }
}

/// `ip=192.0.2.1  banned for another 59 min`
fn line(ban: &Value) -> String {
    match ban["ends_after_ms"].as_u64() {
        Some(ends) => format!(
            "{}  {} for another {}",
            key_text(ban),
            paint(BAD, "banned"),
            words::span(Nanos::from_millis(ends))
        ),
        None => format!("{}  {}", key_text(ban), paint(GOOD, "not banned")),
    }
}
