//! Session: the files of a log, read once or several times, with progress on a terminal.

use std::io::{IsTerminal as _, stderr};
use std::path::{Path, PathBuf};

use clap::Args;
use jiff::tz::TimeZone;
use ratekeeper::{Clock as _, SystemClock};
use ratekeeper_core::{Nanos, Time};
use ratekeeper_policy::Policy;
use ratekeeper_replay::report::ReplayReport;
use ratekeeper_replay::{LogError, LogFormat, LogOptions, Record, Replay, RequestLog};

use crate::{Failure, Output, Result, words};

/// How a log is read.
#[derive(Args)]
pub(crate) struct LogArgs {
    /// Format of the lines: common, combined, caddy, haproxy, envoy, json, a format string of
    /// nginx, Apache, HAProxy or Envoy, or 'json time=FIELD client=FIELD path=FIELD' [default: found from the first lines]
    #[arg(long, value_name = "FORMAT")]
    format: Option<LogFormat>,
    /// Zone of times without an offset, and of the times in the report
    #[arg(long, value_name = "ZONE", default_value = "UTC", value_parser = zone)]
    zone: TimeZone,
    /// Time by which a line may come late and is put in order
    #[arg(long, value_name = "DURATION", default_value = "60s")]
    reorder: Nanos,
    /// Maximum memory of counters, clients and waiting lines; beyond it, the command stops
    #[arg(long, value_name = "BYTES", default_value = "1GiB", value_parser = words::bytes)]
    memory: usize,
}

fn zone(name: &str) -> Result<TimeZone, String> {
    words::zone(name).ok_or_else(|| "expected a time zone such as Europe/Oslo or UTC".into())
}

/// A log that can be read again, unless it is standard input.
pub(crate) struct LogSession<'a> {
    pub(crate) paths: &'a [PathBuf],
    pub(crate) args: &'a LogArgs,
}

impl LogSession<'_> {
    /// Returns true if the log can be read again.
    pub(crate) fn is_repeatable(&self) -> bool {
        self.paths.iter().all(|path| path.is_file())
    }

    /// Reads the log, and calls `each` with its requests in order.
    pub(crate) fn read(
        &self,
        policies: impl IntoIterator<Item = Policy>,
        output: &mut Output,
        mut each: impl FnMut(&mut [Replay], &Record),
    ) -> Result<(RequestLog, Vec<Replay>)> {
        /// Requests between two looks at the clock and the memory.
        const STRIDE: u64 = 1 << 14;
        let policies: Vec<Policy> = policies.into_iter().collect();
        let bytes = self.args.memory / policies.len().max(1);
        let new = |policy| Replay::new(policy, bytes);
        let mut replays: Vec<Replay> = policies.into_iter().map(new).collect();
        let options = LogOptions {
            format: self.args.format.clone(),
            zone: self.args.zone.clone(),
            reorder: self.args.reorder,
            waiting_bytes: self.args.memory / 4,
        };
        let log = RequestLog::open(self.paths, &options);
        let mut log = log.map_err(|error| self.failure(&error))?;
        let mut progress = Progress::new(self.paths);
        let mut requests = 0_u64;
        while let Some(record) = log.next() {
            let record = record.map_err(|error| {
                progress.clear(output);
                let failure = self.failure(&error);
                let rest = log.lines() - requests - log.skipped();
                let message = format!(
                    "{} after {} + {} not decided",
                    failure.message,
                    line_counts(&log, requests),
                    words::count(rest)
                );
                Failure { message, ..failure }
            })?;
            each(&mut replays, &record);
            requests += 1;
            if requests.is_multiple_of(STRIDE) {
                progress.show(&log, output);
                self.check_memory(&replays)?;
            }
        }
        progress.clear(output);
        self.check_memory(&replays)?;
        if log.lines() != requests + log.skipped() {
            let counts = line_counts(&log, requests);
            return Err(Failure::new(format!("{counts}: please report this defect")));
        }
        if let (0, [first, ..]) = (requests, &*replays) {
            let report = self.report(&log, first);
            let mut failure =
                Failure::new(format!("no line is a request: {}", line_counts(&log, 0)));
            if let Some(line) = report.skipped_lines.first() {
                failure = failure.hint(format!(
                    "line {} of {} is {}: {}; name another --format",
                    line.line, line.path, line.reason, line.text
                ));
            }
            return Err(failure);
        }
        Ok((log, replays))
    }

    /// Reads the log by one policy.
    pub(crate) fn report_of(&self, policy: Policy, output: &mut Output) -> Result<ReplayReport> {
        let (log, replays) = self.read([policy], output, decide)?;
        Ok(self.report(&log, &replays[0]))
    }

    pub(crate) fn report(&self, log: &RequestLog, replay: &Replay) -> ReplayReport {
        ReplayReport::new(log, replay, &self.args.zone)
    }

    fn check_memory(&self, replays: &[Replay]) -> Result<()> {
        let used: usize = replays.iter().map(Replay::bytes).sum();
        if used <= self.args.memory / 4 * 3 && replays.iter().all(|replay| replay.evictions() == 0)
        {
            return Ok(());
        }
        Err(self.out_of_memory("the counters and clients of this log do not fit"))
    }

    fn out_of_memory(&self, what: &str) -> Failure {
        let most = words::size(self.args.memory as u64);
        Failure::new(format!("{what} into {most}"))
            .hint("give more, for example --memory 4GiB, or name a part of the log")
    }

    fn failure(&self, error: &LogError) -> Failure {
        let failure = Failure::new(error);
        match error {
            LogError::UnknownFormat { .. } => failure.hint(
                "name the format, with a variable for each word in front of the address: \
                 --format '$host $remote_addr - - [$time_local] \"$request\" $status $rest', or for \
                 JSON lines --format 'json time=FIELD client=FIELD path=FIELD'",
            ),
            LogError::Waiting(_) => {
                self.out_of_memory("the lines that wait to be put in order do not fit")
                    .hint("lower --reorder, or give more, for example --memory 4GiB")
            }
            LogError::File { path, .. } if path == Path::new("-") => failure,
            LogError::File { .. } => failure.hint("name files of an access log, or - for standard input"),
            _ => failure,
        }
    }
}

/// Decides the request by each policy.
pub(crate) fn decide(replays: &mut [Replay], record: &Record) {
    Replay::decide_each(replays, record, |_, _| {});
}

/// Returns `3 lines = 2 decided + 1 skipped`.
pub(crate) fn line_counts(log: &RequestLog, decided: u64) -> String {
    counted_lines(log.lines(), decided, log.skipped())
}

pub(crate) fn counted_lines(lines: u64, decided: u64, skipped: u64) -> String {
    format!(
        "{} lines = {} decided + {} skipped",
        words::count(lines),
        words::count(decided),
        words::count(skipped)
    )
}

/// A line on the terminal that shows how much of a log is read.
struct Progress {
    clock: SystemClock,
    begun: Time,
    shown: Time,
    /// Bytes of the files.
    bytes: u64,
    is_on: bool,
}

impl Progress {
    fn new(paths: &[PathBuf]) -> Self {
        let clock = SystemClock::new();
        let now = clock.now();
        let sizes = paths.iter().filter_map(|path| std::fs::metadata(path).ok());
        Self {
            clock,
            begun: now,
            shown: now,
            bytes: sizes.map(|file| file.len()).sum(),
            is_on: stderr().is_terminal(),
        }
    }

    fn show(&mut self, log: &RequestLog, output: &mut Output) {
        let now = self.clock.now();
        if !self.is_on || now.since(self.shown) < Nanos::from_secs(1) {
            return;
        }
        self.shown = now;
        let spent = now.since(self.begun).as_secs_f64();
        let rate = words::count((log.lines() as f64 / spent) as u64);
        let rest = self.bytes.saturating_sub(log.bytes()) as f64;
        let left = if rest > 0.0 {
            let left = spent * rest / log.bytes().max(1) as f64;
            format!(", about {} s left", words::count(left.ceil() as u64))
        } else {
            String::new()
        };
        output.transient(&format!(
            "{} lines, {rate} a second{left}",
            words::count(log.lines())
        ));
    }

    fn clear(&self, output: &mut Output) {
        if self.shown > self.begun {
            output.transient("");
        }
    }
}
