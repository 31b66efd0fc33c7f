//! Faults of a shared store, and the alert of each.

use super::{PATIENCE, Scrapes, numbers, same, with};
use crate::harness::clock::poll;
use crate::harness::in_process::InProcess;
use crate::harness::redis::{Redis, cluster};
use crate::harness::staged::Course;
use crate::incidents;

/// Stages a fault; `None` if a program that it needs is not installed.
type StoreStage = fn() -> Option<Scrapes>;

/// Each alert, and its fault, with a Redis server or a cluster.
pub(super) const STORE_FAULTS: [(&str, Course, StoreStage); 3] = [
    (
        "RatekeeperStoreServerDown",
        Course::GoesOn,
        without_a_server,
    ),
    ("RatekeeperClocksDiffer", Course::GoesOn, with_another_clock),
    ("RatekeeperStoreFlaps", Course::Flaps, || {
        incidents::flap().map(|flap| flap.scrapes)
    }),
];

fn store_at(servers: &[&Redis]) -> String {
    let urls: Vec<String> = servers
        .iter()
        .map(|server| format!("\"{}\"", server.url()))
        .collect();
    format!(
        "[store.redis]\nurl = [{}]\ndeadline = \"5s\"\n",
        urls.join(", ")
    )
}

fn without_a_server() -> Option<Scrapes> {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let mut servers = cluster(dir.path())?;
    for server in &servers {
        server.run(&["config", "set", "cluster-require-full-coverage", "no"]);
    }
    let service = InProcess::start(&with(&store_at(&servers.iter().collect::<Vec<_>>())));
    service.ask("user", numbers(30));
    let before = service.scrape();
    servers[1].crash();
    let lost = poll("the lost server", PATIENCE, || {
        service.ask("user", numbers(30));
        let scrape = service.scrape();
        scrape
            .has("ratekeeper_store_server_up", "0")
            .then_some(scrape)
    });
    Some((before, lost.unwrap_or_else(|error| panic!("{error}"))))
}

/// The clock of the service stands at New Year, that of the store is the machine's.
fn with_another_clock() -> Option<Scrapes> {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let redis = Redis::start(dir.path())?;
    let service = InProcess::start(&with(&store_at(&[&redis])));
    let before = service.scrape();
    service.ask("user", same("ada", 9));
    Some((before, service.scrape()))
}
