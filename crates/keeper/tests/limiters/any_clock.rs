//! Any clock: whatever moment its zero means, and whatever it shows first, a limiter, one for each
//! key, and a policy decide alike.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use ratekeeper::core::{AnyAlgorithm, Gcra, Interval, Log, Nanos, Origin, Permits, Time};
use ratekeeper::policy::{Facts, config};
use ratekeeper::store::{MemoryConfig, MemoryStore};
use ratekeeper::{Clock, Keeper, KeyedLimiter, Limiter, ManualClock, Scope};

const SECOND: u64 = 1_000_000_000;

/// What a clock shows when it begins: its own zero; 2017, 2026 and 2090 in nanoseconds since
/// 1970; just before the ticks of a bucket begin anew, after 9.1 years; a day before time ends.
/// A debt that would end at the very tick where they begin anew ends one tick later, because
/// the word 0 means a key never seen; the odd nanosecond keeps these lives off that tick.
const BEGINS: [u64; 6] = [
    0,
    1_490_868_000 * SECOND,
    1_767_225_600 * SECOND,
    3_786_912_000 * SECOND,
    (1 << 58) - 2 * SECOND + 1,
    u64::MAX - 86_400 * SECOND,
];

/// Waits and costs of a life, the same for each clock.
fn steps() -> impl Iterator<Item = (Nanos, u64)> {
    (0..2_000_u64).map(|step| {
        let mixed = step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let wait = [0, 0, 0, mixed % 40_000_000, 100_000_000, mixed % SECOND];
        let wait = wait[usize::try_from(mixed % 6).unwrap()];
        (Nanos::from_nanos(wait), mixed % 3)
    })
}

/// All answers of a life on a clock that begins at `begin`.
fn life<T>(clock: &ManualClock, begin: u64, mut ask: impl FnMut(u64) -> T) -> Vec<T> {
    clock.set(Time::from_nanos(begin));
    let step = |(wait, cost)| {
        clock.advance(wait);
        ask(cost)
    };
    steps().map(step).collect()
}

/// Lives on each clock are as the first.
fn alike<T: PartialEq + std::fmt::Debug>(lives: impl Fn(u64) -> Vec<T>) {
    let first = lives(BEGINS[0]);
    for begin in BEGINS {
        for (number, (decided, expected)) in lives(begin).iter().zip(&first).enumerate() {
            assert_eq!(decided, expected, "request {number} from {begin}");
        }
    }
}

fn limits() -> [AnyAlgorithm; 6] {
    let bucket = |text: &str| Gcra::token_bucket(text.parse().unwrap()).unwrap();
    let few = Permits::new(5);
    [
        bucket("3/1s").into(),
        bucket("10/1s").into(),
        bucket("60/7s").into(),
        Gcra::leaky_queue("7/1s".parse().unwrap(), few)
            .unwrap()
            .into(),
        Interval::from_first(few, Permits::new(2), Nanos::SECOND)
            .unwrap()
            .into(),
        Log::sliding("9/1s".parse().unwrap()).unwrap().into(),
    ]
}

#[test]
fn a_limiter_decides_alike_on_any_clock() {
    for limit in limits() {
        alike(|begin| {
            let limiter = Limiter::with_clock(limit.clone(), ManualClock::default());
            life(limiter.clock(), begin, |cost| limiter.decide(cost))
        });
    }
    let bucket = Gcra::token_bucket("3/1s".parse().unwrap()).unwrap();
    alike(|begin| {
        let limiter = Limiter::with_clock(bucket, ManualClock::default());
        life(limiter.clock(), begin, |cost| limiter.decide(cost))
    });
}

#[test]
fn a_keyed_limiter_decides_alike_on_any_clock() {
    let bucket = Gcra::token_bucket("3/1s".parse().unwrap()).unwrap();
    alike(|begin| {
        let memory = MemoryConfig::default();
        let limiter = KeyedLimiter::with_clock(bucket, memory, ManualClock::default());
        life(limiter.clock(), begin, |cost| {
            [
                limiter.key("ann").decide(cost),
                limiter.key("bob").decide(1),
            ]
        })
    });
}

#[test]
fn a_policy_decides_alike_on_any_clock() {
    const POLICY: &str = r#"
version = 1
[[limit]]
name = "per-user"
key = ["attr:user"]
bucket = { size = 3, refill = "3/1s" }
[[limit]]
name = "all"
key = ["all"]
bucket = { size = 60, refill = "60/7s" }
[[limit]]
name = "spaced"
key = ["attr:user"]
spacing = "70ms"
"#;
    alike(|begin| {
        // A clock that counts from 1970, as the context of the policy does.
        let clock = ManualClock::at(Origin::UNIX);
        let context = config::Context::from(clock.origin());
        let policy = config::parse(POLICY, context).unwrap().policy;
        let keeper = Keeper::new(policy, MemoryStore::new(MemoryConfig::default()), clock);
        life(keeper.clock(), begin, |cost| {
            let user = if cost == 1 { "ann" } else { "bob" };
            let attributes = [("user", user)];
            let facts = Facts {
                attributes: &attributes,
                ..Facts::default()
            };
            let answer = keeper.check_now(&facts, Scope::All);
            (answer.allowed(), answer.header_fields())
        })
    });
}
