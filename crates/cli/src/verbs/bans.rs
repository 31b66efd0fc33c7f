//! `bans`: lists the bans of a limit in a running service; bans keys and allows keys by hand.

use std::cmp::Reverse;
use std::collections::HashSet;

use clap::{Args, Subcommand};
use ratekeeper_core::Nanos;
use serde_json::Value;

use crate::client::{CallArgs, Client, KeyArgs, key_text};
use crate::output::{BAD, GOOD, NAME, paint};
use crate::{Exit, Output, Result, words};

/// Ban or allow a key of a limit in a running service for a time, and list the bans
#[derive(Subcommand)]
#[command(after_help = HELP)]
pub(crate) enum BanAct {
    /// List the keys of a limit that are set by hand, then those banned by it, the longest first
    List {
        /// Name of the limit in the policy
        limit: String,
        /// Maximum number of keys
        #[arg(long, value_name = "COUNT", default_value = "20")]
        top: u32,
        #[command(flatten)]
        call: CallArgs,
    },
    /// Ban a key from now on, in place of an earlier ban or allowance
    Add(HandArgs),
    /// Allow a key from now on, whatever the limit and its bans say
    Allow(HandArgs),
    /// End the ban or the allowance of a key, and forget its refusals
    Lift {
        #[command(flatten)]
        subject: KeyArgs,
        #[command(flatten)]
        call: CallArgs,
    },
}

#[derive(Args)]
pub(crate) struct HandArgs {
    #[command(flatten)]
    subject: KeyArgs,
    /// Time until it ends: 30m, 1h, 7d
    #[arg(long, value_name = "DURATION")]
    r#for: Nanos,
    #[command(flatten)]
    call: CallArgs,
}

const HELP: &str = "\
Examples:
  ratekeeper bans list login
  ratekeeper bans add login 192.0.2.1 --for 24h
  ratekeeper bans allow login 192.0.2.9 --for 1h
  ratekeeper bans lift login 192.0.2.1
  ratekeeper bans list login --top 100 --json --server http://127.0.0.1:9090

These call the admin listener, with the token in RATEKEEPER_ADMIN_TOKEN if there is one. Listing
bans scans all keys in Redis, a few thousand at a time.

Exit codes: 0 done; 1 no key is banned or allowed, or was; 2 usage, or no service.";

impl BanAct {
    pub(crate) fn run(self, output: &mut Output) -> Result<Exit> {
        match self {
            Self::List { limit, top, call } => {
                let answer = list(&call.client()?, &limit, top)?;
                let listed = ["by_hand", "bans"].map(|name| answer[name].as_array());
                let bans: Vec<&Value> = listed.into_iter().flatten().flatten().collect();
                if call.json {
                    output.json(&answer)?;
                } else {
                    bans.iter().try_for_each(|ban| output.line(line(ban)))?;
                    output.talk(format!(
                        "{} of {}",
                        words::counted(bans.len(), "key"),
                        paint(NAME, &limit)
                    ));
                }
                Ok(Exit::done_if(!bans.is_empty()))
            }
            Self::Add(set) => set.call("ban", output),
            Self::Allow(set) => set.call("allow", output),
            Self::Lift { subject, call } => {
                let answer = call
                    .client()?
                    .call("DELETE", "/v1/bans", &query(&subject))?;
                let was_set = answer["was_banned"] == true || answer["was_allowed"] == true;
                let done = if was_set { "lifted" } else { "was not banned" };
                let text = format!("{}: {done}", key_text(&answer));
                call.show(&answer, output, text)?;
                Ok(Exit::done_if(was_set))
            }
        }
    }
}

impl HandArgs {
    fn call(self, act: &str, output: &mut Output) -> Result<Exit> {
        let span = self.r#for.to_string();
        let mut query = query(&self.subject);
        query.extend([("act", act), ("for", &*span)]);
        let answer = self.call.client()?.call("POST", "/v1/bans", &query)?;
        self.call.show(&answer, output, line(&answer))?;
        if let (Some("ban"), Some(mode @ ("shadow" | "off"))) =
            (answer["act"].as_str(), answer["mode"].as_str())
        {
            output.talk(format!(
                "the limit refuses nothing: its policy says mode = \"{mode}\""
            ));
        }
        Ok(Exit::Done)
    }
}

/// Returns the list of bans with the `top` longest; a shared store answers in parts.
fn list(client: &Client, limit: &str, top: u32) -> Result<Value> {
    let count = top.to_string();
    let query = [("limit", limit), ("top", &*count)];
    let mut answer = client.call("GET", "/v1/bans", &query)?;
    while let Some(next) = answer["next"].as_str() {
        let part = client.call("GET", "/v1/bans", &[&query[..], &[("from", next)]].concat())?;
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
    let bans = answer["bans"].as_array_mut();
    bans.map(std::mem::take).unwrap_or_default()
}

/// Returns the query about a key.
fn query(subject: &KeyArgs) -> Vec<(&str, &str)> {
    let limit = ("limit", &*subject.limit);
    std::iter::once(limit).chain(subject.values()).collect()
}

/// `ip=192.0.2.1  banned for another 59 min`
fn line(ban: &Value) -> String {
    match ban["ends_after_ms"].as_u64() {
        Some(ends) => {
            let state = match ban["act"].as_str() {
                Some("allow") => paint(GOOD, "allowed by hand"),
                Some(_) => paint(BAD, "banned by hand"),
                None => paint(BAD, "banned"),
            };
            let left = words::span(Nanos::from_millis(ends));
            format!("{}  {state} for another {left}", key_text(ban))
        }
        None => format!("{}  {}", key_text(ban), paint(GOOD, "not banned")),
    }
}
