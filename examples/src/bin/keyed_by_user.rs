//! A limit for each user, in bounded memory: one line to ask, and no cleanup.
//!
//! `cargo run -p ratekeeper-examples --bin keyed_by_user`
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use ratekeeper::KeyedLimiter;
use ratekeeper::core::Verdict;

fn main() -> Result<(), ratekeeper::core::Error> {
    // The key is bytes: a name, an address, an API key. 256 MiB at most; a full store makes new
    // keys start with less, and never lets any key have more.
    let limiter = KeyedLimiter::per("2/1h")?;

    for user in ["ann", "ann", "bob", "ann"] {
        let decision = limiter.check(user);
        match decision.verdict {
            Verdict::Allow | Verdict::AllowAfter(_) => {
                println!("{user}: served, {} left", decision.remaining.get());
            }
            Verdict::Deny { retry_after } => println!(
                "{user}: come back in {} minutes",
                retry_after.as_secs_ceil().div_ceil(60)
            ),
            Verdict::DenyForever => println!("{user}: never"), // one permit always fits
        }
    }

    limiter.reset("ann"); // support has heard her
    println!("ann: {} left", limiter.peek("ann").remaining.get());
    Ok(())
}
