//! Settings: the server's configuration of eviction, persistence and role, as it reports it.

use ratekeeper_store::ServerInfo;

use super::Judgement;
use crate::words;

/// Share of its memory, in percent, above which a server is nearly full.
const FULL_PERCENT: u64 = 80;

/// Judges whether the server drops limits to make room.
pub(super) fn eviction(info: &ServerInfo) -> Judgement {
    const ROOM: &str = "raise maxmemory: a token bucket's key takes about 160 bytes, others more \
         (docs/guide/redis.md); or use a dedicated server for limits";
    let (Some(most), Some(used)) = (info.number("maxmemory"), info.number("used_memory")) else {
        let hint = "let the user run INFO, or check by hand that maxmemory-policy is noeviction";
        return Judgement::warning("the server does not report its memory usage", hint);
    };
    let policy = info.text("maxmemory_policy").unwrap_or("unknown");
    if most == 0 {
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

/// Judges which data a restart loses; `snapshots` is the setting `save`, if the server reports it.
pub(super) fn persistence(info: &ServerInfo, snapshots: Option<&str>) -> Judgement {
    const ON: &str = "set `appendonly yes` to keep all but the last second; leave it off where \
         admitting each limit once more after a restart is cheap";
    if info.text("rdb_last_bgsave_status") == Some("err")
        || info.text("aof_last_write_status") == Some("err")
    {
        let message = "the server could not write to its disk: it refuses charges until it can";
        return Judgement::failure(message, "read the server's log, and free space on its disk");
    }
    if info.number("aof_enabled") == Some(1) {
        let lost = "a crash loses the charges of about a second, as `appendfsync` says";
        return Judgement::ok(format!("append-only file: {lost}"));
    }
    match snapshots {
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

/// Judges whether the server accepts charges.
pub(super) fn role(info: &ServerInfo) -> Judgement {
    if info.text("role") == Some("slave") {
        let primary = match (info.text("master_host"), info.text("master_port")) {
            (Some(host), Some(port)) => format!("{host}:{port}"),
            _ => "another server".into(),
        };
        let message = format!("the server is a replica of {primary}, and accepts no charges");
        let hint = format!("name the primary, {primary}, or an address that follows it");
        return Judgement::failure(message, hint);
    }
    Judgement::ok("the server is a primary")
}

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
        for (info, snapshots, grade, words) in [
            ("aof_enabled:1", Some(""), Ok, "about a second"),
            ("aof_enabled:1", None, Ok, "about a second"),
            ("aof_enabled:0", Some("3600 1"), Ok, "(3600 1)"),
            ("aof_enabled:0", Some(""), Warning, "every counter"),
            ("aof_enabled:0", None, Warning, "does not report"),
            ("rdb_last_bgsave_status:err", None, Failure, "disk"),
        ] {
            check(|info| persistence(info, snapshots), &[(info, grade, words)]);
        }
    }

    #[test]
    fn a_replica_is_no_store() {
        check(
            role,
            &[
                ("role:master", Ok, "a primary"),
                (
                    "role:slave\nmaster_host:10.0.0.1\nmaster_port:6379",
                    Failure,
                    "replica of 10.0.0.1:6379",
                ),
            ],
        );
    }
}
