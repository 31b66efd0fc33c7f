//! `simulate`: workloads against limits, and the user's own events.

use std::io::Write as _;
use std::process::{Output, Stdio};

use crate::desk::{Desk, POLICY, show};
use crate::reviewed::assert_reviewed;

const GUIDE: &str = include_str!("../../../../docs/guide/replay.md");

#[test]
fn the_eight_phases_at_ten_a_second() {
    assert_reviewed!(Desk::new().terminal(&[
        &["simulate", "--limit", "10/1s"],
        &["simulate", "--limit", "10/1s", "--compare"],
    ]));
}

#[test]
fn a_limit_that_counts_refusals_never_finishes() {
    let strict = "bucket = { size = 10, refill = \"10/1s\" }, count_denied = true";
    assert_reviewed!(Desk::new().terminal(&[
        &["simulate", "--limit", strict],
        &["simulate", "--limit", "10/1s", "--cost", "11"],
    ]));
}

#[test]
fn every_workload_is_played() {
    let desk = Desk::new().with("ratekeeper.toml", POLICY);
    let per_ip = ["simulate", "--limit", "per-ip", "--for", "5s", "--workload"];
    let run = |more: &[&str]| desk.terminal(&[&[&per_ip[..], more].concat()]);
    let kinds: [&[&str]; 7] = [
        &["constant"],
        &["bursty", "--rate", "100/1s"],
        &["poisson", "--seed", "7"],
        &["on-off", "--on-off", "1s/1s"],
        &["zipf", "--keys", "50"],
        &["retry"],
        &["retry", "--retry-every", "50ms", "--attempts", "3"],
    ];
    assert_reviewed!(kinds.map(run).concat());
}

/// Evenly, and all at once each period: the default limit admits requests at its rate.
#[test]
fn requests_at_the_rate_of_a_limit_are_admitted() {
    let desk = Desk::new();
    let admits_all = |limit: &str| {
        for workload in ["constant", "bursty"] {
            let arguments = ["simulate", "--json", "--limit", limit, "--rate", limit];
            let output = desk.run(&[&arguments[..], &["--workload", workload]].concat());
            let report: serde_json::Value =
                serde_json::from_slice(&output.stdout).expect("a report");
            let of_limit = &report["limits"][0];
            assert!(of_limit["offered"].as_u64() > Some(0), "{limit}: {report}");
            assert_eq!(
                of_limit["offered"], of_limit["admitted"],
                "{workload}, {limit}"
            );
        }
    };
    for number in [1, 2, 3, 5, 7, 11, 60, 100, 333] {
        for period in ["1s", "7s", "1m", "1h", "24h"] {
            admits_all(&format!("{number}/{period}"));
        }
    }
    for period in ["1s", "24h"] {
        admits_all(&format!("1000000/{period}"));
    }
}

#[test]
fn algorithms_are_compared_under_any_workload() {
    assert_reviewed!(Desk::new().terminal(&[&[
        "simulate",
        "--limit",
        "100/1m",
        "--compare",
        "--workload",
        "bursty"
    ]]));
}

#[test]
fn an_algorithm_that_cannot_count_a_quota_is_left_out_of_the_comparison() {
    let workload = ["--workload", "constant", "--rate", "1000/s", "--for", "10s"];
    let quota = ["simulate", "--limit", "20000/1m", "--compare"];
    assert_reviewed!(Desk::new().terminal(&[&[&quota[..], &workload[..]].concat()]));
}

#[test]
fn programs_read_the_results_as_json() {
    let desk = Desk::new();
    let arguments = [
        "simulate",
        "--limit",
        "4/1s",
        "--workload",
        "constant",
        "--for",
        "2s",
    ];
    assert_reviewed!(desk.terminal(&[&[&arguments[..], &["--json"]].concat()]));
}

#[test]
fn mistakes_in_arguments_are_refused() {
    let desk = Desk::new().with("ratekeeper.toml", POLICY);
    let big = [
        "--workload",
        "constant",
        "--rate",
        "1000000/s",
        "--for",
        "1h",
    ];
    assert_reviewed!(desk.terminal(&[
        &["simulate"],
        &["simulate", "--limit", "per-pi"],
        &[
            "simulate",
            "--limit",
            "per-ip",
            "--algorithm",
            "fixed-window"
        ],
        &["simulate", "ratekeeper.toml", "--limit", "10/1s"],
        &["simulate", "--limit", "10/1s", "--algorithm", "fixde"],
        &["simulate", "--limit", "ten/1s"],
        &["simulate", "--limit", "10/1s\" }, { name = \"b"],
        &["simulate", "--limit", "10/1s", "--rate", "5/s"],
        &["simulate", "--limit", "10/month", "--compare"],
        &["simulate", "--limit", "10/month", "--workload", "constant"],
        &[&["simulate", "--limit", "10/1s"], &big[..]].concat(),
        &[
            "simulate",
            "--limit",
            "10/1s",
            "--workload",
            "on-off",
            "--on-off",
            "0s/1s"
        ],
        &["simulate", "--limit", "10/1s", "--svg", "no/such/place.svg"],
    ]));
}

/// Runs with `events` on standard input.
fn answers(desk: &Desk, limit: &str, events: &str) -> String {
    show(
        &["simulate", "--limit", limit, "--events", "-"],
        &answered(desk, limit, events),
    )
}

fn answered(desk: &Desk, limit: &str, events: &str) -> Output {
    let arguments = ["simulate", "--limit", limit, "--events", "-"];
    let mut command = desk.command(&arguments);
    let piped = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = piped.spawn().expect("it starts");
    let mut input = child.stdin.take().expect("its input");
    input.write_all(events.as_bytes()).expect("it reads");
    drop(input);
    child.wait_with_output().expect("it ends")
}

/// Midnight in Oslo is two hours before that of UTC, also for a limit that is set.
#[test]
fn calendar_words_of_events_follow_the_zone_of_the_policy() {
    let policy = "version = 1\ntimezone = \"Europe/Oslo\"\n[[limit]]\nname = \"a\"\nkey = [\"ip\"]\nlimit = \"2/day\"\n";
    let desk = Desk::new().with("ratekeeper.toml", policy);
    let noon = 1_774_778_400_000_000_u64;
    let events = format!(
        "{{\"at_us\": {noon}}}\n{{\"at_us\": {noon}, \"op\": \"set\", \"limit\": \"3/day\"}}\n"
    );
    let output = answered(&desk, "a", &events).stdout;
    let answers = String::from_utf8(output).unwrap();
    assert_eq!(
        answers.matches("\"reset_after_us\":43200000000").count(),
        2,
        "{answers}"
    );
}

#[test]
fn events_are_answered_line_by_line() {
    let bucket = "bucket = { size = 3, refill = \"1/1s\" }";
    let events = r#"{"at_us": 0}
{"at_us": 0, "op": "check", "cost": 2, "key": "a"}
{"at_us": 0, "op": "peek", "key": "a"}
{"at_us": 0, "op": "check", "cost": 2, "key": "a"}
{"at_us": 0, "op": "check", "cost": 4, "key": "a"}
{"at_us": 0, "op": "reserve", "cost": 3, "key": "a", "max_wait_us": 2000000}
{"at_us": 500000, "op": "check", "key": "a"}
{"at_us": 500000, "op": "refund", "key": "a", "cost": 1}
{"at_us": 500000, "op": "set", "key": "a", "limit": "bucket = { size = 6, refill = \"2/1s\" }"}
{"at_us": 500000, "op": "reset", "key": "a"}
"#;
    assert_reviewed!(answers(&Desk::new(), bucket, events));
}

#[test]
fn a_line_that_is_wrong_is_named_and_the_rest_is_answered() {
    let long = format!("{{\"at_us\": 0, \"key\": \"{}\"}}\n", "k".repeat(20_000));
    let events = r#"{"at_us": 0, "op": "reserve", "max_wait_us": 5}
not JSON
{"at_us": 0, "op": "sit"}
{"at_us": 0, "limit": "5/1s"}
{"at_us": 0, "op": "set", "limit": "5/minute"}

{"at_us": 0, "op": "check"}
"#;
    assert_reviewed!(answers(&Desk::new(), "10/1s", &(long + events)));
}

#[test]
fn events_may_be_a_file() {
    let desk = Desk::new().with("events.jsonl", "{\"at_us\": 7}\n");
    assert_reviewed!(desk.terminal(&[
        &["simulate", "--limit", "1/1s", "--events", "events.jsonl"],
        &["simulate", "--limit", "1/1s", "--events", "nothing.jsonl"],
    ]));
}

#[test]
fn a_picture_stands_alone() {
    let desk = Desk::new();
    let run = desk.run(&[
        "simulate",
        "--limit",
        "10/1s",
        "--compare",
        "--svg",
        "all.svg",
    ]);
    assert!(run.status.success());
    let picture = std::fs::read_to_string(desk.path().join("all.svg")).expect("it is there");
    assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
    assert!(
        !picture.contains("href") && !picture.contains("url("),
        "nothing from elsewhere"
    );
}

#[test]
fn real_time_takes_its_time() {
    let arguments = [
        "simulate",
        "--limit",
        "100/1s",
        "--workload",
        "constant",
        "--for",
        "50ms",
    ];
    let run = Desk::new().run(&[&arguments[..], &["--real-time", "--json"]].concat());
    let document: serde_json::Value = serde_json::from_slice(&run.stdout).expect("JSON");
    let limit = &document["limits"][0];
    assert_eq!(
        (&document["time"], &limit["offered"]),
        (&"real".into(), &10.into())
    );
    assert!(
        limit["end_ms"]
            .as_f64()
            .is_some_and(|millis| millis >= 50.0),
        "{limit}"
    );
}

/// Each `$ ratekeeper ..` of the guide prints the same as the command.
#[test]
fn the_guide_shows_the_output_of_its_commands() {
    let desk = Desk::new();
    let mut examples = 0;
    for block in GUIDE.split("```text\n$ ratekeeper simulate").skip(1) {
        let block = block.split("```").next().unwrap_or_default();
        let (command, shown) = block.split_once('\n').expect("a command and what it shows");
        let command = format!("simulate{command}");
        let arguments: Vec<&str> = command.split(' ').collect();
        let run = desk.run(&arguments);
        let terminal = [run.stderr, run.stdout].map(|text| String::from_utf8(text).expect("text"));
        assert_eq!(terminal.concat(), shown, "{command}");
        examples += 1;
    }
    assert_eq!(examples, 2);
}

/// The commands about compliant clients print what their section states.
#[test]
fn the_guide_to_compliant_clients_states_what_its_commands_print() {
    let guide = include_str!("../../../../docs/guide/algorithms.md");
    let (_, guide) = guide
        .split_once("\n## What a client is granted\n")
        .expect("a section");
    let policy = "version = 1\n[[limit]]\nname = \"a\"\nkey = [\"ip\"]\nlimit = \"100/1m\"\n";
    let desk = Desk::new().with("ratekeeper.toml", policy);
    let explained = String::from_utf8(desk.run(&["explain"]).stdout).expect("text");
    let (_, shown) = guide
        .split_once("$ ratekeeper explain\n")
        .expect("it is shown");
    let shown = shown.split("```").next().unwrap_or_default();
    assert!(explained.contains(shown), "{explained}");
    let commands = guide
        .lines()
        .filter_map(|line| line.strip_prefix("$ ratekeeper simulate "));
    let thousands = |number: u64| format!("{},{:03}", number / 1_000, number % 1_000);
    let results: Vec<[String; 2]> = commands
        .map(|command| {
            let options: Vec<&str> = command.split(' ').collect();
            let run = desk.run(&[&["simulate", "--json"], &options[..]].concat());
            let report: serde_json::Value = serde_json::from_slice(&run.stdout).expect("a report");
            ["admitted", "offered"]
                .map(|field| thousands(report["limits"][0][field].as_u64().expect("a number")))
        })
        .collect();
    let [[first, of], [second, _]] = &results[..] else {
        panic!("two commands: {results:?}");
    };
    let sentence = format!("The first admits {first} of {of}, the second {second}.");
    assert!(guide.contains(&sentence), "{sentence}");
}

#[test]
fn events_of_any_year_are_answered_alike() {
    // 1970, 2017, 2090: three at once, one when a third of a second has passed, two at the next.
    let answered = |begin: u64| {
        let moments = [
            0, 0, 0, 0, 333_333, 333_334, 1_000_000, 1_000_000, 1_000_000,
        ];
        let event = |after| format!("{{\"at_us\": {}}}\n", begin + after);
        let events: String = moments.iter().map(event).collect();
        answers(
            &Desk::new(),
            "bucket = { size = 3, refill = \"3/1s\" }",
            &events,
        )
    };
    let zero = answered(0);
    for begin in [1_490_868_000_000_000, 3_786_912_000_000_000] {
        let of_year = answered(begin);
        let verdicts = |output: &str| -> Vec<bool> {
            output
                .lines()
                .map(|line| line.contains("\"allowed\":true"))
                .collect()
        };
        assert_eq!(verdicts(&of_year), verdicts(&zero), "{of_year}");
        assert_eq!(of_year.matches("\"allowed\":true").count(), 6);
    }
}

/// 2017-03-30 10:00 UTC, a Thursday: weeks, months, years and odd windows end as in service.
#[test]
fn events_in_unix_time_meet_the_calendar() {
    const MOMENT: u64 = 1_490_868_000;
    const HOUR: u64 = 3_600;
    for (zone, limit, end) in [
        ("UTC", "limit = \"20/day\"", 14 * HOUR),
        ("UTC", "limit = \"20/week\"", 86 * HOUR),
        ("UTC", "limit = \"20/month\"", 38 * HOUR),
        ("UTC", "limit = \"20/year\"", (277 * 24 - 10) * HOUR),
        ("Asia/Tokyo", "limit = \"20/week\"", 77 * HOUR),
        (
            "UTC",
            "algorithm = \"fixed-window\"\nlimit = \"1/7s\"",
            7 - MOMENT % 7,
        ),
    ] {
        let policy = format!(
            "version = 1\ntimezone = \"{zone}\"\n\
             [[limit]]\nname = \"a\"\nkey = [\"all\"]\n{limit}\n"
        );
        let desk = Desk::new()
            .with("policy.toml", &policy)
            .with("events.jsonl", format!("{{\"at_us\":{MOMENT}000000}}\n"));
        let output = desk.run(&[
            "simulate",
            "policy.toml",
            "--limit",
            "a",
            "--events",
            "events.jsonl",
        ]);
        let answer: serde_json::Value =
            serde_json::from_slice(&output.stdout).expect("a line of JSON");
        assert_eq!(
            answer["reset_after_us"],
            end * 1_000_000,
            "{zone}, {limit}: {output:?}"
        );
    }
}
