//! Redis: processor time of the server per decision, bytes per key, and a hot key.
//!
//! ```text
//!   store --> recorder --> server      the calls that the store makes, as it makes them
//!                |
//!                v  the same bytes, again and again
//!   16 connections, 1 or 16 calls in flight on each --> server: INFO cpu before and after
//! ```
//!
//! Wall time includes the other work of this machine; the server's own processor time is the cost
//! of the decisions. All rows run in turn, round after round, beside `INCR` (no decision at all), a
//! bare script, and the commonly copied token bucket in a hash; the least counts. Cores without a
//! twin take two calls that depend on each other, so the store itself makes them: one caller at a
//! time in the first column, 16 in the second.
//!
//! `cargo run --release -p ratekeeper-benches -- redis [--quick] [--server PATH]`; needs
//! `redis-server`, or the program at that path, such as a Valkey.

#![expect(clippy::cast_precision_loss, reason = "figures for people")]

mod footprint;
mod hot;
mod recorder;
mod server;
mod subject;
mod wire;

use ratekeeper_core::{
    AnyAlgorithm, Concurrency, Edge, Exponential, Gcra, Hybrid, Interval, Log, Nanos, Permits,
    SubBuckets, WarmUp, Window,
};

use self::server::Server;
use self::subject::{Calls, Subject, THROTTLE};
use crate::compare::{self, Side};
use crate::{Effort, report};

/// Row that the others are compared with.
const FLOOR: &str = "INCR";
/// Row of the commonly copied script.
const HASH: &str = "token bucket in a hash, allow";
/// Goals for a GCRA decision, in microseconds: alone, and for each of several in one call.
const SINGLE: f64 = 6.5;
const GATHERED: f64 = 3.0;
/// Number of requests that are gathered into one call.
pub(crate) const TOGETHER: usize = 16;

/// Measures everything with this program and prints it.
pub(crate) fn run(effort: Effort, program: &str) {
    let Some(server) = Server::start(program) else {
        let hint = "Debian: redis-server; or --server PATH";
        report::line(&format!(
            "redis: `{program}` is not installed ({hint}): not measured"
        ));
        return;
    };
    report::line(&format!("server: {}", server.version()));
    let mut rows = rows(&server);
    for _ in 0..effort.redis_rounds {
        for row in &mut rows {
            row.measure(&server);
        }
    }
    table(&rows);
    note(&rows);
    drop(rows);
    footprint::run(effort, program);
    hot::run(&server);
}

/// Notes our decisions that allow beside a token bucket in a hash, and beside a module's if it is
/// loaded.
fn note(rows: &[Row]) {
    let side = |row: &Row| {
        let mut micros = row.many.clone();
        micros.sort_by(f64::total_cmp);
        Side {
            name: row.subject.name.clone(),
            least: micros[0],
            median: Some(micros[micros.len() / 2]),
        }
    };
    let is_peer = |row: &&Row| [HASH, THROTTLE].contains(&&*row.subject.name);
    for peer in rows.iter().filter(is_peer) {
        for row in rows
            .iter()
            .filter(|row| row.subject.name.contains(", allow"))
        {
            if !is_peer(&row) {
                let what = format!("Redis, {}, us of server time", row.subject.name);
                compare::note(what, side(row), side(peer));
            }
        }
    }
}

/// A row of the table.
struct Row {
    subject: Subject,
    goal: f64,
    /// Microseconds per decision of each round: one call in flight, and many.
    one: Vec<f64>,
    many: Vec<f64>,
}

impl Row {
    fn new(subject: Subject, goal: f64) -> Self {
        Self {
            subject,
            goal,
            one: Vec::new(),
            many: Vec::new(),
        }
    }

    fn measure(&mut self, server: &Server) {
        for (samples, at_once) in [(&mut self.one, 1), (&mut self.many, TOGETHER)] {
            let before = server.cpu_micros();
            let decisions = self.subject.run(server, at_once);
            let spent = server.cpu_micros() - before;
            samples.push(spent / decisions as f64);
        }
    }
}

fn rows(server: &Server) -> Vec<Row> {
    let mut rows = vec![
        Row::new(Subject::plain(server, FLOOR, Calls::Incr), f64::NAN),
        Row::new(
            Subject::plain(server, "a script that answers 1", Calls::Nothing),
            f64::NAN,
        ),
        Row::new(Subject::plain(server, HASH, Calls::Folk), f64::NAN),
    ];
    if let Some(subject) = Subject::throttle(server) {
        rows.push(Row::new(subject, f64::NAN));
    } else {
        report::line("CL.THROTTLE: not available (its module is not loaded)");
    }
    for (name, goal, open, shut) in cores() {
        rows.push(Row::new(
            Subject::allowed(server, format!("{name}, allow"), open),
            goal,
        ));
        rows.push(Row::new(
            Subject::denied(server, format!("{name}, deny"), shut),
            goal,
        ));
    }
    for (name, goal, open, shut) in cores().into_iter().take(2) {
        let name = |what| format!("{name}, {TOGETHER} gathered, {what}, each");
        let goal = if goal.is_nan() { goal } else { GATHERED };
        rows.push(Row::new(
            Subject::gathered_allowed(server, name("allow"), open),
            goal,
        ));
        rows.push(Row::new(
            Subject::gathered_denied(server, name("deny"), shut),
            goal,
        ));
    }
    for (name, algorithm) in without_twins() {
        rows.push(Row::new(
            Subject::exchanged(server, name, algorithm),
            f64::NAN,
        ));
    }
    rows
}

/// A name, a goal, a limit that allows all requests of this benchmark, and a limit of 100.
type Core = (&'static str, f64, AnyAlgorithm, AnyAlgorithm);

/// Returns the cores with a twin.
fn cores() -> Vec<Core> {
    let quota = |text: &str| text.parse().expect("a valid quota");
    let (open, shut) = ("100000/1d", "100/1d");
    let gcra = |text| Gcra::token_bucket(quota(text)).expect("within bounds");
    let fixed = |text| Window::fixed(quota(text), Nanos::ZERO).expect("within bounds");
    let two = |text| Window::two_window(quota(text), Nanos::ZERO).expect("within bounds");
    let cut = |text| {
        SubBuckets::sub_buckets(quota(text), 10, Edge::Full, Nanos::ZERO).expect("within bounds")
    };
    // Entries of this log expire within a moment, so that it never fills here.
    let log = |text| Log::sliding(quota(text)).expect("within bounds");
    let interval = |most| {
        let most = Permits::new(most);
        Interval::from_first(most, most, Nanos::from_secs(86_400)).expect("within bounds")
    };
    let hybrid = |text| Hybrid::quota_linear(quota(text)).expect("within bounds");
    vec![
        ("gcra", SINGLE, gcra(open).into(), gcra(shut).into()),
        (
            "fixed window",
            f64::NAN,
            fixed(open).into(),
            fixed(shut).into(),
        ),
        ("two-window", f64::NAN, two(open).into(), two(shut).into()),
        (
            "10 sub-buckets full",
            f64::NAN,
            cut(open).into(),
            cut(shut).into(),
        ),
        (
            "log of 100",
            f64::NAN,
            log("100/200ms").into(),
            log(shut).into(),
        ),
        (
            "interval",
            f64::NAN,
            interval(100_000).into(),
            interval(100).into(),
        ),
        ("hybrid", f64::NAN, hybrid(open).into(), hybrid(shut).into()),
    ]
}

/// Returns the cores that are decided by compare-and-set.
fn without_twins() -> [(&'static str, AnyAlgorithm); 2] {
    let quota = "100000/1d".parse().expect("a valid quota");
    let exponential = Exponential::new(quota).expect("within bounds");
    let lent = Concurrency::new(Permits::new(100), Nanos::from_millis(100)).expect("within bounds");
    [
        ("exponential, compare-and-set", exponential.into()),
        ("concurrency, compare-and-set", lent.into()),
    ]
}

/// Returns every core of the table of bytes: its name, a limit, and the cost of a request.
fn remembered() -> Vec<(&'static str, AnyAlgorithm, Permits)> {
    let quota = "100000/1d".parse().expect("a valid quota");
    let mut limits: Vec<_> = cores()
        .into_iter()
        .filter(|(name, ..)| *name != "log of 100")
        .map(|(name, _, open, _)| (name, open, Permits::ONE))
        .collect();
    let log = Log::sliding("100/1d".parse().expect("a valid quota")).expect("within bounds");
    limits.push(("log, 1 moment", log.into(), Permits::ONE));
    limits.push(("log, 100 moments", log.into(), Permits::new(100)));
    let exponential = Exponential::new(quota).expect("within bounds");
    limits.push(("exponential", exponential.into(), Permits::ONE));
    let warm_up = WarmUp::warming_up(0.01, Nanos::from_secs(3_600)).expect("a rate");
    limits.push(("warm-up", warm_up.into(), Permits::ONE));
    let lent = Concurrency::new(Permits::new(100), Nanos::from_secs(86_400)).expect("a few");
    limits.push(("concurrency, 1 lent", lent.into(), Permits::ONE));
    limits
}

fn table(rows: &[Row]) {
    let least = |samples: &[f64]| samples.iter().copied().fold(f64::INFINITY, f64::min);
    let median = |samples: &[f64]| {
        let mut samples = samples.to_vec();
        samples.sort_by(f64::total_cmp);
        samples[samples.len() / 2]
    };
    let floor = least(&rows[0].many);
    report::line(&format!(
        "\nredis: the server's processor time   (us per decision; ratio of least at {TOGETHER} in \
         flight to: {FLOOR})"
    ));
    report::line(&format!(
        "{:<42} {:>8} {:>8} {:>8} {:>8} {:>7}  goal",
        "calls in flight on each of 16 connections",
        "1 least",
        "median",
        "16 least",
        "median",
        "ratio"
    ));
    let mut missed = 0;
    for row in rows {
        let many = least(&row.many);
        let stands = match row.goal {
            goal if goal.is_nan() => String::new(),
            goal if many <= goal => format!("{goal:.1}: met {:.2}", many / goal),
            goal => {
                missed += 1;
                format!("{goal:.1}: missed {:.2}", many / goal)
            }
        };
        report::line(&format!(
            "{:<42} {:>8.2} {:>8.2} {:>8.2} {:>8.2} {:>7.2}  {stands}",
            row.subject.name,
            least(&row.one),
            median(&row.one),
            many,
            median(&row.many),
            many / floor
        ));
    }
    report::line(&format!("{missed} missed"));
}
