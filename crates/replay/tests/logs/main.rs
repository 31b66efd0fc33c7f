//! Logs of each format, odd and broken ones, and policies that decide them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bytes;
mod decisions;
mod formats;
mod odd;
mod order;
mod reference;

use std::path::PathBuf;

use ratekeeper_policy::config::{Context, parse};
use ratekeeper_replay::report::ReplayReport;
use ratekeeper_replay::{LogError, LogFormat, LogOptions, ORIGIN, Record, Replay, RequestLog};

/// Returns a record in words: time, client, method, path, query, host, status, duration in ms.
pub(crate) fn words(record: &Record) -> String {
    let (path, query) = record.path_and_query();
    format!(
        "{} {} {} {path}?{query} {} {} {}",
        record.at() / 1_000_000,
        record.client(),
        record.method(),
        record.host(),
        record.status().unwrap_or(0),
        record.duration().unwrap_or(0) / 1_000_000,
    )
}

pub(crate) fn policy(limits: &str) -> Replay {
    let text = format!("version = 1\n{limits}");
    let loaded = parse(&text, Context::from(ORIGIN)).unwrap();
    Replay::new(loaded.policy, 64 << 20)
}

/// Decides the files; returns the report, and each record in words with `+` if it was allowed.
pub(crate) fn replay(
    paths: &[PathBuf],
    options: &LogOptions,
    limits: &str,
) -> Result<(ReplayReport, Vec<String>), LogError> {
    let mut log = RequestLog::open(paths, options)?;
    let mut replay = policy(limits);
    let mut records = Vec::new();
    for record in log.by_ref() {
        let record = record?;
        let sign = if replay.decide(&record).allowed() {
            '+'
        } else {
            '-'
        };
        records.push(format!("{sign} {}", words(&record)));
    }
    Ok((ReplayReport::new(&log, &replay, &options.zone), records))
}

/// A limit that refuses nothing here.
pub(crate) const LAX: &str = "[[limit]]\nname = 'lax'\nkey = ['all']\nlimit = '1000000/1s'";

/// Decides a log of this content by a limit that refuses nothing.
pub(crate) fn read(
    content: &[u8],
    options: &LogOptions,
) -> Result<(ReplayReport, Vec<String>), LogError> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("access.log");
    std::fs::write(&path, content).unwrap();
    replay(&[path], options, LAX)
}

pub(crate) fn with_format(format: &str) -> LogOptions {
    LogOptions {
        format: Some(format.parse::<LogFormat>().unwrap()),
        ..LogOptions::default()
    }
}

/// A line of the common log format.
pub(crate) fn line(second: u32, client: u32) -> String {
    format!("192.0.2.{client} - - [22/Jan/2019:00:26:{second:02} +0000] \"GET / HTTP/1.1\" 200 5\n")
}

pub(crate) fn gzip(text: &str) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, text.as_bytes()).unwrap();
    packed.finish().unwrap()
}

pub(crate) fn zstd(text: &str) -> Vec<u8> {
    let level = ruzstd::encoding::CompressionLevel::Fastest;
    ruzstd::encoding::compress_to_vec(text.as_bytes(), level)
}
