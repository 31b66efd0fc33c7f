//! The policy file changes under load, in every way files change: nothing is lost.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::harness::proxy::{Kind, WhenDown};
use crate::harness::service::policy;
use crate::harness::visitor::Visitor;
use crate::harness::{Stage, clock};

/// Maximum time until a reload is in force, however the file changed.
pub(crate) const RELOADED_WITHIN: Duration = Duration::from_secs(10);

/// `scarce` holds the balance that must not be lost: `size` permits and practically no refill.
/// `wide` never refuses; its number identifies the policy that answered.
fn limits(size: u32, generation: u32) -> String {
    policy(&format!(
        r#"
        [[limit]]
        name   = "scarce"
        match  = {{ path = "/scarce" }}
        key    = ["all"]
        bucket = {{ size = {size}, refill = "1/24h" }}

        [[limit]]
        name   = "wide"
        match  = {{ path = "/wide" }}
        key    = ["ip"]
        bucket = {{ size = {}, refill = "1000/1s" }}
        "#,
        1_000_000 + generation,
    ))
}

#[test]
fn reload_under_load_loses_nothing() {
    // As mounted by deployments: the path is a link to the text elsewhere.
    let begin = |dir: &Path| {
        fs::write(dir.join("v0.toml"), limits(50, 0)).expect("writable");
        symlink("v0.toml", dir.join("policy.toml")).expect("linkable");
        dir.join("policy.toml")
    };
    let Some(stage) = Stage::open_with(Kind::Nginx, WhenDown::Refuse, begin) else {
        return;
    };
    let stop = AtomicBool::new(false);
    let load = |last: u8| {
        let (stop, address) = (&stop, stage.address());
        move || {
            let visitor = Visitor::at(last);
            let mut passed = 0;
            while !stop.load(Ordering::Relaxed) {
                assert_eq!(visitor.get(address, "/wide").status, 200);
                match visitor.get(address, "/scarce").status {
                    200 => passed += 1,
                    429 => {}
                    status => panic!("status {status}"),
                }
            }
            passed
        }
    };
    let passed: usize = thread::scope(|scope| {
        let load: Vec<_> = (2..6).map(|last| scope.spawn(load(last))).collect();
        let changed = scope.spawn(|| change_in_every_way(&stage)).join();
        stop.store(true, Ordering::Relaxed);
        let passed = load
            .into_iter()
            .map(|load| load.join().expect("whole answers"))
            .sum();
        changed.expect("every change was seen");
        passed
    });
    // 50, and the 10 more of the last policy, because balances were kept through every reload.
    assert_eq!(passed, 60);
    assert_eq!(stage.upstream.count("GET /scarce"), 60);
}

fn change_in_every_way(stage: &Stage) {
    let file = |name: &str| stage.dir().join(name);
    let policy = file("policy.toml");
    let write = |name: &str, text: &str| fs::write(file(name), text).expect("writable");
    let in_force = |generation: u32| await_generation(stage, generation);
    in_force(0);

    write("v0.toml", &limits(50, 1)); // in place, behind the link
    in_force(1);

    write("v2.toml", &limits(50, 2));
    symlink("v2.toml", file("link")).expect("linkable");
    fs::rename(file("link"), &policy).expect("renamable"); // the link swapped for another
    in_force(2);

    write("new", &limits(50, 3));
    fs::rename(file("new"), &policy).expect("renamable"); // as editors save
    in_force(3);

    fs::write(&policy, limits(50, 4)).expect("writable"); // in place
    in_force(4);

    let rejected = || stage.service.metric(REJECTED);
    let await_rejection = |before: f64| {
        let seen = clock::poll("rejected policy", RELOADED_WITHIN, || {
            (rejected() > before).then_some(())
        });
        seen.unwrap_or_else(|error| panic!("{error}"));
        in_force(4); // the old one stays
    };
    let whole = limits(50, 5);
    let cut = whole.split_at(whole.len() / 2).0;
    for bad in [&*whole.replace("refill", "brust"), cut, ""] {
        let before = rejected();
        // Not in place: a text that is seen when it is cut to nothing counts as rejected, and the
        // next one, which is empty, would then be no change.
        write("new", bad);
        fs::rename(file("new"), &policy).expect("renamable");
        await_rejection(before);
    }

    // A signal causes the text to be checked again, changed or not.
    let before = rejected();
    stage.service.process.signal("HUP");
    await_rejection(before);
    fs::write(&policy, limits(50, 6)).expect("writable");
    stage.service.process.signal("HUP");
    in_force(6);

    assert_eq!(
        stage.upstream.count("GET /scarce"),
        50,
        "the remaining permits, and no more"
    );
    fs::write(&policy, limits(60, 7)).expect("writable"); // new numbers, for the next request
    in_force(7);
    let spent = clock::poll("spending of ten more", RELOADED_WITHIN, || {
        (stage.upstream.count("GET /scarce") >= 60).then_some(())
    });
    spent.unwrap_or_else(|error| panic!("{error}"));
}

const REJECTED: &str = r#"ratekeeper_config_reload_total{result="rejected"}"#;

/// Waits until visitors see the policy of this generation.
fn await_generation(stage: &Stage, generation: u32) {
    let wanted = format!(r#""wide";q={}"#, 1_000_000 + generation);
    let visitor = Visitor::at(9);
    let seen = clock::poll(
        &format!("policy of generation {generation}"),
        RELOADED_WITHIN,
        || {
            let answer = visitor.get(stage.address(), "/wide");
            assert_eq!(answer.status, 200);
            answer
                .header("ratelimit-policy")?
                .starts_with(&wanted)
                .then_some(())
        },
    );
    seen.unwrap_or_else(|error| panic!("{error}"));
}
