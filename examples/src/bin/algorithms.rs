//! Algorithms: a request each second under the same quota, by a window, a log, a hybrid and others,
//! on a clock that the program moves.
//!
//! `cargo run -p ratekeeper-examples --bin algorithms`
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::sync::Arc;
use std::time::Duration;

use ratekeeper::core::{Edge, Error, Gcra, Hybrid, Log, Nanos, Quota, Window};
use ratekeeper::limiter::LimiterAlgorithm;
use ratekeeper::{Limiter, ManualClock};

fn main() -> Result<(), Error> {
    let quota: Quota = "4/12s".parse()?;
    let from_zero = Nanos::ZERO; // windows begin at the zero of the clock
    play("token bucket", Gcra::token_bucket(quota)?);
    play("fixed window", Window::fixed(quota, from_zero)?);
    play("sliding counter", Window::two_window(quota, from_zero)?);
    play(
        "sub-buckets",
        Window::sub_buckets(quota, 4, Edge::Full, from_zero)?,
    );
    play("sliding log", Log::sliding(quota)?);
    play("hybrid", Hybrid::quota_linear(quota)?);
    Ok(())
}

/// Prints the requests of half a minute: `#` is served, and `.` refused.
fn play(name: &str, algorithm: impl LimiterAlgorithm) {
    let clock = Arc::new(ManualClock::default());
    let limiter = Limiter::with_clock(algorithm, Arc::clone(&clock));
    let line = (0..30).map(|_| {
        let mark = if limiter.check().is_ok() { '#' } else { '.' };
        clock.advance(Duration::from_secs(1));
        mark
    });
    println!("{name:<16}{}", line.collect::<String>());
}
