//! Every example runs and prints what its comment promises.

use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

const LLM_TOKEN_BUDGET: &str = "\
used 250 of 600, 750 left for now
1001 tokens: limit `tokens`: the cost is above the capacity or balance of the limit
used 1500 of 600, 0 left for now
600 tokens: limit `tokens`: the limit is used up; try again in 81 min
58 requests left
";

fn shared_by_processes(answered: usize) -> String {
    format!(
        "ann: allowed\nann: allowed\nann: allowed\n\
         ann: limit `logins`: the limit is used up; try again in 20 min\n\
         bob: allowed\nanswered by Redis: {answered}\n"
    )
}

fn check(program: &str, expected: &str) {
    // No server listens there, because the output of an example must not depend on one.
    check_with(program, "redis://127.0.0.1:1", expected);
}

fn check_with(program: &str, redis_url: &str, expected: &str) {
    let command = Command::new(program).env("REDIS_URL", redis_url).output();
    let output = command.expect("the example runs");
    assert!(output.status.success(), "{program}: {output:?}");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        expected,
        "{program}"
    );
}

/// A Redis server of the system on a socket of its own; stopped when dropped.
struct Redis(Child, TempDir);

impl Redis {
    /// `None` if it is not installed.
    ///
    /// # Panics
    /// If it is absent and `CI` is set.
    #[expect(clippy::print_stdout, reason = "a skipped test is printed")]
    fn start() -> Option<Self> {
        let directory = tempfile::tempdir().expect("a directory for the socket");
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", "", "--unixsocket", "socket"]);
        command.current_dir(directory.path()).stdout(Stdio::null());
        match command.spawn() {
            Ok(child) => Some(Self(child, directory)),
            Err(why) => {
                assert!(std::env::var_os("CI").is_none(), "redis-server: {why}");
                println!("skipped: redis-server: {why}");
                None
            }
        }
    }

    /// Returns its URL, once it accepts connections.
    #[expect(clippy::disallowed_methods, reason = "waits for a real server")]
    fn url(&mut self) -> String {
        let socket = self.1.path().join("socket");
        while UnixStream::connect(&socket).is_err() {
            let ended = self.0.try_wait().expect("the state of the process");
            assert!(ended.is_none(), "redis-server ended: {ended:?}");
            thread::sleep(Duration::from_millis(5));
        }
        format!("unix://{}", socket.display())
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn shared_limits_print_the_same_on_a_real_server() {
    let Some(mut redis) = Redis::start() else {
        return;
    };
    let url = redis.url();
    let program = env!("CARGO_BIN_EXE_llm_token_budget");
    check_with(program, &url, LLM_TOKEN_BUDGET);
    let program = env!("CARGO_BIN_EXE_shared_by_processes");
    check_with(program, &url, &shared_by_processes(5));
    let spent = "limit `logins`: the limit is used up; try again in 20 min\n";
    let again = format!("ann: {spent}").repeat(4) + "bob: allowed\nanswered by Redis: 5\n";
    check_with(program, &url, &again);
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
        env!("CARGO_BIN_EXE_algorithms"),
        "token bucket    #####.#..#..#..#..#..#..#..#..\n\
         fixed window    ####........####........####..\n\
         sliding counter ####.........#..#..#..#..#..#.\n\
         sub-buckets     ####...........####...........\n\
         sliding log     ####........####........####..\n\
         hybrid          ####........#..#..#..#..#..#..\n",
    );
    check(env!("CARGO_BIN_EXE_smol"), "5 pages, 10 ms apart: true\n");
    check(
        env!("CARGO_BIN_EXE_streams"),
        "fetched [1, 2, 3, 4, 5]\nsent, with 0 waiting\n",
    );
    check(
        env!("CARGO_BIN_EXE_policy_in_process"),
        "ann: allowed\nann: allowed\nann: allowed\nann: refused by per-user\nbob: allowed\n",
    );
    check(
        env!("CARGO_BIN_EXE_shared_by_processes"),
        &shared_by_processes(0),
    );
    check(
        env!("CARGO_BIN_EXE_login_failures"),
        "wrong: 401\nmaintenance: 503\nwrong: 401\nright: 200\n\
         wrong: 401\nwrong: 401\nwrong: 401\nright: 429\n",
    );
    check(
        env!("CARGO_BIN_EXE_keyed_by_user"),
        "ann: served, 1 left\nann: served, 0 left\nbob: served, 1 left\n\
         ann: the limit is used up; try again in 30 min\nann: 2 left\n",
    );
    check(
        env!("CARGO_BIN_EXE_keyed_by_plan"),
        "free: 3 of 20 served\npro: 7 more of 20\n",
    );
    check(env!("CARGO_BIN_EXE_llm_token_budget"), LLM_TOKEN_BUDGET);
    check(
        env!("CARGO_BIN_EXE_guava_migration"),
        "one slept 0ns\nfive slept 10ms\nthe next slept 50ms\n\
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
        env!("CARGO_BIN_EXE_actix"),
        "request 1: HTTP/1.1 200 OK\nrequest 2: HTTP/1.1 200 OK\nrequest 3: HTTP/1.1 200 OK\n\
         request 4: HTTP/1.1 429 Too Many Requests, retry-after: 1200\n",
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
