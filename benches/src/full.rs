//! Full: the cost of a new key in a memory store of the default budget, before and after that is
//! spent.
//!
//! `cargo run --release -p ratekeeper-benches -- full`; with `--quick`, a store of 16 MiB.

#![expect(clippy::cast_precision_loss, reason = "figures for people")]

use ratekeeper_core::{Nanos, Time};
use ratekeeper_store::{MemoryConfig, MemoryStore};

use crate::keyed::{Name, decide, limit_by};
use crate::measure::cpu_nanos;
use crate::{Effort, direct, report};

pub(crate) fn run(effort: Effort) {
    let budget_bytes = if effort.keys < 1_000_000 {
        16 << 20
    } else {
        256 << 20
    };
    let mut flood = Flood {
        store: MemoryStore::new(MemoryConfig { budget_bytes }),
        name: Name::new(),
        keys: 0,
    };
    let hours = |count: u64| Time::ZERO + Nanos::from_secs(3_600 * count);
    report::line(&format!(
        "a new key of 24 bytes, 5/1h, {} MiB, CPU ns",
        budget_bytes >> 20
    ));
    let part = budget_bytes / 1_600; // a third of the keys that fit, or less
    let mut before_full = Vec::new();
    while flood.evicted() == 0 {
        before_full.push(flood.pass(part / 10, Time::ZERO));
    }
    // The last tenths of what fits, growth included.
    let last = &before_full[before_full.len() / 2..];
    let mean = last.iter().sum::<f64>() / last.len() as f64;
    report::line(&format!("{mean:>8.0}  the second half of those that fit"));
    for floods in 1..=8 {
        let nanos = flood.pass(part, Time::ZERO);
        report::line(&format!("{nanos:>8.0}  full, part {floods} of the flood"));
    }
    for floods in 1..=4 {
        let nanos = flood.pass(part, hours(2));
        report::line(&format!("{nanos:>8.0}  two hours later, part {floods}"));
    }
}

struct Flood {
    store: MemoryStore,
    name: Name,
    keys: usize,
}

impl Flood {
    /// Returns nanoseconds of CPU for each of `keys` new keys.
    fn pass(&mut self, keys: usize, now: Time) -> f64 {
        let limit = limit_by(direct::gcra("5/1h"));
        let before = cpu_nanos();
        for _ in 0..keys {
            self.keys += 1;
            decide(
                &self.store,
                &limit,
                self.name.set(self.keys).as_bytes(),
                now,
            );
        }
        (cpu_nanos() - before) as f64 / keys as f64
    }

    fn evicted(&self) -> u64 {
        let usage = self.store.usage();
        usage.limits.first().map_or(0, |limit| limit.evicted.budget)
    }
}
