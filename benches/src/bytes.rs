//! Bytes: resident bytes per key, each store alone in a process of its own.

#![expect(clippy::cast_precision_loss, reason = "figures for people")]

use std::process::Command;

use governor::RateLimiter;
use governor::clock::FakeRelativeClock;

use crate::compare::{self, Side};
use crate::direct::governor_allows;
use crate::keyed::{STRING, filled, name, number};
use crate::machine::resident_bytes;
use crate::{Effort, report};

/// Argument that starts this program as such a process; the store and the number of keys follow.
pub(crate) const CHILD: &str = "--bytes-of";

/// Bytes of a v4 address as a part of a request: its length, then its bytes.
const ADDRESS: usize = 5;

const STORES: [(&str, usize); 5] = [
    ("ratekeeper, numbers", size_of::<u64>()),
    ("governor, numbers", size_of::<u64>()),
    ("ratekeeper, strings", STRING),
    ("governor, strings", STRING),
    ("ratekeeper, v4 addresses", ADDRESS),
];

/// Returns the key of address number `index`.
fn address(index: usize) -> [u8; ADDRESS] {
    let [a, b, c, d, ..] = index.to_le_bytes();
    [4, a, b, c, d]
}

/// Prints bytes per key for several numbers of keys, because tables grow in steps.
pub(crate) fn run(effort: Effort) {
    report::line("\nbytes a key beside the key itself, resident (governor's clock: one load)");
    let counts = [10, 12, 14, 16, 18].map(|tenths| effort.keys / 10 * tenths);
    let head: Vec<String> = counts.iter().map(|count| format!("{count:>10}")).collect();
    report::line(&format!("{:<30}{}   counted", "keys", head.concat()));
    let mut ours = Vec::new();
    for (index, (store, key)) in (0..).zip(&STORES) {
        let of = |count: &u32| child(index, *count).unwrap_or((f64::NAN, f64::NAN));
        let figures: Vec<(f64, f64)> = counts.iter().map(of).collect();
        let row: Vec<String> = figures
            .iter()
            .map(|(resident, _)| format!("{:>10.1}", resident - *key as f64))
            .collect();
        let beside_key = |(resident, _): &(f64, f64)| resident - *key as f64;
        match store.strip_prefix("governor, ") {
            None => ours = figures.iter().map(beside_key).collect(),
            Some(keys) => {
                let theirs: Vec<f64> = figures.iter().map(beside_key).collect();
                note(keys, &counts, &ours, &theirs);
            }
        }
        let counted = figures[0].1 - *key as f64;
        let counted = match *store {
            store if store.starts_with("governor") => "-".to_owned(),
            _ => format!("{counted:.1}"),
        };
        report::line(&format!("{store:<30}{}{counted:>10}", row.concat()));
    }
}

/// Notes the smallest and the largest number of keys for the comparison.
fn note(keys: &str, counts: &[u32], ours: &[f64], theirs: &[f64]) {
    let side = |name: &str, bytes| Side {
        name: name.to_owned(),
        least: bytes,
        median: None,
    };
    for index in [0, counts.len() - 1] {
        let what = format!("bytes a key beside the key, {} {keys}", counts[index]);
        let (ours, theirs) = (ours[index], theirs[index]);
        compare::note(what, side("ratekeeper", ours), side("governor", theirs));
    }
}

fn child(store: u32, keys: u32) -> Option<(f64, f64)> {
    let output = Command::new(std::env::current_exe().ok()?)
        .env("MIMALLOC_PURGE_DELAY", "0") // as after a pause: nothing freed is held back
        .args([CHILD, &store.to_string(), &keys.to_string()])
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let (resident, counted) = text.trim().split_once(' ')?;
    Some((resident.parse().ok()?, counted.parse().ok()?))
}

/// Fills one store and prints bytes per key: resident, and as counted by the store.
pub(crate) fn of(store: u32, keys: u32) {
    let count = keys as usize;
    let names: Vec<String> = match store {
        2 | 3 => (0..count).map(name).collect(),
        _ => Vec::new(),
    };
    let before = resident_bytes();
    let show = |counted: usize| {
        let resident = resident_bytes().saturating_sub(before);
        let each = |bytes: usize| bytes as f64 / count as f64;
        report::line(&format!("{} {}", each(resident), each(counted)));
    };
    let clock = FakeRelativeClock::default();
    match store {
        0 => {
            let store = filled(count, |index, show| show(&number(index).to_le_bytes()));
            show(store.usage().bytes);
        }
        4 => {
            let store = filled(count, |index, show| show(&address(index)));
            show(store.usage().bytes);
        }
        2 => {
            let store = filled(count, |index, show| show(names[index].as_bytes()));
            show(store.usage().bytes);
        }
        1 => {
            let governor = RateLimiter::dashmap_with_clock(governor_allows(), clock);
            for index in 0..count {
                let _ = governor.check_key(&number(index));
            }
            show(governor.len());
        }
        _ => {
            let governor = RateLimiter::dashmap_with_clock(governor_allows(), clock);
            for name in &names {
                let _ = governor.check_key(name);
            }
            show(governor.len());
        }
    }
}
