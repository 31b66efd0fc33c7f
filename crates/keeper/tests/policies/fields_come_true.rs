//! Response fields come true, for each way to write a limit.
//!
//! Random lives of one key. After each answer the test reads the header fields, as a client
//! does, moves the clock to the moment that they name, and checks the claim there. No other
//! request is charged meanwhile.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use ratekeeper::core::{Nanos, Origin, Permits};
use ratekeeper::policy::{Facts, config};
use ratekeeper::store::{MemoryConfig, MemoryStore};
use ratekeeper::{Answer, Clock, Keeper, ManualClock, Scope, at_once};

/// 2026-11-22 20:00:00.35 UTC: no window of any limit below begins here.
const ORIGIN: Origin = Origin::from_unix_nanos(1_795_377_600_350_000_000);

/// Each algorithm of the language, with rates that are no whole numbers of milliseconds.
const LIMITS: [&str; 25] = [
    "limit = \"3/7s\"",
    "limit = \"7/1s\"",
    "limit = \"5/1m\"\ncount_denied = true",
    "bucket = { size = 5, refill = \"2/3s\" }",
    "limit = \"5/11s\"\nalgorithm = \"leaky-bucket\"",
    "limit = \"5/11s\"\nalgorithm = \"leaky-bucket\"\nqueue = { max = 3 }",
    "spacing = \"1700ms\"",
    "limit = \"5/7s\"\nalgorithm = \"fixed-window\"",
    "limit = \"5/7s\"\nalgorithm = \"fixed-window\"\ncount_denied = true",
    "limit = \"5/hour\"",
    "limit = \"5/7s\"\nalgorithm = \"quota-reset\"",
    "limit = \"5/7s\"\nalgorithm = \"sliding-window-counter\"",
    "limit = \"5/7s\"\nalgorithm = \"sliding-window-log\"",
    "limit = \"5/7s\"\nalgorithm = \"sliding-window-log\"\ncount_denied = true",
    "limit = \"5/7s\"\nalgorithm = { name = \"sliding-window-log\", min_gap = \"1300ms\" }",
    "limit = \"5/7s\"\nalgorithm = { name = \"sub-buckets\", count = 4, edge = \"full\" }",
    "limit = \"5/7s\"\nalgorithm = { name = \"sub-buckets\", count = 4, edge = \"weighted\" }",
    "limit = \"5/7s\"\nalgorithm = \"hybrid\"",
    "limit = \"5/7s\"\nalgorithm = \"exponential\"",
    "bucket = { size = 5, refill = \"2/3s\", step = \"first\" }",
    "bucket = { size = 5, refill = \"2/3s\", step = \"clock\" }",
    "limit = \"5/7s\"\nban = { after = 2, within = \"9s\", for = \"3s\" }",
    "limit = \"5/7s\"\nalgorithm = \"fixed-window\"\nban = { after = 1, within = \"1h\", for = \"9s\", grow = 1.5, max = \"1h\" }",
    "limit = \"5/7s\"\nwarmup = { period = \"9s\", cold_factor = 3 }",
    "limit = \"5/7s\"\nalgorithm = { name = \"smooth-bursty\", save_up = \"5s\" }",
];

struct Life {
    limit: &'static str,
    keeper: Keeper<MemoryStore, ManualClock>,
    /// The largest cost that a fresh key may spend.
    most: u64,
    random: u64,
}

/// Values in the header fields of one answer.
#[derive(Debug)]
struct Promise {
    left: u64,
    more_after: Option<u64>,
    retry_after: Option<u64>,
    reset_after: u64,
}

impl Life {
    fn new(limit: &'static str, seed: u64) -> Self {
        let text = format!(
            "version = 1\ntimezone = \"UTC\"\nheaders = \"both\"\n[[limit]]\nname = \"one\"\nkey = [\"all\"]\n{limit}"
        );
        let loaded = config::parse(&text, config::Context::from(ORIGIN));
        let policy = loaded.unwrap_or_else(|findings| panic!("{limit}: {findings:?}"));
        let store = MemoryStore::new(MemoryConfig::default());
        let keeper = Keeper::new(policy.policy, store, ManualClock::at(ORIGIN));
        let mut life = Self {
            limit,
            keeper,
            most: 0,
            random: seed,
        };
        life.most = (1..20)
            .take_while(|cost| life.would_pass(*cost))
            .last()
            .unwrap();
        life
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.random >> 33) % end
    }

    fn ask(&self, cost: u64) -> Answer {
        let facts = Facts {
            cost: Some(Permits::new(cost)),
            ..Facts::default()
        };
        self.keeper.check_now(&facts, Scope::All)
    }

    fn would_pass(&self, cost: u64) -> bool {
        let facts = Facts {
            cost: Some(Permits::new(cost)),
            ..Facts::default()
        };
        at_once(self.keeper.peek(&facts, Scope::All))
            .unwrap()
            .allowed()
    }

    /// Returns true if `cost` would pass `seconds` from now.
    fn would_pass_in(&self, seconds: u64, cost: u64) -> bool {
        let now = self.keeper.clock().now();
        self.keeper.clock().set(now + Nanos::from_secs(seconds));
        let passes = self.would_pass(cost);
        self.keeper.clock().set(now);
        passes
    }

    /// A client's reading of the answer to a request of `cost`, which must come true.
    fn check_promise(&self, answer: &Answer, cost: u64) -> Promise {
        let promise = read(answer);
        let claim = |claim: &str, holds: bool| {
            assert!(holds, "{claim}\n{}\ncost {cost}: {promise:?}", self.limit);
        };
        if promise.left > 0 {
            claim("`r` permits remain", self.would_pass(promise.left));
        }
        claim(
            "no more than `r` permits remain",
            !self.would_pass(promise.left + 1),
        );
        if let Some(seconds) = promise.more_after
            && promise.left < self.most
        {
            let more = self.would_pass_in(seconds, promise.left + 1);
            claim("after `t`, more than `r` permits remain", more);
        }
        if let Some(seconds) = promise.retry_after {
            claim(
                "a request passes after Retry-After",
                self.would_pass_in(seconds, cost),
            );
        }
        let all = self.would_pass_in(promise.reset_after, self.most);
        claim("after X-RateLimit-Reset, all permits are free", all);
        promise
    }

    /// One request, and sometimes what the client that reads the answer does next.
    fn step(&mut self) {
        let wait = match self.below(8) {
            0..=2 => 0,
            3 => self.below(2_000_000_000),
            4 => 1_000_000_000 * self.below(4),
            5 => 1_000_000 * self.below(3_000),
            6 => self.below(20_000_000_000),
            _ => self.below(3),
        };
        self.keeper.clock().advance(Nanos::from_nanos(wait));
        let most = self.most;
        let cost = if self.below(3) > 0 {
            1
        } else {
            1 + self.below(most)
        };
        let answer = self.ask(cost);
        let promise = self.check_promise(&answer, cost);
        if let Some(seconds) = promise.retry_after
            && self.below(3) == 0
        {
            self.keeper.clock().advance(Nanos::from_secs(seconds));
            assert!(
                self.ask(cost).allowed(),
                "refused after the promised wait\n{}",
                self.limit
            );
        }
    }
}

fn read(answer: &Answer) -> Promise {
    let fields = answer.header_fields();
    let field = |name: &str| {
        let found = fields.iter().find(|(field, _)| *field == name);
        found.map(|(_, value)| value.as_str())
    };
    let limit = field("ratelimit").unwrap();
    let parameter = |name: &str| {
        let mut parts = limit.split(';').filter_map(|part| part.split_once('='));
        parts
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value.parse().unwrap())
    };
    Promise {
        left: parameter("r").unwrap(),
        more_after: parameter("t"),
        retry_after: field("retry-after").map(|seconds| seconds.parse().unwrap()),
        reset_after: field("x-ratelimit-reset").unwrap().parse().unwrap(),
    }
}

#[test]
fn the_fields_of_an_answer_hold() {
    for limit in LIMITS {
        for seed in 0..20 {
            let mut life = Life::new(limit, seed);
            for _ in 0..300 {
                life.step();
            }
        }
    }
}
