//! Elastic limits, by the latency and the errors of an upstream.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use super::upstream::{Next, Upstream};
use super::{Client, Proxy, eventually, sleep};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
const FAILED: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";

/// States of the upstream.
const FAST: u8 = 0;
const FAILING: u8 = 1;
const SLOW: u8 = 2;

/// Periods that are longer than the test waits.
const LIMITS: &str = r#"
[[limit]]
name = "by-errors"
match = { path = "/errors" }
key = ["header:x-user"]
limit = "3/1m"
elastic = { up_to = "9/1m", while = { signal = "upstream.errors", below = "10%" } }

[[limit]]
name = "by-latency"
match = { path = "/latency" }
key = ["header:x-user"]
limit = "3/1m"
elastic = { up_to = "9/1m", while = { signal = "upstream.latency", below = "150ms" } }

[[limit]]
name = "by-spare"
match = { path = "/spare" }
key = ["header:x-user"]
limit = "3/1m"
elastic = { up_to = "9/1m", while = { signal = "upstream.spare.errors", below = "10%" } }
"#;

/// Returns how many requests of a new user pass, at once.
fn passed(client: &mut Client, path: &str, user: &mut u32) -> usize {
    *user += 1;
    let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nx-user: u{user}\r\n\r\n");
    let passes = |_: &usize| client.ask(&request).status() != 429;
    (0..99).take_while(passes).count()
}

#[test]
fn an_elastic_limit_follows_its_upstream_and_falls_back_within_a_window() {
    let state = Arc::new(AtomicU8::new(FAST));
    let seen = Arc::clone(&state);
    let upstream = Upstream::new(move |visit| {
        let response = match seen.load(Ordering::SeqCst) {
            FAILING => FAILED,
            SLOW => {
                sleep(Duration::from_millis(500));
                OK
            }
            _ => OK,
        };
        let _ = visit.stream.write_all(response.as_bytes()); // the client may have left
        Next::Request
    });
    let spare = format!(
        "[[listen.proxy.route]]\nname = \"spare\"\nupstream = \"http://{}\"\n{LIMITS}",
        upstream.address
    );
    let proxy = Proxy::start(&[upstream.address], "", &spare);
    let (mut client, mut user) = (proxy.client(), 0);
    assert_eq!(
        passed(&mut client, "/spare", &mut user),
        3,
        "no request was diverted"
    );
    let mut becomes = |path: &str, expected: usize| {
        eventually(&format!("{expected} of {path} pass"), || {
            let passed = passed(&mut client, path, &mut user);
            // In between if the signal changes meanwhile.
            assert!((3..=9).contains(&passed), "{passed}");
            passed == expected
        });
    };
    becomes("/errors", 9);
    becomes("/latency", 9);
    state.store(FAILING, Ordering::SeqCst);
    becomes("/errors", 3);
    state.store(FAST, Ordering::SeqCst);
    becomes("/errors", 9);
    becomes("/latency", 9);
    state.store(SLOW, Ordering::SeqCst);
    becomes("/latency", 3);
    state.store(FAST, Ordering::SeqCst);
    becomes("/latency", 9);
    becomes("/spare", 3);
}
