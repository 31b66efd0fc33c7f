//! The layer on counters in a real Redis server: shared by servers, and gone.
//!
//! ```text
//!   client --> axum 1 --.
//!                        }--> redis-server, killed and started again
//!   client --> axum 2 --'
//! ```

use std::env;
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use ratekeeper::core::Origin;
use ratekeeper::policy::{Facts, config};
use ratekeeper::store::{Fallback, MemoryConfig, MemoryStore, RedisConfig, RedisStore, Store};
use ratekeeper::tower::{ByPolicy, RateLimitLayer};
use ratekeeper::{Clock, Keeper, ManualClock, Scope, SystemClock};
use tokio::time::{sleep, timeout};

use super::axum_server::serve;
use super::client::Client;
use super::ports::free_port;
use super::slow::Slow;

/// A server of the system (Debian), on a port of its own; stopped when dropped.
pub(crate) struct Redis {
    program: PathBuf,
    port: u16,
    child: Child,
}

impl Redis {
    /// `None` if it is not installed.
    ///
    /// # Panics
    /// If it is absent and `CI` is set.
    #[expect(clippy::print_stdout, reason = "a skipped test is printed")]
    pub(crate) async fn start() -> Option<Self> {
        let path = env::var_os("PATH").unwrap_or_default();
        let mut programs = env::split_paths(&path).map(|at| at.join("redis-server"));
        let Some(program) = programs.find(|program| program.is_file()) else {
            assert!(env::var_os("CI").is_none(), "redis-server is not installed");
            println!("skipped: redis-server is not installed");
            return None;
        };
        let port = free_port();
        Some(Self {
            child: Self::run(&program, port).await,
            program,
            port,
        })
    }

    /// Runs until it accepts connections, with nothing on disk.
    async fn run(program: &PathBuf, port: u16) -> Child {
        let mut command = Command::new(program);
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string()]);
        command.args(["--save", "", "--appendonly", "no", "--dir", "/tmp"]);
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        loop {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return child;
            }
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none(), "redis-server has ended: {ended:?}");
            sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub(crate) async fn start_again(&mut self) {
        self.child = Self::run(&self.program, self.port).await;
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    fn store(&self, clock: &SystemClock) -> RedisStore {
        let config = RedisConfig {
            origin: clock.origin(),
            deadline: Duration::from_secs(10), // a late call is refused, and may have been charged
            ..RedisConfig::new(self.url())
        };
        RedisStore::new(config).unwrap()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A limit for each path.
const POLICY: &str = r#"
version = 1
[[limit]]
name = "rate"
match = { path = "/rate" }
key = ["all"]
limit = "5/24h"
algorithm = "token-bucket"
on_store_error = "deny"
[[limit]]
name = "open"
match = { path = "/open" }
key = ["all"]
limit = "5/24h"
algorithm = "token-bucket"
on_store_error = "allow"
[[limit]]
name = "local"
match = { path = "/local" }
key = ["all"]
limit = "5/24h"
algorithm = "token-bucket"
on_store_error = "local"
[[limit]]
name = "busy"
match = { path = "/busy" }
key = ["all"]
limit = "1000000/1s"
algorithm = "token-bucket"
on_store_error = "allow"
[[limit]]
name = "at-work"
match = { path = "/at-work" }
key = ["all"]
concurrency = { max = 2, lease = "1h" }
on_store_error = "deny"
"#;

fn layer<S: Store + 'static>(
    store: S,
    clock: &SystemClock,
) -> RateLimitLayer<ByPolicy<S, SystemClock>> {
    let origin = clock.origin();
    let policy = match config::parse(POLICY, config::Context::from(origin)) {
        Ok(loaded) => loaded.policy,
        Err(findings) => panic!("{findings:#?}"),
    };
    RateLimitLayer::policy(Keeper::new(policy, store, clock.clone()))
}

fn pages() -> Router {
    let router = ["/rate", "/open", "/local", "/busy"]
        .iter()
        .fold(Router::new(), |router, path| {
            router.route(path, get(async || "hello"))
        });
    router.route("/at-work", get(async || Body::new(Slow::default())))
}

/// The statuses of `count` requests, one after the other, at these servers in turn.
async fn statuses(servers: &[SocketAddr], path: &str, count: usize) -> Vec<u16> {
    let mut clients = Vec::new();
    for &server in servers {
        clients.push(Client::connect(server).await);
    }
    let mut statuses = Vec::new();
    for number in 0..count {
        let at = number % servers.len();
        statuses.push(clients[at].get(path).await.status);
    }
    statuses
}

fn passed(statuses: &[u16]) -> usize {
    let answers = |status: &u16| [200, 429].contains(status);
    assert!(statuses.iter().all(answers), "{statuses:?}");
    statuses.iter().filter(|status| **status == 200).count()
}

/// A request at work, if it is let in; it stays there as long as its client.
async fn at_work(server: SocketAddr) -> Option<Client> {
    let mut client = Client::connect(server).await;
    client.send("/at-work", "").await;
    let status = client.head().await.status;
    assert!([200, 429].contains(&status), "{status}");
    (status == 200).then_some(client)
}

/// The first that is let in.
async fn let_in(server: SocketAddr) -> Client {
    let asking = async {
        loop {
            if let Some(client) = at_work(server).await {
                return client;
            }
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(20), asking)
        .await
        .expect("no permit was returned in time")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_share_the_counts_in_redis() {
    let Some(redis) = Redis::start().await else {
        return;
    };
    let clock = SystemClock::new();
    let server = || pages().layer(layer(redis.store(&clock), &clock));
    let servers = [serve(server()).await, serve(server()).await];
    assert_eq!(passed(&statuses(&servers, "/rate", 20).await), 5);
    assert_eq!(passed(&statuses(&servers, "/open", 20).await), 5);

    let first = at_work(servers[0])
        .await
        .expect("the first of two permits is free");
    let second = at_work(servers[1])
        .await
        .expect("the second of two permits is free");
    for server in servers {
        assert!(at_work(server).await.is_none(), "both permits are taken");
    }
    first.close();
    let third = let_in(servers[1]).await;
    second.reset();
    let _fourth = let_in(servers[0]).await;
    assert!(
        at_work(servers[0]).await.is_none(),
        "both permits are taken again"
    );
    drop(third);
}

/// The ways to count that several processes can hold exactly.
const COUNTED: [(&str, &str); 8] = [
    ("default", ""),
    ("gcra", "algorithm = \"token-bucket\""),
    ("fixed", "algorithm = \"fixed-window\""),
    ("sliding", "algorithm = \"sliding-window-counter\""),
    ("log", "algorithm = \"sliding-window-log\""),
    ("quota-reset", "algorithm = \"quota-reset\""),
    ("hybrid", "algorithm = \"hybrid\""),
    ("exponential", "algorithm = \"exponential\""),
];

/// Six processes with clocks that began at different times ask 400 times each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_share_one_limit_whenever_they_were_started() {
    let Some(redis) = Redis::start().await else {
        return;
    };
    let now = SystemClock::new().origin().as_unix_nanos();
    for (name, words) in COUNTED {
        let text = format!(
            "version = 1\n[store.redis]\nurl = \"redis://127.0.0.1:{}\"\nprefix = \"{name}\"\n\
             deadline = \"10s\"\n\
             [[limit]]\nname = \"all\"\nkey = [\"all\"]\nlimit = \"10/300d\"\n{words}\n",
            redis.port
        );
        let mut admitted = Vec::new();
        for process in 0..6 {
            let began = now - process * 100_000_000_000_007; // 28 hours apart
            let clock = ManualClock::at(Origin::from_unix_nanos(began));
            let keeper = Keeper::open_with_clock(&text, clock).unwrap();
            let mut passed = 0;
            for _ in 0..400 {
                let answer = keeper.check(&Facts::default(), Scope::All).await;
                passed += u32::from(answer.unwrap().allowed());
            }
            let health = keeper.store().shared().unwrap().health();
            assert_eq!(health.failed, 0, "{}", health.last_error);
            admitted.push(passed);
        }
        assert_eq!(admitted, [10, 0, 0, 0, 0, 0], "{name}");
    }
}

/// Each day on which months begin has counters of its own, which processes share. Redis decides by
/// the time of its server, so the months are those of today.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_share_the_months_of_each_key() {
    let Some(redis) = Redis::start().await else {
        return;
    };
    let text = format!(
        "version = 1\ntimezone = \"Europe/Oslo\"\n[store.redis]\nurl = \"redis://127.0.0.1:{}\"\n\
         deadline = \"10s\"\n\
         [[limit]]\nname = \"billing\"\nkey = [\"attr:user\"]\nlimit = \"3/month\"\n\
         anchor = \"attr:day\"\n",
        redis.port
    );
    let keepers = [(); 2].map(|()| Keeper::open(&text).unwrap());
    for (user, day, expected) in [
        ("ada", "31", [3, 0]),
        ("ada", "15", [3, 0]),
        ("eve", "15", [3, 0]),
        ("bob", "no day", [3, 0]),
        ("bob", "1", [0, 0]), // the same counter
    ] {
        for (keeper, expected) in keepers.iter().zip(expected) {
            let facts = Facts {
                attributes: &[("user", user), ("day", day)],
                ..Facts::default()
            };
            let mut passed = 0;
            for _ in 0..9 {
                let answer = keeper.check(&facts, Scope::All).await;
                passed += u32::from(answer.unwrap().allowed());
            }
            assert_eq!(passed, expected, "{user} {day}");
            let health = keeper.store().shared().unwrap().health();
            assert_eq!(health.failed, 0, "{}", health.last_error);
        }
    }
}

/// The keeper's clock holds, whatever the store and the policy were made for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_built_by_the_caller_follows_the_clock_of_its_keeper() {
    let Some(redis) = Redis::start().await else {
        return;
    };
    let text = "version = 1\n[[limit]]\nname = \"all\"\nkey = [\"all\"]\nlimit = \"10/300d\"\n\
                algorithm = \"fixed-window\"\n";
    let mut admitted = 0;
    for _process in 0..3 {
        let clock = SystemClock::new();
        let policy = config::parse(text, config::Context::default())
            .unwrap()
            .policy;
        let url = format!("redis://127.0.0.1:{}", redis.port);
        let store = RedisStore::new(RedisConfig {
            deadline: Duration::from_secs(10),
            ..RedisConfig::new(url)
        });
        let local = MemoryStore::new(MemoryConfig::default());
        let store = Fallback::new(store.unwrap(), local, NonZeroU32::MIN);
        let keeper = Keeper::new(policy, store, clock);
        for _ in 0..40 {
            let answer = keeper.check(&Facts::default(), Scope::All).await;
            admitted += u32::from(answer.unwrap().allowed());
        }
    }
    assert_eq!(admitted, 10);
}

/// No task checks the store: requests alone find out that it is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_starts_late_is_used() {
    let Some(mut redis) = Redis::start().await else {
        return;
    };
    redis.kill();
    let text = format!(
        "version = 1\n[store.redis]\nurl = \"redis://127.0.0.1:{}\"\n\
         [[limit]]\nname = \"all\"\nkey = [\"all\"]\nlimit = \"1/24h\"\non_store_error = \"allow\"\n",
        redis.port
    );
    let keeper = Keeper::open(&text).unwrap();
    let ask = async || {
        let answer = keeper.check(&Facts::default(), Scope::All).await;
        answer.unwrap().allowed()
    };
    for _ in 0..50 {
        assert!(ask().await, "`allow` admits every request");
        sleep(Duration::from_millis(5)).await;
    }
    redis.start_again().await;
    let limited = async {
        while ask().await {
            sleep(Duration::from_millis(20)).await;
        }
    };
    let found = timeout(Duration::from_secs(20), limited).await;
    assert!(found.is_ok(), "the store is called again");
    for _ in 0..10 {
        assert!(!ask().await, "the limit is one request a day");
    }
}

/// While clients ask, the store is killed and started again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_follow_on_store_error_while_redis_is_down() {
    let Some(mut redis) = Redis::start().await else {
        return;
    };
    let clock = SystemClock::new();
    let errors = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&errors);
    let layer = layer(redis.store(&clock), &clock).on_store_error(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let server = serve(pages().layer(layer)).await;
    let held = at_work(server)
        .await
        .expect("the first of two permits is free");

    let stop = Arc::new(AtomicBool::new(false));
    let asking = [(); 4].map(|()| {
        let stop = Arc::clone(&stop);
        tokio::spawn(async move {
            let mut all = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                all.extend(statuses(&[server], "/busy", 5).await);
            }
            all
        })
    });
    sleep(Duration::from_millis(200)).await;
    redis.kill();
    for (path, expected) in [("/rate", 0), ("/open", 10), ("/local", 0)] {
        let statuses = statuses(&[server], path, 10).await;
        assert_eq!(passed(&statuses), expected, "{path}: {statuses:?}");
    }
    assert!(errors.load(Ordering::Relaxed) >= 30);
    assert!(
        at_work(server).await.is_none(),
        "a loan is refused while its state is unknown"
    );
    held.close(); // its holdings are unknown
    redis.start_again().await;
    stop.store(true, Ordering::Relaxed);
    for asked in asking {
        let statuses = asked.await.unwrap();
        assert_eq!(
            passed(&statuses),
            statuses.len(),
            "`allow` admits every request during the outage"
        );
    }
    // It has lost everything, and counts anew.
    let _held = [let_in(server).await, let_in(server).await];
    assert!(at_work(server).await.is_none());
    assert!(passed(&statuses(&[server], "/open", 20).await) <= 5);
}

/// Behind a `Fallback`, limits set to `local` are counted here meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fallback_counts_while_redis_is_down() {
    let Some(mut redis) = Redis::start().await else {
        return;
    };
    let clock = SystemClock::new();
    let local = MemoryStore::new(MemoryConfig::default());
    let store = Fallback::new(redis.store(&clock), local, NonZeroU32::MIN);
    let layer = layer(store, &clock);
    let keeper = Arc::clone(layer.keeper());
    let tending = tokio::spawn(async move {
        loop {
            let _ = keeper.store().tend(keeper.clock().now()).await;
            sleep(Duration::from_millis(100)).await;
        }
    });
    let server = serve(pages().layer(layer)).await;
    assert_eq!(passed(&statuses(&[server], "/rate", 3).await), 3);
    redis.kill();
    for (path, expected) in [("/rate", 0), ("/open", 20), ("/local", 5)] {
        let statuses = statuses(&[server], path, 20).await;
        assert_eq!(passed(&statuses), expected, "{path}: {statuses:?}");
    }
    redis.start_again().await;
    tending.abort();
}
