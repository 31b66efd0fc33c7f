//! Load: many connections at once, each asking as fast as it is answered.

use std::net::SocketAddr;

use super::client::{Answer, Client};

/// Asks `requests` times on each of `connections`; all answers.
pub(crate) async fn load(address: SocketAddr, connections: usize, requests: usize) -> Vec<Answer> {
    let tasks: Vec<_> = (0..connections)
        .map(|_| {
            tokio::spawn(async move {
                let mut client = Client::connect(address).await;
                let mut answers = Vec::with_capacity(requests);
                for _ in 0..requests {
                    answers.push(client.get("/").await);
                }
                answers
            })
        })
        .collect();
    let mut all = Vec::with_capacity(connections * requests);
    for task in tasks {
        all.extend(task.await.unwrap());
    }
    all
}
