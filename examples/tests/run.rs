//! Every example runs and says what its comment promises.

use std::process::Command;

fn check(program: &str, expected: &str) {
    let output = Command::new(program).output().expect("the example runs");
    assert!(output.status.success(), "{program}: {output:?}");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        expected,
        "{program}"
    );
}

#[test]
fn examples_do_what_they_say() {
    check(
        env!("CARGO_BIN_EXE_one_limit"),
        "4 threads asked 200 times: 100 admitted\n",
    );
    check(
        env!("CARGO_BIN_EXE_check_one_limit"),
        "request 1: served\nrequest 2: served\nrequest 3: served\n\
         request 4: come back in 20 minutes\n",
    );
    check(
        env!("CARGO_BIN_EXE_acquire_blocking"),
        "4 workers fetched 20 pages, 5 ms apart: true\n",
    );
    check(
        env!("CARGO_BIN_EXE_policy_in_process"),
        "ann: allowed\nann: allowed\nann: allowed\nann: refused by per-user\nbob: allowed\n",
    );
}
