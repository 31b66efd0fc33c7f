//! The worked examples of well-known texts: each policy answers its requests at their times.
//!
//! ```text
//!   00:00:24 1 x GET /: 200 --+--> service in virtual time, counters in memory
//!                             +--> keeper in virtual time, counters in a real Redis
//! ```
//!
//! A Redis server that decides by its own clock would have to be waited for; here it decides at the
//! times of the page.

use std::collections::BTreeSet;
use std::path::Path;

use ratekeeper::{Answer, Clock as _, Keeper, ManualClock, Report, Scope, SystemClock};
use ratekeeper_core::{LeaseId, Nanos, Origin, Permits, Time};
use ratekeeper_policy::Facts;
use ratekeeper_policy::config::{Context, parse};
use ratekeeper_server::Door;
use ratekeeper_store::{RedisClock, RedisConfig, RedisStore};
use serde_json::Value;

use crate::harness::in_process::InProcess;
use crate::harness::redis::Redis;
use crate::harness::visitor::Caller;
use crate::recipes::{Recipe, Step, ask, recipes_of, steps};

const PAGE: &str = include_str!("worked-examples.md");
const DAY: u64 = 86_400;

/// Returns the sections with requests.
fn examples() -> Vec<Recipe<'static>> {
    let mut examples = recipes_of(PAGE);
    examples.retain(|example| !example.requests.is_empty());
    assert!(examples.len() >= 20, "{}", examples.len());
    examples
}

fn text(example: &Recipe<'_>) -> String {
    format!("version = 1\ntimezone = \"UTC\"\n{}", example.policy)
}

/// Returns the requests of an example, each with its time since midnight.
fn timeline<'a>(example: &Recipe<'a>) -> Vec<(Nanos, Step<'a>)> {
    let mut timeline: Vec<(Nanos, Step<'a>)> = Vec::new();
    for line in &example.requests {
        let (moment, rest) = line.split_once(' ').expect("TIME REQUEST");
        let (start, gap) = moment.split_once('+').unwrap_or((moment, "0s"));
        let gap: Nanos = gap.parse().expect("a duration");
        let mut at = since_midnight(start);
        for step in steps(rest) {
            let last = timeline.last().map_or(Nanos::ZERO, |(last, _)| *last);
            assert!(at >= last, "{}: {line} is in the past", example.title);
            timeline.push((at, step));
            at = at + gap;
        }
    }
    timeline
}

/// Reads `HH:MM:SS` or `HH:MM:SS.mmm`, with as many hours as it likes.
fn since_midnight(text: &str) -> Nanos {
    let (text, millis) = text.split_once('.').unwrap_or((text, "0"));
    let parts = text.split(':').map(str::parse::<u64>);
    let parts: Vec<u64> = parts.collect::<Result<_, _>>().expect("a time");
    let [hours, minutes, seconds] = parts[..] else {
        panic!("{text}: expected HH:MM:SS");
    };
    let millis: u64 = millis.parse().expect("milliseconds");
    Nanos::from_millis(((hours * 60 + minutes) * 60 + seconds) * 1_000 + millis)
}

#[test]
fn every_example_is_answered_by_the_service() {
    for example in examples() {
        let service = InProcess::start(&text(&example));
        let mut now = Nanos::ZERO;
        for moment in timeline(&example).chunk_by(|(one, _), (next, _)| one == next) {
            let at = moment[0].0;
            service.clock.clock.advance(at.saturating_sub(now));
            now = at;
            let steps: Vec<&Step<'_>> = moment.iter().map(|(_, step)| step).collect();
            let mut caller = Caller::connect(service.door(Door::Http));
            ask(example.title, &steps, &mut caller);
        }
    }
}

#[test]
fn every_example_is_decided_in_redis() {
    let dir = tempfile::tempdir().expect("the system has a temporary directory");
    let Some(redis) = Redis::start(dir.path()) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("the system has threads");
    // Keys expire by the clock of the server, so the day is one to come.
    let today = SystemClock::new().origin().as_unix_nanos() / 1_000_000_000 / DAY;
    let origin = Origin::from_unix_nanos((today + 2) * DAY * 1_000_000_000);
    for (number, example) in examples().iter().enumerate() {
        let loaded = parse(&text(example), Context::from(origin));
        let policy = loaded.unwrap_or_else(|errors| panic!("{}: {errors:#?}", example.title));
        runtime.block_on(async {
            let store = RedisStore::new(RedisConfig {
                prefix: format!("example-{number}"),
                origin,
                clock: RedisClock::Caller,
                deadline: std::time::Duration::from_secs(10),
                ..RedisConfig::new(redis.url())
            });
            let store = store.expect("the server is there");
            let keeper = Keeper::new(policy.policy, store, ManualClock::at(origin));
            for (at, step) in timeline(example) {
                let now = keeper.clock().now().since(Time::ZERO);
                keeper.clock().advance(at.saturating_sub(now));
                decide(&keeper, &step, example.title).await;
            }
        });
    }
}

/// Decides the request of a step, checks the answer, and reports its result.
async fn decide(keeper: &Keeper<RedisStore, ManualClock>, step: &Step<'_>, title: &str) {
    let body: Value = serde_json::from_str(&step.body).expect("a body is JSON");
    let request = &body["request"];
    let headers = pairs(&request["headers"]);
    let headers: Vec<(&str, &[u8])> = headers
        .iter()
        .map(|(name, value)| (*name, value.as_bytes()))
        .collect();
    let facts = Facts {
        method: request["method"].as_str().unwrap_or_default(),
        path: request["path"].as_str().unwrap_or_default(),
        ip: request["ip"].as_str().and_then(|ip| ip.parse().ok()),
        headers: &headers,
        attributes: &pairs(&body["attributes"]),
        cost: body["cost"].as_u64().map(Permits::new),
        ..Facts::default()
    };
    let answer = keeper.check_for_report(&facts, Scope::All, || Some(nonce()));
    let answer = answer.await.expect("the store answers");
    let place = format!("{title}: {}: {:?}", step.line, answer.retry_after());
    assert_eq!(status(&answer).to_string(), step.status, "{place}");
    let mut outcomes = answer.outcomes();
    let left = outcomes.next().map(|outcome| outcome.remaining().get());
    assert!(step.left.is_none() || step.left == left, "{place}");
    let denies = answer.outcomes().any(|outcome| {
        !outcome.decision.verdict.allows() && &*outcome.rule.limit.name == step.limit
    });
    assert!(step.limit.is_empty() || denies, "{place}");
    if let Some(result) = step.report {
        let report = match result.parse::<u16>() {
            Ok(status) => Report::default().status(status),
            Err(_) => Report::default().outcome(result),
        };
        let id = answer.decision().expect("a report can correct it");
        let done = keeper.report(id, &report).await;
        done.expect("the store takes the report");
    }
}

fn status(answer: &Answer) -> u16 {
    if answer.allowed() {
        200
    } else {
        answer.status()
    }
}

/// Returns the texts of an object.
fn pairs(object: &Value) -> Vec<(&str, &str)> {
    let fields = object.as_object().into_iter().flatten();
    fields
        .filter_map(|(name, value)| Some((&**name, value.as_str()?)))
        .collect()
}

/// Returns a number that no other decision of this process has.
fn nonce() -> LeaseId {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut bytes = [7; 16];
    bytes[..8].copy_from_slice(&NEXT.fetch_add(1, Ordering::Relaxed).to_le_bytes());
    LeaseId::from_bytes(bytes)
}

/// The tables name the tests by `FILE: TEST`, in code.
#[test]
fn every_test_that_the_tables_name_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut named = BTreeSet::new();
    for row in PAGE.lines().filter(|line| line.starts_with("| ")) {
        let spans = row.split('`').skip(1).step_by(2);
        named.extend(spans.filter_map(|span| span.split_once(".rs: ")));
    }
    assert!(named.len() >= 40, "{named:?}");
    for (file, test) in named {
        let path = root.join(format!("{file}.rs"));
        let source = std::fs::read_to_string(&path);
        let source = source.unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        assert!(source.contains(&format!("fn {test}(")), "{file}: {test}");
    }
}
