//! Events: the user's own sequence against one limit, a line in and a line out.
//!
//! ```text
//!   {"at_us": 0, "op": "check"}   -->  {"line":1,"verdict":"allow","remaining":9, ..}
//!   {"at_us": 5, "op": "sit"}     -->  {"line":2,"error":"there is no op `sit`"}
//! ```
//!
//! A line that is wrong changes nothing; the lines after it are still answered.

use std::collections::HashMap;
use std::io::{self, BufRead, Read};

use ratekeeper_core::{Decision, Nanos, Origin, Permits, Time, Verdict};
use ratekeeper_lab::{Bench, KeyId};
use serde_json::{Map, Value, json};

use super::subject::{self, Subject};
use crate::{Failure, Output, words};

/// Bytes of one line; the longest is a limit in words and a key.
const MAX_LINE: usize = 16 << 10;
/// Bytes of a key.
const MAX_KEY: usize = 1_000;
/// Keys of one sequence; a state of the largest kind has 80,000 bytes.
const MAX_KEYS: usize = 10_000;
/// The fields of an event.
const FIELDS: [&str; 6] = ["at_us", "op", "cost", "max_wait_us", "key", "limit"];
/// What an event may ask for.
const OPS: [&str; 6] = ["check", "peek", "reserve", "refund", "reset", "set"];

/// Answers every line of `input`; says how many lines there were, and how many were wrong.
pub(crate) fn answer(
    input: impl BufRead,
    subject: Subject,
    origin: Origin,
    output: &mut Output,
) -> Result<Tally, Failure> {
    let mut desk = Desk {
        bench: Bench::new(subject.algorithm),
        keys: HashMap::new(),
        origin,
    };
    let mut tally = Tally::default();
    let mut lines = Lines::new(input);
    while let Some(line) = lines.next()? {
        tally.lines += 1;
        let text = match &line {
            Ok(text) if text.trim().is_empty() => continue,
            Ok(text) => desk.answer(text),
            Err(error) => Err(error.clone()),
        };
        let mut answer = text.unwrap_or_else(|error| {
            tally.wrong += 1;
            json!({ "error": error })
        });
        answer["line"] = tally.lines.into();
        output.json(&answer)?;
    }
    Ok(tally)
}

/// Lines, and those that were wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) lines: usize,
    pub(crate) wrong: usize,
}

struct Desk {
    bench: Bench,
    keys: HashMap<String, KeyId>,
    origin: Origin,
}

/// An event, read.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Event {
    at: Time,
    op: &'static str,
    cost: Permits,
    max_wait: Nanos,
    key: String,
    limit: Option<String>,
}

impl Desk {
    fn answer(&mut self, line: &str) -> Result<Value, String> {
        let event = Event::read(line)?;
        let limit = match (event.op, &event.limit) {
            ("set", Some(words)) => {
                let subject = subject::in_words(words, None, self.origin).map_err(sentence)?;
                Some(subject)
            }
            ("set", None) => return Err("`set` needs a `limit`, as in \"100/1m\"".into()),
            (op, Some(_)) => return Err(format!("`limit` belongs to `set`, not to `{op}`")),
            (_, None) => None,
        };
        let key = self.key(&event.key)?;
        let Event { at, cost, .. } = event;
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
                .ok_or_else(|| format!("a {name} cannot promise a later moment: use `check`"))?,
            ("refund", _) => self
                .bench
                .refund(key, at, cost)
                .ok_or_else(|| format!("a {name} cannot take back a charge"))?,
            ("reset", _) => {
                self.bench.reset(key);
                self.bench.look(key, at, Permits::ZERO)
            }
            _ => self.bench.decide(key, at, cost),
        };
        Ok(document(&event, &decision))
    }

    fn key(&mut self, key: &str) -> Result<KeyId, String> {
        if let Some(&id) = self.keys.get(key) {
            return Ok(id);
        }
        let id = self.keys.len();
        if id >= MAX_KEYS {
            return Err(format!(
                "there are {} keys already; no more are kept",
                words::count(MAX_KEYS as u64)
            ));
        }
        self.keys.insert(key.to_owned(), id);
        Ok(id)
    }
}

impl Event {
    fn read(line: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(line).map_err(|why| format!("not JSON: {why}"))?;
        let Value::Object(fields) = value else {
            return Err("not an object, as in {\"at_us\": 0, \"op\": \"check\"}".into());
        };
        if let Some(stray) = fields.keys().find(|name| !FIELDS.contains(&name.as_str())) {
            let near = words::near(stray, FIELDS.into_iter());
            let hint = near.map_or(String::new(), |near| format!(": did you mean `{near}`?"));
            return Err(format!("there is no field `{}`{hint}", short(stray)));
        }
        let op = text(&fields, "op")?.unwrap_or("check");
        let Some(op) = OPS.into_iter().find(|known| *known == op) else {
            return Err(format!(
                "there is no op `{}`; write {}",
                short(op),
                OPS.join(", ")
            ));
        };
        let usual = u64::from(op != "peek");
        let at = number(&fields, "at_us", MAX_MICROS)?.ok_or("`at_us` is missing")?;
        let cost = number(&fields, "cost", u32::MAX.into())?.unwrap_or(usual);
        let wait = number(&fields, "max_wait_us", MAX_MICROS)?;
        if wait.is_some() && op != "reserve" {
            return Err(format!("`max_wait_us` belongs to `reserve`, not to `{op}`"));
        }
        let key = text(&fields, "key")?.unwrap_or_default();
        if key.len() > MAX_KEY {
            return Err(format!("a key has at most {MAX_KEY} bytes"));
        }
        Ok(Self {
            at: Time::ZERO + Nanos::from_micros(at),
            op,
            cost: Permits::saturating_from(cost),
            max_wait: Nanos::from_micros(wait.unwrap_or(0)),
            key: key.to_owned(),
            limit: text(&fields, "limit")?.map(str::to_owned),
        })
    }
}

/// Microseconds that are still counted exactly, 584 years.
const MAX_MICROS: u64 = u64::MAX / 1_000;

fn number(fields: &Map<String, Value>, name: &str, most: u64) -> Result<Option<u64>, String> {
    let Some(value) = fields.get(name) else {
        return Ok(None);
    };
    match value.as_u64().filter(|number| *number <= most) {
        Some(number) => Ok(Some(number)),
        None => Err(format!(
            "`{name}` is a whole number from 0 to {most}, not {}",
            short(&value.to_string())
        )),
    }
}

fn text<'a>(fields: &'a Map<String, Value>, name: &str) -> Result<Option<&'a str>, String> {
    let Some(value) = fields.get(name) else {
        return Ok(None);
    };
    match value.as_str() {
        Some(text) => Ok(Some(text)),
        None => Err(format!(
            "`{name}` is a string, not {}",
            short(&value.to_string())
        )),
    }
}

/// What a message quotes.
fn short(text: &str) -> String {
    const MAX_QUOTED: usize = 60;
    match text.char_indices().nth(MAX_QUOTED) {
        Some((end, _)) => format!("{}..", &text[..end]),
        None => text.to_owned(),
    }
}

fn sentence(failure: Failure) -> String {
    match failure {
        Failure::Sentence {
            message,
            hint: Some(hint),
        } => format!("{message}: {hint}"),
        Failure::Sentence { message, .. } | Failure::Findings(message) => message,
    }
}

/// Every field of a decision; times in nanoseconds, and in microseconds rounded up.
fn document(event: &Event, decision: &Decision) -> Value {
    let verdict = match decision.verdict {
        Verdict::Allow => "allow",
        Verdict::AllowAfter(_) => "allow_after",
        Verdict::Deny { .. } => "deny",
        Verdict::DenyForever => "deny_forever",
    };
    let waited = match decision.verdict {
        Verdict::AllowAfter(wait) => wait,
        _ => Nanos::ZERO,
    };
    let retry_after = decision.verdict.retry_after();
    let micros = |span: Nanos| span.as_nanos().div_ceil(1_000); // up: who waits that long has waited enough
    json!({
        "at_us": micros(event.at.since(Time::ZERO)),
        "op": event.op,
        "key": event.key,
        "cost": event.cost.get(),
        "verdict": verdict,
        "allowed": decision.verdict.allows(),
        "remaining": decision.remaining.get(),
        "retry_after_ns": retry_after.map(Nanos::as_nanos),
        "retry_after_us": retry_after.map(micros),
        "reset_after_ns": decision.reset_after.as_nanos(),
        "reset_after_us": micros(decision.reset_after),
        "waited_ns": waited.as_nanos(),
        "waited_us": micros(waited),
    })
}

/// Lines of bounded length.
struct Lines<R> {
    input: R,
    line: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    const fn new(input: R) -> Self {
        Self {
            input,
            line: Vec::new(),
        }
    }

    /// The next line, or why it cannot be used; none at the end.
    fn next(&mut self) -> Result<Option<Result<String, String>>, Failure> {
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
            return Ok(Some(Err(format!("longer than {MAX_LINE} bytes"))));
        }
        Ok(Some(match std::str::from_utf8(&self.line) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err("not UTF-8".into()),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_or_refused_with_the_reason() {
        let read = |line| Event::read(line).map(|event| (event.op, event.cost.get()));
        let rows = [
            (r#"{"at_us":0}"#, Ok(("check", 1))),
            (r#"{"at_us":0,"op":"peek"}"#, Ok(("peek", 0))),
            (r#"{"at_us":0,"op":"refund","cost":3}"#, Ok(("refund", 3))),
            ("{}", Err("`at_us` is missing")),
            (
                "[]",
                Err("not an object, as in {\"at_us\": 0, \"op\": \"check\"}"),
            ),
            (r#"{"at":0}"#, Err("there is no field `at`")),
            (
                r#"{"at_us":0,"keys":"a"}"#,
                Err("there is no field `keys`: did you mean `key`?"),
            ),
            (
                r#"{"at_us":-1}"#,
                Err("`at_us` is a whole number from 0 to 18446744073709551, not -1"),
            ),
            (r#"{"at_us":0,"op":1}"#, Err("`op` is a string, not 1")),
            (
                r#"{"at_us":0,"max_wait_us":1}"#,
                Err("`max_wait_us` belongs to `reserve`, not to `check`"),
            ),
        ];
        for (line, expected) in rows {
            assert_eq!(read(line), expected.map_err(str::to_owned), "{line}");
        }
        assert!(read("{").is_err_and(|why| why.starts_with("not JSON: ")));
    }

    #[test]
    fn lines_are_bounded() {
        let long = "x".repeat(3 * MAX_LINE);
        let fits = "y".repeat(MAX_LINE);
        let input = format!("a\n{long}\n{fits}\nb");
        let mut lines = Lines::new(input.as_bytes());
        let mut found = Vec::new();
        while let Some(line) = lines.next().expect("memory can be read") {
            found.push(line.map(|text| text.trim_end().len()).map_err(|_| ()));
        }
        assert_eq!(found, [Ok(1), Err(()), Ok(MAX_LINE), Ok(1)]);
    }
}
