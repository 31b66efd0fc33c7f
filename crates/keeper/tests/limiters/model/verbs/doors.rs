//! The owners of a limit, each with the verbs that it has.

use std::future::Future;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ratekeeper::core::{AnyAlgorithm, LeaseId, Nanos, Origin, Permits, Time};
use ratekeeper::policy::{Facts, Policy, config};
use ratekeeper::store::{RedisClock, RedisConfig, RedisStore, Store};
use ratekeeper::{
    Answer, Clock as _, Grant, Keeper, KeyedLimiter, Limiter, Limits, LimitsGrant, ManualClock,
    NamedLimit, Report, Scope, at_once,
};
use tempfile::TempDir;
use tokio::runtime::Runtime;

pub(super) type Key = [u8; 16];

/// How often permits can come back that were charged before a span.
#[derive(Clone, Copy)]
pub(super) enum Returned {
    /// Never beyond the bound.
    Never,
    /// One permit: the strokes of a first take stay when it is given back.
    Strokes,
    /// Each charge once: the store does not know what else was given back.
    Once,
}

/// The caller of a reservation.
#[derive(Clone, Copy)]
pub(super) enum Patience {
    /// Comes at its moment, if that is within this span.
    Comes(Duration),
    /// Cancels it at once.
    Cancels(Duration),
}

impl Patience {
    fn longest(self) -> Duration {
        let (Self::Comes(longest) | Self::Cancels(longest)) = self;
        longest
    }
}

/// An owner of a limit.
pub(super) trait Door {
    const NAME: &'static str;
    /// True if a charge that was made before a reset, or under other numbers, may come back.
    const FORGETS_RETURNS: bool;
    type Grant;

    fn clock(&self) -> &ManualClock;
    fn check(&self, key: &Key, cost: u64) -> Option<Self::Grant>;
    /// Settles a charge of `cost` to `used`, or to another cost if it must; returns that cost.
    fn settle(&self, key: &Key, grant: Self::Grant, cost: u64, used: u64) -> Option<u64>;
    fn reset(&self, key: &Key);
    /// Changes to the numbers of this index.
    fn change(&self, numbers: usize);
    /// Reserves `cost`; returns the moment of a reservation that stays.
    fn reserve(&self, _: &Key, _cost: u64, _: Patience) -> Option<Time> {
        None
    }

    fn now(&self) -> Time {
        self.clock().now()
    }

    fn advance(&self, span: Nanos) {
        self.clock().advance(span);
    }

    fn returned(limit: &AnyAlgorithm) -> Returned {
        match limit {
            AnyAlgorithm::Gcra(_) | AnyAlgorithm::Hybrid(_) | AnyAlgorithm::Interval(_)
                if Self::FORGETS_RETURNS =>
            {
                Returned::Once
            }
            AnyAlgorithm::Interval(_) => Returned::Strokes,
            _ => Returned::Never,
        }
    }
}

impl Door for (Limiter<AnyAlgorithm, ManualClock>, &[AnyAlgorithm; 2]) {
    const NAME: &'static str = "Limiter";
    const FORGETS_RETURNS: bool = false;
    type Grant = Grant;

    fn clock(&self) -> &ManualClock {
        self.0.clock()
    }

    fn check(&self, _: &Key, cost: u64) -> Option<Grant> {
        self.0.check_n(cost).ok()
    }

    fn settle(&self, _: &Key, grant: Grant, cost: u64, used: u64) -> Option<u64> {
        if matches!(self.0.show(AnyAlgorithm::clone), AnyAlgorithm::Gcra(_)) {
            self.0.try_settle(grant.used(used)).unwrap();
            return Some(used.min(cost));
        }
        self.0.try_refund(grant).unwrap();
        Some(0)
    }

    fn reset(&self, _: &Key) {
        self.0.reset();
    }

    fn change(&self, numbers: usize) {
        self.0.set_limit(self.1[numbers].clone());
    }

    fn reserve(&self, _: &Key, cost: u64, patience: Patience) -> Option<Time> {
        let reserved = self.0.try_reserve(cost, patience.longest()).ok()?;
        let due = reserved.due()?;
        let cancels = matches!(patience, Patience::Cancels(_));
        let is_cancelled = cancels && self.0.try_cancel(reserved).unwrap();
        (!is_cancelled).then_some(due)
    }
}

pub(super) struct OfKey<'a>(
    pub(super) KeyedLimiter<AnyAlgorithm, ManualClock>,
    pub(super) &'a [AnyAlgorithm; 2],
);

impl Door for OfKey<'_> {
    const NAME: &'static str = "KeyedLimiter";
    const FORGETS_RETURNS: bool = true;
    type Grant = (Grant, bool);

    fn clock(&self) -> &ManualClock {
        self.0.clock()
    }

    fn check(&self, key: &Key, cost: u64) -> Option<Self::Grant> {
        let grant = self.0.key(key).check_n(cost).ok()?;
        Some((grant, matches!(self.1[0], AnyAlgorithm::Gcra(_))))
    }

    fn settle(&self, key: &Key, grant: Self::Grant, cost: u64, used: u64) -> Option<u64> {
        let (grant, settles) = grant;
        if settles {
            self.0.key(key).try_settle(grant.used(used)).unwrap();
            return Some(used.min(cost));
        }
        self.0.key(key).try_refund(grant).unwrap();
        Some(0)
    }

    fn reset(&self, key: &Key) {
        self.0.key(key).reset();
    }

    fn change(&self, numbers: usize) {
        self.0.set_limit(self.1[numbers].clone());
    }

    fn reserve(&self, key: &Key, cost: u64, patience: Patience) -> Option<Time> {
        let reserved = self.0.key(key).try_reserve(cost, patience.longest()).ok()?;
        let due = reserved.due()?;
        let cancels = matches!(patience, Patience::Cancels(_));
        let is_cancelled = cancels && self.0.try_cancel(reserved).unwrap();
        (!is_cancelled).then_some(due)
    }
}

/// Waits for the answer of a store; without a runtime it answers at once.
fn wait<F: Future>(runtime: Option<&Runtime>, answer: F) -> F::Output {
    match runtime {
        Some(runtime) => runtime.block_on(answer),
        None => at_once(answer),
    }
}

pub(super) struct OfLimits<'a, S: Store> {
    limits: Limits<S, ManualClock>,
    limit: NamedLimit<S, ManualClock>,
    numbers: &'a [AnyAlgorithm; 2],
    runtime: Option<&'a Runtime>,
}

impl<'a, S: Store> OfLimits<'a, S> {
    pub(super) fn new(
        limits: Limits<S, ManualClock>,
        numbers: &'a [AnyAlgorithm; 2],
        runtime: Option<&'a Runtime>,
    ) -> Self {
        Self {
            limit: limits.limit("life", numbers[0].clone()).unwrap(),
            limits,
            numbers,
            runtime,
        }
    }
}

impl<S: Store> Door for OfLimits<'_, S> {
    const NAME: &'static str = "Limits";
    const FORGETS_RETURNS: bool = true;
    type Grant = LimitsGrant;

    fn clock(&self) -> &ManualClock {
        self.limits.clock()
    }

    fn check(&self, key: &Key, cost: u64) -> Option<LimitsGrant> {
        wait(self.runtime, self.limit.check_n(key, cost)).ok()
    }

    fn settle(&self, _: &Key, grant: LimitsGrant, cost: u64, used: u64) -> Option<u64> {
        let grant = grant.used(&self.limit, used);
        wait(self.runtime, self.limits.settle(grant)).unwrap();
        Some(used.min(cost))
    }

    fn reset(&self, key: &Key) {
        wait(self.runtime, self.limit.reset(key)).unwrap();
    }

    fn change(&self, numbers: usize) {
        self.limit.set_limit(self.numbers[numbers].clone());
    }
}

pub(super) struct OfKeeper<'a, S: Store> {
    keeper: Keeper<S, ManualClock>,
    words: [&'static str; 2],
    runtime: Option<&'a Runtime>,
    nonce: AtomicU64,
}

fn policy(words: &str) -> Policy {
    let origin = Origin::UNIX;
    let text = format!(
        "version = 1\n[[limit]]\nname = \"life\"\nkey = [\"attr:key\"]\ncount = {{ status = 401 \
         }}\nreport_within = \"9s\"\n{words}\n"
    );
    config::parse(&text, config::Context::from(origin))
        .unwrap()
        .policy
}

impl<'a, S: Store> OfKeeper<'a, S> {
    pub(super) fn new(
        words: [&'static str; 2],
        store: S,
        clock: ManualClock,
        runtime: Option<&'a Runtime>,
    ) -> Self {
        Self {
            keeper: Keeper::new(policy(words[0]), store, clock),
            words,
            runtime,
            nonce: AtomicU64::new(0),
        }
    }
}

fn with<T>(key: &Key, cost: u64, ask: impl FnOnce(&Facts<'_>) -> T) -> T {
    let key = u128::from_le_bytes(*key).to_string();
    ask(&Facts {
        attributes: &[("key", &key)],
        cost: Some(Permits::new(cost)),
        ..Facts::default()
    })
}

impl<S: Store> Door for OfKeeper<'_, S> {
    const NAME: &'static str = "Keeper";
    const FORGETS_RETURNS: bool = true;
    type Grant = Answer;

    fn clock(&self) -> &ManualClock {
        self.keeper.clock()
    }

    fn check(&self, key: &Key, cost: u64) -> Option<Answer> {
        let nonce = || {
            let number = self.nonce.fetch_add(1, Ordering::Relaxed);
            Some(LeaseId::from_bytes(u128::from(number).to_le_bytes()))
        };
        let answer = with(key, cost, |facts| {
            let asking = self.keeper.check_for_report(facts, Scope::All, nonce);
            wait(self.runtime, asking).unwrap()
        });
        answer.allowed().then_some(*answer)
    }

    /// Twice: the second report changes nothing.
    fn settle(&self, _: &Key, answer: Answer, _: u64, used: u64) -> Option<u64> {
        let report = Report::default().status(if used == 1 { 401 } else { 200 });
        for _ in 0..2 {
            let reporting = self.keeper.report(answer.decision().unwrap(), &report);
            wait(self.runtime, reporting).unwrap();
        }
        (used != 1).then_some(0)
    }

    fn reset(&self, key: &Key) {
        let answer = with(key, 1, |facts| {
            wait(self.runtime, self.keeper.reset(facts, Scope::All))
        });
        answer.unwrap();
    }

    fn change(&self, numbers: usize) {
        self.keeper.install(policy(self.words[numbers]));
    }
}

/// A server of the system, on a port of its own; stopped when dropped.
pub(super) struct Redis {
    child: Child,
    directory: TempDir,
    pub(super) runtime: Runtime,
}

impl Redis {
    /// `None` if it is not installed.
    ///
    /// # Panics
    /// If it is absent and `CI` is set.
    #[expect(clippy::print_stdout, reason = "a skipped test is printed")]
    pub(super) fn start() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("redis.sock");
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", "", "--unixsocket"]);
        command.arg(&socket).current_dir(directory.path());
        let Ok(mut child) = command.stdout(Stdio::null()).spawn() else {
            assert!(
                std::env::var_os("CI").is_none(),
                "redis-server is not installed"
            );
            println!("skipped: redis-server is not installed");
            return None;
        };
        while UnixStream::connect(&socket).is_err() {
            assert!(child.try_wait().unwrap().is_none(), "it ended");
            std::thread::yield_now();
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        Some(Self {
            child,
            directory,
            runtime: runtime.unwrap(),
        })
    }

    /// Returns a store with keys of its own, which decides by the clock of its caller.
    pub(super) fn store(&self, number: usize) -> RedisStore {
        let config = RedisConfig {
            clock: RedisClock::Caller,
            prefix: format!("life-{number}"),
            deadline: Duration::from_secs(60),
            ..RedisConfig::new(format!(
                "unix://{}/redis.sock",
                self.directory.path().display()
            ))
        };
        let _inside = self.runtime.enter();
        RedisStore::new(config).unwrap()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
