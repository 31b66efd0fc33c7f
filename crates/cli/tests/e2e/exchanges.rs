//! The exchanges that the guide shows: each request is sent to a service in virtual time, and the
//! answer is compared with that of the page.
//!
//! ```text
//!   10 x POST /v1/check {"request": {"path": "/login"}}     ten times: method, target, body
//!   X-Original-URI: /login                                  a field of the request
//!   200 {"allowed": true, "decision": "BMDU...", ...}       status and body of the last answer
//!   Retry-After: 37                                         a field of the answer
//!   after 10m                                               the clock goes on
//! ```
//!
//! A text that ends with `...` stands for one that varies, such as an id; a request sends the text
//! that an answer had there. A bare `...` stands for further fields or items.
//!
//! The policy is that of the section, or of the last section before it that has one.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use ratekeeper_core::Nanos;
use ratekeeper_server::Door;
use serde_json::Value;

use crate::harness::in_process::InProcess;
use crate::harness::redis::Redis;
use crate::harness::visitor::{Answer, Visitor};
use crate::recipes::blocks;

/// The store that policies of the guide name.
pub(crate) const REDIS: &str = "redis://127.0.0.1:6379";
const METHODS: [&str; 4] = ["GET", "POST", "PUT", "DELETE"];
/// Paths of the http listener; all others are those of the admin listener.
const HTTP: [&str; 7] = [
    "/v1/check",
    "/v1/peek",
    "/v1/report",
    "/v1/acquire",
    "/v1/renew",
    "/v1/release",
    "/v1/auth",
];

/// Stands for further fields or items, and for the end of a text.
const MORE: &str = "...";

/// A request or an answer of the guide.
#[derive(Default)]
struct Message<'a> {
    /// Method and target, or the status.
    start: &'a str,
    fields: Vec<(&'a str, &'a str)>,
    body: String,
}

struct Exchange<'a> {
    /// Time since the exchange before.
    after: Nanos,
    count: usize,
    request: Message<'a>,
    answer: Message<'a>,
}

/// Texts of the page that vary, with what they stood for.
type Varying = BTreeMap<String, String>;

/// Reads the lines of a block.
fn exchanges(block: &str) -> Vec<Exchange<'_>> {
    let mut exchanges: Vec<Exchange<'_>> = Vec::new();
    let mut after = Nanos::ZERO;
    for line in block.lines().filter(|line| !line.is_empty()) {
        let (count, rest) = line.split_once(" x ").unwrap_or(("1", line));
        let first = rest.split(' ').next().unwrap_or_default();
        if METHODS.contains(&first) {
            let end = rest.find(" {").unwrap_or(rest.len());
            exchanges.push(Exchange {
                after: std::mem::take(&mut after),
                count: count.parse().unwrap_or_else(|_| panic!("{line}: a count")),
                request: Message::new(rest, end),
                answer: Message::default(),
            });
            continue;
        }
        if let Some(time) = line.strip_prefix("after ") {
            after = time.parse().expect("a duration");
            continue;
        }
        let last = exchanges.last_mut();
        let last = last.unwrap_or_else(|| panic!("{line}: a block begins with a request"));
        if line.starts_with(|letter: char| letter.is_ascii_digit()) {
            assert_eq!(last.answer.start, "", "{line}: a second answer");
            last.answer = Message::new(line, 3);
            continue;
        }
        let message = match last.answer.start {
            "" => &mut last.request,
            _ => &mut last.answer,
        };
        match line.split_once(": ") {
            Some((name, value)) if line.starts_with(|letter: char| letter.is_alphabetic()) => {
                message.fields.push((name, value));
            }
            _ => message.body += line,
        }
    }
    exchanges
}

impl<'a> Message<'a> {
    fn new(line: &'a str, end: usize) -> Self {
        let (start, body) = line.split_at(end);
        Self {
            start,
            body: body.trim_start().to_owned(),
            fields: Vec::new(),
        }
    }

    /// Returns the JSON of the body, in which `...` is a text, or a field of that name.
    fn json(&self) -> Value {
        let marked = self
            .body
            .replace("...]", "\"...\"]")
            .replace("...}", "\"...\": 0}");
        serde_json::from_str(&marked).unwrap_or_else(|why| panic!("{}: {why}", self.body))
    }
}

impl Exchange<'_> {
    fn check(&self, place: &str, service: &InProcess, varying: &mut Varying) {
        service.clock.clock.advance(self.after);
        let (method, target) = self.request.start.split_once(' ').expect("METHOD TARGET");
        let asked = varying
            .iter()
            .fold(self.request.body.clone(), |body, (shown, stood_for)| {
                body.replace(shown, stood_for)
            });
        let path = target.split('?').next().unwrap_or_default();
        let is_http = HTTP.iter().any(|prefix| path.starts_with(prefix));
        let door = service.door(if is_http { Door::Http } else { Door::Admin });
        let fields = self.request.fields.iter();
        let visitor = fields.fold(Visitor::at(1), |visitor, (name, value)| {
            visitor.with(name, value)
        });
        let send = || visitor.ask_with(door, (method, target), &asked);
        for _ in 1..self.count {
            send();
        }
        let answer = send();
        let place = format!("{place}: {}\n{}", self.request.start, answer.body);
        self.compare(&answer, &place, varying);
    }

    fn compare(&self, answer: &Answer, place: &str, varying: &mut Varying) {
        assert_eq!(answer.status.to_string(), self.answer.start, "{place}");
        for (name, value) in &self.answer.fields {
            assert_eq!(answer.header(name), Some(*value), "{name}: {place}");
        }
        if self.answer.body.is_empty() {
            return assert_eq!(answer.body, "", "{place}");
        }
        let shown = self.answer.json();
        let answered = serde_json::from_str(&answer.body);
        let answered: Value = answered.unwrap_or_else(|why| panic!("{why}: {place}"));
        assert!(is_shown(&answered, &shown, varying), "{place}");
    }
}

/// Returns true if an answer is the one that is shown; notes its texts that vary.
fn is_shown(answered: &Value, shown: &Value, varying: &mut Varying) -> bool {
    match (answered, shown) {
        (Value::String(answered), Value::String(shown)) if shown.ends_with(MORE) => {
            varying.insert(shown.clone(), answered.clone());
            !answered.is_empty()
        }
        (Value::Array(answered), Value::Array(shown)) => {
            let (shown, is_all) = match shown.split_last() {
                Some((last, shown)) if last == MORE => (shown, answered.len() > shown.len()),
                _ => (&shown[..], answered.len() == shown.len()),
            };
            let mut pairs = answered.iter().zip(shown);
            is_all && pairs.all(|(answered, shown)| is_shown(answered, shown, varying))
        }
        (Value::Object(answered), Value::Object(shown)) => {
            let is_all = if shown.contains_key(MORE) {
                answered.len() >= shown.len()
            } else {
                answered.len() == shown.len()
            };
            let mut named = shown.iter().filter(|(name, _)| *name != MORE);
            is_all
                && named.all(|(name, shown)| {
                    let answered = answered.get(name);
                    answered.is_some_and(|answered| is_shown(answered, shown, varying))
                })
        }
        _ => answered == shown,
    }
}

/// Returns the pages of the guide, each with its name.
pub(crate) fn guide() -> impl Iterator<Item = (String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide");
    let entries = fs::read_dir(folder).expect("the guide is there");
    let files = entries.map(|entry| entry.expect("the guide can be read"));
    let pages = files.filter(|file| file.path().extension().is_some_and(|end| end == "md"));
    pages.map(|file| {
        let page = fs::read_to_string(file.path()).expect("a page can be read");
        (file.file_name().to_string_lossy().into_owned(), page)
    })
}

#[test]
fn every_exchange_of_the_guide_is_answered_as_shown() {
    let home = tempfile::tempdir().expect("the system has a temporary directory");
    let redis = Redis::start(home.path());
    let mut count = 0;
    for (name, page) in guide() {
        let mut policy = String::new();
        let sections = page.split("\n## ");
        for section in sections.flat_map(|section| section.split("\n### ")) {
            let limits = blocks(section, "toml").filter(|block| block.contains("[[limit]]"));
            let limits: Vec<_> = limits.collect();
            if !limits.is_empty() {
                policy = limits.join("\n");
            }
            let exchanges: Vec<_> = blocks(section, "http").flat_map(exchanges).collect();
            if exchanges.is_empty() {
                continue;
            }
            let title = section.lines().next().unwrap_or_default();
            let place = format!("{name}: {title}");
            let text = match &redis {
                // Patient, because the machine may be busy.
                Some(redis) => {
                    let url = format!("{}\"\ndeadline = \"10s", redis.url());
                    policy.replace(REDIS, &url)
                }
                None if policy.contains(REDIS) => continue, // the harness prints that Redis is absent
                None => policy.clone(),
            };
            let head = if text.contains("version = 1") {
                ""
            } else {
                "version = 1\n"
            };
            let service = InProcess::start(&format!("{head}{text}"));
            let mut varying = Varying::new();
            for exchange in &exchanges {
                exchange.check(&place, &service, &mut varying);
            }
            count += exchanges.len();
        }
    }
    assert!(count >= 30, "the guide lost its exchanges: {count}");
}

/// Pages that show JSON which is no answer, each read by a test of its own: the message of an alert,
/// a line of the log.
const OTHER_JSON: [&str; 2] = ["advanced.md", "events.md"];

#[test]
fn every_json_of_the_guide_is_read_by_a_test() {
    for (name, page) in guide() {
        let fenced = page.split("```").skip(1).step_by(2);
        let unread = fenced.filter(|block| !block.starts_with("http\n"));
        let unread = unread.filter(|block| block.lines().any(|line| line.starts_with("{\"")));
        let is_read = OTHER_JSON.contains(&&*name);
        assert_eq!(
            unread.count(),
            usize::from(is_read),
            "{name}: write blocks of `http`"
        );
    }
}
