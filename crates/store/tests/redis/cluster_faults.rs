//! Faults of a cluster: slots that move, primaries that die or refuse.

use std::time::Duration;

use ratekeeper_core::{Gcra, Time};
use ratekeeper_store::{RedisServers, RedisStore, Store as _, StoreError};

use crate::faults::Bench;
use crate::server::{Cluster, Server, programs};

/// The primary that holds the key of `client`.
fn home(cluster: &Cluster, client: &str) -> usize {
    cluster.home(&format!("rk:{{{client}}}:daily"))
}

/// A client with a key on another primary.
fn elsewhere(cluster: &Cluster, client: &str) -> String {
    let home_of = |client: &str| home(cluster, client);
    let mut others = (0..).map(|number| format!("other-{number}"));
    let other = others.find(|other| home_of(other) != home_of(client));
    other.expect("every primary holds a third of all names")
}

/// While a slot moves from node to node and back, every charge is made once.
#[test]
fn a_slot_that_moves_loses_no_charge() {
    for program in programs() {
        let cluster = Cluster::start(&program);
        let bench = Bench::patient(RedisServers::Cluster(cluster.urls()));
        assert_eq!(bench.ask("ada", 1), Ok(true));
        let name = "rk:{ada}:daily";
        let mut command = redis::cmd("CLUSTER");
        command.arg("KEYSLOT").arg(name);
        let slot: u16 = command.query(&mut cluster.nodes[0].connect()).unwrap();
        let home = usize::from(slot / 5461).min(2);
        let mut charged = 1;
        let mut charge = || {
            assert_eq!(bench.ask("ada", 1), Ok(true));
            assert_eq!(bench.ask(&format!("new-{charged}"), 1), Ok(true));
            charged += 1;
        };
        for (from, to) in [(home, (home + 1) % 3), ((home + 1) % 3, home)] {
            let set = |node: usize, words: &[&str]| {
                let mut command = redis::cmd("CLUSTER");
                command.arg("SETSLOT").arg(slot);
                for word in words {
                    command.arg(*word);
                }
                command.exec(&mut cluster.nodes[node].connect()).unwrap();
            };
            let (giver, taker) = (cluster.id(from), cluster.id(to));
            set(to, &["IMPORTING", &giver]);
            charge();
            set(from, &["MIGRATING", &taker]);
            charge(); // still there
            let mut migrate = redis::cmd("MIGRATE");
            migrate
                .arg("127.0.0.1")
                .arg(cluster.nodes[to].port)
                .arg(name)
                .arg(0)
                .arg(1_000);
            migrate.exec(&mut cluster.nodes[from].connect()).unwrap();
            charge(); // ASK
            charge();
            set(to, &["NODE", &taker]);
            set(from, &["NODE", &taker]);
            charge(); // MOVED
            charge();
        }
        assert_eq!(bench.left("ada"), 1_000 - charged);
    }
}

/// A primary dies; its replica takes over with what it had.
#[test]
fn a_call_during_a_failover_waits_or_fails() {
    for program in programs() {
        let mut cluster = Cluster::start(&program);
        let bench = Bench::patient(RedisServers::Cluster(cluster.urls()));
        let home = cluster.home("rk:{ada}:daily");
        assert_eq!(bench.ask("ada", 900), Ok(true));
        // WAIT works only on a connection that has written something itself.
        let mut connection = cluster.nodes[home].connect();
        let mut mark = redis::cmd("SET");
        let marked = mark.arg("rk:{ada}:mark").arg(1);
        marked.exec(&mut connection).unwrap();
        let mut wait = redis::cmd("WAIT");
        let wait = wait.arg(1).arg(30_000);
        let replicas: u64 = wait.query(&mut connection).unwrap();
        assert_eq!(replicas, 1, "the replica has the charge");
        cluster.allow_failover();
        cluster.nodes[home].kill();
        bench.until_passed("ada");
        let left = bench.left("ada");
        assert!(
            left <= 99,
            "{left} remain: the replica lost a charge that it had"
        );
    }
}

/// One primary of three is gone for good: its keys are decided without it, at once, and the
/// others by the store, as ever.
#[test]
fn a_dead_primary_affects_only_its_keys_and_no_call_waits_for_it() {
    for program in programs() {
        let mut cluster = Cluster::start(&program);
        for node in &cluster.nodes {
            let mut serve = redis::cmd("CONFIG");
            serve
                .arg("SET")
                .arg("cluster-require-full-coverage")
                .arg("no");
            serve.exec(&mut node.connect()).unwrap();
        }
        let bench = Bench::patient(RedisServers::Cluster(cluster.urls()));
        let (dead, other) = (home(&cluster, "ada"), elsewhere(&cluster, "ada"));
        assert_eq!(bench.ask("ada", 1), Ok(true));
        assert_eq!(bench.ask(&other, 1), Ok(true));
        cluster.nodes[dead + 3].kill();
        cluster.nodes[dead].kill();
        for _ in 0..6 {
            let _ = bench.ask("ada", 1); // the first few find out
            let _ = bench.ask(&other, 1);
        }
        let given_up = bench.given_up();
        for _ in 0..100 {
            let refused = bench.ask("ada", 1).unwrap_err();
            assert!(matches!(refused, StoreError::Partly(_)), "{refused}");
            assert_eq!(bench.ask(&other, 1), Ok(true));
        }
        assert_eq!(
            bench.given_up(),
            given_up,
            "no call waited for its deadline"
        );

        // Operators see which server it is, and that it has come back.
        let address = format!("127.0.0.1:{}", cluster.nodes[dead].port);
        assert_eq!(bench.troubled(), [address]);
        let options = [
            "--cluster-enabled",
            "yes",
            "--cluster-node-timeout",
            "60000",
        ];
        cluster.nodes[dead].restart(&program, &options);
        bench.until_passed("ada");
        assert_eq!(bench.troubled(), [""; 0]);
    }
}

/// What two servers would give back, and one is away: nothing, so that the caller can try again.
#[test]
fn a_refund_on_two_servers_of_which_one_is_dead_changes_nothing() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for program in programs() {
        let mut cluster = Cluster::start(&program);
        let store = crate::spread::store(&cluster, "halves");
        let quota = "10/10h".parse().unwrap();
        let daily = crate::spread::limit(0, "daily", Gcra::token_bucket(quota).unwrap().into());
        let name = |client: &str| format!("halves:{{{client}}}:daily");
        let dead = cluster.home(&name("ada"));
        let mut others = (0..).map(|number| format!("other-{number}"));
        let other = others.find(|other| cluster.home(&name(other)) != dead);
        let keys = [other.unwrap(), "ada".into()].map(|client| crate::spread::key_of(&client));
        let charges = keys.each_ref().map(|key| crate::spread::one(&daily, key));
        let looked = |store: &RedisStore| runtime.block_on(store.look(&charges[..1], Time::ZERO));
        let decided = runtime
            .block_on(store.decide(&charges, Time::ZERO))
            .unwrap();
        assert!(decided.admitted);
        for node in &cluster.nodes {
            set(&mut node.connect(), "cluster-require-full-coverage", "no");
        }
        cluster.nodes[dead + 3].kill();
        cluster.nodes[dead].kill();
        for _ in 0..3 {
            let refunded = runtime.block_on(store.refund(&charges, Time::ZERO));
            assert!(refunded.is_err(), "{refunded:?}");
            assert_eq!(looked(&store).unwrap().each[0].remaining.get(), 9);
        }
    }
}

/// Ways in which a primary refuses calls, and how they end.
#[derive(Clone, Copy, Debug)]
enum Refusal {
    /// No charge can be written: OOM.
    Full,
    /// No replica has the writes: NOREPLICAS.
    Alone,
    /// New connections must log in: NOAUTH.
    Locked,
    /// Another client's script does not end: BUSY, which a server that loads is like.
    Busy,
}

impl Refusal {
    fn begins(self, server: &Server, connection: &mut redis::Connection) {
        match self {
            Self::Full => set(connection, "maxmemory", "1"),
            Self::Alone => set(connection, "min-replicas-to-write", "9"),
            Self::Locked => {
                set(connection, "requirepass", "secret");
                let mut kill = redis::cmd("CLIENT");
                kill.arg("KILL").arg("TYPE").arg("normal");
                kill.exec(connection).unwrap();
            }
            Self::Busy => {
                set(connection, "lua-time-limit", "1");
                let mut endless = server.connect();
                std::thread::spawn(move || {
                    let mut script = redis::cmd("EVAL");
                    let _ = script.arg("while true do end").arg(0).exec(&mut endless);
                });
                // The thread may begin late.
                while redis::cmd("PING").exec(connection).is_ok() {}
            }
        }
    }

    fn ends(self, connection: &mut redis::Connection) {
        match self {
            Self::Full => set(connection, "maxmemory", "0"),
            Self::Alone => set(connection, "min-replicas-to-write", "0"),
            Self::Locked => set(connection, "requirepass", ""),
            Self::Busy => redis::cmd("SCRIPT").arg("KILL").exec(connection).unwrap(),
        }
    }
}

fn set(connection: &mut redis::Connection, name: &str, value: &str) {
    let mut set = redis::cmd("CONFIG");
    set.arg("SET").arg(name).arg(value);
    set.exec(connection).unwrap();
}

/// One primary of three is there, and refuses: that concerns its keys, as if it were gone.
#[test]
fn a_primary_that_refuses_affects_only_its_keys_and_no_call_waits_for_it() {
    for program in programs() {
        let cluster = Cluster::start(&program);
        let servers = RedisServers::Cluster(cluster.urls());
        let bench = Bench::new(servers, Duration::from_secs(2));
        let (bad, other) = (home(&cluster, "ada"), elsewhere(&cluster, "ada"));
        let server = &cluster.nodes[bad];
        let address = format!("127.0.0.1:{}", server.port);
        let mut connection = server.connect();
        bench.until_passed(&other);
        for refusal in [
            Refusal::Full,
            Refusal::Alone,
            Refusal::Locked,
            Refusal::Busy,
        ] {
            let context = format!("{} {refusal:?}", program.name);
            bench.until_passed("ada");
            assert_eq!(bench.troubled(), [""; 0], "{context}");
            refusal.begins(server, &mut connection);
            let found = (0..1_000).find(|_| {
                let refused = bench.ask("ada", 1);
                let partly = matches!(refused, Err(StoreError::Partly(_)));
                assert!(partly || refused == Ok(true), "{context}: {refused:?}");
                !bench.troubled().is_empty()
            });
            assert!(
                found.is_some_and(|asked| asked < 20),
                "{context}: {found:?}"
            );
            let given_up = bench.given_up();
            for _ in 0..50 {
                let refused = bench.ask("ada", 1).unwrap_err();
                assert!(
                    matches!(refused, StoreError::Partly(_)),
                    "{context}: {refused}"
                );
                assert_eq!(bench.ask(&other, 1), Ok(true), "{context}");
            }
            assert_eq!(
                bench.given_up(),
                given_up,
                "{context}: no call waited for its deadline"
            );
            assert_eq!(bench.troubled(), [&*address], "{context}");
            assert_eq!(
                bench.ping(),
                Ok(()),
                "{context}: the rest of the store is up"
            );
            refusal.ends(&mut connection);
        }
        bench.until_passed("ada");

        // All of them refuse: that is no part any more.
        for node in &cluster.nodes[..3] {
            set(&mut node.connect(), "maxmemory", "1");
        }
        let refused = bench.ping().unwrap_err();
        assert!(matches!(refused, StoreError::Unavailable(_)), "{refused}");
        let refused = bench.ask("ada", 1).unwrap_err();
        assert!(matches!(refused, StoreError::Unavailable(_)), "{refused}");
    }
}
