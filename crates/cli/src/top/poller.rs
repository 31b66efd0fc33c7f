//! Poller: asks the servers each second for the screen, and does the acts of its user.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use super::act::Act;
use super::board::{Board, TopRequest};
use crate::Failure;
use crate::client::Client;

/// Time between two polls.
const POLL: Duration = Duration::from_secs(1);

/// A task of the poller.
pub(super) enum Asked {
    List(TopRequest),
    Act(Act),
}

/// A result of the poller.
pub(super) enum Found {
    Board(Result<Box<Board>, Failure>),
    /// An act is done, or refused.
    Done(String),
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
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
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
