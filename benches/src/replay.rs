//! Replay: lines of an access log read and decided a second, by one limit by address.
//!
//! ```text
//!   sample log --repeated, its times moved on--> a log of millions of lines --replay--> report
//! ```
//!
//! `-- replay [--quick] [--log SAMPLE]..`; without a sample, lines of both common formats are
//! made up. The library reads the file by a thread of its own, so wall time is what a user waits
//! for, and CPU time is that of both threads.

#![expect(clippy::disallowed_methods, reason = "benches read the clock")]
#![expect(clippy::cast_precision_loss, reason = "figures for people")]

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::fmt::strtime;
use jiff::{Timestamp, Zoned, tz::TimeZone};
use ratekeeper::policy::config::{Context, parse};
use ratekeeper_replay::{LogOptions, ORIGIN, Replay, RequestLog};
use rustix::time::{ClockId, clock_gettime};

use crate::{Effort, report};

const POLICY: &str = "version = 1\n[[limit]]\nname = \"per-ip\"\nkey = [\"ip\"]\nlimit = \"30/1m\"";
/// Bytes of counters.
const MEMORY: usize = 256 << 20;
/// Form of the times in a sample.
const COMMON_TIME: &str = "%d/%b/%Y:%H:%M:%S %z";

/// A line of a sample, parted at its time.
struct SampleLine {
    before: String,
    at: Zoned,
    after: String,
}

/// Form in which the lines are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Text,
    Gzip,
    Json,
}

pub(crate) fn run(effort: Effort, samples: &[PathBuf]) {
    let lines = u64::from(effort.keys) * 10;
    let directory = tempfile::tempdir().expect("a directory");
    let mut texts: Vec<(String, String)> = Vec::new();
    for path in samples {
        let text = std::fs::read_to_string(path).expect("a sample log");
        texts.push((path.display().to_string(), text));
    }
    if texts.is_empty() {
        texts.push(("common".into(), made_up("")));
        texts.push(("combined".into(), made_up(" \"-\" \"Mozilla/5.0 (X11)\"")));
    }
    report::line(&format!(
        "\n{:<40} {:>10} {:>6} {:>12} {:>12} {:>9}",
        "one limit by address", "lines", "bytes", "lines/s", "lines/s CPU", "counters"
    ));
    for form in [Form::Text, Form::Gzip, Form::Json] {
        for (name, text) in &texts {
            let lines = if form == Form::Text { lines } else { lines / 5 };
            let sample: Vec<SampleLine> = text.lines().filter_map(SampleLine::read).collect();
            let path = directory.path().join("access.log");
            write(&sample, form, lines, &path).expect("the log is written");
            let name = Path::new(name).file_name().unwrap_or_default();
            let name = format!("{form:?} {}", name.display());
            row(&name, &path, effort.rounds.div_ceil(12), lines);
        }
    }
}

/// Returns 25,000 lines of 2,000 clients, the first of which are the busiest.
fn made_up(end: &str) -> String {
    let mut text = String::new();
    for number in 0..25_000_u64 {
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let client = mixed % 2_000 * (mixed >> 11) % 2_000;
        let (second, minute) = (number / 4 % 60, number / 240 % 60);
        let _ = writeln!(
            text,
            "10.0.{}.{} - - [01/Aug/1995:{:02}:{minute:02}:{second:02} +0000] \
             \"GET /shuttle/missions/{}.html HTTP/1.0\" 200 {}{end}",
            client / 250,
            client % 250,
            number / 14_400,
            mixed % 300,
            mixed % 10_000,
        );
    }
    text
}

impl SampleLine {
    fn read(line: &str) -> Option<Self> {
        let (before, rest) = line.split_once('[')?;
        let (time, after) = rest.split_once(']')?;
        Some(Self {
            before: before.into(),
            at: Zoned::strptime(COMMON_TIME, time).ok()?,
            after: after.into(),
        })
    }

    /// Appends the line at a later time.
    fn write(&self, form: Form, seconds: i64, into: &mut String) {
        let at = self.at.timestamp().as_second() + seconds;
        let at = Timestamp::from_second(at).expect("a time of this millennium");
        if form == Form::Json {
            let mut parts = self.after.split(['"', ' ']).skip(2);
            let mut part = || parts.next().unwrap_or_default().replace('\\', "");
            let client = self.before.split(' ').next().unwrap_or_default();
            let (method, path) = (part(), part());
            let _ = writeln!(
                into,
                "{{\"time\":\"{at}\",\"remote_addr\":\"{client}\",\"method\":\"{method}\",\
                 \"path\":\"{path}\",\"status\":200,\"bytes\":512}}"
            );
            return;
        }
        let zone = TimeZone::fixed(self.at.offset());
        let at = strtime::format(COMMON_TIME, &at.to_zoned(zone)).expect("a time");
        let _ = writeln!(into, "{}[{at}]{}", self.before, self.after);
    }
}

fn write(sample: &[SampleLine], form: Form, lines: u64, path: &Path) -> std::io::Result<()> {
    let ends = [sample.first(), sample.last()].map(|line| {
        let line = line.expect("a sample has lines");
        line.at.timestamp().as_second()
    });
    let span = ends[1] - ends[0] + 1;
    let file = BufWriter::new(File::create(path)?);
    let mut file: Box<dyn std::io::Write> = match form {
        Form::Gzip => Box::new(GzEncoder::new(file, Compression::fast())),
        Form::Text | Form::Json => Box::new(file),
    };
    let (mut written, mut copies) = (0, 0);
    let mut text = String::new();
    while written < lines {
        text.clear();
        for line in sample
            .iter()
            .take(usize::try_from(lines - written).unwrap_or(usize::MAX))
        {
            line.write(form, copies * span, &mut text);
            written += 1;
        }
        copies += 1;
        file.write_all(text.as_bytes())?;
    }
    file.flush()
}

fn process_nanos() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Prints the fastest of some rounds, by wall time and by CPU time.
fn row(name: &str, path: &Path, rounds: usize, lines: u64) {
    let bytes = std::fs::metadata(path).map_or(0, |file| file.len());
    let (mut wall, mut cpu, mut counters) = (f64::MAX, f64::MAX, 0);
    for _ in 0..rounds {
        let policy = parse(POLICY, Context::from(ORIGIN))
            .expect("a policy")
            .policy;
        let (begun, spent) = (Instant::now(), process_nanos());
        let mut replay = Replay::new(policy, MEMORY);
        let paths = [path.to_owned()];
        let log = RequestLog::open(&paths, &LogOptions::default()).expect("a log");
        for record in log {
            replay.decide(&record.expect("a line"));
        }
        wall = wall.min(begun.elapsed().as_secs_f64());
        cpu = cpu.min((process_nanos() - spent) / 1e9);
        assert_eq!(replay.decided(), lines, "no line is skipped");
        assert_eq!(replay.evictions(), 0, "no counter is forgotten");
        counters = replay.bytes();
    }
    report::line(&format!(
        "{name:<40} {lines:>10} {:>6.0} {:>12.0} {:>12.0} {counters:>9}",
        bytes as f64 / lines as f64,
        lines as f64 / wall,
        lines as f64 / cpu,
    ));
}
