//! Sentinel: one primary, one replica, three sentinels, and the cost of a failover to callers.
//!
//! Bounds, for one key of a limit of L that N processes share:
//!
//! * admitted by the stores: L, and the calls that the processes had under way. Charges that the
//!   replica had not received are taught by the processes that made them;
//! * admitted while there is no primary: nothing if the limit says `deny`; the shares of the
//!   processes, together at most L, if it says `local`; they are debited afterwards;
//! * a decision takes no longer than the deadline, and none fails.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use ratekeeper_core::{Charge, Gcra, Limit, Nanos, Outage, Permits, Time, Window};
use ratekeeper_store::{
    Fallback, MemoryConfig, MemoryStore, RedisConfig, RedisLogin, RedisSentinels, RedisServers,
    RedisStore, Store, StoreError, conformance,
};
use redis::{Connection, FromRedisValue, RedisResult};
use tokio::runtime::Runtime;
use tokio::time::{Instant, sleep};

use crate::cases::cases;
use crate::punctual::in_time;
use crate::server::{Program, Server, programs, wait_a_little};

/// Deadline of a decision.
const DEADLINE: Duration = Duration::from_millis(200);
/// Concurrent callers.
const CALLERS: u32 = 8;
/// L.
const WHOLE: u32 = 1_000;
/// One permit comes back in more, and an outage lasts less.
const A_MINUTE: Nanos = Nanos::from_secs(60);
/// Passwords: of the servers, and of the sentinels.
const WORD: &str = "primary-word";
const OTHER_WORD: &str = "sentinel-word";
/// Rights at the sentinels, as the guide states them.
const RIGHTS: &str = "+hello +subscribe +ping +sentinel &+selected-slave &-failover-abort-*";
const GUIDE: &str = include_str!("../../../../docs/guide/redis.md");

/// A primary, its replica, and the sentinels that watch them.
struct Watched {
    servers: Vec<Server>,
    sentinels: Vec<Server>,
}

impl Watched {
    fn start(program: &Program) -> Self {
        Self::start_with(program, &[])
    }

    /// Starts them with further lines in the files of the sentinels.
    fn start_with(program: &Program, further: &[String]) -> Self {
        let word = ["--requirepass", WORD, "--masterauth", WORD];
        let at_once = ["--repl-diskless-sync-delay", "0"];
        let primary = Server::start(program, &[&word[..], &at_once].concat());
        let port = primary.port.to_string();
        let of_primary = ["--replicaof", "127.0.0.1", &port];
        let replica = Server::start(program, &[&word[..], &of_primary].concat());
        let lines = [
            format!("sentinel monitor mymaster 127.0.0.1 {port} 2"),
            format!("sentinel auth-pass mymaster {WORD}"),
            "sentinel down-after-milliseconds mymaster 500".into(),
            "sentinel failover-timeout mymaster 3000".into(),
            format!("requirepass {OTHER_WORD}"),
            format!("sentinel sentinel-pass {OTHER_WORD}"),
            format!("user watcher on >{OTHER_WORD} resetchannels {RIGHTS}"),
            format!("user deaf on >{OTHER_WORD} resetchannels +hello +subscribe +ping +sentinel"),
        ];
        let lines = [&lines, further].concat();
        let sentinels = (0..3).map(|_| Server::sentinel(program, &lines)).collect();
        let watched = Self {
            servers: vec![primary, replica],
            sentinels,
        };
        wait_for_info(&watched.servers[1], "master_link_status:up");
        for sentinel in 0..3 {
            watched.wait(sentinel, "num-other-sentinels", "2");
            watched.wait(sentinel, "num-slaves", "1");
        }
        watched
    }

    fn config(&self) -> RedisConfig {
        self.config_of("watcher")
    }

    fn config_of(&self, user: &str) -> RedisConfig {
        let url =
            |sentinel: &Server| format!("redis://{user}:{OTHER_WORD}@127.0.0.1:{}", sentinel.port);
        RedisConfig {
            servers: RedisServers::Sentinel(RedisSentinels {
                urls: self.sentinels.iter().map(url).collect(),
                master: "mymaster".into(),
                login: RedisLogin {
                    password: Some(WORD.into()),
                    ..RedisLogin::default()
                },
            }),
            deadline: DEADLINE,
            ..RedisConfig::new("")
        }
    }

    /// Returns a field of a sentinel's report on the primary.
    fn fact(&self, sentinel: usize, name: &str) -> String {
        let facts: Vec<String> = self.report(sentinel, "MASTER").unwrap();
        field(&facts, name).to_owned()
    }

    fn report<T: FromRedisValue>(&self, sentinel: usize, about: &str) -> RedisResult<T> {
        let mut command = redis::cmd("SENTINEL");
        command.arg(about).arg("mymaster");
        command.query(&mut connect(&self.sentinels[sentinel], OTHER_WORD))
    }

    /// Waits until a sentinel would promote the replica: after a failover it asks for its state anew.
    fn wait_for_candidate(&self, sentinel: usize) {
        let is_candidate = |facts: &Vec<String>| {
            let heard: u64 = field(facts, "info-refresh").parse().unwrap();
            field(facts, "flags") == "slave"
                && field(facts, "master-link-status") == "ok"
                && heard < 10_000
        };
        self.until(&format!("sentinel {sentinel} knows its replica"), || {
            let replicas: Vec<Vec<String>> = self.report(sentinel, "SLAVES").unwrap();
            replicas.len() == 1 && replicas.iter().all(is_candidate)
        });
    }

    fn wait(&self, sentinel: usize, name: &str, value: &str) {
        self.until(
            &format!("sentinel {sentinel} reports {name} {value}"),
            || self.fact(sentinel, name) == value,
        );
    }

    /// Waits until that is so. The time does not count in which a sentinel is in TILT: it does nothing
    /// for half a minute after its clock jumped, or the machine kept it waiting, by two seconds.
    fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        let mut tries = 0;
        while !is_so() {
            assert!(tries < 3_000, "timed out before {what}");
            tries += usize::from(!self.sentinels.iter().any(is_in_tilt));
            wait_a_little();
        }
    }
}

fn is_in_tilt(sentinel: &Server) -> bool {
    let mut info = redis::cmd("INFO");
    let info: String = info
        .arg("sentinel")
        .query(&mut connect(sentinel, OTHER_WORD))
        .unwrap();
    info.contains("sentinel_tilt:1")
}

/// Returns a field of a report: names and values in turn.
fn field<'a>(facts: &'a [String], name: &str) -> &'a str {
    let mut facts = facts.chunks_exact(2);
    &facts.find(|fact| fact[0] == name).unwrap()[1]
}

/// Waits until a server says a line of itself.
fn wait_for_info(server: &Server, line: &str) {
    for _ in 0..3_000 {
        // A server that becomes a replica closes its connections.
        let info = try_connect(server, WORD)
            .and_then(|mut connection| redis::cmd("INFO").query::<String>(&mut connection));
        if info.is_ok_and(|info| info.contains(line)) {
            return;
        }
        wait_a_little();
    }
    panic!("the server did not report `{line}` in time");
}

fn connect(server: &Server, word: &str) -> Connection {
    try_connect(server, word).unwrap()
}

fn try_connect(server: &Server, word: &str) -> RedisResult<Connection> {
    redis::Client::open(format!("redis://:{word}@127.0.0.1:{}", server.port))?.get_connection()
}

fn limit(id: u32, outage: Outage) -> Limit {
    Limit {
        outage,
        ..conformance::limit(
            id,
            Gcra::token_bucket(format!("{WHOLE}/1d").parse().unwrap()).unwrap(),
        )
    }
}

fn charge(limit: &Limit) -> Charge<'_> {
    conformance::charge(limit, b"\x03ada", 1)
}

/// Callers that never rest, and their answers.
struct Load {
    store: Fallback<RedisStore>,
    limits: [Limit; 2],
    began: Instant,
    admitted: [AtomicU32; 2],
    decided: AtomicU64,
    /// True once the store has no permit left of the limit that denies in an outage.
    spent: AtomicBool,
    stop: AtomicBool,
}

impl Load {
    fn now(&self) -> Time {
        Time::ZERO + Nanos::from(self.began.elapsed())
    }

    async fn call(&self, which: usize) {
        while !self.stop.load(Ordering::Relaxed) {
            let charges = [charge(&self.limits[which])];
            let decide = Box::pin(self.store.decide(&charges, self.now()));
            let decided = in_time(DEADLINE, decide).await;
            self.decided.fetch_add(1, Ordering::Relaxed);
            let decided = decided.expect("a request failed");
            self.admitted[which].fetch_add(u32::from(decided.admitted), Ordering::Relaxed);
            let wait = decided.each[0].verdict.retry_after();
            if which == 0 && wait.is_some_and(|wait| wait > A_MINUTE) {
                self.spent.store(true, Ordering::Relaxed);
            }
            sleep(Duration::from_millis(2)).await;
        }
    }

    async fn tend(&self) {
        while !self.stop.load(Ordering::Relaxed) {
            let _ = self.store.tend(self.now()).await;
            sleep(Duration::from_millis(100)).await;
        }
    }

    fn admitted(&self) -> [u32; 2] {
        [0, 1].map(|which| self.admitted[which].load(Ordering::Relaxed))
    }

    async fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        for _ in 0..3_000 {
            if is_so() {
                return;
            }
            sleep(Duration::from_millis(10)).await;
        }
        panic!("timed out before {what}: {:?}", self.store.health());
    }
}

#[test]
fn a_killed_primary_is_followed_to_its_replica() {
    for program in programs() {
        let mut watched = Watched::start(&program);
        let runtime = Runtime::new().unwrap();
        let memory = MemoryStore::new(MemoryConfig::default());
        let store = RedisStore::new(watched.config()).unwrap();
        let load = Arc::new(Load {
            store: Fallback::new(store, memory, NonZeroU32::MIN),
            limits: [limit(0, Outage::Deny), limit(1, Outage::Local)],
            began: Instant::now(),
            admitted: Default::default(),
            decided: AtomicU64::new(0),
            spent: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        });
        let before = runtime.block_on(async {
            let tending = Arc::clone(&load);
            let mut tasks = vec![tokio::spawn(async move { tending.tend().await })];
            for caller in 0..CALLERS {
                let load = Arc::clone(&load);
                tasks.push(tokio::spawn(async move {
                    Box::pin(load.call(usize::from(caller % 2 == 1))).await;
                }));
            }
            load.until("a third of the permits is used", || {
                load.admitted()[0] >= WHOLE / 3
            })
            .await;
            let before = load.admitted();
            watched.servers[0].kill();
            load.until("the outage is noticed", || !load.store.is_asked())
                .await;
            load.until("the replica is found", || load.store.is_asked())
                .await;
            load.until("all permits are used", || {
                load.spent.load(Ordering::Relaxed)
            })
            .await;
            sleep(Duration::from_millis(500)).await;
            load.stop.store(true, Ordering::Relaxed);
            for task in tasks {
                task.await.unwrap();
            }
            before
        });
        let after = load.admitted();
        println!(
            "{}: {} decisions; admitted {before:?} before, {after:?} in total",
            program.name,
            load.decided.load(Ordering::Relaxed)
        );
        // A call that is answered too late has charged, and counts as denied.
        let late = u32::try_from(load.store.health().failed).unwrap();
        assert!(after[0] <= WHOLE + CALLERS, "{after:?}");
        assert!(after[0] + late >= WHOLE, "{after:?}, {late} late");
        // And this process's share, which is everything.
        assert!(after[1] <= 2 * WHOLE + CALLERS, "{after:?}");

        // The old primary comes back as a replica: no store asks it.
        let word = ["--requirepass", WORD, "--masterauth", WORD];
        watched.servers[0].restart(&program, &word);
        let left = runtime.block_on(load.store.look(&[charge(&load.limits[0])], load.now()));
        assert_eq!(left.unwrap().each[0].remaining, Permits::ZERO);
    }
}

/// No server dies: the sentinels are asked to name another, and the connection to the old one may
/// even stay.
#[test]
fn the_store_leaves_a_primary_that_was_replaced() {
    for program in programs() {
        let watched = Watched::start(&program);
        let runtime = Runtime::new().unwrap();
        let store = RedisStore::new(watched.config()).unwrap();
        let limit = limit(0, Outage::Deny);
        let decide = || runtime.block_on(store.decide(&[charge(&limit)], Time::ZERO));
        assert!(decide().unwrap().admitted);
        let mut give_way = redis::cmd("SENTINEL");
        give_way.arg("FAILOVER").arg("mymaster");
        give_way
            .exec(&mut connect(&watched.sentinels[0], OTHER_WORD))
            .unwrap();
        let replica = watched.servers[1].port.to_string();
        for sentinel in 0..3 {
            watched.wait(sentinel, "port", &replica);
        }
        let asked = Instant::now();
        let mut found = connect(&watched.servers[1], WORD);
        let name = "rk:{ada}:limit-0";
        let exists = |connection: &mut Connection| -> Vec<u8> {
            redis::cmd("GET").arg(name).query(connection).unwrap()
        };
        let old = exists(&mut found);
        while exists(&mut found) == old {
            let _ = decide(); // may fail on the way
            assert!(
                asked.elapsed() < Duration::from_secs(5),
                "the store did not switch to the new primary in time"
            );
            wait_a_little();
        }
        assert!(decide().unwrap().admitted);
    }
}

/// Waits until the replica of a server has received what the server wrote just now.
fn wait_for_step(server: &Server) {
    let mut connection = connect(server, WORD);
    for _ in 0..60 {
        redis::cmd("SET")
            .arg("step")
            .arg(1)
            .exec(&mut connection)
            .unwrap();
        let mut wait = redis::cmd("WAIT");
        let in_step: u32 = wait.arg(1).arg(500).query(&mut connection).unwrap();
        if in_step == 1 {
            return;
        }
    }
    panic!("the replica did not come into step in time");
}

/// Nothing fails, and nothing is lost: the sentinels are asked to promote the replica, as before an
/// upgrade of the primary.
#[test]
fn a_planned_failover_loses_no_charge() {
    // At once, because nearly all of the time is waits of the sentinels.
    thread::scope(|scope| {
        for program in programs() {
            scope.spawn(move || planned_failovers(&program, cases(1, 20)));
        }
    });
}

fn planned_failovers(program: &Program, runs: u32) {
    let watched = Watched::start(program);
    let runtime = Runtime::new().unwrap();
    for run in 0..runs {
        let port = watched.fact(0, "port");
        let is_primary = |server: &&Server| server.port.to_string() == port;
        let primary = watched.servers.iter().find(is_primary).unwrap();
        wait_for_step(primary);
        watched.wait_for_candidate(0);
        let quota = format!("{WHOLE}/1d").parse().unwrap();
        let window = Window::fixed(quota, Nanos::ZERO).unwrap();
        let limit = || Limit {
            outage: Outage::Deny,
            ..conformance::limit(10 + run, window.clone())
        };
        // Two processes.
        let loads = [0, 1].map(|_| {
            let memory = MemoryStore::new(MemoryConfig::default());
            let store = RedisStore::new(watched.config()).unwrap();
            Arc::new(Load {
                store: Fallback::new(store, memory, NonZeroU32::MIN),
                limits: [limit(), limit()],
                began: Instant::now(),
                admitted: Default::default(),
                decided: AtomicU64::new(0),
                spent: AtomicBool::new(false),
                stop: AtomicBool::new(false),
            })
        });
        let admitted = || loads.iter().flat_map(|load| load.admitted()).sum::<u32>();
        let replica = runtime.block_on(async {
            let mut tasks = Vec::new();
            for load in &loads {
                let tending = Arc::clone(load);
                tasks.push(tokio::spawn(async move { tending.tend().await }));
                // Few, so that the limit lasts longer than the old primary answers as one.
                for _ in 0..CALLERS / 4 {
                    let load = Arc::clone(load);
                    tasks.push(tokio::spawn(async move { Box::pin(load.call(0)).await }));
                }
            }
            loads[0]
                .until("a fifth of the permits is used", || admitted() >= WHOLE / 5)
                .await;
            let ports = watched.servers.iter().map(|server| server.port.to_string());
            let replica = ports.into_iter().find(|it| *it != port).unwrap();
            redis::cmd("SENTINEL")
                .arg("FAILOVER")
                .arg("mymaster")
                .exec(&mut connect(&watched.sentinels[0], OTHER_WORD))
                .unwrap();
            let spent = |load: &Arc<Load>| load.spent.load(Ordering::Relaxed);
            loads[0]
                .until("all permits are used", || loads.iter().all(spent))
                .await;
            sleep(Duration::from_millis(1_500)).await;
            for load in &loads {
                load.stop.store(true, Ordering::Relaxed);
            }
            for task in tasks {
                task.await.unwrap();
            }
            replica
        });
        println!("{}: {} of {WHOLE} admitted", program.name, admitted());
        assert!(admitted() <= WHOLE + CALLERS / 2, "{}", admitted());
        // A call that is answered too late has charged, and counts as denied.
        let failed = |load: &Arc<Load>| u32::try_from(load.store.health().failed).unwrap();
        let late: u32 = loads.iter().map(failed).sum();
        assert!(admitted() + late >= WHOLE, "{}, {late} late", admitted());
        for sentinel in 0..3 {
            watched.wait(sentinel, "port", &replica);
            watched.wait(sentinel, "flags", "master"); // the failover is over
            watched.wait(sentinel, "num-slaves", "1");
        }
        // The sentinels do so too, but not before they have found the old primary in order for
        // 8 s, at one of the questions that they ask every 10 s: half a minute, if they miss two.
        let mut follow = redis::cmd("REPLICAOF");
        follow.arg("127.0.0.1").arg(&replica);
        let _ = follow.exec(&mut connect(primary, WORD)); // they may close it meanwhile
        wait_for_info(primary, "master_link_status:up");
    }
}

/// Decides for some seconds; returns the store, and the number of connections to the first sentinel
/// that were made meanwhile.
fn serve(watched: &Watched, user: &str, id: u32) -> (RedisStore, u64) {
    let sentinel = &watched.sentinels[0];
    let connections = || -> u64 {
        let mut info = redis::cmd("INFO");
        let info: String = info
            .arg("stats")
            .query(&mut connect(sentinel, OTHER_WORD))
            .unwrap();
        let mut lines = info.lines();
        let made = lines.find_map(|line| line.strip_prefix("total_connections_received:"));
        made.unwrap().parse().unwrap()
    };
    let (runtime, limit) = (Runtime::new().unwrap(), limit(id, Outage::Deny));
    let store = RedisStore::new(watched.config_of(user)).unwrap();
    let mut before = 0;
    for turn in 0..500 {
        let decided = runtime.block_on(store.decide(&[charge(&limit)], Time::ZERO));
        assert!(decided.unwrap().admitted);
        if turn == 100 {
            before = connections();
        }
        wait_a_little();
    }
    (store, connections() - before)
}

#[test]
fn a_refused_subscription_is_known_and_not_tried_each_second() {
    assert!(GUIDE.contains(&format!("`{RIGHTS}`")), "{RIGHTS}");
    for program in programs() {
        let watched = Watched::start(&program);
        let (deaf, made) = serve(&watched, "deaf", 0);
        assert!(made < 4, "{made} connections in some seconds");
        let why = deaf.sentinel_refusal().unwrap();
        assert!(why.contains("channel"), "{why}");
        let (served, made) = serve(&watched, "watcher", 1);
        assert!(made < 4, "{made} connections in some seconds");
        assert_eq!(served.sentinel_refusal(), None);
    }
}

/// The events need RESP3, which a sentinel may not speak.
#[test]
fn a_sentinel_without_hello_is_known_and_not_dialled_each_second() {
    for program in programs() {
        let watched = Watched::start_with(&program, &["rename-command HELLO \"\"".into()]);
        let (mute, made) = serve(&watched, "watcher", 0);
        assert!(made < 4, "{made} connections in some seconds");
        let why = mute.sentinel_refusal().unwrap();
        // Some servers tell only those who have logged in which commands they lack.
        let is_said = why.contains("HELLO") || why.contains("NOAUTH");
        assert!(is_said, "{}: {why}", program.name);
    }
}

#[test]
fn errors_name_the_reason_of_the_sentinels() {
    for program in programs() {
        let watched = Watched::start(&program);
        let runtime = Runtime::new().unwrap();
        let check = |change: &dyn Fn(&mut RedisSentinels), expected: &str| {
            let mut config = watched.config();
            if let RedisServers::Sentinel(sentinels) = &mut config.servers {
                change(sentinels);
            }
            let store = RedisStore::new(config).unwrap();
            let limit = limit(0, Outage::Deny);
            // A sentinel that has not answered within the deadline has given no reason yet.
            let reason = (0..50).find_map(|_| {
                let decided = runtime.block_on(store.decide(&[charge(&limit)], Time::ZERO));
                match decided {
                    Err(StoreError::Unavailable(why)) if why.contains(expected) => Some(()),
                    Err(StoreError::Unavailable(_)) => None,
                    other => panic!("{expected}: {other:?}"),
                }
            });
            assert!(reason.is_some(), "no error says {expected}");
        };
        check(
            &|sentinels| sentinels.master = "other".into(),
            "No such master",
        );
        let unknown = |sentinels: &mut RedisSentinels| {
            sentinels.urls = vec![format!("redis://127.0.0.1:{}", watched.sentinels[0].port)];
        };
        check(&unknown, "NOAUTH");
        check(
            &|sentinels| sentinels.login.password = None,
            "Authentication required",
        );
        let absent = |sentinels: &mut RedisSentinels| {
            sentinels.urls = vec!["redis://127.0.0.1:1".into()];
        };
        check(&absent, "127.0.0.1:1: ");
        // One that is there is enough.
        let mut config = watched.config();
        if let RedisServers::Sentinel(sentinels) = &mut config.servers {
            sentinels.urls.insert(0, "redis://127.0.0.1:1".into());
        }
        let store = RedisStore::new(config).unwrap();
        let decided =
            runtime.block_on(store.decide(&[charge(&limit(0, Outage::Deny))], Time::ZERO));
        assert!(decided.unwrap().admitted);
    }
}
