//! A budget of tokens whose price is known only afterwards: charge an estimate, settle with
//! what was used. Who runs at the same time cannot spend the same tokens.
//!
//! `cargo run -p ratekeeper-examples --bin llm_token_budget`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use ratekeeper::core::{Nanos, Permits};
use ratekeeper::{Limiter, Settlement};

/// Asks the model, if the budget has tokens for the estimate; how long to wait if not.
fn ask(budget: &Limiter, estimate: Permits, model: impl Fn() -> Permits) -> Result<Permits, Nanos> {
    let verdict = budget.check_n(estimate).verdict;
    if let Some(wait) = verdict.retry_after() {
        return Err(wait);
    }
    let used = model(); // prompt and answer, as the provider counts them
    // The rest is given back; what went over is owed, beyond the budget too.
    let taken = estimate;
    budget.settle(Settlement { taken, used });
    Ok(used)
}

fn main() -> Result<(), ratekeeper::core::Error> {
    let budget = Limiter::per("1000/1h")?;
    let estimate = Permits::new(600);

    for costs in [250, 1_500, 300] {
        match ask(&budget, estimate, || Permits::new(costs)) {
            Ok(used) => println!(
                "used {} of {}, {} left for now",
                used.get(),
                estimate.get(),
                budget.peek().remaining.get()
            ),
            Err(wait) => println!(
                "not now: the budget has {} tokens again in {} minutes",
                estimate.get(),
                wait.as_secs_ceil().div_ceil(60)
            ),
        }
    }
    Ok(())
}
