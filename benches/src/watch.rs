//! Watch: cost of what the service keeps about its decisions: top keys, recorder, history.
//!
//! ```text
//!   decision in process                 alone, and with top keys and recorder
//!   difference / server time of a check = share of the decision path
//!   1,000,000 keys, Zipf(1.0)           each entry of the top list beside an exact count
//! ```
//!
//! `cargo run --release -p ratekeeper-benches -- watch [--quick]`; needs `wrk` for the share.

#![expect(clippy::cast_precision_loss, reason = "figures for people")]

use std::collections::HashMap;
use std::fs;

use ratekeeper::core::{Origin, Permits, Time};
use ratekeeper::policy::{Facts, config};
use ratekeeper::store::{MemoryConfig, MemoryStore};
use ratekeeper::{Answer, Clock as _, Keeper, Scope, SystemClock};
use ratekeeper_server::Watchers;

use crate::http::wrk::{Question, Wrk};
use crate::keyed::{pick, zipf};
use crate::measure::{Contender, Measured, measure};
use crate::server::Server;
use crate::spent::Spent;
use crate::{Effort, report};

/// Number of keys.
const KEYS: u32 = 1_000_000;
/// Number of decisions whose keys are counted exactly too.
const COUNTED: u64 = 2_000_000;
/// Entries of a list, as many as `GET /v1/top` returns unless asked for others.
const LISTED: usize = 20;
/// Goals: percent of the decision path, and bytes.
const GOAL: (f64, usize) = (3.0, 20 << 20);

type Watched = Keeper<MemoryStore, SystemClock>;

fn policy(limit: &str) -> String {
    let key = "key = [\"attr:user\"]\nalgorithm = \"fixed-window\"";
    format!("version = 1\n[[limit]]\nname = \"users\"\n{key}\nlimit = \"{limit}\"\n")
}

fn keeper(limit: &str) -> Watched {
    let context = config::Context::from(Origin::UNIX);
    let policy = config::parse(&policy(limit), context).expect("the policy is right");
    let store = MemoryStore::new(MemoryConfig::default());
    Keeper::new(policy.policy, store, SystemClock::new())
}

fn check(keeper: &Watched, user: &str) -> Answer {
    let facts = Facts {
        attributes: &[("user", user)],
        cost: Some(Permits::ONE),
        ..Facts::default()
    };
    keeper.check_now(&facts, Scope::All)
}

pub(crate) fn run(effort: Effort) {
    let names: Vec<String> = (0..KEYS).map(|user| format!("user-{user:07}")).collect();
    let zipf = zipf(KEYS);
    let path = check_micros(effort);
    for (title, limit, spread) in [
        ("one key, allowed", "1000000000/1h", false),
        ("Zipf, allowed", "1000000000/1h", true),
        ("one key, refused", "1/1h", false),
        ("Zipf, mostly refused", "1/1h", true),
    ] {
        let user = |number: u64| {
            let index = if spread { pick(&zipf, number) } else { 7 };
            names[index].as_str()
        };
        let rows = costs(effort, limit, user);
        report::table(&format!("watching: {title}"), DECISION, &rows);
        share(&rows, path);
    }
    errors(&names, &zipf);
}

const DECISION: &str = "decision";

/// Measures a decision alone, and with what the service keeps about it.
fn costs<'n>(effort: Effort, limit: &str, user: impl Fn(u64) -> &'n str) -> Vec<Measured> {
    let [alone, watched] = [keeper(limit), keeper(limit)];
    let watchers = Watchers::new(&watched.policy());
    let mut contenders = [
        Contender::new(DECISION, |n| check(&alone, user(n))),
        Contender::new("decision, watched", |n| {
            let answer = check(&watched, user(n));
            watchers.note(&answer);
            answer
        }),
    ];
    measure(effort.rounds, &mut contenders)
}

/// Prints the difference as shares of the two decision paths.
fn share(rows: &[Measured], path_micros: Option<f64>) {
    let [alone, watched] = rows else {
        return;
    };
    let more = watched.cpu - alone.cpu;
    let of_decision = 100.0 * more / alone.cpu;
    report::line(&format!(
        "watching: {more:.0} ns of CPU, {of_decision:.0} % of a decision in process"
    ));
    if let Some(micros) = path_micros {
        let percent = 100.0 * more / (micros * 1_000.0 - more);
        let stands = if percent <= GOAL.0 { "met" } else { "missed" };
        report::line(&format!(
            "          {percent:.1} % of an HTTP check without it, goal {} %: {stands}",
            GOAL.0
        ));
    }
}

/// Returns the processor time of the service for an HTTP check, in microseconds, watching
/// included; `None` if `wrk` is not installed.
fn check_micros(effort: Effort) -> Option<f64> {
    let Some(wrk) = Wrk::find() else {
        report::line("watch: `wrk` is not installed (Debian: apt-get install wrk): no share");
        return None;
    };
    let directory = tempfile::tempdir().expect("a directory for a policy");
    let path = directory.path().join("ratekeeper.toml");
    fs::write(&path, policy("1000000000/1h")).expect("a policy is written");
    let server = Server::start(&["service", &path.display().to_string()]);
    let question = Question {
        target: "/v1/check",
        method: "POST",
        body: r#"{"attributes": {"user": "user-0000007"}}"#,
    };
    let mut spent = Spent::default();
    for _ in 0..effort.http_rounds {
        let counted = spent.round(&server, effort.http_seconds, |port| {
            let counted = wrk.run(port, &question, effort.http_seconds);
            (counted, counted.answers)
        });
        assert_eq!((counted.refused, counted.errors), (0, 0), "it is allowed");
    }
    let least = spent.least().all();
    report::line(&format!(
        "POST /v1/check, one limit, allowed: {least:.2} us of server CPU"
    ));
    Some(least)
}

/// Compares the top list of a Zipf load with exact counts, and prints the memory.
fn errors(names: &[String], zipf: &[u32]) {
    let keeper = keeper("1/1h");
    let watchers = Watchers::new(&keeper.policy());
    let mut exact: HashMap<Vec<u8>, u64> = HashMap::new();
    for number in 0..COUNTED {
        let answer = check(&keeper, &names[pick(zipf, number)]);
        watchers.note(&answer);
        let outcome = answer.outcomes().next().expect("one limit applies");
        *exact.entry(outcome.key.as_bytes().to_vec()).or_default() += 1;
    }
    let limit = keeper.policy().rules[0].limit.id;
    let now: Time = keeper.clock().now();
    let found = watchers.busiest(limit, LISTED, now);
    let (mut outside, mut most) = (0, (0, 0));
    let keys = exact.len();
    for (key, count, error) in &found.keys {
        let true_count = exact.remove(key).unwrap_or_default();
        let is_within = *count >= true_count && count - error <= true_count;
        outside += usize::from(!is_within);
        most = most.max((count.abs_diff(true_count), *error));
    }
    let unlisted = exact.values().max().copied().unwrap_or_default();
    outside += usize::from(unlisted > found.unlisted_at_most);
    report::line(&format!(
        "\nwatching: top {LISTED} of {COUNTED} requests of {keys} keys, Zipf(1.0)"
    ));
    report::line(&format!(
        "outside of their printed bounds: {outside}; largest error {} (printed {}); unlisted {} \
         (printed {})",
        most.0, most.1, unlisted, found.unlisted_at_most
    ));
    let [top, records] = watchers.bytes().map(mib);
    report::line(&format!(
        "memory, this limit: top keys {top:.2} MiB, records {records:.2} MiB"
    ));
    let most = Watchers::MAX_BYTES;
    let sum = most.iter().sum::<usize>();
    let stands = if sum <= GOAL.1 { "met" } else { "missed" };
    let [top, records, history] = most.map(mib);
    report::line(&format!(
        "memory, all limits, at most: top keys {top:.1} + records {records:.1} + history \
         {history:.1} = {:.1} MiB, goal {:.0} MiB: {stands}",
        mib(sum),
        mib(GOAL.1)
    ));
    assert_eq!(outside, 0, "a printed bound does not hold");
}

fn mib(bytes: usize) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
