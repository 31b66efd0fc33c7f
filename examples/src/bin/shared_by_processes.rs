//! One limit that all processes share, counted in Redis: start it several times. Without a server
//! each process has its own, and changes over to the server once it is there.
//!
//! `REDIS_URL=redis://127.0.0.1:6379 cargo run -p ratekeeper-examples --bin shared_by_processes`
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::env;

use ratekeeper::policy::Facts;
use ratekeeper::{Keeper, Scope};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = env::var("REDIS_URL").unwrap_or("redis://127.0.0.1:6379".into());
    let keeper = Keeper::open(&format!(
        r#"
version = 1

[store.redis]
url = "{url}"
prefix = "ratekeeper-example"

[[limit]]                     # in all processes together
name   = "per-user"
key    = ["attr:user"]
bucket = {{ size = 3, refill = "3/1m" }}
on_store_error = "local"      # while Redis is away, this process holds the limit alone
"#
    ))?;

    for user in ["ann", "ann", "ann", "ann", "bob"] {
        let attributes = [("user", user)];
        let facts = Facts {
            attributes: &attributes,
            ..Facts::default()
        };
        let answer = keeper.check(&facts, Scope::All).await?;
        match answer.refused_by() {
            None => println!("{user}: allowed"),
            Some(outcome) => println!("{user}: refused by {}", outcome.rule.limit.name),
        }
    }
    if let Some(store) = keeper.store().shared() {
        let health = store.health();
        println!("answered by Redis: {} of 5", health.answered);
    }
    Ok(())
}
