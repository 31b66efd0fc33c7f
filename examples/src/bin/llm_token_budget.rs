//! A budget of tokens with a price that is known only afterwards: charge an estimate, then
//! settle with the actual usage. Concurrent calls cannot spend the same tokens.
//!
//! `cargo run -p ratekeeper-examples --bin llm_token_budget`
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use ratekeeper::core::Permits;
use ratekeeper::{Limiter, Refused};

/// Asks the model, if the budget has tokens for the estimate.
fn ask(
    budget: &Limiter,
    estimate: Permits,
    model: impl Fn() -> Permits,
) -> Result<Permits, Refused> {
    let grant = budget.check_n(estimate)?;
    let used = model(); // prompt and answer, as the provider counts them
    // Unused tokens are given back; tokens beyond the estimate are owed, even beyond the budget.
    budget.settle(grant.used(used));
    Ok(used)
}

fn main() -> Result<(), ratekeeper::core::Error> {
    let budget = Limiter::per("1000/1h")?;

    for (estimate, costs) in [(600, 250), (1_001, 900), (600, 1_500), (600, 300)] {
        match ask(&budget, Permits::new(estimate), || Permits::new(costs)) {
            Ok(used) => {
                let left = budget.peek().remaining;
                println!("used {used} of {estimate}, {left} left for now");
            }
            Err(refused) => println!("{estimate} tokens: {refused}"),
        }
    }
    Ok(())
}
