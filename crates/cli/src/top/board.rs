//! Board: the limits and the keys of several servers, added up.
//!
//! Counts of one key are added if all servers show it by the same text. A server that does not list
//! it may have counted it up to its `unlisted_at_most` times, which is added to the error.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::times::ServerTimes;
use crate::Failure;
use crate::client::Client;

/// Number of digits of the hash of a policy that are shown.
const SHA_SHOWN: usize = 6;
/// Maximum number of limits that a server lists.
const MAX_LIMITS: &str = "1000";

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
    /// Servers that answered, with the versions of their policies.
    pub(crate) answered: Vec<String>,
    /// Time of the latest answer, in milliseconds since 1970.
    pub(crate) at_ms: u64,
    /// Versions of the policies of the servers, each once.
    pub(crate) policies: Vec<String>,
    /// Stores of the servers and their states, each once.
    pub(crate) stores: Vec<String>,
    pub(crate) times: Vec<ServerTimes>,
    /// Faults and warnings of the servers.
    pub(crate) notes: Vec<String>,
    /// Servers that did not answer, and why.
    pub(crate) failed: Vec<String>,
    pub(crate) limits: Vec<LimitRow>,
    /// Number of limits that are not listed.
    pub(crate) more: u64,
    /// Name of the limit of the keys.
    pub(crate) limit: Option<String>,
    /// `raw`, `prefix` or `hash`.
    pub(crate) reveal_keys: String,
    pub(crate) unlisted_at_most: u64,
    pub(crate) keys: Vec<KeyRow>,
}

/// The counts of a limit.
#[derive(Clone, Debug, Default)]
pub(crate) struct LimitRow {
    pub(crate) name: String,
    pub(crate) mode: String,
    pub(crate) requests: u64,
    pub(crate) denied: u64,
    pub(crate) uncounted: u64,
    /// Different keys refused, of the server with the most of them: at least so many in all.
    pub(crate) distinct_denied: u64,
    /// The sum of all servers: at most so many in all, because servers may refuse the same keys.
    pub(crate) distinct_at_most: u64,
    /// Refusals, or requests, of the busiest key of any server.
    pub(crate) busiest: u64,
    /// Time that the counts cover, of the server with the longest.
    pub(crate) covers_ms: u64,
    /// The decisions of each server.
    pub(crate) decided: Vec<Decided>,
}

/// Decisions of a server since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Decided {
    pub(crate) server: String,
    /// Time of its answer, in milliseconds since 1970.
    pub(crate) at_ms: u64,
    /// All, those that denied, and those that passed with most of the limit spent.
    pub(crate) counts: [u64; 3],
}

/// The counts of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyRow {
    pub(crate) key: Vec<String>,
    pub(crate) requests: Count,
    pub(crate) denied: Count,
    /// First refusal of the window, RFC 3339; `None` if none.
    pub(crate) since: Option<String>,
    /// Milliseconds until it may pass; `None` if it was not refused, or for ever.
    pub(crate) next_free_in_ms: Option<u64>,
}

/// A count that is too high by `error` at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) count: u64,
    pub(crate) error: u64,
}

impl Count {
    fn read(value: &Value) -> Self {
        Self {
            count: number(value, "count"),
            error: number(value, "error"),
        }
    }

    fn add(&mut self, other: Self) {
        self.count += other.count;
        self.error += other.error;
    }
}

impl Board {
    /// Asks each server for its limits, and for the keys of one.
    ///
    /// # Errors
    /// Returns the error of the first server if none answers.
    pub(crate) fn poll(
        clients: &[(String, Client)],
        request: &TopRequest,
    ) -> Result<Self, Failure> {
        let mut board = Self::default();
        let mut first_failure = None;
        let count = request.count.to_string();
        let query = [
            ("by", &*request.by),
            ("window", &*request.window),
            ("count", &*count),
        ];
        // All limits, because those of each server are ranked by its own counts.
        let all = [query[0], query[1], ("count", MAX_LIMITS)];
        let mut answering = Vec::new();
        let mut limits = BTreeMap::new();
        let mut order = Vec::new();
        for (server, client) in clients {
            match client.get("/v1/top", &all) {
                Ok(answer) => {
                    board.answered.push(format!(
                        "{server} policy version {}",
                        number(&answer, "version")
                    ));
                    board.add_server(server, &answer);
                    board.more = board.more.max(number(&answer, "more"));
                    let notes = list(&answer, "notes").iter().filter_map(Value::as_str);
                    let notes = notes.map(|note| match clients.len() {
                        1 => note.to_owned(),
                        _ => format!("{server}: {note}"),
                    });
                    board.notes.extend(notes);
                    for limit in list(&answer, "limits") {
                        let name = text(limit, "limit");
                        let row = limits.entry(name.clone()).or_insert_with(|| {
                            order.push(name.clone());
                            LimitRow::default()
                        });
                        row.add(limit, (server, millis(&answer)));
                    }
                    answering.push((server, client));
                }
                Err(failure) => {
                    board
                        .failed
                        .push(format!("{server}: {}", failure.sentence()));
                    first_failure.get_or_insert(failure);
                }
            }
        }
        if let (true, Some(failure)) = (answering.is_empty(), first_failure) {
            return Err(failure);
        }
        board.limits = order
            .iter()
            .filter_map(|name| limits.remove(name))
            .collect();
        let by_denied = request.by == "denied";
        board.limits.sort_by_key(|row| {
            std::cmp::Reverse(if by_denied { row.denied } else { row.requests })
        });
        let listed = board.limits.len().min(request.count as usize);
        board.more += (board.limits.len() - listed) as u64;
        board.limits.truncate(listed);
        let first = board.limits.first().map(|row| row.name.clone());
        board.limit = request.limit.clone().or(first);
        if let Some(limit) = board.limit.clone() {
            let mut query = query.to_vec();
            query.push(("limit", &limit));
            let (mut answers, mut last) = (Vec::new(), None);
            for (server, client) in answering {
                match client.get("/v1/top", &query) {
                    Ok(answer) => answers.push(answer),
                    Err(failure) => {
                        board
                            .failed
                            .push(format!("{server}: {}", failure.sentence()));
                        last = Some(failure);
                    }
                }
            }
            if let (true, Some(failure)) = (answers.is_empty(), last) {
                return Err(failure); // the limit is in none of the policies
            }
            board.add_keys(&answers, request);
        }
        Ok(board)
    }

    fn add_server(&mut self, server: &str, answer: &Value) {
        self.at_ms = self.at_ms.max(millis(answer));
        let sha: String = text(answer, "sha").chars().take(SHA_SHOWN).collect();
        let policy = format!("v{} {sha}", number(answer, "version"));
        let store = &answer["store"];
        let store = format!("{} {}", text(store, "kind"), text(store, "state"));
        for (known, new) in [(&mut self.policies, policy), (&mut self.stores, store)] {
            if !known.contains(&new) {
                known.push(new);
            }
        }
        let bucket = |bucket: &Value| {
            let bound = bucket[0].as_f64().unwrap_or(f64::INFINITY);
            (bound, bucket[1].as_u64().unwrap_or_default())
        };
        self.times.push(ServerTimes {
            server: server.to_owned(),
            buckets: list(answer, "decision_times").iter().map(bucket).collect(),
        });
    }

    fn add_keys(&mut self, answers: &[Value], request: &TopRequest) {
        let is_by_denied = request.by == "denied";
        let mut keys: BTreeMap<Vec<String>, (KeyRow, u64)> = BTreeMap::new();
        let unlisted = |answer| number(answer, "unlisted_at_most");
        let all: u64 = answers.iter().map(unlisted).sum();
        for answer in answers {
            self.reveal_keys = text(answer, "reveal_keys");
            for key in list(answer, "keys") {
                let new = KeyRow::read(key);
                let (row, listed) = keys.entry(new.key.clone()).or_default();
                row.add(new);
                *listed += unlisted(answer);
            }
        }
        let each = keys.into_values().map(|(mut row, listed)| {
            // Servers that do not list the key.
            let missing = Count {
                count: all - listed,
                error: all - listed,
            };
            let ranked = if is_by_denied {
                &mut row.denied
            } else {
                &mut row.requests
            };
            ranked.add(missing);
            row
        });
        self.keys = each.collect();
        self.unlisted_at_most = all;
        self.keys.sort_by_key(|row| {
            let ranked = if is_by_denied {
                row.denied
            } else {
                row.requests
            };
            std::cmp::Reverse(ranked.count)
        });
        self.keys.truncate(request.count as usize);
    }

    /// Returns the board as JSON.
    pub(crate) fn json(&self) -> Value {
        let limit = |row: &LimitRow| {
            json!({
                "limit": row.name, "mode": row.mode, "covers_ms": row.covers_ms,
                "requests": row.requests, "denied": row.denied,
                "distinct_denied": row.distinct_denied,
                "distinct_denied_at_most": row.distinct_at_most, "busiest": row.busiest,
                "uncounted": row.uncounted,
            })
        };
        let count = |Count { count, error }| json!({ "count": count, "error": error });
        let key = |row: &KeyRow| {
            json!({
                "key": row.key, "requests": count(row.requests), "denied": count(row.denied),
                "since": row.since, "next_free_in_ms": row.next_free_in_ms,
            })
        };
        json!({
            "servers": self.answered,
            "failed": self.failed,
            "notes": self.notes,
            "limits": self.limits.iter().map(limit).collect::<Vec<_>>(),
            "more": self.more,
            "limit": self.limit,
            "reveal_keys": self.reveal_keys,
            "unlisted_at_most": self.unlisted_at_most,
            "keys": self.keys.iter().map(key).collect::<Vec<_>>(),
        })
    }
}

impl LimitRow {
    fn add(&mut self, limit: &Value, (server, at_ms): (&str, u64)) {
        self.name = text(limit, "limit");
        self.mode = text(limit, "mode");
        self.requests += number(limit, "requests");
        self.denied += number(limit, "denied");
        self.uncounted += number(limit, "uncounted");
        let distinct = number(limit, "distinct_denied");
        self.distinct_denied = self.distinct_denied.max(distinct);
        self.distinct_at_most += distinct;
        self.busiest = self.busiest.max(number(&limit["busiest"], "count"));
        self.covers_ms = self.covers_ms.max(number(limit, "covers_ms"));
        let decided = |effect| number(&limit["decisions"], effect);
        let denied = decided("denied");
        let all = decided("allowed") + denied + decided("queued") + decided("covered");
        self.decided.push(Decided {
            server: server.to_owned(),
            at_ms,
            counts: [all, denied, number(limit, "near")],
        });
    }

    /// Returns requests a second in the window.
    pub(crate) fn rate(&self) -> f64 {
        ratio(
            self.requests.saturating_mul(1_000),
            self.covers_ms.max(1_000),
        )
    }

    /// Returns the refused part of the requests, in percent.
    pub(crate) fn denied_percent(&self) -> f64 {
        ratio(
            self.denied.saturating_mul(100),
            self.requests.max(self.denied),
        )
    }

    /// Returns the likely cause of the refusals: one key, or many. Several servers may refuse one
    /// key each, the same or different ones.
    pub(crate) fn reading(&self) -> &'static str {
        match (self.denied, self.distinct_denied, self.distinct_at_most) {
            (0, ..) => "",
            (.., 0 | 1) => "one key",
            (denied, ..) if self.busiest * 2 > denied => "mostly one key",
            (_, 1, _) => "one key a server",
            (.., 2..=9) => "few keys",
            (_, 2..=9, _) => "few keys a server",
            _ => "many keys",
        }
    }
}

impl KeyRow {
    fn read(key: &Value) -> Self {
        let parts = list(key, "key").iter().filter_map(Value::as_str);
        let refused = &key["refused"];
        Self {
            key: parts.map(str::to_owned).collect(),
            requests: Count::read(&key["requests"]),
            denied: Count::read(&key["denied"]),
            since: refused["since"].as_str().map(str::to_owned),
            next_free_in_ms: refused["next_free_in_ms"].as_u64(),
        }
    }

    fn add(&mut self, other: Self) {
        self.key = other.key;
        self.requests.add(other.requests);
        self.denied.add(other.denied);
        self.since = match (self.since.take(), other.since) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self.next_free_in_ms = self.next_free_in_ms.max(other.next_free_in_ms);
    }

    /// Returns the key on one line. It is a stranger's text: line breaks and escapes of a terminal
    /// are written out.
    pub(crate) fn text(&self) -> String {
        match self.key.as_slice() {
            [] => "all requests".into(),
            parts => parts.join(", ").escape_debug().to_string(),
        }
    }
}

/// Returns `part / whole`; of no whole, 0.
#[expect(clippy::cast_precision_loss, reason = "shown with few digits")]
pub(super) fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_default()
}

/// Returns the time of an answer.
fn millis(answer: &Value) -> u64 {
    let time = answer["at"]
        .as_str()
        .and_then(|text| text.parse::<Timestamp>().ok());
    time.map_or(0, |time| {
        u64::try_from(time.as_millisecond()).unwrap_or_default()
    })
}

fn text(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or_default().to_owned()
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_several_servers_are_added_with_their_errors() {
        let answer = |unlisted: u64, keys: &[(&str, u64)]| {
            let key = |(key, count): &(&str, u64)| {
                json!({
                    "key": [key],
                    "requests": { "count": count + 1, "error": 0 },
                    "denied": { "count": count, "error": 1 },
                    "refused": { "since": format!("2026-01-0{count}T00:00:00Z"), "next_free_in_ms": count },
                })
            };
            let keys: Vec<_> = keys.iter().map(key).collect();
            json!({ "keys": keys, "unlisted_at_most": unlisted, "reveal_keys": "raw" })
        };
        let answers = [
            answer(2, &[("a", 9), ("b", 5)]),
            answer(3, &[("b", 6), ("c", 4)]),
        ];
        let mut board = Board::default();
        let request = TopRequest {
            limit: None,
            by: "denied".into(),
            window: "1m".into(),
            count: 20,
        };
        board.add_keys(&answers, &request);
        let found: Vec<_> = board
            .keys
            .iter()
            .map(|row| {
                (
                    row.text(),
                    row.denied.count,
                    row.denied.error,
                    row.next_free_in_ms,
                )
            })
            .collect();
        assert_eq!(
            found,
            [
                ("a".into(), 12, 4, Some(9)),
                ("b".into(), 11, 2, Some(6)),
                ("c".into(), 6, 3, Some(4)),
            ]
        );
        assert_eq!(board.keys[1].since.as_deref(), Some("2026-01-05T00:00:00Z"));
        assert_eq!(board.unlisted_at_most, 5);
    }

    #[test]
    fn one_key_and_many_keys_read_differently() {
        for (denied, servers, busiest, reading) in [
            (0, &[0][..], 0, ""),
            (9, &[1], 9, "one key"),
            (9, &[1, 0, 0], 9, "one key"),
            (100, &[1; 10], 10, "one key a server"),
            (100, &[1, 1], 51, "mostly one key"),
            (100, &[20], 51, "mostly one key"),
            (100, &[9], 30, "few keys"),
            (100, &[4, 5], 30, "few keys"),
            (100, &[5; 10], 10, "few keys a server"),
            (100, &[90, 1], 2, "many keys"),
        ] {
            let mut row = LimitRow::default();
            for distinct in servers {
                let limit = json!({ "distinct_denied": distinct });
                row.add(&limit, ("a", 0));
            }
            (row.denied, row.busiest) = (denied, busiest);
            assert_eq!(row.reading(), reading, "{servers:?}");
            assert_eq!(row.distinct_at_most, servers.iter().sum::<u64>());
        }
    }

    #[test]
    fn a_key_writes_no_escapes_to_the_terminal() {
        let row = KeyRow {
            key: vec!["attr:k=\u{1b}[2J\nx".into()],
            ..KeyRow::default()
        };
        assert_eq!(row.text(), "attr:k=\\u{1b}[2J\\nx");
    }
}
