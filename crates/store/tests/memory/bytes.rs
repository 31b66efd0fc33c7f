//! The bytes of a key in memory are those of the guide, by the algorithm and the length of the key.
//!
//! ```text
//!   a key takes B bytes: slot and tag
//!   a table grows by a quarter when it is 4/5 full:  5/4 to 25/16 slots a key
//!   the guide shows                                  5/4 B to 25/16 B, in whole bytes
//! ```
//!
//! Each shard keeps to these ends, so their sum does, whichever shards the hash chooses.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use ratekeeper_core::{
    AnyAlgorithm, Charge, Gcra, Key, Limit, LimitId, LimitKeys, LimitScope, Mode, Nanos, Outage,
    Permits, Quota, QuotaReset, Time, Window,
};
use ratekeeper_store::{MemoryConfig, MemoryStore};

const GUIDE: &str = include_str!("../../../../docs/guide/deploy.md");
/// Tables are measured while they grow from half as many keys to these.
const KEYS: usize = 1_000_000;

/// Returns the algorithm that stands for a column.
fn algorithm(column: &str) -> AnyAlgorithm {
    let quota: Quota = "100/1h".parse().unwrap();
    match column {
        "token bucket, leaky bucket" => Gcra::token_bucket(quota).unwrap().into(),
        "quota reset" => QuotaReset::new(quota).unwrap().into(),
        "fixed window, two windows" => Window::two_window(quota, Nanos::ZERO).unwrap().into(),
        other => panic!("{other}"),
    }
}

/// Returns the least and the most hundredths of bytes of a key of this length.
fn counted(algorithm: AnyAlgorithm, length: usize) -> (usize, usize) {
    let store = MemoryStore::new(MemoryConfig {
        budget_bytes: 1 << 30,
    });
    let limit = Limit {
        name: "bytes".into(),
        id: LimitId::new(0),
        version: 1,
        outage: Outage::Local,
        scope: LimitScope::Cluster,
        keys: LimitKeys::All,
        algorithm,
    };
    let (mut least, mut most) = (usize::MAX, 0);
    for number in 0..KEYS {
        let mut key = [0; 30];
        key[..8].copy_from_slice(&number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes());
        let charge = Charge {
            limit: &limit,
            key: Key::from_bytes(&key[..length]),
            cost: Permits::ONE,
            mode: Mode::Enforce,
        };
        assert!(store.decide_now(&[charge], Time::ZERO).admitted);
        if number >= KEYS / 2 && number % 1_000 == 0 {
            let bytes = store.usage().bytes * 100 / (number + 1);
            (least, most) = (least.min(bytes), most.max(bytes));
        }
    }
    (least, most)
}

/// Returns the two numbers of `21 to 27`.
fn range(text: &str) -> (usize, usize) {
    let (least, most) = text.split_once(" to ").unwrap();
    (least.parse().unwrap(), most.parse().unwrap())
}

/// Returns the ranges of the table, by row and column, with the length of a key and the column.
fn table() -> Vec<(usize, &'static str, (usize, usize))> {
    let table = GUIDE.split_once("| bytes for each key |").unwrap().1;
    let mut lines = table.lines();
    let columns: Vec<&str> = lines.next().unwrap().split('|').map(str::trim).collect();
    let rows = lines.skip(1).take_while(|line| line.starts_with('|'));
    let mut cells = Vec::new();
    for row in rows {
        let mut row = row.trim_matches('|').split('|').map(str::trim);
        let length = row.next().unwrap().strip_prefix("up to ").unwrap();
        let length = length.split(' ').next().unwrap().parse().unwrap();
        cells.extend(
            columns
                .iter()
                .zip(row)
                .map(|(column, shown)| (length, *column, range(shown))),
        );
    }
    assert_eq!(cells.len(), 9);
    cells
}

#[test]
fn the_bytes_of_a_key_are_those_of_the_guide() {
    for (length, column, shown) in table() {
        let (least, most) = counted(algorithm(column), length);
        let place = format!("{length} bytes, {column}: {least} to {most} hundredths");
        assert!(shown.0 * 100 <= least && most <= shown.1 * 100, "{place}");
        // The most is 5/4 of the least. Either is rounded to a whole byte.
        assert!(shown.1 <= shown.0 * 5 / 4 + 2, "{place}");
    }
}

/// 256 MiB without the sixteenth that is kept, of token buckets.
#[test]
fn the_keys_of_the_default_budget_are_those_of_the_guide() {
    let (_, sentence) = GUIDE.split_once("256 MiB hold ").unwrap();
    let millions = [
        sentence.split(" million IPv4").next().unwrap(),
        sentence
            .split_once(", or ")
            .unwrap()
            .1
            .split(" million IPv6")
            .next()
            .unwrap(),
    ];
    for (row, millions) in [3, 6].into_iter().zip(millions) {
        let (_, _, (least, most)) = table()[row];
        let keys = |bytes: usize| ((256 << 20) / 16 * 15 / bytes + 500_000) / 1_000_000;
        assert_eq!((keys(most), keys(least)), range(millions), "{millions}");
    }
}
