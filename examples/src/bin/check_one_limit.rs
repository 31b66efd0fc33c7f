//! check: work that may be refused. A request handler asks, and says when to come back.
//!
//! `cargo run -p ratekeeper-examples --bin check_one_limit`
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use ratekeeper::Limiter;
use ratekeeper::core::Verdict;

fn main() -> Result<(), ratekeeper::core::Error> {
    let limiter = Limiter::per("3/1h")?;

    for request in 1..=4 {
        match limiter.check().verdict {
            Verdict::Allow | Verdict::AllowAfter(_) => println!("request {request}: served"),
            // Rounded up to whole minutes for display.
            Verdict::Deny { retry_after } => println!(
                "request {request}: come back in {} minutes",
                retry_after.as_secs_ceil().div_ceil(60)
            ),
            // One permit always fits; a larger cost may exceed the capacity of the limit.
            Verdict::DenyForever => println!("request {request}: never"),
        }
    }
    Ok(())
}
