//! One limit, one counter, no policy: a token bucket shared by threads.
//!
//! `cargo run -p ratekeeper-examples --bin one_limit`
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::thread;

use ratekeeper::core::{Cell, Gcra, Permits};
use ratekeeper::{Clock, SystemClock};

fn main() -> Result<(), ratekeeper::core::Error> {
    let limit = Gcra::token_bucket("100/1h".parse()?)?;
    let cell = Cell::<Gcra>::default();
    let clock = SystemClock::new();

    let admitted: usize = thread::scope(|scope| {
        let ask = || {
            let asked = (0..50).map(|_| cell.decide(&limit, clock.now(), Permits::ONE));
            asked.filter(|decision| decision.verdict.allows()).count()
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or(0))
            .sum()
    });

    println!("4 threads asked 200 times: {admitted} admitted");
    Ok(())
}
