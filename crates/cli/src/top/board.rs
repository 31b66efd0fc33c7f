//! Board: the limits of a running service, and the keys of one of them.

use clap::Args;
use clap::builder::RangedU64ValueParser;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::row::{BoardRow, KeyRow, UpstreamRow, millis};
use crate::client::{AdminArgs, Client};
use crate::{Failure, Result};

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

/// The limits, and the keys of one of them, as two answers of `GET /v1/top` have them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Board {
    /// Time of the answer, in milliseconds since 1970.
    #[serde(rename = "at", deserialize_with = "at_ms")]
    pub(super) at_ms: u64,
    pub(super) version: u64,
    pub(super) sha: String,
    pub(super) store: StoreState,
    pub(super) upstreams: Vec<UpstreamRow>,
    /// Faults and warnings.
    pub(super) notes: Vec<String>,
    pub(super) limits: Vec<BoardRow>,
    /// Number of limits that are not listed.
    pub(super) more: u64,
    /// Name of the limit of the keys.
    pub(super) limit: Option<String>,
    /// Time that the counts of the keys cover.
    pub(super) covers_ms: u64,
    pub(super) unlisted_at_most: u64,
    pub(super) keys: Vec<KeyRow>,
    /// True if counts are those of minutes: refusals of an hour may have ended long ago.
    #[serde(skip)]
    pub(super) by_minute: bool,
    /// The fields of both answers.
    #[serde(skip)]
    pub(crate) document: Value,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct StoreState {
    pub(super) kind: String,
    pub(super) state: String,
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
        let mut document = client.call("GET", "/v1/top", &query)?;
        let first = document["limits"][0]["limit"].as_str().map(str::to_owned);
        if let Some(limit) = request.limit.clone().or(first) {
            query.push(("limit", &limit));
            let keys = client.call("GET", "/v1/top", &query)?;
            if let (Value::Object(all), Value::Object(keys)) = (&mut document, keys) {
                all.extend(keys);
            }
        }
        let board = Self::deserialize(&document).map_err(|why| {
            Failure::new(format!("the answer of GET /v1/top cannot be read: {why}"))
        })?;
        Ok(Self {
            by_minute: request.window == "1m",
            document,
            ..board
        })
    }
}

/// Reads a time, in milliseconds since 1970.
fn at_ms<'de, D: Deserializer<'de>>(json: D) -> Result<u64, D::Error> {
    Ok(millis(&String::deserialize(json)?).unwrap_or_default())
}
