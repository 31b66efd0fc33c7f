//! Board: the limits of a running service, and the keys of one of them.

use serde_json::Value;

use super::row::{BoardRow, KeyRow, list, millis, number, text, upstream};
use crate::Result;
use crate::client::Client;

/// Number of digits of the hash of a policy that are shown.
const SHA_SHOWN: usize = 6;

/// The request of a list.
#[derive(Clone, Debug)]
pub(crate) struct TopRequest {
    /// The limit whose keys are listed; `None` for the first one.
    pub(crate) limit: Option<String>,
    /// `denied` or `requests`.
    pub(crate) by: String,
    /// `1m` or `1h`.
    pub(crate) window: String,
    pub(crate) count: u32,
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
        let answer = client.get("/v1/top", &query)?;
        let limits: Vec<_> = list(&answer, "limits").iter().map(BoardRow::read).collect();
        let first = limits.first().map(|row| row.name.clone());
        let limit = request.limit.clone().or(first);
        let keys = match &limit {
            None => Value::Null,
            Some(limit) => {
                query.push(("limit", limit));
                client.get("/v1/top", &query)?
            }
        };
        let sha: String = text(&answer, "sha").chars().take(SHA_SHOWN).collect();
        let store = &answer["store"];
        let notes = list(&answer, "notes").iter().filter_map(Value::as_str);
        Ok(Self {
            at_ms: millis(&answer),
            policy: format!("v{} {sha}", number(&answer, "version")),
            store: format!("{} {}", text(store, "kind"), text(store, "state")),
            notes: notes.map(str::to_owned).collect(),
            upstreams: list(&answer, "upstreams").iter().map(upstream).collect(),
            limits,
            more: number(&answer, "more"),
            limit,
            by_minute: request.window == "1m",
            keys_cover_ms: number(&keys, "covers_ms"),
            unlisted_at_most: number(&keys, "unlisted_at_most"),
            keys: list(&keys, "keys").iter().map(KeyRow::read).collect(),
            document: merged(answer, keys),
        })
    }
}

/// Returns the fields of both answers; those of the keys, if both have one.
fn merged(mut limits: Value, keys: Value) -> Value {
    if let (Value::Object(all), Value::Object(keys)) = (&mut limits, keys) {
        all.extend(keys);
    }
    limits
}
