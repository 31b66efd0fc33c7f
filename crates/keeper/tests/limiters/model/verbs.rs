//! Verbs: lives of 20 operations with all verbs, under every owner of a limit, in memory and on
//! Redis.
//!
//! ```text
//!   check  reserve  cancel  settle  refund  report  reset  other numbers  time
//!
//!   kept in a span  <=  bound + permits charged before it and given back in it
//!                               '-- buckets in stores only: one word does not remember returns
//! ```
//!
//! A span ends where the key begins anew or the numbers change. The clock is set by hand, also that
//! of Redis. `RATEKEEPER_TESTS=all cargo test -p ratekeeper --test limiters verbs` runs 10^7 lives
//! in memory and 10^5 on Redis.

mod doors;

use std::thread;
use std::time::Duration;

use ratekeeper::core::{Algorithm as _, AnyAlgorithm, Nanos, Origin, Time};
use ratekeeper::store::{MemoryConfig, MemoryStore};
use ratekeeper::{KeyedLimiter, Limiter, Limits, ManualClock};

use self::doors::{Door, Key, OfKeeper, OfKey, OfLimits, Patience, Redis, Returned};
use crate::cases::cases;

const OPERATIONS: usize = 20;

/// Limits, each with other numbers.
const WORDS: [[&str; 2]; 13] = [
    [
        "bucket = { size = 4, refill = \"4/2s\" }",
        "bucket = { size = 3, refill = \"1/1s\" }",
    ],
    [
        "bucket = { size = 6, refill = \"2/3s\" }",
        "bucket = { size = 6, refill = \"3/1s\" }",
    ],
    [
        "bucket = { size = 1, refill = \"1/1s\" }",
        "bucket = { size = 2, refill = \"1/1s\" }",
    ],
    [
        "limit = \"4/2s\"\nalgorithm = \"fixed-window\"",
        "limit = \"2/2s\"\nalgorithm = \"fixed-window\"",
    ],
    [
        "limit = \"5/3s\"\nalgorithm = \"sliding-window-counter\"",
        "limit = \"7/2s\"\nalgorithm = \"sliding-window-counter\"",
    ],
    [
        "limit = \"4/3s\"\nalgorithm = \"sub-buckets\"",
        "limit = \"3/3s\"\nalgorithm = \"sub-buckets\"",
    ],
    [
        "limit = \"4/2s\"\nalgorithm = { name = \"sub-buckets\", edge = \"weighted\" }",
        "limit = \"9/3s\"\nalgorithm = { name = \"sub-buckets\", edge = \"weighted\" }",
    ],
    [
        "limit = \"4/2s\"\nalgorithm = \"sliding-window-log\"",
        "limit = \"6/2s\"\nalgorithm = \"sliding-window-log\"",
    ],
    [
        "limit = \"4/2s\"\nalgorithm = \"quota-reset\"",
        "limit = \"2/1s\"\nalgorithm = \"quota-reset\"",
    ],
    [
        "limit = \"4/2s\"\nalgorithm = \"hybrid\"",
        "limit = \"3/3s\"\nalgorithm = \"hybrid\"",
    ],
    [
        "limit = \"4/2s\"\nalgorithm = \"exponential\"",
        "limit = \"3/2s\"\nalgorithm = \"exponential\"",
    ],
    [
        "bucket = { size = 4, refill = \"1/1s\", step = true }",
        "bucket = { size = 5, refill = \"2/1s\", step = true }",
    ],
    [
        "bucket = { size = 5, refill = \"2/1s\", step = \"clock\" }",
        "bucket = { size = 3, refill = \"3/1s\", step = \"clock\" }",
    ],
];

/// A small generator: a life is its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

/// A charge that was made.
#[derive(Debug)]
struct Made {
    at: Time,
    /// The permits that stay used.
    kept: u64,
    /// The permits that were given back, and when.
    back: (u64, Option<Time>),
}

/// The charges of one key since its last reset or change of numbers.
struct Life<'a, D: Door> {
    door: &'a D,
    limits: &'a [AnyAlgorithm; 2],
    /// The index of the present numbers.
    numbers: usize,
    key: Key,
    made: Vec<Made>,
    /// Grants that are not given back, with the index of their charge; `None` if it was made
    /// before this part of the life.
    open: Vec<(D::Grant, Option<usize>, u64)>,
    /// Permits of earlier parts that were given back in this one, and when.
    earlier: Vec<(u64, Time)>,
}

impl<D: Door> Life<'_, D> {
    fn charged(&mut self, grant: D::Grant, at: Time, cost: u64) {
        self.open.push((grant, Some(self.made.len()), cost));
        self.made.push(Made {
            at,
            kept: cost,
            back: (0, None),
        });
    }

    fn give_back(&mut self, random: &mut Random) {
        let Ok(count @ 1..) = u64::try_from(self.open.len()) else {
            return;
        };
        let at = usize::try_from(random.below(count)).unwrap();
        let (grant, made, cost) = self.open.swap_remove(at);
        let wanted = random.below(cost + 2);
        let Some(used) = self.door.settle(&self.key, grant, cost, wanted) else {
            return;
        };
        let (back, now) = (cost.saturating_sub(used), self.door.now());
        match made {
            Some(made) => {
                let made = &mut self.made[made];
                (made.kept, made.back) = (made.kept - back, (back, Some(now)));
            }
            None => self.earlier.push((back, now)),
        }
    }

    fn begin_anew(&mut self) {
        self.is_bounded();
        self.made.clear();
        self.earlier.clear();
        self.open.iter_mut().for_each(|(_, made, _)| *made = None);
    }

    fn operation(&mut self, random: &mut Random) {
        match random.below(16) {
            0..=5 => {
                let cost = 1 + random.below(4);
                if let Some(grant) = self.door.check(&self.key, cost) {
                    self.charged(grant, self.door.now(), cost);
                }
            }
            6 => {
                let (cost, longest) = (1 + random.below(3), random.below(2_000));
                let longest = Duration::from_millis(longest);
                let patience = match random.below(3) {
                    0 => Patience::Cancels(longest),
                    _ => Patience::Comes(longest),
                };
                if let Some(due) = self.door.reserve(&self.key, cost, patience) {
                    self.made.push(Made {
                        at: due,
                        kept: cost,
                        back: (0, None),
                    });
                }
            }
            7..=10 => self.give_back(random),
            11 if random.below(3) == 0 => {
                self.door.reset(&self.key);
                self.begin_anew();
            }
            12 if random.below(3) == 0 => {
                self.begin_anew();
                self.numbers = 1 - self.numbers;
                self.door.change(self.numbers);
            }
            _ => {
                let span = random.below(8) * 250 + random.below(2);
                self.door.advance(Nanos::from_millis(span));
            }
        }
    }

    /// Holds the permits that stay used against the bound, in every span.
    fn is_bounded(&self) {
        let limit = &self.limits[self.numbers];
        let returned = D::returned(limit);
        let mut made: Vec<&Made> = self.made.iter().collect();
        made.sort_by_key(|made| made.at);
        for (first, from) in made.iter().enumerate() {
            let before = made[..first].iter().map(|made| made.back);
            let late = before.filter(|(_, at)| at.is_some_and(|at| at >= from.at));
            let late: u64 = late.map(|(back, _)| back).sum();
            let earlier: u64 = self.earlier.iter().map(|(back, _)| back).sum();
            let mut used = 0;
            for to in &made[first..] {
                used += to.kept;
                let bound = limit.bound(to.at.since(from.at) + Nanos::from_nanos(1));
                let more = match returned {
                    Returned::Never => 0,
                    Returned::Strokes => late.min(1),
                    Returned::Once => late,
                } + if D::FORGETS_RETURNS { earlier } else { 0 };
                assert!(
                    used <= bound + more,
                    "{used} of {bound} and {more}: {} {:?}, {limit:?}\n{:#?}\n{:?}",
                    D::NAME,
                    self.key,
                    self.made,
                    self.earlier,
                );
            }
        }
    }
}

/// Lives `numbers` under one limit.
fn live<D: Door>(door: &D, limits: &[AnyAlgorithm; 2], numbers: impl Iterator<Item = u64>) {
    for number in numbers {
        let mut random = Random(number);
        let mut life = Life {
            door,
            limits,
            numbers: 0,
            key: u128::from(number).to_le_bytes(),
            made: Vec::new(),
            open: Vec::new(),
            earlier: Vec::new(),
        };
        door.advance(Nanos::from_millis(20_000 + random.below(4_000)));
        for _ in 0..OPERATIONS {
            life.operation(&mut random);
        }
        life.is_bounded();
        door.reset(&life.key);
        if life.numbers == 1 {
            door.change(0);
        }
    }
}

/// Redis forgets keys by its own clock, so theirs is ahead of it.
fn clock() -> ManualClock {
    #[expect(clippy::disallowed_methods, reason = "the server uses the real clock")]
    let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let tomorrow = unix.unwrap().as_secs() + 86_400;
    ManualClock::at(Origin::from_unix_nanos(tomorrow * 1_000_000_000))
}

fn limits(words: [&str; 2]) -> [AnyAlgorithm; 2] {
    words.map(|words| {
        let words = format!("{{ {} }}", words.replace('\n', ", "));
        let limiter = Limiter::parse_with_clock(&words, clock()).unwrap();
        limiter.show(AnyAlgorithm::clone)
    })
}

fn store() -> MemoryStore {
    MemoryStore::new(MemoryConfig::default())
}

#[test]
fn no_life_in_memory_breaks_a_bound() {
    let lives: u64 = cases(100_000, 10_000_000);
    // Four owners of each limit.
    let each = lives.div_ceil(4 * WORDS.len() as u64);
    thread::scope(|scope| {
        for words in WORDS {
            scope.spawn(move || lives_in_memory(words, each));
        }
    });
}

/// Lives as many under each owner of a limit of these words.
fn lives_in_memory(words: [&'static str; 2], each: u64) {
    let limits = &limits(words);
    let [first, _] = limits;
    for number in 0..each {
        let limiter = Limiter::with_clock(first.clone(), clock());
        live(&(limiter, limits), limits, number..=number);
    }
    let keyed = KeyedLimiter::with_clock(first.clone(), MemoryConfig::default(), clock());
    live(&OfKey(keyed, limits), limits, 0..each);
    let of_limits = OfLimits::new(Limits::new(store(), clock()), limits, None);
    live(&of_limits, limits, 0..each);
    let of_keeper = OfKeeper::new(words, store(), clock(), None);
    live(&of_keeper, limits, 0..each);
}

#[test]
fn no_life_on_redis_breaks_a_bound() {
    let Some(redis) = Redis::start() else {
        return;
    };
    let lives: u64 = cases(1_000, 100_000);
    let each = lives.div_ceil(2 * WORDS.len() as u64);
    let redis = &redis;
    thread::scope(|scope| {
        for (index, words) in WORDS.into_iter().enumerate() {
            scope.spawn(move || {
                let (limits, runtime) = (&limits(words), Some(&redis.runtime));
                let of_limits = Limits::new(redis.store(index), clock());
                live(&OfLimits::new(of_limits, limits, runtime), limits, 0..each);
                let of_keeper = redis.store(index + WORDS.len());
                let of_keeper = OfKeeper::new(words, of_keeper, clock(), runtime);
                live(&of_keeper, limits, 0..each);
            });
        }
    });
}
