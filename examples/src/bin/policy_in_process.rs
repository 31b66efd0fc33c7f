//! A policy file inside your own program: many limits, keyed, charged together or not at all.
//!
//! `cargo run -p ratekeeper-examples --bin policy_in_process`
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use ratekeeper::policy::{Facts, config};
use ratekeeper::store::{MemoryConfig, MemoryStore};
use ratekeeper::{Clock, Keeper, Scope, SystemClock};

const POLICY: &str = r#"
version = 1

[[limit]]                     # everybody together
name   = "server-total"
key    = ["all"]
bucket = { size = 100, refill = "100/1s" }

[[limit]]                     # each user: three at once, then one every twenty seconds
name   = "per-user"
key    = ["attr:user"]
bucket = { size = 3, refill = "3/1m" }
missing_key = "deny"
"#;

fn main() {
    let clock = SystemClock::new();
    let context = config::Context::from(clock.origin());
    let policy = match config::parse(POLICY, context) {
        Ok(loaded) => loaded.policy,
        Err(findings) => {
            println!(
                "{}",
                config::render("policy", POLICY, &findings, config::Colour::Never)
            );
            return;
        }
    };
    let keeper = Keeper::new(policy, MemoryStore::new(MemoryConfig::default()), clock);

    for user in ["ann", "ann", "ann", "ann", "bob"] {
        let attributes = [("user", user)];
        let facts = Facts {
            attributes: &attributes,
            ..Facts::default()
        };
        let answer = keeper.check_now(&facts, Scope::All);
        let refused_by = answer
            .refused_by()
            .map(|outcome| outcome.rule.limit.name.to_string());
        match refused_by {
            None => println!("{user}: allowed"),
            Some(limit) => println!("{user}: refused by {limit}"),
        }
    }
}
