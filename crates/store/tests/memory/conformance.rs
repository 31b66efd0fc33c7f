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

/// The command runs this table, row by row, on a user's server.
#[test]
fn conformance_rows_have_distinct_names() {
    let rows = conformance::rows();
    let mut names: Vec<_> = rows.iter().map(conformance::ConformanceRow::name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), rows.len());
}
