//! One limit that all processes share, counted in Redis: start it several times. Without a server
//! each process has its own, and changes over to the server once it is there.
//!
//! `REDIS_URL=redis://127.0.0.1:6379 cargo run -p ratekeeper-examples --bin shared_by_processes`
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use ratekeeper::Limits;
use ratekeeper::core::Quota;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or("redis://127.0.0.1:6379".into());
    let limits = Limits::redis(&url)?;
    let logins = limits.token_bucket("logins", Quota::per_hour(3))?;

    for user in ["ann", "ann", "ann", "ann", "bob"] {
        match logins.check(user).await {
            Ok(_) => println!("{user}: allowed"),
            Err(refused) => println!("{user}: {refused}"),
        }
    }
    println!("answered by Redis: {}", limits.store().health().answered);
    Ok(())
}
