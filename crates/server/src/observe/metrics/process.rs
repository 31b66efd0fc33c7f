//! Process: metrics of the service beside its decisions: doors, tasks, the log.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use http::HeaderValue;
use parking_lot::Mutex;
use ratekeeper_core::Time;
use ratekeeper_store::StoreError;
use strum::{IntoStaticStr, VariantNames};

use super::family::MetricList;
use super::{ReportResult, table};
use crate::byte_budget::ByteBudget;
use crate::counter::{Counter, LogGate};
use crate::doors::problem::{
    BROKEN_BODY, MALFORMED, ProblemKind, TOO_LARGE, TOO_SLOW, WRONG_METHOD,
};
use crate::observe::otlp::{EXPORT_RESULTS, Exporter};
use crate::observe::upstreams::WatchedUpstreams;
use crate::serve::connections::ConnectionCounts;
use crate::serve::tls::ListenerTls;
use crate::{Door, LogWriter};

/// Counts of the process.
#[derive(Debug, Default)]
pub(crate) struct Process {
    /// The writer of the log, if it drops lines rather than wait.
    pub(crate) log: OnceLock<LogWriter>,
    /// Counts of the doors http, proxy and grpc together.
    pub(crate) callers: Arc<ConnectionCounts>,
    pub(crate) admin: Arc<ConnectionCounts>,
    /// Of requests, and of responses.
    pub(crate) bodies: OnceLock<[Arc<ByteBudget>; 2]>,
    /// Counts by door.
    accept_failures: [Counter; Door::VARIANTS.len()],
    accept_log: LogGate,
    wrong_tokens: Counter,
    wrong_token_log: LogGate,
    store_log: LogGate,
    /// Listeners with certificates.
    pub(crate) tls: OnceLock<Vec<Arc<ListenerTls>>>,
    /// Requests that an application went on with after their clients had left.
    pub(crate) abandoned: Counter,
    /// Reports of results, by [`ReportResult`].
    pub(super) reports: [Counter; ReportResult::VARIANTS.len()],
    pub(crate) upstreams: WatchedUpstreams,
    /// The writer of the access log, if there is one.
    pub(crate) access_log: Mutex<Option<LogWriter>>,
    /// Lines that all writers of access logs lost.
    pub(crate) access_lines_dropped: Arc<Counter>,
    request_faults: RequestFaults,
    pub(crate) task_failures: Counter,
    pub(crate) wall_clock_jumps: Counter,
    pub(crate) otlp: OnceLock<Arc<Exporter>>,
}

impl Process {
    /// Counts a connection that could not be accepted; at most one line a second reports it.
    pub(crate) fn accept_failed(&self, door: Door, error: &io::Error, now: Time) {
        self.accept_failures[door as usize].add(1);
        if let Some(suppressed) = self.accept_log.opens(now) {
            tracing::warn!(event = "accept.failed", listener = %door, %error, suppressed);
        }
    }

    /// Counts a call with a wrong admin token; at most one line a second reports it.
    pub(crate) fn wrong_token(&self, caller: SocketAddr, now: Time) {
        self.wrong_tokens.add(1);
        if let Some(suppressed) = self.wrong_token_log.opens(now) {
            tracing::warn!(event = "admin.wrong_token", %caller, suppressed);
        }
    }

    /// Reports a call that the store could not answer; at most one line a second does.
    pub(crate) fn store_failed(&self, error: &StoreError, now: Time) {
        if let Some(suppressed) = self.store_log.opens(now) {
            tracing::warn!(event = "store.failed", %error, suppressed);
        }
    }

    /// Notes the number of charges that a response of the upstream left at their estimate.
    pub(crate) fn unsettled(&self, charges: usize) {
        if charges > 0 {
            self.reports[ReportResult::Unsettled as usize].add(charges as u64);
        }
    }

    /// Counts a fault; of each kind one line a second reports it at most.
    pub(crate) fn request_fault(&self, fault: RequestFault, id: Option<&HeaderValue>, now: Time) {
        let (count, log) = &self.request_faults[fault as usize];
        count.add(1);
        if let Some(suppressed) = log.opens(now) {
            let kind = <&str>::from(fault);
            let request_id = id.and_then(|id| id.to_str().ok());
            tracing::info!(event = "request.failed", kind, request_id, suppressed);
        }
    }

    pub(super) fn encode(&self, out: &mut MetricList) {
        let sides = [("callers", &self.callers), ("admin", &self.admin)];
        let open = sides.map(|(side, counts)| ([side], counts.open.count()));
        table::CONNECTIONS.each(out, open);
        let closed = sides.map(|(side, it)| (side, [it.closed.count(), it.refused.count()]));
        table::CONNECTIONS_CLOSED.rows(out, &["idle", "new"], closed);
        let bodies = self.bodies.get().into_iter().flatten();
        let body_bytes: usize = bodies.map(|budget| budget.bytes()).sum();
        table::HELD_BODY_BYTES.write(out, body_bytes as u64);
        table::ACCEPT_FAILURES.counters(out, Door::VARIANTS, &self.accept_failures);
        table::ADMIN_WRONG_TOKENS.write(out, self.wrong_tokens.count());
        table::UPSTREAM_ABANDONED.write(out, self.abandoned.count());
        let faults = RequestFault::VARIANTS.iter().zip(&self.request_faults);
        let faults = faults.map(|(kind, (count, _))| ([*kind], count.count()));
        table::REQUEST_FAULTS.each(out, faults);
        self.upstreams.encode(out);
        self.encode_tls(out);
        table::TASK_FAILURES.write(out, self.task_failures.count());
        table::WALL_CLOCK_JUMPS.write(out, self.wall_clock_jumps.count());
        let dropped = self.log.get().map_or(0, LogWriter::dropped);
        let of_access_log = self.access_lines_dropped.count();
        table::LOG_LINES_DROPPED.write(out, dropped + of_access_log);
        self.encode_exports(out);
    }

    fn encode_exports(&self, out: &mut MetricList) {
        if let Some(otlp) = self.otlp.get().map(|it| it.counts()) {
            table::OTLP_EXPORTS.rows(out, &EXPORT_RESULTS, otlp.by_signal());
            table::OTLP_EVENTS_DROPPED.write(out, otlp.dropped_events.count());
        }
    }

    fn encode_tls(&self, out: &mut MetricList) {
        let Some(listeners) = self.tls.get().filter(|tls| !tls.is_empty()) else {
            return;
        };
        let mut series = table::CERTIFICATE_EXPIRY.open(out);
        for tls in listeners {
            for (place, expiry) in (1..).zip(tls.certificates.expiries()) {
                if let Some(expiry) = expiry {
                    series.count(&[tls.door.into(), &place.to_string()], expiry);
                }
            }
        }
        let reloads = listeners.iter().map(|tls| {
            let counts = tls.reloads.each_ref().map(Counter::count);
            (tls.door.into(), counts)
        });
        table::CERTIFICATE_RELOADS.rows(out, &["applied", "rejected"], reloads);
        let failed = listeners.iter();
        let failed = failed.map(|tls| ([tls.door.into()], tls.failed_handshakes.count()));
        table::TLS_HANDSHAKE_FAILURES.each(out, failed);
    }
}

/// The kind of a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum RequestFault {
    Malformed,
    Method,
    HeadTooLarge,
    BodyTooLarge,
    BodyLate,
    BodyBroken,
    /// A connection without a valid PROXY header, or one of a peer that is not trusted.
    ProxyHeader,
}

/// Counts by kind, and the gates of their lines.
type RequestFaults = [(Counter, LogGate); RequestFault::VARIANTS.len()];

impl RequestFault {
    /// Returns the fault that a problem reports; `None` if the client is not at fault.
    pub(crate) fn of(problem: ProblemKind) -> Option<Self> {
        match problem {
            MALFORMED => Some(Self::Malformed),
            WRONG_METHOD => Some(Self::Method),
            TOO_LARGE => Some(Self::BodyTooLarge),
            TOO_SLOW => Some(Self::BodyLate),
            BROKEN_BODY => Some(Self::BodyBroken),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use ratekeeper_core::Nanos;
    use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

    use super::*;

    /// Counts the lines of a log.
    #[derive(Clone, Default)]
    struct Lines(Arc<AtomicUsize>);

    impl<S: tracing::Subscriber> Layer<S> for Lines {
        fn on_event(&self, _: &tracing::Event<'_>, _: Context<'_, S>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn calls_that_the_store_fails_are_one_line_a_second() {
        let (process, lines) = (Process::default(), Lines::default());
        let log = tracing_subscriber::registry().with(lines.clone());
        tracing::subscriber::with_default(log, || {
            for millis in [0, 1, 500, 999, 1_000, 1_001] {
                let now = Time::ZERO + Nanos::from_millis(millis);
                process.store_failed(&StoreError::Unavailable("away".into()), now);
            }
        });
        assert_eq!(lines.0.load(Ordering::Relaxed), 2);
    }
}
