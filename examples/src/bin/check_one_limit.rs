//! check: work that may be refused. A request handler asks, and says when to come back.
//!
//! `cargo run -p ratekeeper-examples --bin check_one_limit`
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use ratekeeper::Limiter;

fn main() -> Result<(), ratekeeper::core::Error> {
    let limiter = Limiter::per("3/1h")?;

    for request in 1..=4 {
        match limiter.check() {
            Ok(_) => println!("request {request}: served"),
            Err(refused) => println!("request {request}: {refused}"),
        }
    }
    Ok(())
}
