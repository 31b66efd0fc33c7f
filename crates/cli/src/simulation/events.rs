//! Events: the user's own sequence against one limit, with one line of output per line of input.
//!
//! ```text
//!   {"at_us": 0, "op": "check"}   -->  {"line":1,"verdict":"allow","remaining":9, ..}
//!   {"at_us": 5, "op": "sit"}     -->  {"line":2,"error":"there is no op `sit`"}
//! ```
//!
//! An invalid line changes nothing; the lines after it are still answered. Answers are written in
//! blocks, and whenever no more input is available, so that a program may exchange single lines.

mod answer;

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write as _};

use foldhash::fast::RandomState;
use ratekeeper_core::{Algorithm as _, Nanos, Origin, Permits, Quota, Time};
use ratekeeper_lab::{Bench, KeyId};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::Number;

use super::subject::{self, Subject};
use crate::output::written;
use crate::{Failure, Result, words};

/// Bytes per read, and per write.
const BLOCK: usize = 64 << 10;
/// Maximum length of a line, in bytes; the longest is a limit in words and a key.
const MAX_LINE: usize = 16 << 10;
/// Maximum length of a key, in bytes.
const MAX_KEY: usize = 1_000;
/// Maximum memory of the keys of one sequence and their states: 1 GiB.
const MAX_KEYS_BYTES: usize = 1 << 30;
/// Approximate memory of a key and its state, without the heap of the state.
const KEY_BYTES: usize = 192;
const NO_OBJECT: &str = "not an object; expected for example {\"at_us\": 0, \"op\": \"check\"}";
/// Operations of an event.
const OPS: [&str; 6] = ["check", "peek", "reserve", "refund", "reset", "set"];

/// Answers every line of `input`. Returns the number of lines, and of invalid ones.
pub(crate) fn answer(input: impl Read, subject: Subject, origin: Origin) -> Result<LineTally> {
    let mut desk = EventSession {
        bench: Bench::new(subject.algorithm),
        keys: HashMap::default(),
        origin,
        zone: subject.zone,
    };
    let mut tally = LineTally::default();
    let mut lines = InputLines::new(input);
    let mut output = BufWriter::with_capacity(BLOCK, io::stdout().lock());
    let mut text = Vec::new();
    loop {
        if !lines.is_ready() {
            written(output.flush())?;
        }
        let Some(line) = lines.next()? else {
            break;
        };
        tally.lines += 1;
        text.clear();
        let answered = match line {
            Ok(text) if text.trim().is_empty() => continue,
            Ok(line) => desk.answer(line, tally.lines, &mut text),
            Err(error) => Err(error),
        };
        if let Err(error) = answered {
            tally.wrong += 1;
            answer::write_error(&error, tally.lines, &mut text);
        }
        text.push(b'\n');
        written(output.write_all(&text))?;
    }
    written(output.flush())?;
    Ok(tally)
}

/// Number of lines, and of invalid ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct LineTally {
    pub(crate) lines: usize,
    pub(crate) wrong: usize,
}

struct EventSession {
    bench: Bench,
    keys: HashMap<Box<str>, KeyId, RandomState>,
    origin: Origin,
    /// The time zone of calendar words.
    zone: String,
}

/// An event that has been read.
#[derive(Clone, PartialEq, Eq, Debug)]
struct InputEvent<'l> {
    at: Time,
    op: &'static str,
    cost: Permits,
    max_wait: Nanos,
    key: Cow<'l, str>,
    limit: Option<Cow<'l, str>>,
}

/// The fields of a well-formed event.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EventFields<'l> {
    at_us: Number,
    #[serde(default, borrow, deserialize_with = "given")]
    op: Option<Cow<'l, str>>,
    #[serde(default, deserialize_with = "given")]
    cost: Option<Number>,
    #[serde(default, deserialize_with = "given")]
    max_wait_us: Option<Number>,
    #[serde(default, borrow, deserialize_with = "given")]
    key: Option<Cow<'l, str>>,
    #[serde(default, borrow, deserialize_with = "given")]
    limit: Option<Cow<'l, str>>,
}

/// Reads a field that is present, and not `null`.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(json: D) -> Result<Option<T>, D::Error> {
    T::deserialize(json).map(Some)
}

impl EventSession {
    /// Writes the answer to the event of one line into `out`.
    fn answer(&mut self, text: &str, line: usize, out: &mut Vec<u8>) -> Result<(), String> {
        let event = InputEvent::read(text)?;
        let limit = match (event.op, &event.limit) {
            ("set", Some(words)) => {
                let subject =
                    subject::in_words(words, None, self.origin, &self.zone).map_err(sentence)?;
                Some(subject)
            }
            ("set", None) => return Err("`set` needs a `limit`, for example \"100/1m\"".into()),
            (op, Some(_)) => return Err(format!("`limit` belongs to `set`, not to `{op}`")),
            (_, None) => None,
        };
        let key = self.key(&event.key)?;
        let (at, cost) = (event.at, event.cost);
        let name = self.bench.algorithm().name();
        let decision = match (event.op, limit) {
            (_, Some(subject)) => {
                self.bench.set(subject.algorithm, at);
                self.bench.look(key, at, Permits::ZERO)
            }
            ("peek", _) => self.bench.look(key, at, cost),
            ("reserve", _) => self
                .bench
                .reserve(key, at, cost, event.max_wait)
                .ok_or_else(|| format!("a {name} cannot promise a later time; use `check`"))?,
            ("refund", _) => self
                .bench
                .refund(key, at, cost)
                .ok_or_else(|| format!("a {name} cannot refund a charge"))?,
            ("reset", _) => {
                self.bench.reset(key);
                self.bench.look(key, at, Permits::ZERO)
            }
            _ => self.bench.decide(key, at, cost),
        };
        answer::write(&event, &decision, line, out);
        Ok(())
    }

    fn key(&mut self, key: &str) -> Result<KeyId, String> {
        if let Some(&id) = self.keys.get(key) {
            return Ok(id);
        }
        let id = self.keys.len();
        let bytes = KEY_BYTES + self.bench.algorithm().heap_bytes();
        if id >= MAX_KEYS_BYTES / bytes {
            return Err(format!(
                "the maximum of {} keys is reached, which take 1 GiB",
                words::count(id)
            ));
        }
        self.keys.insert(key.into(), id);
        Ok(id)
    }
}

impl<'l> InputEvent<'l> {
    fn read(line: &'l str) -> Result<Self, String> {
        // An array would be read as the fields in their order.
        if !line.trim_start().starts_with('{') && serde_json::from_str::<IgnoredAny>(line).is_ok() {
            return Err(NO_OBJECT.into());
        }
        let fields: EventFields<'l> = serde_json::from_str(line).map_err(|why| reason(&why))?;
        let op = fields.op.as_deref().unwrap_or("check");
        let Some(op) = OPS.into_iter().find(|known| *known == op) else {
            return Err(format!(
                "there is no op `{}`; write {}",
                short(op),
                OPS.join(", ")
            ));
        };
        if fields.max_wait_us.is_some() && op != "reserve" {
            return Err(format!("`max_wait_us` belongs to `reserve`, not to `{op}`"));
        }
        let key = fields.key.unwrap_or_default();
        if key.len() > MAX_KEY {
            return Err(format!("a key must be at most {MAX_KEY} bytes"));
        }
        let cost = fields.cost.unwrap_or(u64::from(op != "peek").into());
        let wait = fields.max_wait_us.unwrap_or(0.into());
        Ok(Self {
            at: Time::ZERO + Nanos::from_micros(within("at_us", &fields.at_us, MAX_MICROS)?),
            op,
            cost: Permits::new(within("cost", &cost, Quota::MAX_PERMITS)?),
            max_wait: Nanos::from_micros(within("max_wait_us", &wait, MAX_MICROS)?),
            key,
            limit: fields.limit,
        })
    }
}

/// Maximum number of microseconds that are counted exactly, 584 years.
const MAX_MICROS: u64 = u64::MAX / 1_000;

fn within(name: &str, number: &Number, most: u64) -> Result<u64, String> {
    let wrong = || format!("`{name}` must be a whole number from 0 to {most}, not {number}");
    let whole = number.as_u64().filter(|whole| *whole <= most);
    whole.ok_or_else(wrong)
}

/// Returns the message of an error. The message has a column only if the line is not JSON.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    if !error.is_data() {
        return format!("the line is not JSON: {text}");
    }
    let (reason, _) = text.rsplit_once(" at line ").unwrap_or((&text, ""));
    short(reason)
}

/// Shortens a text for quoting in a message.
fn short(text: &str) -> String {
    const MAX_QUOTED: usize = 160;
    match text.char_indices().nth(MAX_QUOTED) {
        Some((end, _)) => format!("{}..", &text[..end]),
        None => text.to_owned(),
    }
}

fn sentence(failure: Failure) -> String {
    match failure.hint {
        Some(hint) => format!("{}: {hint}", failure.message),
        None => failure.message,
    }
}

/// Lines of bounded length.
struct InputLines<R> {
    input: BufReader<R>,
    line: Vec<u8>,
}

impl<R: Read> InputLines<R> {
    fn new(input: R) -> Self {
        Self {
            input: BufReader::with_capacity(BLOCK, input),
            line: Vec::new(),
        }
    }

    /// Returns true if the next line can be read without waiting for input.
    fn is_ready(&self) -> bool {
        self.input.buffer().contains(&b'\n')
    }

    /// Returns the next line, or why it cannot be used; `None` at the end.
    fn next(&mut self) -> Result<Option<Result<&str, String>>> {
        let wrong = |why: io::Error| Failure::new(format!("cannot read the events: {why}"));
        self.line.clear();
        let most = MAX_LINE as u64 + 1;
        let input = self.input.by_ref();
        if input
            .take(most)
            .read_until(b'\n', &mut self.line)
            .map_err(wrong)?
            == 0
        {
            return Ok(None);
        }
        if self.line.len() > MAX_LINE && self.line.last() != Some(&b'\n') {
            self.input.skip_until(b'\n').map_err(wrong)?;
            return Ok(Some(Err(format!(
                "the line is longer than {MAX_LINE} bytes"
            ))));
        }
        Ok(Some(match std::str::from_utf8(&self.line) {
            Ok(text) => Ok(text),
            Err(_) => Err("the line is not UTF-8".into()),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_or_refused_with_the_reason() {
        let read = |line| InputEvent::read(line).map(|event| (event.op, event.cost.get()));
        let rows = [
            (r#"{"at_us":0}"#, Ok(("check", 1))),
            (r#"{"at_us":0,"op":"peek"}"#, Ok(("peek", 0))),
            (r#"{"at_us":0,"op":"refund","cost":3}"#, Ok(("refund", 3))),
            ("{}", Err("missing field `at_us`")),
            ("5", Err(NO_OBJECT)),
            ("[]", Err(NO_OBJECT)),
            ("[0]", Err(NO_OBJECT)),
            (
                r#"{"at_us":0,"keys":"a"}"#,
                Err(
                    "unknown field `keys`, expected one of `at_us`, `op`, `cost`, `max_wait_us`, `key`, `limit`",
                ),
            ),
            (
                r#"{"at_us":-1}"#,
                Err("`at_us` must be a whole number from 0 to 18446744073709551, not -1"),
            ),
            (
                r#"{"at_us":0,"cost":1.5}"#,
                Err("`cost` must be a whole number from 0 to 9007199254740991, not 1.5"),
            ),
            (
                r#"{"at_us":18446744073709552}"#,
                Err(
                    "`at_us` must be a whole number from 0 to 18446744073709551, not 18446744073709552",
                ),
            ),
            (
                r#"{"at_us":0,"op":1}"#,
                Err("invalid type: integer `1`, expected a string"),
            ),
            (
                r#"{"at_us":0,"max_wait_us":1}"#,
                Err("`max_wait_us` belongs to `reserve`, not to `check`"),
            ),
        ];
        for (line, expected) in rows {
            assert_eq!(read(line), expected.map_err(str::to_owned), "{line}");
        }
        assert!(read("{").is_err_and(|why| why.starts_with("the line is not JSON: ")));
    }

    #[test]
    fn values_out_of_bounds_are_refused() {
        for line in [
            r#"{"at_us":7,"op":"reserve","cost":3,"max_wait_us":9,"key":"a\u0041"}"#,
            r#"{"at_us":18446744073709551,"op":"peek","cost":9007199254740991}"#,
        ] {
            assert!(InputEvent::read(line).is_ok(), "{line}");
        }
        let long = format!(r#"{{"at_us":0,"key":"{}"}}"#, "k".repeat(MAX_KEY + 1));
        for line in [
            r#"{"at_us":0,"cost":9007199254740992}"#,
            r#"{"at_us":0,"cost":null}"#,
            &long,
        ] {
            assert!(InputEvent::read(line).is_err(), "{line}");
        }
    }

    #[test]
    fn lines_are_bounded() {
        let long = "x".repeat(3 * MAX_LINE);
        let fits = "y".repeat(MAX_LINE);
        let input = format!("a\n{long}\n{fits}\nb");
        let mut lines = InputLines::new(input.as_bytes());
        let mut found = Vec::new();
        while let Some(line) = lines.next().expect("memory can be read") {
            found.push(line.map(|text| text.trim_end().len()).map_err(drop));
        }
        assert_eq!(found, [Ok(1), Err(()), Ok(MAX_LINE), Ok(1)]);
    }
}
