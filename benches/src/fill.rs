//! Fill: the longest single call while a store is filled with keys, beside governor.
//!
//! ```text
//!   clock, decide a new key, clock      the longest of all calls of a pass
//!   floor: the same without a decision  what the machine takes away at times
//! ```
//!
//! The contenders take turns, and the least of the passes counts: a pause that the machine makes is
//! in one pass, one that a table makes when it grows is in all.
//!
//! `cargo run --release -p ratekeeper-benches -- fill`; with `--quick`, a tenth of the keys.

#![expect(clippy::disallowed_methods, reason = "benches read the clock")]
#![expect(clippy::cast_precision_loss, reason = "figures for people")]

use std::hint::black_box;
use std::time::Instant;

use foldhash::fast::RandomState as Foldhash;
use governor::RateLimiter;
use governor::clock::FakeRelativeClock;
use ratekeeper_core::Time;
use ratekeeper_store::{MemoryConfig, MemoryStore};

use crate::compare::{self, Side};
use crate::direct::{ALLOWS, gcra, governor_allows};
use crate::keyed::{Name, decide, limit_by, number, part};
use crate::{Effort, report};

/// Passes of each contender.
const PASSES: usize = 3;
/// Keys of a pass, as a multiple of those of the other benches.
const MORE: u32 = 10;
const NAMES: [&str; 3] = ["floor: no decision", "ratekeeper", "governor, foldhash"];

pub(crate) fn run(effort: Effort) {
    let keys = effort.keys * MORE;
    let limit = &limit_by(gcra(ALLOWS));
    let budget_bytes = 2 << 30;
    let store = || MemoryStore::new(MemoryConfig { budget_bytes });
    let clock = FakeRelativeClock::default;
    table(
        &format!("the longest call while {keys} numbers come, us"),
        [
            &mut || longest(keys, |key| timed(|| number(key))),
            &mut || {
                let store = store();
                longest(keys, |key| {
                    let key = part(number(key));
                    timed(|| decide(&store, limit, &key, Time::ZERO))
                })
            },
            &mut || {
                let (quota, hasher) = (governor_allows(), Foldhash::default());
                let peer = RateLimiter::dashmap_with_clock_and_hasher(quota, clock(), hasher);
                longest(keys, |key| timed(|| peer.check_key(&number(key))))
            },
        ],
    );
    table(
        &format!("the longest call while {keys} strings come, us"),
        [
            &mut || {
                let mut name = Name::new();
                longest(keys, |key| timed(|| name.set(key).len()))
            },
            &mut || {
                let (store, mut name) = (store(), Name::new());
                longest(keys, |key| {
                    let key = name.set(key).as_bytes();
                    timed(|| decide(&store, limit, key, Time::ZERO))
                })
            },
            &mut || {
                let (quota, hasher) = (governor_allows(), Foldhash::default());
                let peer = RateLimiter::dashmap_with_clock_and_hasher(quota, clock(), hasher);
                let mut name = Name::new();
                longest(keys, |key| {
                    let key = name.set(key);
                    timed(|| peer.check_key(key))
                })
            },
        ],
    );
}

/// Returns the microseconds of a call.
fn timed<T>(call: impl FnOnce() -> T) -> f64 {
    let start = Instant::now();
    black_box(call());
    start.elapsed().as_nanos() as f64 / 1_000.0
}

/// Returns the longest of the times that `each` returns for a key.
fn longest(keys: u32, each: impl FnMut(usize) -> f64) -> f64 {
    (0..keys as usize).map(each).fold(0.0, f64::max)
}

/// Runs the passes of [`NAMES`]; prints the least and the median of their longest calls.
fn table(title: &str, mut contenders: [&mut dyn FnMut() -> f64; 3]) {
    let mut longest = [[0.0; PASSES]; 3];
    for pass in 0..PASSES {
        for (contender, longest) in contenders.iter_mut().zip(&mut longest) {
            longest[pass] = contender();
        }
    }
    report::line(&format!(
        "\n{title}\n{:<34} {:>8} {:>8}",
        "", "least", "median"
    ));
    let sides = NAMES.iter().zip(&mut longest).map(|(name, passes)| {
        passes.sort_by(f64::total_cmp);
        let (least, median) = (passes[0], passes[PASSES / 2]);
        report::line(&format!("{name:<34} {least:>8.0} {median:>8.0}"));
        Side {
            name: (*name).to_owned(),
            least,
            median: Some(median),
        }
    });
    if let [_, ours, theirs] = sides.collect::<Vec<_>>().as_slice() {
        compare::note(title, ours.clone(), theirs.clone());
    }
}
