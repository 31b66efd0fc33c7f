//! Http: processor time of the service per decision, over real connections.
//!
//! ```text
//!   wrk -t1 -c32 ----> a process of its own: the service, or a floor below it
//!                        /proc/PID/stat before and after: user and system time
//!   figure = that time / answers that wrk counted
//! ```
//!
//! The floors answer a constant as long as a refusal: `bytes` reads and writes and knows no
//! HTTP (what is left is the kernel's, and tokio's), `hyper` serves HTTP with the library
//! that the service uses. All run in turn, round after round; the least counts.
//!
//! `cargo run --release -p ratekeeper-benches -- http [--quick]`; needs `wrk`.

#![expect(clippy::cast_precision_loss, reason = "figures for people")]

mod floor;
mod wrk;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use ratekeeper_server::{Config, Door, Service};

use self::Expected::{Allowed, Refused};
use self::wrk::{Question, Wrk};
use crate::{Effort, report};

/// The argument that makes this program a server; [`Server`] says which.
pub(crate) const CHILD: &str = "--serve";

/// The policy of the README.
const QUICKSTART: &str = include_str!("../../examples/policies/quickstart.toml");
/// Its limits, and what they become where nothing is to be refused.
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

/// What a row of the table should be answered.
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
    /// Microseconds of processor time per answer, of each round.
    micros: Vec<f64>,
    /// Thousands of answers a second, the most of any round.
    most: f64,
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
    let bytes = Server::start(&["bytes", &length]);
    let hyper = Server::start(&["hyper", &length]);

    let row = |name, server, question, expected| Row {
        name,
        server,
        question,
        expected,
        micros: Vec::new(),
        most: 0.0,
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
    ];
    for _ in 0..effort.http_rounds {
        for row in &mut rows {
            row.measure(&wrk, effort.http_seconds);
        }
    }
    table(&rows);
}

/// The row that the others are compared with.
const HYPER: &str = "floor: hyper, a constant";

impl Row<'_> {
    fn measure(&mut self, wrk: &Wrk, seconds: u32) {
        let before = self.server.cpu_micros();
        let counted = wrk.run(self.server.port, &self.question, seconds);
        let spent = self.server.cpu_micros() - before;
        let answers = counted.answers as f64;
        let refused = counted.refused as f64 / answers;
        let as_expected = match self.expected {
            Allowed => counted.refused == 0,
            Refused => refused > 0.99,
        };
        assert!(
            as_expected && counted.errors == 0,
            "{}: {counted:?}",
            self.name
        );
        self.micros.push(spent / answers);
        self.most = self.most.max(answers / f64::from(seconds) / 1000.0);
    }

    fn sorted(&self) -> Vec<f64> {
        let mut micros = self.micros.clone();
        micros.sort_by(f64::total_cmp);
        micros
    }
}

fn table(rows: &[Row<'_>]) {
    let least = |row: &Row<'_>| row.sorted()[0];
    let hyper = rows.iter().find(|row| row.name == HYPER);
    let hyper = hyper.map_or(f64::NAN, least);
    report::line(&format!(
        "\nhttp   (us of server CPU per answer, `wrk {}`; ratio of least to: {HYPER})",
        wrk::LOAD.join(" ")
    ));
    report::line(&format!(
        "{:<34} {:>8} {:>8} {:>7} {:>9}",
        "", "least", "median", "ratio", "k/s most"
    ));
    for row in rows {
        let micros = row.sorted();
        report::line(&format!(
            "{:<34} {:>8.2} {:>8.2} {:>7.2} {:>9.1}",
            row.name,
            micros[0],
            micros[micros.len() / 2],
            micros[0] / hyper,
            row.most
        ));
    }
}

/// A server in a process of its own; ended when dropped.
pub(crate) struct Server {
    child: Child,
    port: u16,
}

impl Server {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let program = std::env::current_exe().expect("this program has a path");
        let mut child = Command::new(program)
            .arg(CHILD)
            .args(arguments)
            .stdin(Stdio::piped()) // closed when we end, however we end: it ends too
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program can be started again");
        let output = child.stdout.take().expect("it is piped");
        let mut port = String::new();
        let read = BufReader::new(output).read_line(&mut port);
        let port = read.ok().and_then(|_| port.trim().parse().ok());
        let port = port.expect("a server says its port first");
        Self { child, port }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// User and system time of the process.
    pub(crate) fn cpu_micros(&self) -> f64 {
        /// `USER_HZ`: the unit of these figures, on every Linux of today.
        const MICROS_PER_TICK: f64 = 10_000.0;
        let stat = fs::read_to_string(
            Path::new("/proc")
                .join(self.child.id().to_string())
                .join("stat"),
        );
        let stat = stat.expect("the server runs, on Linux");
        // The name, in parentheses, may hold spaces; times are fields 14 and 15.
        let (_, fields) = stat.rsplit_once(") ").expect("proc(5)");
        let fields = fields.split(' ').skip(11).take(2);
        let ticks: u64 = fields.filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
        ticks as f64 * MICROS_PER_TICK
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill(); // gone already: as well
        let _ = self.child.wait();
    }
}

/// Bytes of a refusal, head and body.
fn refusal_bytes(strict: &Server) -> usize {
    let mut longest = 0;
    for _ in 0..30 {
        let mut stream = TcpStream::connect(("127.0.0.1", strict.port)).expect("it listens");
        let body = ONE_LIMIT.body;
        let length = body.len();
        write!(
            stream,
            "POST /v1/check HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        )
        .expect("the question is sent");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("the answer comes");
        longest = longest.max(answer.len());
    }
    longest
}

/// The child: serves until its standard input closes.
pub(crate) fn serve(arguments: &[String]) {
    let number = |text: &str| text.parse().expect("written by this program");
    match arguments {
        [kind, policy] if kind == "service" => {
            let config = Config::new(policy).listen("http=127.0.0.1:0");
            let config = config.and_then(|config| config.listen("admin=off"));
            let config = config.expect("two addresses");
            let service = Service::start(&config).expect("the policy is good");
            let address = service.address(Door::Http).expect("the door is open");
            wait(address.port());
        }
        [kind, policy] if kind == "envoy" => {
            let config = ["http=off", "admin=off", "grpc=127.0.0.1:0"]
                .iter()
                .try_fold(Config::new(policy), |config, door| config.listen(door));
            let config = config.expect("three addresses");
            let service = Service::start(&config).expect("the policy is good");
            let address = service.address(Door::Grpc).expect("the door is open");
            wait(address.port());
        }
        [kind] if kind == "tonic" => wait(crate::grpc::serve_bare()),
        [kind, length] if kind == "bytes" => wait(floor::bytes(number(length))),
        [kind, length] if kind == "hyper" => wait(floor::hyper(number(length))),
        _ => unreachable!("written by this program"),
    }
}

fn wait(port: u16) {
    report::line(&port.to_string());
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}
