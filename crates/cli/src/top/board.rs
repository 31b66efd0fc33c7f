//! Board: the limits and the keys of several servers, added up.
//!
//! Counts of one key are added if all servers show it by the same text. A server that does not list
//! it may have counted it up to its `unlisted_at_most` times, which is added to the error.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::row::{Count, KeyRow, LimitRow, list, millis, number, text};
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

/// Requests and refusals of each hour.
pub(crate) type CountryHours = Vec<[u64; 2]>;

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
    /// True if counts are those of minutes.
    pub(crate) by_minute: bool,
    /// Time that the counts of the keys cover, of the server with the longest.
    pub(crate) keys_cover_ms: u64,
    /// Requests of each hour of a day by country, and those refused, the current hour last.
    pub(crate) countries: Vec<(String, CountryHours)>,
    /// `raw`, `prefix` or `hash`.
    pub(crate) reveal_keys: String,
    pub(crate) unlisted_at_most: u64,
    pub(crate) keys: Vec<KeyRow>,
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
        self.add_countries(&answer["countries"]);
        let bucket = |bucket: &Value| {
            let bound = bucket[0].as_f64().unwrap_or(f64::INFINITY);
            (bound, bucket[1].as_u64().unwrap_or_default())
        };
        self.times.push(ServerTimes {
            server: server.to_owned(),
            buckets: list(answer, "decision_times").iter().map(bucket).collect(),
        });
    }

    fn add_countries(&mut self, found: &Value) {
        for row in list(found, "countries") {
            let country = text(row, "country");
            let hours = list(row, "hours").iter();
            let count = |hour: &Value, index: usize| hour[index].as_u64().unwrap_or_default();
            let hours = hours.map(|hour| [count(hour, 0), count(hour, 1)]);
            let known = self.countries.iter_mut();
            match known.into_iter().find(|(known, _)| *known == country) {
                None => self.countries.push((country, hours.collect())),
                Some((_, known)) => {
                    for (known, [all, refused]) in known.iter_mut().zip(hours) {
                        known[0] += all;
                        known[1] += refused;
                    }
                }
            }
        }
        let all = |hours: &CountryHours| hours.iter().map(|[all, _]| all).sum::<u64>();
        self.countries
            .sort_by_key(|(_, hours)| std::cmp::Reverse(all(hours)));
    }

    fn add_keys(&mut self, answers: &[Value], request: &TopRequest) {
        let is_by_denied = request.by == "denied";
        self.by_minute = request.window == "1m";
        let mut keys: BTreeMap<Vec<String>, (KeyRow, u64)> = BTreeMap::new();
        let unlisted = |answer| number(answer, "unlisted_at_most");
        let all: u64 = answers.iter().map(unlisted).sum();
        for answer in answers {
            self.reveal_keys = text(answer, "reveal_keys");
            self.keys_cover_ms = self.keys_cover_ms.max(number(answer, "covers_ms"));
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
                "highest_percent": row.highest_percent,
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
        let country =
            |(name, hours): &(String, CountryHours)| json!({ "country": name, "hours": hours });
        json!({
            "servers": self.answered,
            "failed": self.failed,
            "notes": self.notes,
            "limits": self.limits.iter().map(limit).collect::<Vec<_>>(),
            "more": self.more,
            "limit": self.limit,
            "countries": self.countries.iter().map(country).collect::<Vec<_>>(),
            "reveal_keys": self.reveal_keys,
            "unlisted_at_most": self.unlisted_at_most,
            "keys": self.keys.iter().map(key).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn countries_of_several_servers_are_added_by_hour() {
        let mut board = Board::default();
        for rows in [
            json!([{ "country": "NO", "hours": [[1, 0], [2, 1]] }]),
            json!([{ "country": "SE", "hours": [[9, 0], [0, 0]] }, { "country": "NO", "hours": [[4, 4], [3, 0]] }]),
        ] {
            board.add_countries(&json!({ "countries": rows }));
        }
        board.add_countries(&Value::Null);
        let expected = [
            ("NO".to_owned(), vec![[5, 4], [5, 1]]),
            ("SE".to_owned(), vec![[9, 0], [0, 0]]),
        ];
        assert_eq!(board.countries, expected);
    }

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
}
