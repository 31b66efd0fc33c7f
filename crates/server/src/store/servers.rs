//! Store servers: which servers of a cluster are in trouble, reported once when that changes.
//!
//! ```text
//!   found    up   up   down down down up   down up   down down      ten times a second
//!   reported                down           up                  down     a change at most each PAUSE
//!                       |<-- PAUSE -->||<---- PAUSE ---->|          of one server
//! ```
//!
//! A cluster that has lost one server goes on: it decides for all limits except on the keys of that
//! server. So the store is not reported down as a whole, but the loss is reported.

use std::collections::HashMap;

use ratekeeper_core::{Nanos, Time};
use ratekeeper_store::ServerHealth;

use crate::Event;

/// Minimum time between two lines about a server.
const PAUSE: Nanos = Nanos::from_secs(10);

/// The last reports about the servers of a cluster. Servers that are well, and those that have
/// gone, are dropped once a change of them may be reported at once.
#[derive(Debug, Default)]
pub(crate) struct ServerLog(HashMap<String, LastReport>);

/// The last line about a server.
#[derive(Debug)]
struct LastReport {
    is_down: bool,
    at: Time,
}

impl ServerLog {
    /// Returns the changes to report now. A server that is not among `found` holds no keys any
    /// more: other servers do, so it counts as being back.
    pub(crate) fn changes(&mut self, found: &[ServerHealth], now: Time) -> Vec<Event> {
        let troubles = found.iter().filter_map(|server| {
            let error = server.trouble.as_ref()?;
            Some((&server.address, error))
        });
        let troubles: HashMap<_, _> = troubles.collect();
        let mut events = Vec::new();
        self.0.retain(|server, line| {
            let may = now.since(line.at) >= PAUSE;
            if may && line.is_down && !troubles.contains_key(server) {
                (line.is_down, line.at) = (false, now);
                let server = server.clone();
                events.push(Event::StoreServerUp { server });
                return true;
            }
            !may || line.is_down
        });
        for (server, error) in troubles {
            // Reported down already, or reported up too recently.
            if self.0.contains_key(server) {
                continue;
            }
            let line = LastReport {
                is_down: true,
                at: now,
            };
            self.0.insert(server.clone(), line);
            events.push(Event::StoreServerDown {
                server: server.clone(),
                error: error.clone(),
            });
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the reports about servers `a` and `b` that are found like this, second by second:
    /// well, in trouble (`x`), or gone (`-`).
    fn check(found: &[(u64, &str)], expected: &[&str]) {
        let mut log = ServerLog::default();
        let mut lines = Vec::new();
        let mut found = found.iter().peekable();
        while let Some((from, states)) = found.next() {
            let until = found.peek().map_or(*from, |(next, _)| next - 1);
            for second in *from..=until {
                let servers = ["a", "b"].into_iter().zip(states.chars());
                let servers = servers.filter(|(_, state)| *state != '-');
                let servers: Vec<_> = servers
                    .map(|(name, state)| {
                        let trouble = (state == 'x').then(|| "no answer".to_owned());
                        ServerHealth::new(name.into(), trouble)
                    })
                    .collect();
                for event in log.changes(&servers, Time::from_nanos(second * 1_000_000_000)) {
                    lines.push(match event {
                        Event::StoreServerDown { server, error } => {
                            format!("{second} {server}: {error}")
                        }
                        Event::StoreServerUp { server } => format!("{second} {server}: back"),
                        other => panic!("{other}"),
                    });
                }
            }
        }
        assert_eq!(lines, expected);
        assert!(log.0.len() <= 2, "{log:?}");
    }

    #[test]
    fn a_change_is_reported_once() {
        check(&[(1, ".."), (100, "..")], &[]);
        check(&[(1, ".x"), (100, ".x")], &["1 b: no answer"]);
        check(
            &[(1, "x."), (50, ".x"), (90, "..")],
            &[
                "1 a: no answer",
                "50 a: back",
                "50 b: no answer",
                "90 b: back",
            ],
        );
    }

    #[test]
    fn a_server_that_others_replace_counts_as_back() {
        check(&[(1, "x."), (20, "-.")], &["1 a: no answer", "20 a: back"]);
    }

    #[test]
    fn a_server_that_flaps_is_reported_only_now_and_then() {
        let flaps: Vec<(u64, &str)> = (1..40)
            .map(|second| (second, if second % 2 == 1 { "x." } else { ".." }))
            .collect();
        let expected = [
            "1 a: no answer",
            "12 a: back",
            "23 a: no answer",
            "34 a: back",
        ];
        check(&flaps, &expected);
        // A change that could not be reported in time is reported in its current state, if at all.
        check(
            &[(1, "x."), (2, ".."), (30, "..")],
            &["1 a: no answer", "11 a: back"],
        );
        check(
            &[(1, "x."), (2, ".."), (5, "x."), (30, "x.")],
            &["1 a: no answer"],
        );
    }
}
