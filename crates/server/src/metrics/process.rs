//! Process: metrics of the service beside its decisions: doors, tasks, the log.

use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use ratekeeper_core::Time;

use super::family::{counter, gauge, level, put, put_gauge, put_total};
use super::{Counter, LogGate};
use crate::body_budget::BodyBudget;
use crate::tls::ListenerTls;
use crate::{Door, LogWriter};

const DOORS: [&str; 4] = ["http", "grpc", "admin", "proxy"];
/// Failures of the upstream of the proxy listener.
const UPSTREAM_ERRORS: [&str; 8] = [
    "refused",
    "tls",
    "connect_timeout",
    "broken",
    "response_timeout",
    "switched",
    "body_broken",
    "body_timeout",
];

/// Connections of a door, or of two.
#[derive(Debug, Default)]
pub(crate) struct ConnectionCounts {
    pub(crate) open: Counter,
    /// Closed to make room for others.
    pub(crate) closed: Counter,
    /// Closed at once, because there was no room.
    pub(crate) refused: Counter,
}

/// Counts of the process.
#[derive(Debug, Default)]
pub(crate) struct Process {
    /// The writer of the log, if it drops lines rather than wait.
    pub(crate) log: OnceLock<LogWriter>,
    /// Counts of the doors http, proxy and grpc together.
    pub(crate) callers: Arc<ConnectionCounts>,
    pub(crate) admin: Arc<ConnectionCounts>,
    pub(crate) bodies: OnceLock<Arc<BodyBudget>>,
    /// Counts by door.
    accept_failures: [Counter; DOORS.len()],
    accept_log: LogGate,
    upstream_tls_log: LogGate,
    /// Listeners with certificates.
    pub(crate) tls: OnceLock<Vec<Arc<ListenerTls>>>,
    upstream_errors: [Counter; UPSTREAM_ERRORS.len()],
    task_failures: Counter,
    wall_clock_jumps: Counter,
}

impl Process {
    /// Counts a connection that could not be accepted; at most one line a second reports it.
    pub(crate) fn accept_failed(&self, door: Door, error: &io::Error, now: Time) {
        self.accept_failures[index(door)].add(1);
        if let Some(suppressed) = self.accept_log.opens(now) {
            tracing::warn!(event = "accept.failed", %door, %error, suppressed);
        }
    }

    /// Counts a failure of an upstream, by a word of [`UPSTREAM_ERRORS`].
    #[cfg(feature = "proxy")]
    pub(crate) fn upstream_failed(&self, kind: &str) {
        let mut counts = UPSTREAM_ERRORS.iter().zip(&self.upstream_errors);
        if let Some((_, count)) = counts.find(|(known, _)| **known == kind) {
            count.add(1);
        }
    }

    /// Counts a failed TLS handshake with an upstream; at most one line a second reports it.
    #[cfg(feature = "proxy")]
    pub(crate) fn upstream_tls_failed(&self, reason: &str, now: Time) {
        self.upstream_failed("tls");
        if let Some(suppressed) = self.upstream_tls_log.opens(now) {
            tracing::warn!(event = "upstream.tls_failed", reason, suppressed);
        }
    }

    /// Counts a panic of a task that must go on.
    pub(crate) fn task_failed(&self) {
        self.task_failures.add(1);
    }

    /// Counts a jump of the wall clock.
    pub(crate) fn wall_clock_jumped(&self) {
        self.wall_clock_jumps.add(1);
    }

    pub(super) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let sides = [("callers", &self.callers), ("admin", &self.admin)];
        let help =
            "Connections of the http, proxy and grpc listeners (callers) and of the admin listener";
        let mut family = gauge(encoder, "connections", help)?;
        for (side, counts) in sides {
            put_gauge(&mut family, &[("side", side)], counts.open.count())?;
        }
        let help = "Connections closed because the maximum was reached: idle ones, new ones";
        let mut family = counter(encoder, "connections_closed", help)?;
        for (side, counts) in sides {
            for (which, count) in [("idle", &counts.closed), ("new", &counts.refused)] {
                put(
                    &mut family,
                    &[("side", side), ("which", which)],
                    count.count(),
                )?;
            }
        }
        let help = "Bytes of requests that are held until the rest has arrived";
        let bodies = gauge(encoder, "held_body_bytes", help)?;
        let body_bytes = self.bodies.get().map_or(0, |bodies| bodies.bytes());
        level(body_bytes as u64).encode(bodies)?;
        let help = "Connections that the system failed to accept";
        let mut family = counter(encoder, "accept_failures", help)?;
        for (door, count) in DOORS.iter().zip(&self.accept_failures) {
            put(&mut family, &[("door", *door)], count.count())?;
        }
        let help = "Requests of the proxy listener that failed at the upstream";
        let mut family = counter(encoder, "upstream_errors", help)?;
        for (kind, count) in UPSTREAM_ERRORS.iter().zip(&self.upstream_errors) {
            put(&mut family, &[("kind", *kind)], count.count())?;
        }
        self.encode_tls(encoder)?;
        let help = "Tasks of the service restarted after a panic";
        put_total(encoder, "task_failures", help, self.task_failures.count())?;
        let help = "Number of times that the wall clock was set by more than 2 s";
        put_total(
            encoder,
            "wall_clock_jumps",
            help,
            self.wall_clock_jumps.count(),
        )?;
        let help = "Log lines lost because they were not read or could not be written";
        let dropped = self.log.get().map_or(0, LogWriter::dropped);
        put_total(encoder, "log_lines_dropped", help, dropped)
    }
}

impl Process {
    fn encode_tls(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Some(listeners) = self.tls.get().filter(|tls| !tls.is_empty()) else {
            return Ok(());
        };
        let help = "Seconds since 1970 at which a certificate expires, by its place in the policy";
        let mut family = gauge(encoder, "certificate_expiry_timestamp_seconds", help)?;
        for tls in listeners {
            for (place, expiry) in (1..).zip(tls.expiries()) {
                let labels = [
                    ("door", DOORS[index(tls.door)]),
                    ("certificate", &*place.to_string()),
                ];
                if let Some(expiry) = expiry {
                    put_gauge(&mut family, &labels, expiry)?;
                }
            }
        }
        let help = "Changed certificate files, by whether they are in use now";
        let mut family = counter(encoder, "certificate_reloads", help)?;
        for tls in listeners {
            for (result, count) in ["applied", "rejected"].iter().zip(&tls.reloads) {
                let labels = [("door", DOORS[index(tls.door)]), ("result", *result)];
                put(&mut family, &labels, count.count())?;
            }
        }
        let help = "TLS handshakes of clients that failed or took too long";
        let mut family = counter(encoder, "tls_handshake_failures", help)?;
        for tls in listeners {
            let labels = [("door", DOORS[index(tls.door)])];
            put(&mut family, &labels, tls.failed_handshakes.count())?;
        }
        Ok(())
    }
}

const fn index(door: Door) -> usize {
    match door {
        Door::Http => 0,
        Door::Grpc => 1,
        Door::Admin => 2,
        Door::Proxy => 3,
    }
}
