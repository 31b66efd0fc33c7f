//! What an elastic limit admits, by a search of all short histories and by long random ones.
//!
//! ```text
//!   any span                     at most the bound of `up_to`: of the limit and its extra together
//!   a span with a high signal    at most the bound of the limit: it falls back at once
//!   always                       whatever the limit alone would admit
//! ```

use ratekeeper::core::{Algorithm as _, Nanos, Origin};
use ratekeeper::policy::{Facts, config};
use ratekeeper::store::{MemoryConfig, MemoryStore};
use ratekeeper::{Keeper, ManualClock, Scope};

type TestKeeper = Keeper<MemoryStore, ManualClock>;

/// A time after 1970: before, the wall clock is taken for unknown.
const START: Origin = Origin::from_unix_nanos(1_800_000_000 * 1_000_000_000);

const ALGORITHMS: [&str; 6] = [
    "token-bucket",
    "fixed-window",
    "sliding-window-log",
    "sliding-window-counter",
    "quota-reset",
    "hybrid",
];

/// Two requests in 4 s, three while the signal is low.
fn keeper(algorithm: &str, elastic: bool) -> TestKeeper {
    let elastic = if elastic {
        "elastic = { up_to = \"3/4s\", while = { signal = \"queue\", below = \"70%\" } }"
    } else {
        ""
    };
    let text = format!(
        "version = 1\n[[limit]]\nname = \"searches\"\nkey = [\"attr:user\"]\n\
         missing_key = \"shared\"\nlimit = \"2/4s\"\nalgorithm = \"{algorithm}\"\n{elastic}\n"
    );
    let loaded = config::parse(&text, config::Context::from(START));
    let policy = loaded.unwrap_or_else(|found| panic!("{found:#?}")).policy;
    let store = MemoryStore::new(MemoryConfig::default());
    Keeper::new(policy, store, ManualClock::at(START))
}

/// What happens at one moment: the signal, and the requests that come, after a wait.
#[derive(Clone, Copy, Debug)]
struct Tick {
    wait: Nanos,
    is_low: bool,
    requests: usize,
}

/// An elastic limit and one that is not, asked alike.
struct Pair {
    elastic: TestKeeper,
    plain: TestKeeper,
    /// The most of a span, in whole seconds plus a nanosecond: of the limit, and with the extra.
    bounds: Vec<[u64; 2]>,
}

impl Pair {
    fn new(algorithm: &str) -> Self {
        let elastic = keeper(algorithm, true);
        let rules = &elastic.policy().rules;
        let bound = |span| {
            let [limit, extra] = [0, 1].map(|index| rules[index].limit.algorithm.bound(span));
            [limit, limit + extra]
        };
        let spans = (0..64).map(|seconds| Nanos::from_nanos(seconds * 1_000_000_000 + 1));
        Self {
            bounds: spans.map(bound).collect(),
            elastic,
            plain: keeper(algorithm, false),
        }
    }

    /// Plays a history for a user without counters; returns the most that a span of 4 s admits.
    fn play(&self, user: &str, ticks: &[Tick]) -> usize {
        let attributes = [("user", user)];
        let facts = Facts {
            path: "/",
            attributes: &attributes,
            ..Facts::default()
        };
        let ask = |keeper: &TestKeeper| keeper.check_now(&facts, Scope::All).allowed();
        let mut admitted: Vec<(u64, usize)> = Vec::new();
        let mut at = 0;
        for tick in ticks {
            at += tick.wait.as_nanos();
            self.elastic.clock().advance(tick.wait);
            self.plain.clock().advance(tick.wait);
            let level = if tick.is_low { 100_000 } else { 900_000 };
            assert!(
                self.elastic
                    .set_signal("queue", level, Nanos::from_secs(3_600))
            );
            let mut passed = 0;
            for _ in 0..tick.requests {
                let (elastic, plain) = (ask(&self.elastic), ask(&self.plain));
                assert!(elastic || !plain, "the limit alone admits it: {ticks:?}");
                passed += usize::from(elastic);
            }
            admitted.push((at, passed));
        }
        let mut most = 0;
        for first in 0..ticks.len() {
            let (mut sum, mut is_high) = (0, true);
            for last in first..ticks.len() {
                sum += admitted[last].1;
                is_high &= !ticks[last].is_low;
                let span = admitted[last].0 - admitted[first].0;
                let seconds = usize::try_from(span.div_ceil(1_000_000_000)).unwrap_or(usize::MAX);
                let Some([limit, up_to]) = self.bounds.get(seconds) else {
                    break;
                };
                let bound = if is_high { limit } else { up_to };
                assert!(sum as u64 <= *bound, "{sum} of {bound}: {ticks:?}");
                if span < 4_000_000_000 {
                    most = most.max(sum);
                }
            }
        }
        most
    }
}

/// Every history of five moments, a second apart: the signal low or high, and 0, 1 or 4 requests.
#[test]
fn no_short_history_admits_more_than_up_to() {
    const MOMENTS: u32 = 5;
    for algorithm in ALGORITHMS {
        let pair = Pair::new(algorithm);
        let mut most = 0;
        for number in 0..6_usize.pow(MOMENTS) {
            let tick = |moment| {
                let choice = number / 6_usize.pow(moment) % 6;
                Tick {
                    wait: Nanos::from_secs(1),
                    is_low: choice % 2 == 0,
                    requests: [0, 1, 4][choice / 2],
                }
            };
            let ticks: Vec<_> = (0..MOMENTS).map(tick).collect();
            most = most.max(pair.play(&number.to_string(), &ticks));
        }
        assert!(most >= 3, "{algorithm}: the extra is never used");
    }
}

/// Random waits, to the nanosecond, and runs of one signal.
#[test]
fn no_long_history_admits_more_than_up_to() {
    for algorithm in ALGORITHMS {
        let pair = Pair::new(algorithm);
        let mut seed: u64 = 7;
        let mut below = |end: u64| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % end
        };
        for history in 0..200 {
            let mut is_low = false;
            let ticks: Vec<_> = (0..100)
                .map(|_| {
                    is_low ^= below(4) == 0;
                    Tick {
                        wait: Nanos::from_nanos(below(2_000_000_000)),
                        is_low,
                        requests: [0, 1, 2, 3]
                            [usize::from(below(2) == 0) + 2 * usize::from(below(2) == 0)],
                    }
                })
                .collect();
            pair.play(&format!("user-{history}"), &ticks);
        }
    }
}
