//! A budget of tokens with a price that is known only afterwards: charge an estimate, then
//! settle with the actual usage. Concurrent calls cannot spend the same tokens.
//!
//! `cargo run -p ratekeeper-examples --bin llm_token_budget`
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use ratekeeper::core::{Nanos, Permits, Verdict};
use ratekeeper::{Limiter, Settlement};

/// Reason why the model was not asked.
enum Refused {
    /// The budget has tokens for the estimate again after this long.
    For(Nanos),
    /// The estimate is above the whole budget.
    Forever,
}

/// Asks the model, if the budget has tokens for the estimate.
fn ask(
    budget: &Limiter,
    estimate: Permits,
    model: impl Fn() -> Permits,
) -> Result<Permits, Refused> {
    match budget.check_n(estimate).verdict {
        Verdict::Allow | Verdict::AllowAfter(_) => {}
        Verdict::Deny { retry_after } => return Err(Refused::For(retry_after)),
        Verdict::DenyForever => return Err(Refused::Forever),
    }
    let used = model(); // prompt and answer, as the provider counts them
    // Unused tokens are given back; tokens beyond the estimate are owed, even beyond the budget.
    // Only a charge that was granted is settled.
    let taken = estimate;
    budget.settle(Settlement { taken, used });
    Ok(used)
}

fn main() -> Result<(), ratekeeper::core::Error> {
    let budget = Limiter::per("1000/1h")?;

    for (estimate, costs) in [(600, 250), (1_001, 900), (600, 1_500), (600, 300)] {
        let estimate = Permits::new(estimate);
        match ask(&budget, estimate, || Permits::new(costs)) {
            Ok(used) => println!(
                "used {} of {}, {} left for now",
                used.get(),
                estimate.get(),
                budget.peek().remaining.get()
            ),
            Err(Refused::Forever) => {
                println!("never: {} is more than the whole budget", estimate.get());
            }
            Err(Refused::For(wait)) => println!(
                "not now: the budget has {} tokens again in {} minutes",
                estimate.get(),
                wait.as_secs_ceil().div_ceil(60)
            ),
        }
    }
    Ok(())
}
