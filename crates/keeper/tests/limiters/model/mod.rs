//! Random lives of a limiter in virtual time: every verb in any order, by tasks that come, give
//! up and wait.
//!
//! ```text
//!   bounded  no span admits more than the bound
//!   twins    every algorithm: one limit and one key of many tell the same story, and keep the
//!            laws of the line
//!   verbs    all verbs of every owner of a limit, also on Redis: no life breaks a bound
//!   exact    a token bucket: the story is that of a queue and a number
//! ```
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bounded;
mod exact;
mod twins;
mod verbs;

use crate::tasks::Tasks;
use proptest::prelude::ProptestConfig;
use ratekeeper::ManualClock;
use ratekeeper::core::{Nanos, Time};

fn lives(number: u32) -> ProptestConfig {
    ProptestConfig {
        failure_persistence: None, // a life that failed becomes a row of its own
        ..ProptestConfig::with_cases(number)
    }
}

/// Moves the clock on, from timer to timer.
fn advance(tasks: &mut Tasks<'_>, clock: &ManualClock, until: Time) {
    tasks.settle();
    while let Some(due) = clock.next_wake().filter(|due| *due <= until) {
        clock.set(due.max(ratekeeper::Clock::now(clock)));
        tasks.settle();
    }
    clock.set(until);
    tasks.settle();
}

fn millis(millis: u32) -> Nanos {
    Nanos::from_millis(millis.into())
}

/// The `which`th of the tasks that are not done, and round again.
fn nth(tasks: &Tasks<'_>, which: usize) -> Option<usize> {
    let at = which.checked_rem(tasks.running.len())?;
    tasks.running.keys().nth(at).copied()
}
