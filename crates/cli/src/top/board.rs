//! Board: the limits of a running service, and the keys of one of them.

use clap::Args;
use clap::builder::RangedU64ValueParser;
use serde::Deserialize;
use serde_json::Value;

use super::row::{BoardRow, KeyRow, UpstreamRow, millis};
use crate::client::{AdminArgs, Client};
use crate::{Failure, Result};

/// Number of digits of the hash of a policy that are shown.
const SHA_SHOWN: usize = 6;

/// The request of a list.
#[derive(Clone, Debug, Args)]
pub(crate) struct TopRequest {
    /// Limit whose keys are listed; by default the first one
    pub(crate) limit: Option<String>,
    #[command(flatten)]
    pub(crate) server: AdminArgs,
    /// Order of limits and keys
    #[arg(long, value_parser = ["denied", "requests"], default_value = "denied")]
    pub(crate) by: String,
    /// Time that the counts cover: the current minute or hour and the one before it
    #[arg(long, value_parser = ["1m", "1h"], default_value = "1m")]
    pub(crate) window: String,
    /// Maximum number of limits, and of keys
    #[arg(long, value_parser = RangedU64ValueParser::<u32>::new().range(1..=1_000))]
    #[arg(default_value = "20")]
    pub(crate) count: u32,
}

/// An answer of `GET /v1/top`: the limits, or the keys of one.
#[derive(Default, Deserialize)]
#[serde(default)]
struct TopAnswer {
    at: String,
    version: u64,
    sha: String,
    store: StoreState,
    upstreams: Vec<UpstreamRow>,
    notes: Vec<String>,
    limits: Vec<BoardRow>,
    more: u64,
    covers_ms: u64,
    unlisted_at_most: u64,
    keys: Vec<KeyRow>,
}

#[derive(Default, Deserialize)]
struct StoreState {
    kind: String,
    state: String,
}

/// The limits, and the keys of one of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Board {
    /// Time of the answer, in milliseconds since 1970.
    pub(crate) at_ms: u64,
    /// Version and hash of the policy.
    pub(crate) policy: String,
    /// The store and its state.
    pub(crate) store: String,
    /// The last minute of each upstream.
    pub(crate) upstreams: Vec<String>,
    /// Faults and warnings.
    pub(crate) notes: Vec<String>,
    pub(crate) limits: Vec<BoardRow>,
    /// Number of limits that are not listed.
    pub(crate) more: u64,
    /// Name of the limit of the keys.
    pub(crate) limit: Option<String>,
    /// True if counts are those of minutes.
    pub(crate) by_minute: bool,
    /// Time that the counts of the keys cover.
    pub(crate) keys_cover_ms: u64,
    pub(crate) unlisted_at_most: u64,
    pub(crate) keys: Vec<KeyRow>,
    /// The fields of both answers.
    pub(crate) document: Value,
}

impl Board {
    /// Asks the service for its limits, and for the keys of one.
    pub(crate) fn poll(client: &Client, request: &TopRequest) -> Result<Self> {
        let count = request.count.to_string();
        let mut query = vec![
            ("by", &*request.by),
            ("window", &*request.window),
            ("count", &*count),
        ];
        let answer = client.call("GET", "/v1/top", &query)?;
        let board = read(&answer)?;
        let first = board.limits.first().map(|row| row.name.clone());
        let limit = request.limit.clone().or(first);
        let (mut keys, mut listed) = (Value::Null, TopAnswer::default());
        if let Some(limit) = &limit {
            query.push(("limit", limit));
            keys = client.call("GET", "/v1/top", &query)?;
            listed = read(&keys)?;
        }
        let sha: String = board.sha.chars().take(SHA_SHOWN).collect();
        Ok(Self {
            at_ms: millis(&board.at).unwrap_or_default(),
            policy: format!("v{} {sha}", board.version),
            store: format!("{} {}", board.store.kind, board.store.state),
            notes: board.notes,
            upstreams: board.upstreams.iter().map(UpstreamRow::text).collect(),
            limits: board.limits,
            more: board.more,
            limit,
            by_minute: request.window == "1m",
            keys_cover_ms: listed.covers_ms,
            unlisted_at_most: listed.unlisted_at_most,
            keys: listed.keys,
            document: merged(answer, keys),
        })
    }
}

fn read(answer: &Value) -> Result<TopAnswer> {
    TopAnswer::deserialize(answer)
        .map_err(|why| Failure::new(format!("the answer of GET /v1/top cannot be read: {why}")))
}

/// Returns the fields of both answers; those of the keys, if both have one.
fn merged(mut limits: Value, keys: Value) -> Value {
    if let (Value::Object(all), Value::Object(keys)) = (&mut limits, keys) {
        all.extend(keys);
    }
    limits
}

#[cfg(test)]
impl TopRequest {
    /// Returns the request of a call without options.
    pub(super) fn usual() -> Self {
        Self {
            limit: None,
            server: AdminArgs {
                server: String::new(),
            },
            by: "denied".into(),
            window: "1m".into(),
            count: 20,
        }
    }
}
