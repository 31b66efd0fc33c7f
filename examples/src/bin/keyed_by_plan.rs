//! Quotas by plan: a table of limiters, each with its own bound of memory. Used permits stay used
//! when a user changes the plan.
//!
//! `cargo run -p ratekeeper-examples --bin keyed_by_plan`
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use ratekeeper::core::{Error, Gcra, Quota};
use ratekeeper::store::MemoryConfig;
use ratekeeper::{KeyedLimiter, SystemClock};

#[derive(Clone, Copy)]
enum Plan {
    Free,
    Pro,
}

const QUOTAS: [Quota; 2] = [Quota::per_hour(3), Quota::per_hour(10)];

/// The limiters, in the order of the plans.
struct Plans([KeyedLimiter; 2]);

impl Plans {
    fn new() -> Result<Self, Error> {
        let limiter = |quota| {
            let bucket = Gcra::token_bucket(quota)?;
            // For each plan: the sum is the bound of the table.
            let memory = MemoryConfig {
                budget_bytes: 64 << 20,
            };
            Ok(KeyedLimiter::with_clock(bucket, memory, SystemClock::new()))
        };
        let [free, pro] = QUOTAS.map(limiter);
        Ok(Self([free?, pro?]))
    }

    fn of(&self, plan: Plan) -> &KeyedLimiter {
        &self.0[plan as usize]
    }

    /// Charges the new plan with the permits that the old one has counted; a debt beyond an empty
    /// bucket is not carried. A request decided meanwhile may count under the old plan only.
    fn change(&self, name: &str, from: Plan, to: Plan) {
        let old = self.of(from).key(name);
        let charged = QUOTAS[from as usize].burst_size() - old.peek().remaining;
        let used = charged.get();
        let limit = self.of(to).key(name);
        if let Ok(nothing) = limit.check_n(0) {
            limit.settle(nothing.used(used));
        }
        old.reset();
    }
}

fn main() -> Result<(), Error> {
    let plans = Plans::new()?;
    let served = |plan| {
        (0..20)
            .filter(|_| plans.of(plan).check("ann").is_ok())
            .count()
    };

    println!("free: {} of 20 served", served(Plan::Free));
    plans.change("ann", Plan::Free, Plan::Pro);
    println!("pro: {} more of 20", served(Plan::Pro));
    Ok(())
}
