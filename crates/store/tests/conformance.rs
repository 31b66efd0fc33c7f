//! The table of checks that every store must pass.

use ratekeeper_store::{MemoryConfig, MemoryStore, conformance};

#[test]
fn the_memory_store_conforms() {
    conformance::check(|| MemoryStore::new(MemoryConfig::default()));
}

/// One shard, next to no memory: the same answers as long as a few keys fit.
#[test]
fn a_small_memory_store_conforms() {
    conformance::check(|| {
        MemoryStore::new(MemoryConfig {
            budget_bytes: 16 << 10,
        })
    });
}
