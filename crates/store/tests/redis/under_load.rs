//! Faults under load: the permits that pass beyond a limit, the waits of callers, and that no
//! caller is answered anything but the choice of its limits.
//!
//! Each test states how many may pass beyond the limits. [`Load`] checks the rest each time:
//! every request is answered within the deadline, and no more is charged than calls were lost.

use std::time::Duration;

use ratekeeper_store::RedisServers;

use crate::load::Load;
use crate::server::{Cluster, Program, Server, programs, signal};

/// Nothing passes beyond the limits.
const NOTHING: i64 = 0;

fn run(command: &[&str], server: &Server) {
    try_run(command, server).unwrap();
}

fn try_run(command: &[&str], server: &Server) -> redis::RedisResult<()> {
    let mut words = redis::cmd(command[0]);
    for word in &command[1..] {
        words.arg(*word);
    }
    words.exec(&mut server.connect())
}

fn one(server: &Server) -> RedisServers {
    RedisServers::One(server.url())
}

fn load(server: &Server) -> Load {
    Load::patient(&one(server), &["ada"])
}

/// Killed, away for a moment, and started again; returns the numbers passed before, in total and
/// in the last two seconds.
fn crash(program: &Program, options: &[&str]) -> (Load, Server, i64, i64) {
    let mut server = Server::start(program, options);
    let load = load(&server);
    load.wait(Duration::from_millis(2_500));
    server.kill();
    let all = load.admitted_within(Duration::from_secs(60));
    let late = load.admitted_within(Duration::from_secs(2));
    load.until_asked(false);
    server.restart(program, options);
    (load, server, all, late)
}

/// All that had passed may pass again.
#[test]
fn a_server_without_persistence_loses_all_charges() {
    for program in programs() {
        let (load, _server, all, _) = crash(&program, &[]);
        let seen = load.end();
        seen.at_most(all);
        assert!(seen.firm > all / 2, "the server kept its charges: {seen:?}");
    }
}

#[test]
fn a_server_that_syncs_each_write_loses_no_charge() {
    for program in programs() {
        let options = ["--appendonly", "yes", "--appendfsync", "always"];
        let (load, _server, ..) = crash(&program, &options);
        load.end().at_most(NOTHING);
    }
}

/// Two seconds' worth at most; nothing of what its machine has taken over to write.
#[test]
fn a_server_that_syncs_each_second_loses_at_most_two_seconds() {
    for program in programs() {
        let options = ["--appendonly", "yes", "--appendfsync", "everysec"];
        let (load, _server, all, late) = crash(&program, &options);
        assert!(late < all, "requests passed before the last two seconds");
        load.end().at_most(late);
    }
}

#[test]
fn a_server_that_hangs_for_five_seconds_loses_no_charge() {
    for program in programs() {
        let server = Server::start(&program, &[]);
        let load = Load::hasty(&one(&server), &["ada"]);
        signal(&server, "STOP");
        load.wait(Duration::from_secs(5));
        signal(&server, "CONT");
        load.end().at_most(NOTHING);
    }
}

/// Longer than calls are waited for, again and again: calls under way may be charged, and are
/// answered as the limits chose.
#[test]
fn a_server_that_hangs_repeatedly_charges_only_the_calls_under_way() {
    for program in programs() {
        let server = Server::start(&program, &[]);
        let load = Load::hasty(&one(&server), &["ada"]);
        for _ in 0..5 {
            signal(&server, "STOP");
            load.wait(Duration::from_millis(700));
            signal(&server, "CONT");
            load.until_asked(true);
            load.serves(50);
        }
        let seen = load.end();
        seen.at_most(NOTHING);
        assert!(seen.failed > 0, "{seen:?}");
    }
}

#[test]
fn flushed_scripts_cause_no_failures() {
    for program in programs() {
        let server = Server::start(&program, &[]);
        let load = load(&server);
        for _ in 0..100 {
            run(&["SCRIPT", "FLUSH"], &server);
            load.wait(Duration::from_millis(5));
        }
        let seen = load.end();
        seen.at_most(NOTHING);
        assert_eq!((seen.failed, seen.downs), (0, 0), "{seen:?}");
    }
}

#[test]
fn connections_that_are_reset_lose_only_their_own_calls() {
    for program in programs() {
        let server = Server::start(&program, &[]);
        let load = load(&server);
        for _ in 0..20 {
            run(&["CLIENT", "KILL", "TYPE", "normal"], &server);
            load.wait(Duration::from_millis(50));
        }
        let seen = load.end();
        seen.at_most(NOTHING);
        assert!(seen.failed > 0, "{seen:?}");
    }
}

/// A full server answers, but takes no charge: that is a store that fails, once, until there
/// is room.
#[test]
fn a_full_server_counts_as_a_failed_store() {
    for program in programs() {
        let server = Server::start(&program, &["--maxmemory-policy", "noeviction"]);
        let load = load(&server);
        run(&["CONFIG", "SET", "maxmemory", "1"], &server);
        load.until_asked(false);
        let (firm, soft) = load.admitted();
        load.wait(Duration::from_secs(2));
        let (firm_then, soft_then) = load.admitted();
        assert!(
            firm_then <= firm + 16,
            "only the requests under way may still pass"
        );
        assert!(soft_then > soft, "each process admits its share");
        run(&["CONFIG", "SET", "maxmemory", "0"], &server);
        let seen = load.end();
        seen.at_most(NOTHING);
        assert_eq!(
            seen.downs, 2,
            "each process must report the outage once: {seen:?}"
        );
    }
}

/// Two of three requests are for a key that holds something else: they are decided as their
/// limits chose, and no other request is affected.
#[test]
fn a_value_of_a_wrong_type_affects_only_its_key() {
    for program in programs() {
        for command in ["LPUSH", "APPEND"] {
            let server = Server::start(&program, &[]);
            run(&[command, "rk:{eve}:soft", "x"], &server);
            let load = Load::patient(&one(&server), &["eve", "ada", "eve"]);
            load.serves(600);
            let seen = load.end();
            seen.at_most(NOTHING);
            assert!(seen.failed > 100, "{seen:?}");
            assert_eq!(seen.downs, 0, "the store was reported down: {seen:?}");
        }
    }
}

/// The place of the key of [`Load`] in a cluster: the node, and its slot.
fn home(cluster: &Cluster) -> (usize, u16) {
    let mut command = redis::cmd("CLUSTER");
    command.arg("KEYSLOT").arg("rk:{ada}:soft");
    let slot: u16 = command.query(&mut cluster.nodes[0].connect()).unwrap();
    (usize::from(slot / 5461).min(2), slot)
}

/// Waits until the replica of a primary has all that has been written there so far, however busy
/// the machine is; returns the numbers passed before. WAIT works only on a connection that has
/// written something itself.
fn until_followed(load: &Load, primary: &Server) -> (u64, u64) {
    let before = load.admitted();
    let mut connection = primary.connect();
    let mut mark = redis::cmd("SET");
    let marked = mark.arg("rk:{ada}:mark").arg(1);
    marked.exec(&mut connection).unwrap();
    let mut wait = redis::cmd("WAIT");
    let wait = wait.arg(1).arg(30_000);
    let replicas: u32 = wait.query(&mut connection).unwrap();
    assert_eq!(replicas, 1, "the replica has the charges");
    before
}

/// Requests that had not reached the replica may pass again.
#[test]
fn a_replica_takes_over_from_a_primary_that_was_killed() {
    for program in programs() {
        let mut cluster = Cluster::start(&program);
        let (home, _) = home(&cluster);
        let load = Load::patient(&RedisServers::Cluster(cluster.urls()), &["ada"]);
        load.wait(Duration::from_millis(1_500));
        let followed = until_followed(&load, &cluster.nodes[home]);
        cluster.allow_failover();
        cluster.nodes[home].kill();
        let late = load.admitted_since(followed);
        load.end().at_most(late);
    }
}

/// The primary is not reported gone: its connections stay open. The replica is found anyway.
#[test]
fn a_replica_takes_over_from_a_primary_that_hangs() {
    for program in programs() {
        let cluster = Cluster::start(&program);
        let (home, _) = home(&cluster);
        let load = Load::hasty(&RedisServers::Cluster(cluster.urls()), &["ada"]);
        load.wait(Duration::from_millis(1_500));
        let followed = until_followed(&load, &cluster.nodes[home]);
        cluster.allow_failover();
        signal(&cluster.nodes[home], "STOP");
        let late = load.admitted_since(followed);
        load.wait(Duration::from_millis(600)); // what was answered before is over
        load.serves(100);
        signal(&cluster.nodes[home], "CONT");
        load.wait(Duration::from_millis(500));
        load.end().at_most(late);
    }
}

/// The slot goes from node to node and back, key by key, ten times.
#[test]
fn a_slot_that_moves_under_load_loses_no_charge() {
    for program in programs() {
        let cluster = Cluster::start(&program);
        let (home, slot) = home(&cluster);
        let slot = slot.to_string();
        let load = Load::patient(&RedisServers::Cluster(cluster.urls()), &["ada"]);
        for turn in 0..10 {
            let (from, to) = ((home + turn) % 3, (home + turn + 1) % 3);
            let (giver, taker) = (cluster.id(from), cluster.id(to));
            let (giving, taking) = (&cluster.nodes[from], &cluster.nodes[to]);
            run(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &giver], taking);
            run(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &taker], giving);
            load.wait(Duration::from_millis(20));
            loop {
                let mut keys = redis::cmd("CLUSTER");
                keys.arg("GETKEYSINSLOT").arg(&slot).arg(1);
                let keys: Vec<String> = keys.query(&mut giving.connect()).unwrap();
                let Some(name) = keys.first() else { break };
                let port = taking.port.to_string();
                run(&["MIGRATE", "127.0.0.1", &port, name, "0", "1000"], giving);
                load.wait(Duration::from_millis(20)); // half of them here, half there
            }
            run(&["CLUSTER", "SETSLOT", &slot, "NODE", &taker], taking);
            run(&["CLUSTER", "SETSLOT", &slot, "NODE", &taker], giving);
            load.wait(Duration::from_millis(20));
        }
        let seen = load.end();
        seen.at_most(NOTHING);
        assert_eq!((seen.failed, seen.downs), (0, 0), "{seen:?}");
    }
}
