//! The gateway's soak: `[listen.proxy]` is reloaded each second, while an application in uvicorn
//! hangs, is killed and returns. Clients meet nginx in front of the same application at the same
//! time, and it must not serve them better.
//!
//! ```text
//!   second   0 ....... 5 ...... 8 ....... 12 ..... 14 ....... 20, again
//!            serves    | hangs  | serves   | killed | serves
//! ```

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::{MINUTES, MORE_DESCRIPTORS, MORE_KIB, MORE_THREADS, Sample, least, sample};
use crate::gateway::{application, gateway};
use crate::gateway_applications::admin;
use crate::harness::free_address;
use crate::harness::process::{self, Process};
use crate::harness::visitor::Visitor;
use crate::harness::{clock, say};

const OF_THE_TESTS: u64 = 60;
const PATIENCE: Duration = Duration::from_secs(30);
/// A second of the schedule, and what happens to the application then.
const FAULTS: [(u64, Fault); 4] = [
    (5, Fault::Hang),
    (8, Fault::GoOn),
    (12, Fault::Kill),
    (14, Fault::Start),
];
const CYCLE: u64 = 20;
/// Kinds of clients.
const KINDS: [&str; 4] = ["get", "post", "events", "messages"];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    Hang,
    GoOn,
    Kill,
    Start,
}

/// Settings of which each reload changes one; every other gives the upstream new connections.
fn write(dir: &Path, app: SocketAddr, second: u64) {
    let (millis, origin) = (1_000 + second / 2 % 3, second % 5);
    let policy = format!(
        "version = 1\n[listen.proxy]\nupstream = \"http://{app}\"\n\
         response_timeout = \"{millis}ms\"\nbody_timeout = \"1s\"\n\
         cors = [\"https://{origin}.example\"]\n\
         adaptive_concurrency = {{ min = 50, max = 100, priority = {{ last = \"20%\", \
         match = {{ path = \"/events\" }} }} }}\n\
         [[limit]]\nname = \"held\"\nkey = [\"all\"]\nconcurrency = {{ max = 1000, lease = \"1h\" }}\n"
    );
    let beside = dir.join("ratekeeper.new");
    fs::write(&beside, policy).expect("the test's directory is writable");
    fs::rename(&beside, dir.join("ratekeeper.toml")).expect("the same directory");
}

/// Starts nginx with the same time limits.
fn nginx(dir: &Path, program: &Path, app: SocketAddr) -> (Process, SocketAddr) {
    let server = format!(
        "client_max_body_size 1m;\nlocation / {{\nproxy_pass http://{app};\nproxy_http_version 1.1;\n\
         proxy_set_header Upgrade $http_upgrade;\nproxy_set_header Connection $http_connection;\n\
         proxy_connect_timeout 1s;\nproxy_read_timeout 1s;\nproxy_buffering off;\n}}"
    );
    application(dir, program, &server)
}

/// Returns the first series with this beginning.
fn metric(admin: SocketAddr, series: &str) -> f64 {
    let text = Visitor::at(1).get(admin, "/metrics").body;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(series));
    let value = lines.next().and_then(|rest| rest.trim().parse().ok());
    value.unwrap_or_else(|| panic!("no metric {series} in:\n{text}"))
}

/// Adds what grew between the second quarter of the samples and the last.
fn growth(samples: &[Sample], wrong: &mut Vec<String>) -> String {
    let quarter = samples.len() / 4;
    let (before, after) = (&samples[quarter..2 * quarter], &samples[3 * quarter..]);
    let parts = [
        ("KiB", (|it| it.kib) as fn(&Sample) -> u64, MORE_KIB),
        ("descriptors", |it| it.descriptors, MORE_DESCRIPTORS),
        ("threads", |it| it.threads, MORE_THREADS),
    ];
    let shown = parts.map(|(what, of, more)| {
        let (before, after) = (least(before, of), least(after, of));
        let text = format!("{what} {before} then {after}");
        if after > before + more {
            wrong.push(text.clone());
        }
        text
    });
    shown.join(", ")
}

#[test]
fn soak_beside_nginx() {
    let seconds = std::env::var(MINUTES).map_or(OF_THE_TESTS, |minutes| {
        60 * minutes.parse::<u64>().expect("whole minutes")
    });
    let library = process::carried("target/uvicorn-0.54.0/uvicorn/__init__.py");
    let (Some(library), Some(program), Some(python)) =
        (library, process::find("nginx"), process::find("python3"))
    else {
        return;
    };
    let library = library.ancestors().nth(2).expect("the folder of packages");
    let home = tempfile::tempdir().expect("a directory of its own");
    let dir = home.path();
    let run = |name: &'static str, text: &str, arguments: &[String]| {
        let file = dir.join(name);
        fs::write(&file, text).expect("the test's directory is writable");
        let mut command = Command::new(&python);
        command
            .arg(&file)
            .args(arguments)
            .env("PYTHONPATH", library);
        let (out, log) = (file.with_extension("out"), file.with_extension("log"));
        Process::start(name, &mut command, out, log)
    };
    let at = free_address();
    let start = || run("app.py", include_str!("app.py"), &[at.port().to_string()]);
    let mut app = start();
    let listens = clock::poll("uvicorn", PATIENCE, || TcpStream::connect(at).ok());
    listens.unwrap_or_else(|error| panic!("{error}"));
    write(dir, at, 0);
    let (mut service, ours) = gateway(dir, &["run"]);
    let (_nginx, theirs) = nginx(dir, &program, at);
    let proxies = [seconds.to_string(), ours.to_string(), theirs.to_string()];
    let mut clients = run("clients.py", include_str!("clients.py"), &proxies);

    let mut samples = Vec::new();
    for second in 1..=seconds {
        write(dir, at, second);
        service.signal("HUP");
        let due = FAULTS.iter().find(|(at, _)| *at == second % CYCLE);
        match due.map(|(_, fault)| fault) {
            Some(Fault::Hang) => app.signal("STOP"),
            Some(Fault::GoOn) => app.signal("CONT"),
            Some(Fault::Kill) => app.crash(),
            Some(Fault::Start) => app = start(),
            None => {}
        }
        clock::wait(Duration::from_secs(1));
        samples.push(sample(service.id()));
    }
    let ended = clock::poll("the clients", PATIENCE, || clients.ended());
    let ended = ended.unwrap_or_else(|error| panic!("{error}"));
    assert!(ended.success(), "{}", clients.log());

    let mut wrong = Vec::new();
    let counts: Value = serde_json::from_str(&clients.output()).expect("the counts are JSON");
    say(&format!(
        "gateway's soak of {seconds} s: {}",
        growth(&samples, &mut wrong)
    ));
    for kind in KINDS {
        let [ours, theirs] = [0, 1].map(|proxy| &counts[proxy][kind]);
        say(&format!("{kind}: {ours}, nginx {theirs}"));
        if let Some(why) = worse(ours, theirs) {
            wrong.push(format!("{kind}: {why}"));
        }
    }
    let admin = SocketAddr::from(([127, 0, 0, 1], admin(&service)));
    for series in [
        "ratekeeper_concurrency_in_use{limit=\"held\"}",
        "ratekeeper_upstream_in_flight{route=\"\"}",
        "ratekeeper_task_failures_total",
    ] {
        let left = clock::poll(series, PATIENCE, || {
            (metric(admin, series) == 0.0).then_some(())
        });
        wrong.extend(left.err());
    }
    service.signal("TERM");
    assert!(service.end().expect("it ends").success());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns how clients fared worse than behind nginx.
fn worse(ours: &Value, theirs: &Value) -> Option<String> {
    let [ours, theirs] = [ours, theirs].map(|counts| {
        let counts = counts.as_object().expect("counts by their end").iter();
        let of = |wanted: fn(&str) -> bool| {
            let wanted = counts.clone().filter(|(end, _)| wanted(end));
            wanted.filter_map(|(_, count)| count.as_u64()).sum::<u64>()
        };
        let served = of(|end| end == "200" || end == "101");
        [
            served,
            of(|end| end == "cut"),
            of(|end| end == "wrong"),
            of(|_| true),
        ]
    });
    let ([served, cut, strange, all], [their_served, their_cut, _, their_all]) = (ours, theirs);
    // Of requests at the same pace, a hundredth may have begun on the other side of a fault. Which
    // are cut is chance: two counts differ by more than three deviations once in a thousand times.
    let fewer = served + their_all.div_ceil(100) < their_served;
    let by_chance = 3 * (cut + their_cut).isqrt();
    let more_cut = cut > their_cut + all.div_ceil(100) + by_chance;
    (fewer || more_cut || strange > 0).then(|| {
        format!(
            "{served} of {all} served, {cut} cut, {strange} wrong; nginx: {their_served} of \
             {their_all}, {their_cut} cut"
        )
    })
}
