//! Values in every spelling, as real applications read them: a request in which an application
//! reads a value is charged to the key of this value, behind the gateway and behind nginx.
//!
//! ```text
//!   ?user=r1&us%65r=ann --> gateway --> application    reads r1, ann
//!   ?user=ann           --> gateway --> application    spends the only permit of `ann`
//!   ?user=r2&us%65r=ann --> gateway                    must be refused
//! ```
//!
//! The same for `match`, exemptions and plans: where an application reads a value for which the
//! request counts, it is counted.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use tempfile::TempDir;

use crate::gateway::gateway;
use crate::harness::application::{Application, Framework};
use crate::harness::process::Process;
use crate::harness::proxy::{Around, Kind, Proxy, WhenDown};
use crate::harness::service::{Service, policy};
use crate::harness::visitor::Visitor;

/// Kind and spelling, a line each.
const CASES: &str = include_str!("readings/cases.txt");

/// Kind, key, and what a request without the value is: one permit for each key.
const KEYS: [(&str, &str, &str); 11] = [
    ("query", "query:user", "skip"),
    ("cookie", "cookie:sid", "skip"),
    ("header", "header:x-user", "skip"),
    ("basic", "header:authorization", "skip"),
    ("bearer", "bearer", "skip"),
    ("form", "form:user", "deny"),
    ("params", "form:user", "skip"),
    ("json", "json:/user", "deny"),
    ("query-name", "query:user_name", "skip"),
    ("cookie-name", "cookie:user_name", "skip"),
    ("form-name", "form:user_name", "deny"),
];

/// Kind, and its cost.
const COSTS: [(&str, &str); 2] = [("cost", "json:/n"), ("amount", "form:n")];

/// The largest cost that passes.
const LARGEST: f64 = 10.0;

/// Kind, and its field of a `match`.
const FIELDS: [(&str, &str); 3] = [
    ("query", "query.user"),
    ("cookie", "cookie.sid"),
    ("header", "header.x-user"),
];

/// Kinds that are read from bodies, which nginx does not send to the service.
const OF_BODIES: [&str; 6] = ["form", "params", "json", "form-name", "cost", "amount"];

/// A case: `@` in its spelling is a part that is new for each request.
struct Case {
    kind: &'static str,
    spelling: &'static str,
}

/// The gateway or nginx, and a number for the next request.
struct Bench {
    front: SocketAddr,
    next: u32,
}

fn cases() -> impl Iterator<Item = Case> {
    let lines = CASES
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| {
        let (kind, spelling) = line.split_once(' ').expect("kind and spelling");
        Case { kind, spelling }
    })
}

fn limits() -> String {
    let mut text = "[plan]\nfrom = \"header:x-user\"\ndefault = \"free\"\n".to_owned();
    let mut limit = |name: &str, kind: &str, rest: &str| {
        let path = format!("/{name}/{kind}");
        let number = if name == "cost" { LARGEST } else { 1.0 };
        let line = format!("[[limit]]\nname = \"{name}-{kind}\"\nlimit = \"{number}/1d\"\n{rest}");
        writeln!(
            text,
            "{}",
            line.replace("PATH", &format!("path = \"{path}\""))
        )
        .expect("a text");
    };
    for (kind, key, missing) in KEYS {
        let key = format!("match = {{ PATH }}\nkey = [\"{key}\"]\nmissing_key = \"{missing}\"");
        limit("key", kind, &key);
    }
    for (kind, cost) in COSTS {
        let cost = format!("match = {{ PATH }}\nkey = [\"header:x-case\"]\ncost = \"{cost}\"");
        limit("cost", kind, &cost);
    }
    let mut exempt = String::new();
    for (kind, field) in FIELDS {
        let counted = |values: &str| format!("match = {{ PATH{values} }}\nkey = [\"all\"]");
        limit("match", kind, &counted(&format!(", {field} = \"ann\"")));
        limit("unless", kind, &counted(&format!(", {field} = \"!ann\"")));
        limit("exempt", kind, &counted(""));
        write!(
            exempt,
            "[[exempt]]\nlimits = [\"exempt-{kind}\"]\nreason = \"a test\"\nmatch = {{ {field} = \"ann\" }}\n"
        )
        .expect("a text");
    }
    let plans =
        "match = { PATH }\nkey = [\"all\"]\nplans = { free = \"1/1d\", ann = \"unlimited\" }";
    limit("plan", "header", plans);
    text + &exempt
}

/// Returns the bytes of a percent-encoded text.
fn decoded(text: &str) -> Vec<u8> {
    let mut rest = text.as_bytes();
    let mut out = Vec::new();
    while let Some((byte, tail)) = rest.split_first() {
        rest = tail;
        match (byte, tail) {
            (b'%', [_, _, after @ ..]) => {
                let digits = std::str::from_utf8(&tail[..2]).expect("two digits");
                out.push(u8::from_str_radix(digits, 16).expect("two digits"));
                rest = after;
            }
            _ => out.push(*byte),
        }
    }
    out
}

/// Replaces `{..}` by base64, and `{!..}` by base64 with a character that belongs to none.
fn with_base64(text: &str) -> String {
    let Some((before, rest)) = text.split_once('{') else {
        return text.to_owned();
    };
    let (plain, after) = rest.split_once('}').expect("a brace that closes");
    let encoded = match plain.strip_prefix('!') {
        Some(plain) => {
            let encoded = BASE64_STANDARD.encode(plain);
            format!("{}!{}", &encoded[..2], &encoded[2..])
        }
        None => BASE64_STANDARD.encode(plain),
    };
    format!("{before}{encoded}{}", with_base64(after))
}

/// Sends a spelling of a kind to a path; returns the status and the values that were read.
fn send(to: SocketAddr, path: &str, kind: &str, spelling: &str) -> (u16, Vec<String>) {
    let mut visitor = Visitor::at(2).with("X-Case", spelling);
    let (mut method, mut target, mut body) = ("GET", path.to_owned(), String::new());
    match kind {
        "query" | "query-name" => target = format!("{path}?{spelling}"),
        "json" | "cost" => {
            visitor = visitor.with("Content-Type", "application/json");
            (method, body) = ("POST", spelling.to_owned());
        }
        "form" | "params" | "form-name" | "amount" => {
            visitor = visitor.with("Content-Type", "application/x-www-form-urlencoded");
            let (form, query) = spelling.split_once(" ? ").unwrap_or((spelling, ""));
            (method, body) = ("POST", form.to_owned());
            target = format!("{path}?{query}");
        }
        _ => {
            for line in spelling.split(" | ") {
                let line = match kind {
                    "cookie" | "cookie-name" => format!("Cookie: {line}"),
                    "header" => line.to_owned(),
                    _ => format!("Authorization: {}", with_base64(line)),
                };
                let (name, value) = line.split_once(':').expect("a name");
                visitor = visitor.with(name, value.strip_prefix(' ').unwrap_or(value));
            }
        }
    }
    let answer = visitor.ask_with(to, (method, &target), &body);
    let lines = answer.body.lines().filter_map(|line| line.split_once(' '));
    let values =
        lines.filter(|(of, value)| answer.status == 200 && *of == kind && !value.is_empty());
    let mut values: Vec<String> = values.map(|(_, value)| value.to_owned()).collect();
    values.dedup();
    (answer.status, values)
}

impl Bench {
    /// Returns the spelling with a part that no request had.
    fn fresh(&mut self, spelling: &str) -> String {
        self.next += 1;
        spelling.replace('@', &self.next.to_string())
    }

    /// Returns the values that the application reads, by a path without limits.
    fn read(&self, kind: &str, spelling: &str) -> Vec<String> {
        send(self.front, "/read", kind, spelling).1
    }

    /// Returns the plain spelling of a value, as the application reads it.
    fn plain(&self, kind: &str, value: &str) -> Option<String> {
        let raw = String::from_utf8(decoded(value)).ok();
        let raw = raw.as_deref();
        let quoted = || {
            let octal = |byte: u8| format!("\\{byte:03o}");
            let all: String = decoded(value).into_iter().map(octal).collect();
            format!("\"{all}\"")
        };
        let name = if kind.ends_with("-name") {
            "user_name"
        } else if kind == "cookie" {
            "sid"
        } else {
            "user"
        };
        let candidates = match kind {
            "query" | "form" | "params" | "query-name" | "form-name" => {
                vec![format!("{name}={value}")]
            }
            "cookie" | "cookie-name" => {
                let values = [raw.unwrap_or(value).to_owned(), value.to_owned(), quoted()];
                values.map(|value| format!("{name}={value}")).to_vec()
            }
            "header" => vec![format!("X-User: {}", raw?)],
            "basic" => vec![format!("Basic {}", BASE64_STANDARD.encode(decoded(value)))],
            "bearer" => vec![format!("Bearer {}", raw?)],
            _ => vec![format!("{{\"user\": {}}}", raw?)],
        };
        let mut candidates = candidates.into_iter();
        candidates.find(|spelling| self.read(kind, spelling) == [value])
    }

    /// Returns true if the front lets a request through.
    fn passes(&self, path: &str, kind: &str, spelling: &str) -> bool {
        send(self.front, path, kind, spelling).0 == 200
    }

    /// Checks that the request is charged to the key of each value that the application reads, and
    /// returns their number.
    fn check_keys(&mut self, Case { kind, spelling }: &Case, wrong: &mut Vec<String>) -> usize {
        let path = format!("/key/{kind}");
        let sent = self.fresh(spelling);
        let count = self.read(kind, &sent).len();
        for index in 0..count {
            let sent = self.fresh(spelling);
            let Some(value) = self.read(kind, &sent).into_iter().nth(index) else {
                continue;
            };
            let Some(plain) = self.plain(kind, &value) else {
                // Bytes of a lenient base64 that no other request can bring.
                assert!(
                    String::from_utf8(decoded(&value)).is_err(),
                    "{kind} {sent}: {value}"
                );
                continue;
            };
            self.passes(&path, kind, &plain);
            assert!(!self.passes(&path, kind, &plain), "{plain} has one permit");
            if self.passes(&path, kind, &sent) {
                wrong.push(format!(
                    "{kind} {sent} is read as {value}, and not charged to it"
                ));
            }
        }
        count
    }

    /// Checks that what the application reads as another value, or as this one, is counted.
    fn check_fields(&self, Case { kind, spelling }: &Case, wrong: &mut Vec<String>) {
        let spelling = spelling.replace('@', "");
        let read = self.read(kind, &spelling);
        // Tabs around a value are no part of it (RFC 9110, section 5.5), but some servers keep them.
        let is_of_ann = |value: &String| value.replace("%09", "") == "ann";
        let is_ann = read.iter().any(is_of_ann);
        let is_other = read.is_empty() || !read.iter().all(is_of_ann);
        for (name, counts) in [
            ("match", is_ann),
            ("unless", is_other),
            ("exempt", is_other),
            ("plan", is_other && *kind == "header"),
        ] {
            if counts && self.passes(&format!("/{name}/{kind}"), kind, &spelling) {
                wrong.push(format!("{name}: {kind} {spelling} is read as {read:?}"));
            }
        }
    }

    /// Checks that a cost which the application reads as more than the limit holds is refused.
    fn check_cost(&self, Case { kind, spelling }: &Case, wrong: &mut Vec<String>) -> usize {
        let read = self.read(kind, spelling);
        let costs = read.iter().filter_map(|cost| cost.parse::<f64>().ok());
        let is_above = costs.clone().any(|cost| cost > LARGEST);
        if is_above && self.passes(&format!("/cost/{kind}"), kind, spelling) {
            wrong.push(format!(
                "{kind} {spelling} is read as {read:?}, and charged less"
            ));
        }
        costs.count()
    }

    /// Spends the permit of the limits on fields.
    fn spend_fields(&self) {
        for (kind, _) in FIELDS {
            let [ann, other] = ["ann", "other"].map(|value| self.plain(kind, value));
            let (ann, other) = (ann.expect("it is plain"), other.expect("it is plain"));
            for (name, spelling) in [
                ("match", &ann),
                ("unless", &other),
                ("exempt", &other),
                ("plan", &other),
            ] {
                let path = format!("/{name}/{kind}");
                assert!(self.passes(&path, kind, spelling), "{path}");
                let spent = name != "plan" || kind == "header";
                assert!(!(spent && self.passes(&path, kind, spelling)), "{path}");
            }
            assert!(self.passes(&format!("/match/{kind}"), kind, &other));
            for name in ["unless", "exempt", "plan"] {
                assert!(
                    self.passes(&format!("/{name}/{kind}"), kind, &ann),
                    "{name} {kind}"
                );
            }
        }
    }

    /// Ordinary requests with several values pass.
    fn check_ordinary(&mut self) {
        for (kind, spelling) in [
            ("query", "tag=a&tag=b"),
            ("query", "user=ann@&tag=a&tag=b"),
            ("query", "user=r@&user=ann@"),
            ("cookie", "x=1; x=2; sid=ann@"),
            ("cookie", "sid=r@; sid=ann@"),
        ] {
            let sent = self.fresh(spelling);
            assert!(self.passes(&format!("/key/{kind}"), kind, &sent), "{sent}");
        }
        for (kind, spelling) in [("cost", "{\"n\": 10}"), ("amount", "n=10")] {
            let path = format!("/cost/{kind}");
            assert!(self.passes(&path, kind, spelling), "{spelling}");
        }
    }

    /// Checks each case of these kinds; returns the number of values that were read.
    fn check(&mut self, wrong: &mut Vec<String>, kinds: impl Fn(&str) -> bool) -> usize {
        self.check_ordinary();
        self.spend_fields();
        let mut count = 0;
        for case in cases().filter(|case| kinds(case.kind)) {
            if COSTS.iter().any(|(kind, _)| *kind == case.kind) {
                count += self.check_cost(&case, wrong);
                continue;
            }
            count += self.check_keys(&case, wrong);
            if FIELDS.iter().any(|(kind, _)| *kind == case.kind) {
                self.check_fields(&case, wrong);
            }
        }
        count
    }
}

/// Starts the gateway in a directory of its own.
fn start_gateway(dir: &Path, application: SocketAddr) -> (Process, SocketAddr) {
    let upstream = format!("http://{application}");
    gateway(dir, &["run", "policy.toml", "--upstream", &upstream])
}

fn check(framework: Framework, source: &str) {
    let dir = TempDir::new().expect("the system has a temporary directory");
    let Some(application) = Application::start(framework, source, dir.path()) else {
        return;
    };
    let application = application.address();
    let path = dir.path().join("policy.toml");
    let text = policy(&limits());
    std::fs::write(&path, text).expect("the test's directory is writable");
    let mut wrong = Vec::new();
    let (_gateway, front) = start_gateway(dir.path(), application);
    let mut bench = Bench { front, next: 0 };
    let read = bench.check(&mut wrong, |_| true);
    assert!(read > 100, "{read} values were read");
    if let Some(nginx) = Kind::Nginx.program() {
        let service = Service::start(dir.path(), &path);
        let proxy = Proxy::start(
            Kind::Nginx,
            &nginx,
            &Around {
                dir: dir.path(),
                service: service.http(),
                upstream: application,
                policy: &path,
                when_down: WhenDown::Refuse,
            },
        );
        bench.front = proxy.address();
        let read = bench.check(&mut wrong, |kind| !OF_BODIES.contains(&kind));
        assert!(read > 80, "{read} values were read behind nginx");
    }
    assert_eq!(wrong, Vec::<String>::new(), "{framework:?}");
}

#[test]
fn what_express_reads_is_charged() {
    check(Framework::Express, include_str!("readings/express.js"));
}

#[test]
fn what_flask_reads_is_charged() {
    check(Framework::Flask, include_str!("readings/flask_app.py"));
}

#[test]
fn what_django_reads_is_charged() {
    check(Framework::Django, include_str!("readings/django_app.py"));
}

#[test]
fn what_php_reads_is_charged() {
    check(Framework::Php, include_str!("readings/index.php"));
}

#[test]
fn what_rack_reads_is_charged() {
    check(Framework::Rack, include_str!("readings/rack_app.rb"));
}
