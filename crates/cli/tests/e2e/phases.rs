//! The eight phases of the first document, against a real application behind the gateway.
//!
//! The document sends 10 requests at 1 a second, then 20 at 2, up to 1,000 at 100, against a bucket
//! of 10 a second, and tries each again until it passes. Here all of it is twenty times as fast, so
//! that its four minutes take twelve seconds:
//!
//! ```text
//!   phase        1   2   3    4    5    6    7     8
//!   requests    10  20  50  100  200  250  500  1000
//!   asked a s   20  40 100  200  400  500 1000  2000
//!   served a s  20  40 100  200 <400  200  200   200
//! ```

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::gateway::gateway;
use crate::harness::application::{Application, EXPRESS_ROUTES, Framework};
use crate::harness::visitor::Caller;
use crate::harness::{clock, say};

/// Permits a second, and the size of the bucket.
const RATE: u32 = 200;
const REQUESTS: [u32; 8] = [10, 20, 50, 100, 200, 250, 500, 1000];
/// Each phase asks for its requests within this time.
const PHASE: Duration = Duration::from_millis(500);
const CLIENTS: usize = 8;
/// Pause of a client after a refusal.
const PAUSE: Duration = Duration::from_millis(5);

/// One phase: its requests, its beginning and its end.
struct Phase(u32, Instant, Instant);

/// Asks until all requests of the phase were served.
fn play(callers: &mut [Caller], requests: u32) -> Phase {
    let start = clock::now();
    let next = AtomicU32::new(0);
    thread::scope(|scope| {
        for caller in callers {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= requests {
                        return;
                    }
                    let due = start + PHASE * number / requests;
                    clock::wait(due.saturating_duration_since(clock::now()));
                    loop {
                        match caller.post_json("/api/work", "") {
                            200 => break,
                            status => assert_eq!(status, 429),
                        }
                        clock::wait(PAUSE);
                    }
                }
            });
        }
    });
    Phase(requests, start, clock::now())
}

/// No run of phases was served more than the bucket and its refill.
fn assert_bound(phases: &[Phase]) {
    for (first, Phase(_, start, _)) in phases.iter().enumerate() {
        let mut served = 0;
        for Phase(requests, _, end) in &phases[first..] {
            served += requests;
            let refilled = (*end - *start).as_secs_f64() * f64::from(RATE);
            assert!(f64::from(served) <= f64::from(RATE) + refilled + 1e-6);
        }
    }
}

#[test]
fn the_eight_phases_of_the_document_behind_the_gateway() {
    let dir = tempfile::TempDir::new().expect("the system has a temporary directory");
    let Some(application) = Application::start(Framework::Express, EXPRESS_ROUTES, dir.path())
    else {
        return;
    };
    let policy = format!(
        "version = 1\n[listen.proxy]\nupstream = \"http://{}\"\n\
         [[limit]]\nname = \"all\"\nkey = [\"all\"]\nlimit = \"{RATE}/1s\"\n",
        application.address()
    );
    std::fs::write(dir.path().join("ratekeeper.toml"), policy).expect("it is writable");
    let (_service, proxy) = gateway(dir.path(), &["run"]);
    let connect = |to: SocketAddr| -> Vec<Caller> {
        std::iter::repeat_with(|| Caller::connect(to))
            .take(CLIENTS)
            .collect()
    };
    let mut callers = connect(proxy);
    let phases = REQUESTS.map(|requests| play(&mut callers, requests));
    assert_bound(&phases);
    for Phase(requests, start, end) in &phases {
        let took = *end - *start;
        say(&format!("{requests} requests processed in {took:.3?}"));
    }
}
