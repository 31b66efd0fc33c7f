//! A budget of requests and tokens for a language model, shared by all processes: an estimate is
//! charged before the call and settled with the actual usage after it, so that concurrent calls
//! cannot spend the same tokens. Without a server, this process holds the budget alone.
//!
//! `REDIS_URL=redis://127.0.0.1:6379 cargo run -p ratekeeper-examples --bin llm_token_budget`
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use ratekeeper::Limits;
use ratekeeper::core::Quota;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or("redis://127.0.0.1:6379".into());
    let limits = Limits::redis(&url)?;
    let requests = limits.token_bucket("requests", Quota::per_minute(60))?;
    let tokens = limits.token_bucket("tokens", Quota::per_hour(1_000))?;

    for (estimate, used) in [(600, 250), (1_001, 900), (600, 1_500), (600, 300)] {
        let charges = [requests.of("ann"), tokens.of("ann").cost(estimate)];
        match limits.check(&charges).await {
            Err(refused) => println!("{estimate} tokens: {refused}"), // and no request is charged
            Ok(grant) => {
                // Call the model here. It reports the tokens of prompt and answer: unused tokens
                // are given back, tokens beyond the estimate are owed, even beyond the budget.
                limits.settle(grant.used(&tokens, used)).await?;
                let left = tokens.peek("ann").await?.remaining;
                println!("used {used} of {estimate}, {left} left for now");
            }
        }
    }
    let left = requests.peek("ann").await?.remaining;
    println!("{left} requests left");
    Ok(())
}
