//! Gateway: processor time of a forwarded request, beside other proxies.
//!
//! ```text
//!   wrk -t1 -c32 --> the proxy: a process of its own, its time from /proc/PID/stat
//!                      '--> an upstream that answers 1 KiB, or 100 KiB
//! ```
//!
//! HTTP/1.1 and kept connections on both sides. nginx and `HAProxy` decide one limit for each request
//! as ours does, which refuses nothing; Caddy has no limit of its own, so it only forwards; the
//! bare proxy is hyper on both sides, with one upstream connection for each client, and no
//! decision. All run in turn, round after round; the least counts.
//!
//! Then the times of answers at half load: at half the requests a second that nginx answered, for
//! all of them, by many clients that pause after each answer.
//!
//! Last the memory of idle connections: resident memory before, and after many clients have each
//! sent one request and stay, once it falls no more.
//!
//! `cargo run --release -p ratekeeper-benches -- gateway [--quick] [--beside PROGRAM]`; needs `wrk`.
//! Proxies that are not installed are left out. `PROGRAM` is another build of this program, such as
//! one of the commit before a change: the ratio of the two is that of each round, in which they run
//! one after the other, and they change places after each.

mod peers;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::http::wrk::{Latency, Question, Wrk};
use crate::server::Server;
use crate::spent::{self, AnswerMicros, Spent};
use crate::{Effort, report};

/// Sizes of the answers, and their names.
const BODIES: [(usize, &str); 2] = [(1 << 10, "1 KiB"), (100 << 10, "100 KiB")];
/// Number of idle connections: both ends of each, and those to the upstream, within the files that
/// processes may open.
pub(crate) const IDLE: usize = 5_000;
/// How often memory is read, and the number of readings that find no less. Proxies release the
/// buffers of a connection some seconds after its last request.
const READ_EVERY: Duration = Duration::from_secs(1);
const SETTLED: usize = 12;
/// Maximum number of readings.
const READINGS: usize = 60;
/// Average pause of a client at half load, in seconds.
const PAUSE: f64 = 0.008;
/// Our row.
const OURS: &str = "ratekeeper, one limit";
/// Row of another build.
const BESIDE: &str = "ratekeeper, the other build";
/// Row that the others are compared with.
const NGINX: &str = "nginx, limit_req";
const QUESTION: Question = Question {
    target: "/",
    method: "GET",
    body: "",
};

struct Row {
    name: &'static str,
    proxy: Server,
    spent: Spent,
}

/// Measures all rows and prints them.
pub(crate) fn run(effort: Effort, beside: Option<&Path>) {
    let Some(wrk) = Wrk::find() else {
        report::line("gateway: `wrk` is not installed: not measured");
        return;
    };
    for (length, size) in BODIES {
        let upstream = Server::start(&["hyper", &length.to_string()]);
        let directory = tempfile::tempdir().expect("a directory for configurations");
        let mut rows = rows(directory.path(), upstream.port(), beside);
        for round in 0..effort.http_rounds {
            let mut order: Vec<&mut Row> = rows.iter_mut().collect();
            if round % 2 == 1 {
                order.reverse(); // what ran before a row is not always the same
            }
            for row in order {
                let seconds = effort.http_seconds;
                let counted = row.spent.round(&row.proxy, seconds, |port| {
                    let counted = wrk.run(port, &QUESTION, seconds);
                    (counted, counted.answers)
                });
                let is_whole = counted.refused == 0 && counted.errors == 0;
                assert!(is_whole, "{}: {counted:?}", row.name);
            }
        }
        let title =
            format!("gateway, {size}   (us of proxy CPU per request; ratio of least to: {NGINX})");
        let figures: Vec<_> = rows.iter().map(|row| (row.name, &row.spent)).collect();
        spent::table(&title, NGINX, &figures);
        spent::note(&format!("Gateway, {size}"), NGINX, &figures);
        parts(&figures);
        between_builds(&figures);
        half_load(&wrk, effort, &rows);
    }
    idle(beside);
}

/// Prints the ratio of this build to the other.
fn between_builds(rows: &[(&str, &Spent)]) {
    let of = |wanted: &str| rows.iter().find(|(name, _)| *name == wanted);
    let (Some((_, ours)), Some((_, other))) = (of(OURS), of(BESIDE)) else {
        return;
    };
    let ratios = ours.ratios_to(other);
    report::line(&format!(
        "this build : the other, of each round: median {:.3}, from {:.3} to {:.3}",
        ratios[ratios.len() / 2],
        ratios[0],
        ratios[ratios.len() - 1]
    ));
}

/// Prints where the time goes, and what we must save to pass nginx.
fn parts(rows: &[(&str, &Spent)]) {
    for (name, spent) in rows {
        let AnswerMicros { user, kernel } = spent.least();
        report::line(&format!(
            "{name:<34} {user:>8.2} us in the program, {kernel:>6.2} us in the kernel"
        ));
    }
    let of = |wanted: &str| {
        let row = rows.iter().find(|(name, _)| *name == wanted);
        row.map(|(_, spent)| spent.least())
    };
    let (Some(ours), Some(nginx)) = (of(OURS), of(NGINX)) else {
        return;
    };
    let more = ours.all() - nginx.all();
    report::line(&if more > 0.0 {
        let program = ours.user - nginx.user;
        let kernel = ours.kernel - nginx.kernel;
        format!(
            "to pass nginx: {more:.2} us less; ours takes {program:.2} us more in the program and \
             {kernel:.2} us more in the kernel"
        )
    } else {
        format!("nginx is passed by {:.2} us", -more)
    });
}

/// Prints the times of answers at half the load that nginx bears; the least of the rounds.
fn half_load(wrk: &Wrk, effort: Effort, rows: &[Row]) {
    let base = rows
        .iter()
        .find(|row| row.name == NGINX)
        .unwrap_or(&rows[0]);
    let rate = base.spent.most() * 1000.0 / 2.0;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number of clients"
    )]
    let clients = (rate * PAUSE).ceil().max(1.0) as u32;
    let mut least = vec![[f64::INFINITY; 2]; rows.len()];
    for _ in 0..effort.http_rounds {
        for (row, least) in rows.iter().zip(&mut least) {
            let (counted, Latency { median, p99 }) =
                wrk.paced(row.proxy.port(), clients, effort.http_seconds);
            assert!(counted.refused == 0, "{}: {counted:?}", row.name);
            *least = [least[0].min(median), least[1].min(p99)];
        }
    }
    let of = |name: &str| rows.iter().position(|row| row.name == name);
    let reference = of(NGINX).map_or(f64::NAN, |at| least[at][1]);
    report::line(&format!(
        "\nhalf load   (us until an answer; {clients} clients, about {:.1} k/s; ratio of p99 to: \
         {NGINX})",
        rate / 1000.0
    ));
    report::line(&format!(
        "{:<34} {:>8} {:>8} {:>7}",
        "", "median", "p99", "ratio"
    ));
    for (row, [median, p99]) in rows.iter().zip(&least) {
        let ratio = p99 / reference;
        report::line(&format!(
            "{:<34} {median:>8.0} {p99:>8.0} {ratio:>7.2}",
            row.name
        ));
    }
}

/// Starts the proxies that are installed.
fn rows(directory: &Path, upstream: u16, beside: Option<&Path>) -> Vec<Row> {
    let row = |name, proxy: Option<Server>| {
        proxy.map(|proxy| Row {
            name,
            proxy,
            spent: Spent::default(),
        })
    };
    let rows = [
        row(
            "floor: bare hyper proxy",
            Some(Server::start(&["forward", &upstream.to_string()])),
        ),
        row(OURS, Some(peers::ratekeeper(directory, upstream))),
        row(
            BESIDE,
            beside.map(|program| peers::beside(program, directory, upstream)),
        ),
        row(NGINX, peers::nginx(directory, upstream)),
        row("HAProxy, stick table", peers::haproxy(directory, upstream)),
        row("Caddy, no limit", peers::caddy(directory, upstream)),
    ];
    rows.into_iter().flatten().collect()
}

/// Prints the memory of an idle connection of each proxy.
fn idle(beside: Option<&Path>) {
    let upstream = Server::start(&["hyper", "1024"]);
    let directory = tempfile::tempdir().expect("a directory for configurations");
    report::line(&format!(
        "\ngateway, idle   (KiB of resident memory per connection, {IDLE} connections)"
    ));
    for row in rows(directory.path(), upstream.port(), beside) {
        drop(connections(row.proxy.port(), 1, REQUEST));
        let before = row.proxy.resident_bytes();
        let held = connections(row.proxy.port(), IDLE, REQUEST);
        let after = settled(&row.proxy);
        #[expect(clippy::cast_precision_loss, reason = "figures for people")]
        let each = (after - before) / held.len() as f64 / 1024.0;
        report::line(&format!("{:<34} {each:>8.2}", row.name));
    }
}

/// Returns the resident memory once it falls no more.
#[expect(
    clippy::disallowed_methods,
    reason = "a proxy releases memory some time after the requests"
)]
fn settled(proxy: &Server) -> f64 {
    let (mut least, mut unchanged) = (f64::INFINITY, 0);
    for _ in 0..READINGS {
        let now = proxy.resident_bytes();
        unchanged = if now < least { 0 } else { unchanged + 1 };
        least = least.min(now);
        if unchanged >= SETTLED {
            break;
        }
        thread::sleep(READ_EVERY);
    }
    least
}

const REQUEST: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

/// Opens connections, each of which has had an answer to `request`.
pub(crate) fn connections(port: u16, count: usize, request: &str) -> Vec<TcpStream> {
    let open = |_| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the proxy listens");
        stream
            .write_all(request.as_bytes())
            .expect("the proxy reads");
        read_answer(&stream);
        stream
    };
    (0..count).map(open).collect()
}

fn read_answer(stream: &TcpStream) {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("the proxy answers");
        let line = line.trim_end().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().expect("a length");
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("the whole answer");
}
