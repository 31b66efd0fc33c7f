//! Seeds: those of every run, or as many new ones.
//!
//! `RATEKEEPER_SEED=random cargo test -p ratekeeper-core --test algorithms reference` begins with another
//! seed each time and prints it, so that `RATEKEEPER_SEED=THAT` shows the same again.
#![expect(
    clippy::print_stdout,
    reason = "the seed is printed so that a failure can be repeated"
)]

use std::hash::{BuildHasher as _, RandomState};

/// `count` seeds.
pub(crate) fn seeds(count: u64) -> impl Iterator<Item = u64> {
    let first = match std::env::var("RATEKEEPER_SEED").as_deref() {
        Err(_) => 0,
        Ok("random") => RandomState::new().hash_one(count) >> 1,
        Ok(seed) => seed
            .parse()
            .expect("RATEKEEPER_SEED must be a number or `random`"),
    };
    if first != 0 {
        println!("RATEKEEPER_SEED={first}");
    }
    first..first + count
}
