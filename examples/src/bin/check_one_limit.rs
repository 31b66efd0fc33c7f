//! check: work that may be refused. A handler of requests asks, and says when to come back.
//!
//! `cargo run -p ratekeeper-examples --bin check_one_limit`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use ratekeeper::Limiter;

fn main() -> Result<(), ratekeeper::core::Error> {
    let limiter = Limiter::per("3/1h")?;

    for request in 1..=4 {
        let verdict = limiter.check().verdict;
        match verdict.retry_after() {
            None => println!("request {request}: served"),
            // Rounded up to whole minutes, as people read it.
            Some(wait) => println!(
                "request {request}: come back in {} minutes",
                wait.as_secs_ceil().div_ceil(60)
            ),
        }
    }
    Ok(())
}
