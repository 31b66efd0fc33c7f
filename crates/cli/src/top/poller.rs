//! Poller: asks the servers each second for the screen, and does the acts of its user.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use serde_json::Value;

use super::act::Act;
use super::board::{Board, TopRequest};
use super::row::list;
use crate::Failure;
use crate::client::Client;

/// Time between two polls.
const POLL: Duration = Duration::from_secs(1);

/// A task of the poller.
pub(super) enum Asked {
    List(TopRequest),
    Act(Act),
    /// The words about a limit.
    Explain(String),
}

/// A result of the poller.
pub(super) enum Found {
    Board(Result<Box<Board>, Failure>),
    /// An act is done, or refused.
    Done(String),
    /// The words about a limit.
    Explained {
        limit: String,
        lines: Vec<String>,
    },
}

/// Polls the servers each second, and does acts between, until the screen is gone.
pub(super) fn poll(
    clients: &[(String, Client)],
    mut request: TopRequest,
    asked: &Receiver<Asked>,
    show: &Sender<Found>,
) {
    loop {
        if show
            .send(Found::Board(Board::poll(clients, &request).map(Box::new)))
            .is_err()
        {
            return;
        }
        match asked.recv_timeout(POLL) {
            Ok(Asked::List(new)) => request = new,
            Ok(Asked::Act(act)) => {
                if show.send(Found::Done(everywhere(clients, &act))).is_err() {
                    return;
                }
            }
            Ok(Asked::Explain(limit)) => {
                if show.send(explained(clients, limit)).is_err() {
                    return;
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Returns the words of the first server that answers, because all should have one policy.
fn explained(clients: &[(String, Client)], limit: String) -> Found {
    let mut failed = String::new();
    for (_, client) in clients {
        match client.get("/v1/explain", &[("limit", &limit)]) {
            Ok(answer) => {
                let lines = list(&answer, "lines").iter().filter_map(Value::as_str);
                let lines = lines.map(str::to_owned).collect();
                return Found::Explained { limit, lines };
            }
            Err(failure) => failed = failure.sentence(),
        }
    }
    Found::Done(failed)
}

/// Does an act at each server, also if one of them refuses it; returns what came of it.
fn everywhere(clients: &[(String, Client)], act: &Act) -> String {
    let mut said = String::new();
    let mut failed = Vec::new();
    for (server, client) in clients {
        match act.run(client) {
            Ok(done) => said = done,
            Err(failure) if clients.len() == 1 => return failure.sentence(),
            Err(failure) => failed.push(format!("{server}: {}", failure.sentence())),
        }
    }
    match (clients.len(), failed.as_slice()) {
        (0 | 1, _) => said,
        (all, []) => format!("{said}, at {all} servers"),
        (all, some) => format!(
            "failed at {} of {all} servers: {}",
            some.len(),
            some.join("; ")
        ),
    }
}
