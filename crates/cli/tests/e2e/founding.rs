//! The policies in `examples/policies`, unchanged, behind nginx.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::every_proxy::assert_denied;
use crate::harness::proxy::{Kind, WhenDown};
use crate::harness::visitor::Visitor;
use crate::harness::{Stage, clock};

const POLICIES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/policies");

/// Opens a stage with one of the policies.
fn open(name: &str) -> Option<Stage> {
    let copy = |dir: &Path| -> PathBuf {
        let policy = dir.join("policy.toml");
        fs::copy(format!("{POLICIES}/{name}.toml"), &policy).expect("the example is there");
        policy
    };
    Stage::open_with(Kind::Nginx, WhenDown::Refuse, copy)
}

/// One visitor asks until refused: `permits` passed, and `other` still passes.
fn check(stage: &Stage, limit: &str, permits: u32, period: Duration, visitors: [Visitor; 2]) {
    let [one, other] = visitors;
    let ask = |visitor: &Visitor| visitor.post(stage.address(), "/signup");
    let start = clock::now();
    let mut passed = 0;
    let denied = loop {
        let answer = ask(&one);
        if answer.status != 200 {
            break answer;
        }
        passed += 1;
        assert!(passed <= 2 * permits, "{passed} passed {limit}");
    };
    // On a machine so slow that the period has passed meanwhile, more is correct.
    if start.elapsed() < period / permits {
        assert_eq!(passed, permits, "{limit}");
    }
    assert_denied(&denied, limit);
    assert_eq!(
        ask(&other).status,
        200,
        "{limit} must not limit the other visitor"
    );
}

fn users() -> [Visitor; 2] {
    ["u1", "u2"].map(|user| Visitor::at(2).with("X-User-Id", user))
}

#[test]
fn twenty_signups_a_day_from_one_address() {
    let Some(stage) = open("signup") else { return };
    let day = Duration::from_secs(24 * 3_600);
    // The day is the calendar's: a minute before midnight it is nearly over.
    let told = Visitor::at(9).post(stage.address(), "/signup");
    let told = told
        .header("ratelimit")
        .expect("one RateLimit field")
        .to_owned();
    let left = told.split(";t=").nth(1).and_then(|left| left.parse().ok());
    let left: u64 = left.unwrap_or_else(|| panic!("no time in {told}"));
    assert!(Duration::from_secs(left) <= day, "{told}");
    if left < 60 {
        clock::wait(Duration::from_secs(left));
    }
    check(&stage, "signup", 20, day, [2, 3].map(Visitor::at));
    assert_eq!(
        Visitor::at(2).get(stage.address(), "/signup").status,
        200,
        "a peek charges nothing"
    );
}

#[test]
fn two_requests_a_second_for_each_user() {
    let Some(stage) = open("per-user") else {
        return;
    };
    check(&stage, "per-user", 2, Duration::from_secs(1), users());
    // Without the header the address is used, so that leaving it out avoids no limit.
    check(
        &stage,
        "per-user",
        2,
        Duration::from_secs(1),
        [4, 5].map(Visitor::at),
    );
}

#[test]
fn three_requests_a_minute_for_each_user() {
    let Some(stage) = open("three-a-minute") else {
        return;
    };
    check(
        &stage,
        "three-a-minute",
        3,
        Duration::from_secs(60),
        users(),
    );
    check(
        &stage,
        "three-a-minute",
        3,
        Duration::from_secs(60),
        [4, 5].map(Visitor::at),
    );
}

/// A thousand permits a second come back during the test, so other clients keep the bucket empty
/// meanwhile: with whole batches of checks, straight to the service.
#[test]
fn a_total_for_the_whole_server() {
    let Some(stage) = open("server-total") else {
        return;
    };
    let visitor = Visitor::at(2);
    assert_eq!(visitor.get(stage.address(), "/").status, 200);

    let stop = AtomicBool::new(false);
    let batch = format!(r#"{{"checks": [{}]}}"#, vec!["{}"; 1_000].join(","));
    let crowd = || {
        while !stop.load(Ordering::Relaxed) {
            let answer = Visitor::at(1).post_json(stage.service.http(), "/v1/check/batch", &batch);
            assert_eq!(answer.status, 200, "{}", answer.body);
        }
    };
    let denied = thread::scope(|scope| {
        scope.spawn(crowd);
        let denied = clock::poll("refusal", Duration::from_secs(20), || {
            let answer = visitor.get(stage.address(), "/");
            (answer.status != 200).then_some(answer)
        });
        let health = visitor.get(stage.address(), "/health");
        stop.store(true, Ordering::Relaxed);
        assert_eq!(health.status, 200, "probes are exempt");
        denied
    });
    let denied = denied.unwrap_or_else(|error| panic!("{error}"));
    // nginx has one status for all refusals, so the limit's own, 503, is lost.
    assert_denied(&denied, "server-total");
    clock::wait(denied.retry_after().expect("the wait is stated"));
    assert_eq!(
        visitor.get(stage.address(), "/").status,
        200,
        "after the stated wait"
    );
}
