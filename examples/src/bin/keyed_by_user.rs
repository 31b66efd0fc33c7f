//! A limit for each user, in bounded memory: one line to ask, and no cleanup.
//!
//! `cargo run -p ratekeeper-examples --bin keyed_by_user`
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use ratekeeper::KeyedLimiter;

fn main() -> Result<(), ratekeeper::core::Error> {
    // The key is a name, a number, an address, or a tuple of these. 256 MiB at most; when that is
    // full, new keys may begin with less than the whole limit, but never with nothing.
    let limiter = KeyedLimiter::per("2/1h")?;

    for user in ["ann", "ann", "bob", "ann"] {
        match limiter.check(user) {
            Ok(grant) => println!("{user}: served, {} left", grant.remaining()),
            Err(refused) => println!("{user}: {refused}"),
        }
    }

    let ann = limiter.key("ann"); // the verbs of a limiter, for one key
    ann.reset(); // support has heard her
    println!("ann: {} left", ann.peek().remaining);
    Ok(())
}
