//! Caddy, under a load that shows which servers it asks.

use std::thread;

use crate::harness::Stage;
use crate::harness::proxy::Kind;
use crate::harness::visitor::Caller;

/// More than Caddy keeps idle connections for one server (32), so that it keeps making new ones.
const VISITORS: usize = 200;
/// Of each visitor.
const VISITS: usize = 30;

const LIMITS: &str = r#"
[[limit]]
name   = "everybody"
key    = ["all"]
bucket = { size = 1000000, refill = "1/1s" }
"#;

/// Caddy without its change of July 2026 opens a connection for a question to the application, if
/// the request that wanted it has meanwhile used another: the next request to ask is then let pass
/// by the application. The snippet avoids kept connections; with them this failed in ten runs of
/// ten.
#[test]
fn the_application_is_never_asked() {
    let Some(stage) = Stage::open(Kind::Caddy, LIMITS) else {
        return;
    };
    // On a busy machine Caddy answers some visits itself, and they reach no application.
    let visit = || {
        let mut caller = Caller::connect(stage.address());
        let statuses = (0..VISITS).map(|_| caller.post_json("/", ""));
        statuses.filter(|status| *status == 200).count()
    };
    let passed: usize = thread::scope(|scope| {
        let visitors: Vec<_> = (0..VISITORS).map(|_| scope.spawn(visit)).collect();
        let passed = visitors.into_iter().map(thread::ScopedJoinHandle::join);
        passed
            .map(|passed| passed.expect("no visitor panics"))
            .sum()
    });
    let visits = stage.upstream.count("POST /");
    assert_eq!(visits, passed, "all visits that passed, and no other");
    assert!(visits > VISITORS, "{visits}");
    let asked = stage.upstream.total() - visits;
    assert_eq!(
        asked, 0,
        "requests that reached the application, of {visits} visits"
    );
}
