//! Load: callers of two processes that ask all through a fault, and their answers.
//!
//! ```text
//!   8 callers --> Fallback(RedisStore) --\                at most N may pass: what passed, and
//!                                         >-- servers     what is left when all is over, are N
//!   8 callers --> Fallback(RedisStore) --/                together, whatever happened meanwhile
//! ```
//!
//! Two limits on one key: `firm` is refused while the store fails, `soft` is decided by each
//! process's share and debited afterwards. Callers ask for one, the other, and both.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ratekeeper_core::{
    AnyAlgorithm, Charge, Gcra, Key, KeyBuilder, Limit, Mode, Outage, Permits, QuotaReset, Time,
};
use ratekeeper_store::{
    Fallback, HealthChange, MemoryConfig, MemoryStore, RedisConfig, RedisServers, RedisStore,
    Store, conformance,
};
use tokio::runtime::Runtime;
use tokio::time::{Instant, sleep};

use crate::punctual::in_time;

/// Deadline of a decision that is to be given up.
const HASTY: Duration = Duration::from_millis(300);
/// Deadline of a decision that is to be made, however busy the machine is.
const PATIENT: Duration = Duration::from_secs(20);
/// Permits of each limit, for longer than any test takes.
const PERMITS: &str = "100000/1d";
const N: i64 = 100_000;
/// Refill of a bucket in a minute, and of the shares of it together as much again: while they are
/// in debt they fill up as the bucket does.
const REFILL: u64 = 2 * 70;
const PROCESSES: usize = 2;
const CALLERS: usize = 8;
/// Pause of a caller between two requests.
const PAUSE: Duration = Duration::from_millis(3);
/// As often as the service looks after its store.
const TEND: Duration = Duration::from_millis(100);
/// Maximum time of any wait.
const PATIENCE: Duration = Duration::from_secs(30);

/// What may happen to a server.
#[derive(Default)]
struct Tally {
    answers: AtomicU64,
    firm: AtomicU64,
    soft: AtomicU64,
    /// Times that a process found its store gone.
    downs: AtomicU64,
}

struct Process {
    store: Fallback<RedisStore>,
    deadline: Duration,
    started: Instant,
}

impl Process {
    fn now(&self) -> Time {
        let nanos = u64::try_from(self.started.elapsed().as_nanos());
        Time::from_nanos(nanos.unwrap_or(u64::MAX))
    }
}

/// Callers at work.
pub(crate) struct Load {
    runtime: Runtime,
    processes: Vec<Arc<Process>>,
    firm: Arc<Limit>,
    soft: Arc<Limit>,
    tally: Arc<Tally>,
    stop: Arc<AtomicBool>,
    callers: Vec<tokio::task::JoinHandle<()>>,
    began: Instant,
    samples: Arc<std::sync::Mutex<Vec<(Instant, u64, u64)>>>,
}

/// Results of the callers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// Permits that passed beyond those of the limit; if negative, that were charged, but did not
    /// pass.
    pub(crate) firm: i64,
    pub(crate) soft: i64,
    /// Maximum refill of the bucket and its shares meanwhile.
    refilled: i64,
    /// Calls that the stores did not answer.
    pub(crate) failed: i64,
    pub(crate) answers: u64,
    /// Times that a process found its store gone.
    pub(crate) downs: u64,
}

fn limit(id: u32, name: &str, outage: Outage, algorithm: impl Into<AnyAlgorithm>) -> Arc<Limit> {
    Arc::new(Limit {
        name: name.into(),
        outage,
        ..conformance::limit(id, algorithm)
    })
}

pub(crate) fn key(client: &str) -> Vec<u8> {
    let mut key = Vec::new();
    KeyBuilder::new(&mut key).part(client.as_bytes());
    key
}

impl Load {
    /// Starts the callers, which ask for each key of `clients` in turn, and waits until they are
    /// served: for servers that go silent.
    pub(crate) fn hasty(servers: &RedisServers, clients: &'static [&'static str]) -> Self {
        Self::start(servers, HASTY, clients)
    }

    /// The same, for servers that answer or are gone: no call is lost because the machine is
    /// busy with other things.
    pub(crate) fn patient(servers: &RedisServers, clients: &'static [&'static str]) -> Self {
        Self::start(servers, PATIENT, clients)
    }

    fn start(servers: &RedisServers, deadline: Duration, clients: &'static [&'static str]) -> Self {
        let runtime = Runtime::new().unwrap();
        let quota = PERMITS.parse().unwrap();
        let firm = limit(0, "firm", Outage::Deny, QuotaReset::new(quota).unwrap());
        let soft = limit(1, "soft", Outage::Local, Gcra::token_bucket(quota).unwrap());
        let process = |_| {
            let config = RedisConfig {
                servers: servers.clone(),
                deadline,
                ..RedisConfig::new("")
            };
            let main = RedisStore::new(config).unwrap();
            let local = MemoryStore::new(MemoryConfig::default());
            Arc::new(Process {
                store: Fallback::new(main, local, NonZeroU32::new(2).unwrap()),
                deadline,
                started: Instant::now(),
            })
        };
        let mut load = Self {
            runtime,
            processes: (0..PROCESSES).map(process).collect(),
            firm,
            soft,
            tally: Arc::default(),
            stop: Arc::default(),
            callers: Vec::new(),
            began: Instant::now(),
            samples: Arc::default(),
        };
        for process in &load.processes {
            load.runtime
                .spawn(tend(Arc::clone(process), Arc::clone(&load.tally)));
            for number in 0..CALLERS {
                let caller = Caller {
                    process: Arc::clone(process),
                    limits: [Arc::clone(&load.firm), Arc::clone(&load.soft)],
                    tally: Arc::clone(&load.tally),
                    stop: Arc::clone(&load.stop),
                };
                load.callers
                    .push(load.runtime.spawn(caller.run(clients, number)));
            }
        }
        let (tally, samples) = (Arc::clone(&load.tally), Arc::clone(&load.samples));
        load.runtime.spawn(async move {
            loop {
                let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
                let sample = (Instant::now(), read(&tally.firm), read(&tally.soft));
                samples.lock().unwrap().push(sample);
                sleep(Duration::from_millis(10)).await;
            }
        });
        load.serves(300);
        load
    }

    /// Waits until `more` more pass under each limit.
    pub(crate) fn serves(&self, more: u64) {
        let (firm, soft) = self.admitted();
        self.until("callers to be served", || {
            let (firm_now, soft_now) = self.admitted();
            firm_now >= firm + more && soft_now >= soft + more
        });
    }

    /// Returns the numbers of requests passed so far, of `firm` and of `soft`.
    pub(crate) fn admitted(&self) -> (u64, u64) {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (read(&self.tally.firm), read(&self.tally.soft))
    }

    /// Returns the number passed in the last `span`, as [`admitted_since`](Self::admitted_since).
    pub(crate) fn admitted_within(&self, span: Duration) -> i64 {
        let then = {
            let samples = self.samples.lock().unwrap();
            let from = Instant::now() - span;
            let before = samples.iter().rev().find(|(at, ..)| *at <= from);
            let (_, firm, soft) = before.or(samples.first()).copied().unwrap();
            (firm, soft)
        };
        self.admitted_since(then)
    }

    /// Returns the number passed since then, of the limit with the larger one, plus the callers
    /// that are just being answered.
    pub(crate) fn admitted_since(&self, (firm_then, soft_then): (u64, u64)) -> i64 {
        let (firm, soft) = self.admitted();
        let answered = u64::try_from(PROCESSES * CALLERS).unwrap();
        i64::try_from((firm - firm_then).max(soft - soft_then) + answered).unwrap()
    }

    /// Waits until all processes ask their store, or none does.
    pub(crate) fn until_asked(&self, asked: bool) {
        self.until("the breakers to change", || {
            let mut processes = self.processes.iter();
            processes.all(|process| process.store.is_asked() == asked)
        });
    }

    pub(crate) fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        let waited = Instant::now();
        while !is_so() {
            assert!(waited.elapsed() < PATIENCE, "timed out waiting for {what}");
            self.wait(Duration::from_millis(10));
        }
    }

    pub(crate) fn wait(&self, span: Duration) {
        self.runtime.block_on(async { sleep(span).await });
    }

    /// Waits until all are served again and all debts paid, then returns the results.
    pub(crate) fn end(mut self) -> Seen {
        self.until_asked(true);
        self.serves(300);
        self.stop.store(true, Ordering::Relaxed);
        for caller in self.callers.drain(..) {
            self.runtime.block_on(caller).unwrap();
        }
        self.until("the debts to be paid", || {
            let owed = |process: &Arc<Process>| {
                let now = process.now();
                let of_key = key("ada");
                let local = process.store.local();
                local
                    .key(&self.soft, Key::from_bytes(&of_key), now)
                    .is_some()
            };
            !self.processes.iter().any(owed)
        });
        let (firm, soft) = self.admitted();
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let failed = self
            .processes
            .iter()
            .map(|process| process.store.health().failed);
        let beyond = |limit, passed| i64::try_from(passed).unwrap() + self.left(limit) - N;
        let seen = Seen {
            firm: beyond(&self.firm, firm),
            soft: beyond(&self.soft, soft),
            refilled: i64::try_from((self.began.elapsed().as_secs() + 1) * REFILL / 60 + 1)
                .unwrap(),
            failed: i64::try_from(failed.sum::<u64>()).unwrap(),
            answers: read(&self.tally.answers),
            downs: read(&self.tally.downs),
        };
        println!("{seen:?}");
        assert!(seen.answers > 1_000, "the load was too low: {seen:?}");
        // Charges that did not pass: calls that lost their answer.
        assert!(seen.firm >= -seen.failed, "{seen:?}");
        assert!(seen.soft >= -seen.failed, "{seen:?}");
        seen
    }

    /// Returns the remaining permits in the servers.
    fn left(&self, limit: &Limit) -> i64 {
        let of_key = key("ada");
        let charge = Charge {
            limit,
            key: Key::from_bytes(&of_key),
            cost: Permits::ZERO,
            mode: Mode::Enforce,
        };
        let look = async {
            // A connection that was killed is noticed by the first.
            let main = self.processes[0].store.main();
            let first = main.look(&[charge], Time::ZERO).await;
            match first {
                Ok(looked) => looked,
                Err(_) => main.look(&[charge], Time::ZERO).await.unwrap(),
            }
        };
        self.runtime.block_on(look).each[0]
            .remaining
            .get()
            .try_into()
            .unwrap()
    }
}

impl Seen {
    /// Checks that at most `extra` passed beyond the limits; a bucket refills meanwhile.
    pub(crate) fn at_most(self, extra: i64) {
        assert!(self.firm <= extra, "{extra}: {self:?}");
        assert!(self.soft <= extra + self.refilled, "{extra}: {self:?}");
    }
}

struct Caller {
    process: Arc<Process>,
    limits: [Arc<Limit>; 2],
    tally: Arc<Tally>,
    stop: Arc<AtomicBool>,
}

impl Caller {
    async fn run(self, clients: &'static [&'static str], number: usize) {
        let add = |count: &AtomicU64| count.fetch_add(1, Ordering::Relaxed);
        for turn in number.. {
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            let client = clients[turn / 3 % clients.len()];
            let asked: &[usize] = [&[0][..], &[1], &[0, 1]][turn % 3];
            let of_key = key(client);
            let charge = |&number: &usize| Charge {
                limit: &self.limits[number],
                key: Key::from_bytes(&of_key),
                cost: Permits::ONE,
                mode: Mode::Enforce,
            };
            let charges: Vec<_> = asked.iter().map(charge).collect();
            let decide = Box::pin(self.process.store.decide(&charges, self.process.now()));
            let decided = in_time(self.process.deadline, decide).await;
            let decided = decided.expect("a request was not answered");
            add(&self.tally.answers);
            if decided.admitted && client == "ada" {
                for &number in asked {
                    add([&self.tally.firm, &self.tally.soft][number]);
                }
            }
            sleep(PAUSE).await;
        }
    }
}

async fn tend(process: Arc<Process>, tally: Arc<Tally>) {
    loop {
        if let Some(HealthChange::Down(why)) = process.store.tend(process.now()).await {
            println!("down: {why}");
            tally.downs.fetch_add(1, Ordering::Relaxed);
        }
        sleep(TEND).await;
    }
}
