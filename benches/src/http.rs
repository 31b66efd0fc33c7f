//! Http: processor time of the service per decision, over real connections.
//!
//! ```text
//!   wrk -t1 -c32 ----> a process of its own: the service, or a floor below it
//!                        /proc/PID/stat before and after: user and system time
//!   figure = that time / answers that wrk counted
//! ```
//!
//! The floors answer a constant as long as a refusal: `bytes` reads and writes without any HTTP
//! (which leaves the cost of the kernel and of tokio), `hyper` serves HTTP with the library that
//! the service uses. Each allowed answer has a floor of its own besides: hyper with the fields and
//! the body of that answer. All run in turn, round after round; the least counts.
//!
//! `cargo run --release -p ratekeeper-benches -- http [--quick]`; needs `wrk`.

#![expect(clippy::cast_precision_loss, reason = "figures for people")]

pub(crate) mod wrk;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use self::Expected::{Allowed, Refused};
use self::wrk::{Question, Wrk};
use crate::server::Server;
use crate::spent::{self, Spent};
use crate::{Effort, gateway, report};

/// The policy of the README.
const QUICKSTART: &str = include_str!("../../examples/policies/quickstart.toml");
/// Its limits, and their replacements for rows in which nothing is refused.
const GENEROUS: [(&str, &str); 2] = [
    (
        r#"bucket = { size = 20, refill = "10/1s" }"#,
        r#"bucket = { size = 4000000000, refill = "1000000000/1s" }"#,
    ),
    (r#"limit = "5/1m""#, r#"limit = "4000000000/1s""#),
];

const ONE_LIMIT: Question = Question {
    target: "/v1/check",
    method: "POST",
    body: r#"{"request": {"ip": "192.0.2.1", "path": "/"}}"#,
};
const TWO_LIMITS: Question = Question {
    target: "/v1/check",
    method: "POST",
    body: r#"{"request": {"method": "POST", "path": "/login", "ip": "192.0.2.1"}}"#,
};
const AUTH: Question = Question {
    target: "/v1/auth",
    method: "GET",
    body: "",
};

/// Expected answer of a row of the table.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expected {
    Allowed,
    Refused,
}

struct Row<'a> {
    name: &'static str,
    server: &'a Server,
    question: Question,
    expected: Expected,
    spent: Spent,
}

/// Measures all rows and prints them.
pub(crate) fn run(effort: Effort) {
    let Some(wrk) = Wrk::find() else {
        report::line("http: `wrk` is not installed (Debian: apt-get install wrk): not measured");
        return;
    };
    let directory = tempfile::tempdir().expect("a directory for two policies");
    let policy = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).expect("a policy is written");
        path.display().to_string()
    };
    let generous = GENEROUS.iter().fold(QUICKSTART.to_owned(), |text, edit| {
        assert!(text.contains(edit.0), "the quickstart has `{}`", edit.0);
        text.replace(edit.0, edit.1)
    });
    let strict = Server::start(&["service", &policy("strict.toml", QUICKSTART)]);
    let generous = Server::start(&["service", &policy("generous.toml", &generous)]);
    let length = refusal_bytes(&strict).to_string();
    let like = |question| Server::start(&["hyper-like", &answer_to(&generous, question)]);
    let [like_one, like_two, like_auth] = [ONE_LIMIT, TWO_LIMITS, AUTH].map(like);
    let bytes = Server::start(&["bytes", &length]);
    let hyper = Server::start(&["hyper", &length]);

    let row = |name, server, question, expected| Row {
        name,
        server,
        question,
        expected,
        spent: Spent::default(),
    };
    let mut rows = [
        row("floor: bytes, no HTTP", &bytes, ONE_LIMIT, Allowed),
        row(HYPER, &hyper, ONE_LIMIT, Allowed),
        row("check, one limit, allowed", &generous, ONE_LIMIT, Allowed),
        row("check, one limit, refused", &strict, ONE_LIMIT, Refused),
        row("check, two limits, allowed", &generous, TWO_LIMITS, Allowed),
        row("check, two limits, refused", &strict, TWO_LIMITS, Refused),
        row("auth, one limit, allowed", &generous, AUTH, Allowed),
        row("auth, one limit, refused", &strict, AUTH, Refused),
        row(LIKE[0].0, &like_one, ONE_LIMIT, Allowed),
        row(LIKE[1].0, &like_two, TWO_LIMITS, Allowed),
        row(LIKE[2].0, &like_auth, AUTH, Allowed),
    ];
    for _ in 0..effort.http_rounds {
        for row in &mut rows {
            row.measure(&wrk, effort.http_seconds);
        }
    }
    let title = format!(
        "http   (us of server CPU per answer, `wrk {}`; ratio of least to: {HYPER})",
        wrk::LOAD.join(" ")
    );
    let rows: Vec<_> = rows.iter().map(|row| (row.name, &row.spent)).collect();
    spent::table(&title, HYPER, &rows);
    spent::note("HTTP", HYPER, &rows);
    for (floor, own) in LIKE {
        let pair = rows.iter().filter(|(name, _)| [floor, own].contains(name));
        let pair: Vec<_> = pair.copied().collect();
        spent::note("HTTP, beside the same answer", floor, &pair);
    }
}

/// Prints the memory of idle connections, when each has just had an answer and later.
#[expect(clippy::disallowed_methods, reason = "idle buffers are let go in time")]
pub(crate) fn idle() {
    let directory = tempfile::tempdir().expect("a directory for a policy");
    let path = directory.path().join("quickstart.toml");
    fs::write(&path, QUICKSTART).expect("a policy is written");
    let server = Server::start(&["service", &path.display().to_string()]);
    let Question { target, body, .. } = ONE_LIMIT;
    let length = body.len();
    let request =
        format!("POST {target} HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n{body}");
    drop(gateway::connections(server.port(), 1, &request));
    let before = server.resident_bytes();
    let held = gateway::connections(server.port(), gateway::IDLE, &request);
    let each = || (server.resident_bytes() - before) / held.len() as f64 / 1024.0;
    let at_once = each();
    thread::sleep(SETTLES);
    report::line(&format!(
        "\nhttp, idle   (KiB of resident memory per connection, {} connections)\n\
         {at_once:>8.2} at once\n{:>8.2} after {SETTLES:?}",
        gateway::IDLE,
        each()
    ));
}

/// Time after which a connection without requests is idle.
const SETTLES: Duration = Duration::from_secs(10);

/// Row that the others are compared with.
const HYPER: &str = "floor: hyper, a constant";

/// Floors with the fields and the body of an answer, and the row that gives it.
const LIKE: [(&str, &str); 3] = [
    (
        "floor: hyper, one limit's answer",
        "check, one limit, allowed",
    ),
    (
        "floor: hyper, two limits' answer",
        "check, two limits, allowed",
    ),
    (
        "floor: hyper, an answer of auth",
        "auth, one limit, allowed",
    ),
];

impl Row<'_> {
    fn measure(&mut self, wrk: &Wrk, seconds: u32) {
        let counted = self.spent.round(self.server, seconds, |port| {
            let counted = wrk.run(port, &self.question, seconds);
            let answers = counted.answers;
            (counted, answers)
        });
        let refused = counted.refused as f64 / counted.answers as f64;
        let as_expected = match self.expected {
            Allowed => counted.refused == 0,
            Refused => refused > 0.99,
        };
        assert!(
            as_expected && counted.errors == 0,
            "{}: {counted:?}",
            self.name
        );
    }
}

/// Returns the size of a refusal, head and body, in bytes.
fn refusal_bytes(strict: &Server) -> usize {
    let answers = (0..30).map(|_| answer_to(strict, ONE_LIMIT).len());
    answers.max().expect("some were asked")
}

/// Returns an answer, head and body.
fn answer_to(server: &Server, question: Question) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port())).expect("it listens");
    let Question {
        target,
        method,
        body,
    } = question;
    let length = body.len();
    write!(
        stream,
        "{method} {target} HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .expect("the question is sent");
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .expect("the answer comes");
    answer
}
