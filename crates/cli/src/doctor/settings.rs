//! Settings: the server's configuration of eviction, persistence and replicas, as it reports it.

use ratekeeper_store::{RedisServer, ServerInfo};

use super::Judgement;
use crate::words;

/// Share of its memory, in percent, above which a server is nearly full.
const FULL_PERCENT: u64 = 80;
/// Seconds behind its primary at which a replica is worth a warning.
const LAG_SECONDS: u64 = 2;

/// Judges whether the server drops limits to make room.
pub(super) fn eviction(info: &ServerInfo) -> Judgement {
    const ROOM: &str = "raise maxmemory: a token bucket's key takes about 130 bytes, others more \
         (docs/guide/redis.md); or use a dedicated server for limits";
    let (Some(most), Some(used)) = (info.number("maxmemory"), info.number("used_memory")) else {
        let hint = "let the user run INFO, or check by hand that maxmemory-policy is noeviction";
        return Judgement::warning("the server does not report its memory usage", hint);
    };
    let policy = info.text("maxmemory_policy").unwrap_or("unknown");
    if most == 0 {
        let machine = info.number("total_system_memory").unwrap_or(0);
        let held = info.number("used_memory_rss").unwrap_or(used);
        let share = percent(held, machine);
        if machine > 0 && share >= FULL_PERCENT {
            let message = format!(
                "no maxmemory, and the server uses {share} % of the machine's memory of {}",
                words::size(machine)
            );
            let hint = "set maxmemory, or add RAM; otherwise the kernel may kill the server when \
                 memory runs out";
            return Judgement::warning(message, hint);
        }
        return Judgement::ok(format!("none: no maxmemory; {} used", words::size(used)));
    }
    let share = percent(used, most);
    let of = format!("{share} % of {} used", words::size(most));
    if policy != "noeviction" {
        let message = format!(
            "maxmemory-policy {policy} drops counters when memory is full, so that \
             refused clients pass again; {of}"
        );
        let hint = "run CONFIG SET maxmemory-policy noeviction, and set the same in the server's \
             configuration file; keep caches on another server";
        return Judgement::failure(message, hint);
    }
    if share >= FULL_PERCENT {
        let message = format!(
            "none, but {of}: when it is full, no charge is written, and limits follow their \
             on_store_error"
        );
        return Judgement::warning(message, ROOM);
    }
    Judgement::ok(format!("none: noeviction; {of}"))
}

fn percent(part: u64, whole: u64) -> u64 {
    part.saturating_mul(100).checked_div(whole).unwrap_or(0)
}

/// When a server writes its keys to disk.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Saves {
    /// `save`: when snapshots are taken; `None` if the server does not report it.
    pub(super) snapshots: Option<String>,
    /// `appendfsync`
    pub(super) fsync: Option<String>,
}

impl Saves {
    /// Reads them; hosted services may refuse to answer.
    pub(super) async fn of(server: &RedisServer) -> Self {
        Self {
            snapshots: server.setting("save").await.ok().flatten(),
            fsync: server.setting("appendfsync").await.ok().flatten(),
        }
    }
}

/// Judges which data a restart loses.
pub(super) fn persistence(info: &ServerInfo, saves: &Saves) -> Judgement {
    const ON: &str = "set `appendonly yes` to keep all but the last second; leave it off where \
         admitting each limit once more after a restart is cheap";
    if info.text("rdb_last_bgsave_status") == Some("err")
        || info.text("aof_last_write_status") == Some("err")
    {
        let message = "the server could not write to its disk: it refuses charges until it can";
        return Judgement::failure(message, "read the server's log, and free space on its disk");
    }
    if info.number("aof_enabled") == Some(1) {
        let lost = match saves.fsync.as_deref() {
            Some("always") => "a crash loses nothing that was answered",
            Some("no") => {
                "a crash of the machine loses the charges that its system had not written"
            }
            _ => "a crash loses the charges of about a second",
        };
        return Judgement::ok(format!("append-only file: {lost}"));
    }
    match saves.snapshots.as_deref() {
        Some("") => Judgement::warning(
            "off: a restart loses every counter, so each key is admitted once more up to its limit",
            ON,
        ),
        Some(times) => Judgement::ok(format!(
            "snapshots ({times}): a crash loses the charges since the last one, at most one \
             limit for each key"
        )),
        None => Judgement::warning(
            "no append-only file, and the server does not report when it takes snapshots",
            ON,
        ),
    }
}

/// Judges which replicas can take over when the server is lost.
pub(super) fn replicas(info: &ServerInfo) -> Judgement {
    if info.text("role") == Some("slave") {
        let primary = match (info.text("master_host"), info.text("master_port")) {
            (Some(host), Some(port)) => format!("{host}:{port}"),
            _ => "another server".into(),
        };
        let message = format!("the server is a replica of {primary}, and accepts no charges");
        let hint = format!("name the primary, {primary}, or an address that follows it");
        return Judgement::failure(message, hint);
    }
    let count = info.number("connected_slaves").unwrap_or(0);
    if count == 0 {
        return Judgement::ok(
            "none: while the server is unreachable, limits follow on_store_error",
        );
    }
    let mut behind = 0;
    for number in 0..count.min(MAX_REPLICAS) {
        let replica = info.text(&format!("slave{number}")).unwrap_or_default();
        let field = |name: &str| {
            let mut fields = replica.split(',').filter_map(|field| field.split_once('='));
            fields
                .find(|(known, _)| *known == name)
                .map(|(_, value)| value)
        };
        let state = field("state").unwrap_or("unknown");
        if state != "online" {
            let message = format!("a replica of {count} is in state {state}: it cannot take over");
            return Judgement::warning(
                message,
                "check in the replica's log whether it is still copying",
            );
        }
        let lag = field("lag").and_then(|lag| lag.parse().ok()).unwrap_or(0);
        behind = behind.max(lag);
    }
    let message =
        format!("{count}, at most {behind} s behind: a takeover loses the charges of that time");
    if behind >= LAG_SECONDS {
        let hint = "check the network between the servers, and the load of the replica";
        return Judgement::warning(message, hint);
    }
    Judgement::ok(message)
}

/// Maximum number of replicas that are examined; no real server has as many.
const MAX_REPLICAS: u64 = 64;

#[cfg(test)]
mod tests {
    use super::super::Grade::{self, Failure, Ok, Warning};
    use super::*;

    fn check(judge: impl Fn(&ServerInfo) -> Judgement, rows: &[(&str, Grade, &str)]) {
        for (info, grade, words) in rows {
            let judged = judge(&ServerInfo::read(info));
            assert_eq!(judged.grade, *grade, "{info}: {}", judged.message);
            assert!(judged.message.contains(words), "{info}: {}", judged.message);
            assert_eq!(judged.hint.is_some(), *grade != Ok, "{info}");
        }
    }

    #[test]
    fn a_server_that_drops_counters_fails() {
        check(
            eviction,
            &[
                (
                    "maxmemory:0\nused_memory:1048576",
                    Ok,
                    "no maxmemory; 1 MiB used",
                ),
                (
                    "maxmemory:0\nused_memory:900\nused_memory_rss:900\ntotal_system_memory:1000",
                    Warning,
                    "90 % of the machine's",
                ),
                (
                    "maxmemory:104857600\nused_memory:1048576\nmaxmemory_policy:noeviction",
                    Ok,
                    "noeviction; 1 % of 100 MiB used",
                ),
                (
                    "maxmemory:100\nused_memory:79\nmaxmemory_policy:noeviction",
                    Ok,
                    "79 %",
                ),
                (
                    "maxmemory:100\nused_memory:80\nmaxmemory_policy:noeviction",
                    Warning,
                    "on_store_error",
                ),
                (
                    "maxmemory:100\nused_memory:1\nmaxmemory_policy:allkeys-lru",
                    Failure,
                    "allkeys-lru drops counters",
                ),
                (
                    "maxmemory:100\nused_memory:1\nmaxmemory_policy:volatile-ttl",
                    Failure,
                    "volatile-ttl drops counters",
                ),
                ("", Warning, "does not report"),
            ],
        );
    }

    #[test]
    fn data_lost_by_a_restart_is_reported() {
        let saves = |snapshots: Option<&str>, fsync: Option<&str>| Saves {
            snapshots: snapshots.map(str::to_owned),
            fsync: fsync.map(str::to_owned),
        };
        let on = "aof_enabled:1";
        for (info, saves, grade, words) in [
            (on, saves(Some(""), Some("everysec")), Ok, "about a second"),
            (on, saves(None, None), Ok, "about a second"),
            (on, saves(None, Some("always")), Ok, "nothing"),
            (on, saves(None, Some("no")), Ok, "had not written"),
            ("aof_enabled:0", saves(Some("3600 1"), None), Ok, "(3600 1)"),
            (
                "aof_enabled:0",
                saves(Some(""), None),
                Warning,
                "every counter",
            ),
            (
                "aof_enabled:0",
                saves(None, None),
                Warning,
                "does not report",
            ),
            (
                "rdb_last_bgsave_status:err",
                saves(None, None),
                Failure,
                "disk",
            ),
        ] {
            check(|info| persistence(info, &saves), &[(info, grade, words)]);
        }
    }

    #[test]
    fn replicas_are_judged_by_their_lag() {
        check(
            replicas,
            &[
                ("role:master\nconnected_slaves:0", Ok, "none"),
                (
                    "role:master\nconnected_slaves:2\n\
                     slave0:ip=h,port=1,state=online,offset=9,lag=0\n\
                     slave1:ip=h,port=2,state=online,offset=9,lag=1",
                    Ok,
                    "2, at most 1 s behind",
                ),
                (
                    "connected_slaves:1\nslave0:ip=h,port=1,state=online,offset=9,lag=7",
                    Warning,
                    "7 s behind",
                ),
                (
                    "connected_slaves:1\nslave0:ip=h,port=1,state=wait_bgsave,offset=0,lag=0",
                    Warning,
                    "wait_bgsave",
                ),
                (
                    "role:slave\nmaster_host:10.0.0.1\nmaster_port:6379",
                    Failure,
                    "replica of 10.0.0.1:6379",
                ),
            ],
        );
    }
}
