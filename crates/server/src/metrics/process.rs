//! Process: what keeps the service going, beside its decisions: doors, tasks, the log.

use std::fmt;
use std::io;
use std::sync::OnceLock;

use prometheus_client::encoding::DescriptorEncoder;
use ratekeeper_core::Time;

use super::family::{counter, put, put_total};
use super::{Counter, LogGate};
use crate::{Door, LogWriter};

const DOORS: [&str; 3] = ["http", "grpc", "admin"];

/// Counts of the process.
#[derive(Debug, Default)]
pub(crate) struct Process {
    /// Where the log goes, if that drops lines rather than wait.
    pub(crate) log: OnceLock<LogWriter>,
    /// By door.
    accept_failures: [Counter; DOORS.len()],
    accept_log: LogGate,
    task_failures: Counter,
}

impl Process {
    /// A connection could not be accepted; one line a second says so.
    pub(crate) fn accept_failed(&self, door: Door, error: &io::Error, now: Time) {
        self.accept_failures[index(door)].add(1);
        if let Some(suppressed) = self.accept_log.opens(now) {
            tracing::warn!(event = "accept.failed", %door, %error, suppressed);
        }
    }

    /// A task that must go on has panicked.
    pub(crate) fn task_failed(&self) {
        self.task_failures.add(1);
    }

    pub(super) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Connections that the system did not hand over";
        let mut family = counter(encoder, "accept_failures", help)?;
        for (door, count) in DOORS.iter().zip(&self.accept_failures) {
            put(&mut family, &[("door", *door)], count.count())?;
        }
        let help = "Tasks of the service begun again after a panic";
        put_total(encoder, "task_failures", help, self.task_failures.count())?;
        let help = "Lines of the log lost: they were not read, or could not be written";
        let dropped = self.log.get().map_or(0, LogWriter::dropped);
        put_total(encoder, "log_lines_dropped", help, dropped)
    }
}

const fn index(door: Door) -> usize {
    match door {
        Door::Http => 0,
        Door::Grpc => 1,
        Door::Admin => 2,
    }
}
