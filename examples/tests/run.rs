//! Every example runs and prints what its comment promises.

use std::process::Command;

fn check(program: &str, expected: &str) {
    // No server listens there, because the output of an example must not depend on one.
    let command = Command::new(program)
        .env("REDIS_URL", "redis://127.0.0.1:1")
        .output();
    let output = command.expect("the example runs");
    assert!(output.status.success(), "{program}: {output:?}");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        expected,
        "{program}"
    );
}

#[test]
fn examples_print_the_expected_output() {
    check(
        env!("CARGO_BIN_EXE_one_limit"),
        "4 threads asked 200 times: 100 admitted\n",
    );
    check(
        env!("CARGO_BIN_EXE_check_one_limit"),
        "request 1: served\nrequest 2: served\nrequest 3: served\n\
         request 4: the limit is used up; try again in 20 min\n",
    );
    check(
        env!("CARGO_BIN_EXE_acquire_blocking"),
        "4 workers fetched 20 pages, 5 ms apart: true\n",
    );
    check(
        env!("CARGO_BIN_EXE_policy_in_process"),
        "ann: allowed\nann: allowed\nann: allowed\nann: refused by per-user\nbob: allowed\n",
    );
    check(
        env!("CARGO_BIN_EXE_shared_by_processes"),
        "ann: allowed\nann: allowed\nann: allowed\nann: refused by per-user\nbob: allowed\n\
         answered by Redis: 0 of 5\n",
    );
    check(
        env!("CARGO_BIN_EXE_keyed_by_user"),
        "ann: served, 1 left\nann: served, 0 left\nbob: served, 1 left\n\
         ann: the limit is used up; try again in 30 min\nann: 2 left\n",
    );
    check(
        env!("CARGO_BIN_EXE_llm_token_budget"),
        "used 250 of 600, 750 left for now\n1001 tokens: the cost is above the capacity of the limit\n\
         used 1500 of 600, 0 left for now\n600 tokens: the limit is used up; try again in 81 min\n",
    );
    check(
        env!("CARGO_BIN_EXE_guava_migration"),
        "one slept 0s\nfive slept 10ms\nthe next slept 50ms\n\
         at once: false, within a second: true\n200 a second from now on\n",
    );
    check(
        env!("CARGO_BIN_EXE_governor_migration"),
        "passed, 2 left\nnine never fit\nann: true, bob: true\nat most 256 MiB\n",
    );
    check(
        env!("CARGO_BIN_EXE_reqwest_client"),
        "page 1: 200 OK\npage 2: 200 OK\npage 3: 200 OK\nthe server was asked 5 times\n",
    );
    check(
        env!("CARGO_BIN_EXE_axum"),
        "request 1: HTTP/1.1 200 OK\nrequest 2: HTTP/1.1 200 OK\nrequest 3: HTTP/1.1 200 OK\n\
         request 4: HTTP/1.1 429 Too Many Requests\n",
    );
    check(
        env!("CARGO_BIN_EXE_adaptive"),
        "limit near capacity: true\nthe others are refused: true\n",
    );
    check(
        env!("CARGO_BIN_EXE_tonic"),
        "call 1: served\ncall 2: served\n\
         call 3: ResourceExhausted: Limit per-address allows bucket of 2, 2/1h. \
         Try again in 1800 s.\n",
    );
}
