//! `GET /v1/whatif`: the last hour of a limit, decided again with other numbers.

use std::collections::{BTreeMap, BTreeSet};

use ratekeeper::Clock as _;
use ratekeeper_core::{
    Algorithm, AnyAlgorithm, AnyState, Gcra, Nanos, Origin, Permits, Quota, Time, Window,
};
use serde_json::{Value, json};

use super::{Fixture, NEW_YEAR};

const POLICY: &str = r#"
version = 1

[[limit]]
name  = "bucket"
key   = ["attr:user"]
missing_key = "skip"
limit = "5/1m"

[[limit]]
name  = "window"
key   = ["attr:tenant"]
missing_key = "skip"
limit = "5/1m"
algorithm = "fixed-window"
cost  = "attr:units"

[[limit]]
name  = "gate"
match = { path = "/closed" }
key   = ["all"]
limit = "1/24h"

[[limit]]
name  = "loans"
match = { path = "/loans" }
key   = ["all"]
concurrency = { max = 2, lease = "10s" }
"#;

struct Asked {
    key: String,
    at: Time,
    cost: u32,
}

/// Numbers that look random (xorshift), the same on every run.
fn random() -> impl FnMut(u64) -> u64 {
    let mut state = 0x5EED_u64;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    }
}

fn whatif(fixture: &Fixture, query: &str) -> Value {
    fixture.admin().get(&format!("/v1/whatif?{query}")).json()
}

/// Returns the refused requests and keys, by a replay of the test's own.
fn replayed(algorithm: &AnyAlgorithm, asked: &[Asked]) -> Value {
    let mut states = BTreeMap::<&str, AnyState>::new();
    let (mut denied, mut keys) = (0, BTreeSet::new());
    for Asked { key, at, cost } in asked {
        let state = states.entry(key).or_default();
        let decision = algorithm.decide(state, *at, Permits::new(u64::from(*cost)));
        if !decision.verdict.allows() {
            denied += 1;
            keys.insert(key);
        }
    }
    json!([denied, keys.len()])
}

fn refusals(one: &Value) -> Value {
    json!([one["denied"], one["distinct_denied"]])
}

#[test]
fn the_record_is_decided_as_a_replay_of_all_requests_decides_it() {
    let fixture = Fixture::new(POLICY);
    let mut random = random();
    let (mut http, mut bucket, mut window) = (fixture.http(), Vec::new(), Vec::new());
    let mut refused = [0, 0];
    for _ in 0..600 {
        fixture.clock.advance(Nanos::from_millis(random(800)));
        let (key, at) = (format!("k{}", random(20)), fixture.clock.now());
        let cost = u32::try_from(1 + random(3)).unwrap();
        let of_bucket = random(2) == 0;
        let body = if of_bucket {
            json!({ "attributes": { "user": key } })
        } else {
            json!({ "attributes": { "tenant": key, "units": cost.to_string() } })
        };
        let status = http.post("/v1/check", &body.to_string()).status;
        let (list, cost, index) = if of_bucket {
            (&mut bucket, 1, 0)
        } else {
            (&mut window, cost, 1)
        };
        refused[index] += u64::from(status == 429);
        list.push(Asked { key, at, cost });
    }
    let quota = |text: &str| text.parse::<Quota>().unwrap();
    let bucket_of = |text| AnyAlgorithm::from(Gcra::token_bucket(quota(text)).unwrap());
    let origin = Origin::from_unix_nanos(NEW_YEAR);
    let window_of = |text| {
        let quota = quota(text);
        AnyAlgorithm::from(Window::fixed(quota, origin.phase(quota.per())).unwrap())
    };
    let found = whatif(&fixture, "limit=bucket&number=3/1m&number=5/1m+burst+9");
    assert_eq!(found["requests"], bucket.len());
    assert_eq!(found["sampled_keys_percent"], 100.0);
    assert_eq!(found["present"]["limit"], "5/1m");
    assert_eq!(found["present"]["denied"], refused[0], "as it was decided");
    assert_eq!(
        refusals(&found["numbers"][0]),
        replayed(&bucket_of("3/1m"), &bucket)
    );
    assert_eq!(
        refusals(&found["numbers"][1]),
        replayed(&bucket_of("5/1m burst 9"), &bucket)
    );
    let found = whatif(&fixture, "limit=window&number=9/2m");
    assert_eq!(found["present"]["denied"], refused[1], "as it was decided");
    assert_eq!(
        refusals(&found["numbers"][0]),
        replayed(&window_of("9/2m"), &window)
    );
    assert_ne!(found["present"], found["numbers"][0]);

    // An hour later the record is empty.
    fixture.clock.advance(Nanos::from_secs(3_600));
    let found = whatif(&fixture, "limit=bucket&number=3/1m");
    assert_eq!(found["requests"], 0);
    assert_eq!(found["numbers"][0]["denied"], 0);
}

/// Costs go to 2^53 - 1, so they are recorded whole.
#[test]
fn large_costs_are_decided_as_they_were() {
    let fixture = Fixture::new(
        r#"
version = 1
[[limit]]
name  = "bytes"
key   = ["attr:user"]
limit = "10000000000/1m"
algorithm = "fixed-window"
cost  = "attr:units"
"#,
    );
    for (units, status) in [(6_000_000_000_u64, 200), (6_000_000_000, 429), (9, 200)] {
        let body = json!({ "attributes": { "user": "ada", "units": units.to_string() } });
        let answer = fixture.http().post("/v1/check", &body.to_string());
        assert_eq!(answer.status, status, "{units}");
    }
    let numbers = "number=6000000009/1m&number=6000000008/1m&number=12000000009/1m";
    let found = whatif(&fixture, &format!("limit=bytes&{numbers}"));
    assert_eq!(found["present"]["denied"], 1, "as it was decided");
    let denied = [0, 1, 2].map(|index| found["numbers"][index]["denied"].as_u64());
    assert_eq!(denied, [Some(1), Some(2), Some(0)]);
}

/// A request that another limit refuses would be refused with any number.
#[test]
fn requests_that_other_limits_refuse_are_left_out() {
    let fixture = Fixture::new(POLICY);
    let body = json!({ "request": { "path": "/closed" }, "attributes": { "user": "ada" } });
    for _ in 0..9 {
        fixture.http().post("/v1/check", &body.to_string());
    }
    assert_eq!(whatif(&fixture, "limit=bucket&number=1/1m")["requests"], 1);
    assert_eq!(whatif(&fixture, "limit=gate&number=3/24h")["requests"], 9);
}

#[test]
fn keys_that_stand_in_for_missing_ones_are_decided_again() {
    let fixture = Fixture::new(
        r#"
version = 1
[[limit]]
name  = "api"
key   = ["attr:user"]
missing_key = "use:ip"
limit = "2/1h"
"#,
    );
    let body = json!({ "request": { "ip": "192.0.2.1" } }).to_string();
    for _ in 0..3 {
        fixture.http().post("/v1/check", &body);
    }
    let found = whatif(&fixture, "limit=api&number=1/1h");
    assert_eq!(found["present"]["denied"], 1, "as it was decided");
    assert_eq!(found["numbers"][0]["denied"], 2);
}

#[test]
fn a_leaky_bucket_stays_one() {
    let fixture = Fixture::new(
        r#"
version = 1
[[limit]]
name  = "even"
key   = ["attr:user"]
limit = "2/1m"
algorithm = "leaky-bucket"
"#,
    );
    let body = json!({ "attributes": { "user": "ada" } }).to_string();
    for _ in 0..3 {
        fixture.http().post("/v1/check", &body);
    }
    fixture.clock.advance(Nanos::from_secs(15));
    fixture.http().post("/v1/check", &body);
    let found = whatif(
        &fixture,
        "limit=even&number=4/1m&number=3/1m&number=4/1m+burst+2",
    );
    assert_eq!(found["present"]["denied"], 3, "as it was decided");
    let denied = [0, 1, 2].map(|index| found["numbers"][index]["denied"].as_u64());
    assert_eq!(denied, [Some(2), Some(3), Some(1)]);
}

/// The number of a limit decides as the limit does, or the limit is more than a number.
#[test]
fn limits_that_are_a_number_alone_are_decided_again() {
    let alone = [
        "limit = \"5/1m\"",
        "limit = \"5/hour\"",
        "bucket = { size = 5, refill = \"5/1m\" }",
        "limit = \"5/1m\"\nalgorithm = \"fixed-window\"",
        "limit = \"5/1m\"\nalgorithm = \"sliding-window-counter\"",
        "limit = \"5/1m\"\nalgorithm = \"sliding-window-log\"",
        "limit = \"5/1m\"\nalgorithm = { name = \"sub-buckets\", count = 4, edge = \"drop\" }",
        "limit = \"5/1m\"\nalgorithm = \"quota-reset\"",
        "limit = \"5/1m\"\nalgorithm = \"hybrid\"",
        "limit = \"5/1m\"\nalgorithm = \"exponential\"",
        "limit = \"5/1m\"\nalgorithm = \"leaky-bucket\"",
        "limit = \"5/1m\"\ncount_denied = true",
        "limit = \"5/1m\"\nban = { after = 9, within = \"1h\", for = \"1h\" }",
    ];
    let more = [
        "limit = \"5/1m\"\nalgorithm = \"smooth-bursty\"",
        "limit = \"5/1m\"\nwarmup = { period = \"10s\" }",
        "limit = \"5/1m\"\nalgorithm = { name = \"sliding-window-log\", min_gap = \"2s\" }",
        "bucket = { size = 5, refill = \"2/1m\", step = true }",
    ];
    for fields in alone.iter().chain(&more) {
        let fixture = Fixture::new(&format!(
            "version = 1\ntimezone = \"UTC\"\n[[limit]]\nname = \"own\"\nkey = [\"ip\"]\n{fields}\n"
        ));
        let body = json!({ "request": { "ip": "192.0.2.1" } }).to_string();
        for _ in 0..9 {
            fixture.http().post("/v1/check", &body);
        }
        let found = whatif(&fixture, "limit=own&number=5/1m");
        if alone.contains(fields) {
            let denied = &found["present"]["denied"];
            assert_eq!(found["numbers"][0]["denied"], *denied, "{fields}: {found}");
            assert!(denied.as_u64() > Some(0), "{fields}");
        } else {
            let detail = found["detail"].to_string();
            assert!(detail.contains("more than a number"), "{fields}: {found}");
        }
    }
}

#[test]
fn other_questions_are_refused_with_the_reason() {
    let fixture = Fixture::new(POLICY);
    for (query, expected) in [
        ("number=1/1m", "the limit is missing"),
        ("limit=bucket", "expected `number` once"),
        ("limit=bucket&number=many", "is not a number of this limit"),
        ("limit=bucket&number=0/1m", "is not a number of this limit"),
        ("limit=none&number=1/1m", "is not in the policy"),
        ("limit=loans&number=1/1m", "permits on loan"),
        (
            "limit=bucket&number=1/1m&top=1",
            "`top` is not a known parameter",
        ),
    ] {
        let detail = whatif(&fixture, query)["detail"].to_string();
        assert!(detail.contains(expected), "{query}: {detail}");
    }
    let many = "&number=1/1m".repeat(5);
    let detail = whatif(&fixture, &format!("limit=bucket{many}"))["detail"].to_string();
    assert!(detail.contains("4 times at most"), "{detail}");
}
