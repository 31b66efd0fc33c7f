//! `replay`: access logs decided by a policy, numbers chosen from them, and what is printed.

use serde_json::Value;

use crate::desk::Desk;
use crate::reviewed::assert_reviewed;

const LIMIT: &str = "version = 1\n[[limit]]\nname  = \"per-ip\"\nkey   = [\"ip\"]\nlimit = \"3/1m\"\n\
                     algorithm = \"fixed-window\"\n";

/// A log of 4 hours: client N sends N requests at the start of each.
fn log() -> String {
    let lines = (0..4).flat_map(|hour| {
        (1..=8).flat_map(move |client| {
            (0..client).map(move |second| {
                format!(
                    "192.0.2.{client} - - [22/Jan/2019:0{hour}:00:0{second} +0000] \"GET /{client} \
                     HTTP/1.1\" 200 5 \"-\" \"curl\"\n"
                )
            })
        })
    });
    lines.collect()
}

fn desk() -> Desk {
    let off = LIMIT
        .replace("per-ip", "total")
        .replace("\"ip\"", "\"all\"")
        + "mode = \"shadow\"\n";
    let odd =
        "wall.example.org - - [22/Jan/2019:00:00:00 +0000] \"GET / HTTP/1.1\" 200 5\nrubbish\n";
    let (_, second) = off.split_once("version = 1\n").expect("a version");
    Desk::new()
        .with("ratekeeper.toml", LIMIT)
        .with("two.toml", format!("{LIMIT}{second}"))
        .with("access.log", log())
        .with("odd.log", odd.repeat(3))
        .with("prose.log", "once upon a time\n")
        .with("users.toml", LIMIT.replace("\"ip\"", "\"header:x-user\""))
}

#[test]
fn a_log_is_decided() {
    assert_reviewed!(desk().terminal(&[
        &["replay", "ratekeeper.toml", "access.log"],
        &[
            "replay",
            "two.toml",
            "access.log",
            "odd.log",
            "--zone",
            "Europe/Oslo"
        ],
        &["replay", "users.toml", "access.log"],
        &["replay", "ratekeeper.toml", "odd.log", "--json"],
    ]));
}

#[test]
fn a_number_is_chosen() {
    assert_reviewed!(desk().terminal(&[
        &["replay", "two.toml", "access.log", "--choose", "per-ip"],
        &[
            "replay",
            "two.toml",
            "access.log",
            "--choose",
            "per-ip",
            "--json"
        ],
    ]));
}

fn stdout(desk: &Desk, arguments: &[&str]) -> String {
    String::from_utf8_lossy(&desk.run(arguments).stdout).into_owned()
}

/// A day of Tokyo ends between the two requests.
#[test]
fn a_number_is_chosen_as_it_is_written() {
    let line =
        |hour| format!("192.0.2.1 - - [22/Jan/2019:{hour}:30:00 +0000] \"GET / HTTP/1.1\" 200 5\n");
    for (written, chosen) in [
        ("\"1/day\"", "1/day is"),
        ("'1/day'", "1/day is"),
        ("\"\"\"\n1/day\"\"\"", "1/day is"),
        ("'1/month'", "2/month is"),
        ("'1/month'\nanchor = 31", "2/month from day 31 is"),
        ("'1/week'\nanchor = 'sun'", "2/week from Sunday is"),
    ] {
        let policy = LIMIT.replace("\"3/1m\"\nalgorithm = \"fixed-window\"", written);
        let desk = Desk::new()
            .with(
                "tokyo.toml",
                policy.replace("[[", "timezone = \"Asia/Tokyo\"\n[["),
            )
            .with("access.log", line(14) + &line(15));
        let chosen_line = stdout(
            &desk,
            &["replay", "tokyo.toml", "access.log", "--choose", "per-ip"],
        );
        assert!(
            chosen_line.contains(&format!("\n{chosen} the smallest")),
            "{written}: {chosen_line}"
        );
    }
}

#[test]
fn a_number_is_chosen_for_a_leaky_bucket_as_it_is() {
    let line = |second| {
        format!("192.0.2.1 - - [22/Jan/2019:07:30:{second} +0000] \"GET / HTTP/1.1\" 200 5\n")
    };
    let leaky = LIMIT.replace(
        "\"3/1m\"\nalgorithm = \"fixed-window\"",
        "\"2/1m\"\nalgorithm = \"leaky-bucket\"",
    );
    for (more, chosen) in [
        ("", "\n3/1m is the smallest"),
        (
            "queue = { max = 1, max_wait = \"1m\" }\n",
            "\n1/1m, queue of 1 is the smallest",
        ),
    ] {
        let desk = Desk::new()
            .with("leaky.toml", leaky.clone() + more)
            .with("access.log", line("00") + &line("20"));
        let output = stdout(
            &desk,
            &["replay", "leaky.toml", "access.log", "--choose", "per-ip"],
        );
        assert!(output.contains(chosen), "{output}");
    }
}

/// Over the limit, the gateway sends requests to another server.
const SPARE: &str = "on_limit = \"route:spare\"\n[listen.proxy]\nupstream = \"http://127.0.0.1:3000\"\n\
                     [[listen.proxy.route]]\nname = \"spare\"\nupstream = \"http://127.0.0.1:5000\"\n";

#[test]
fn what_is_refused_and_what_would_be_are_told_apart() {
    let blocked =
        "[[override]]\nlimit = \"per-ip\"\nkey = { ip = \"192.0.2.8\" }\nset = \"blocked\"\n";
    for (more, words) in [
        (
            SPARE,
            "per-ip 3/1m: would send to route:spare 60 (41.7 %) of 144 requests",
        ),
        (SPARE, "\nall limits: refused 0 (0.0 %) of 144 requests"),
        (
            "percent = 0\n",
            "per-ip 3/1m: would refuse 60 (41.7 %) of 144 requests",
        ),
        (
            "percent = 0\n",
            "\nall limits: refused 0 (0.0 %) of 144 requests",
        ),
        ("percent = 50\n", "; it refused "),
        (
            "mode = \"off\"\n",
            "per-ip 3/1m: decided nothing, because it is off",
        ),
        (blocked, "  keys that are blocked or missing"),
    ] {
        let desk = desk().with("more.toml", format!("{LIMIT}{more}"));
        let report = stdout(&desk, &["replay", "more.toml", "access.log"]);
        assert!(report.contains(words), "{words}: {report}");
    }
}

/// A plan whose number has the text of the limit's own, and an override, are not changed.
#[test]
fn a_number_is_chosen_beside_plans_and_overrides() {
    let policy = LIMIT.replace(
        "limit = ",
        "plans = { pro = \"3/1m\" }\ncandidate = \"3/1m\"\nlimit = ",
    ) + "[plan]\nfrom = \"header:user-agent\"\ndefault = \"free\"\n\
         [[override]]\nlimit = \"per-ip\"\nkey = { ip = \"192.0.2.8\" }\nset = \"8/1m\"\n";
    let desk = desk().with("plans.toml", policy);
    let output = stdout(
        &desk,
        &["replay", "plans.toml", "access.log", "--choose", "per-ip"],
    );
    let sentence = "7/1m is the smallest number that touches at most 0.1 % of clients: 0 of 8; \
                    keys with a plan or an override keep the numbers of those\n";
    assert!(output.ends_with(sentence), "{output}");
}

#[test]
fn numbers_of_plans_and_overrides_differ() {
    let with = |plan: &str, set: &str| {
        LIMIT.to_owned()
            + &format!(
                "plans = {{ pro = \"{plan}\" }}\ncost = 2\n[plan]\nfrom = \"header:x-plan\"\n"
            )
            + &format!("default = \"free\"\n[[override]]\nlimit = \"per-ip\"\nset = \"{set}\"\n")
            + "key = { ip = \"192.0.2.8\" }\n"
    };
    let desk = desk()
        .with("old.toml", with("30/1m", "8/1m"))
        .with("plan.toml", with("40/1m", "8/1m"))
        .with("override.toml", with("30/1m", "unlimited"));
    assert_reviewed!(desk.terminal(&[
        &["diff", "old.toml", "plan.toml"],
        &["diff", "old.toml", "override.toml"],
        &["diff", "old.toml", "old.toml"],
    ]));
}

/// The report of the JSON is that of the first algorithm, and says so.
#[test]
fn an_algorithm_is_chosen() {
    let compare = ["replay", "two.toml", "access.log", "--compare", "per-ip"];
    let desk = desk();
    assert_reviewed!(desk.terminal(&[&compare]));
    let output = desk.run(&[&compare[..], &["--json"]].concat());
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let limit = &json["report"]["limits"][0]["limit"];
    assert_eq!(limit, "3/1m, sliding window log");
}

/// Plans with the limit's own numbers change no row, so their keys are counted by each algorithm.
#[test]
fn keys_with_a_plan_are_counted_by_each_algorithm() {
    let plans =
        "plans = { free = \"3/1m\" }\n[plan]\nfrom = \"header:user-agent\"\ndefault = \"free\"\n";
    let desk = desk().with("plans.toml", format!("{LIMIT}{plans}")).with(
        "month.toml",
        format!("{LIMIT}{plans}")
            .replace("[[", "timezone = \"UTC\"\n[[")
            .replace("free = \"3/1m\"", "free = \"3/month\""),
    );
    let rows = |policy| {
        let output = stdout(
            &desk,
            &["replay", policy, "access.log", "--compare", "per-ip"],
        );
        let rows = output.lines().filter(|row| row.starts_with("  "));
        (
            rows.map(str::to_owned).collect::<Vec<_>>(),
            output.contains("keep the policy's algorithm"),
        )
    };
    assert_eq!(rows("plans.toml"), rows("ratekeeper.toml"));
    assert!(!rows("plans.toml").1 && rows("month.toml").1);
}

#[test]
fn two_policies_are_compared_in_words_and_on_a_log() {
    let other = LIMIT.replace("3/1m", "5/1m")
        + "\n[[limit]]\nname = \"page\"\nkey = [\"path\"]\n\
                 match = { path = \"/2\" }\nlimit = \"1/1m\"\n";
    let users = LIMIT.replace("\"ip\"", "\"header:x-user\"");
    let desk = desk().with("next.toml", other).with("users.toml", users);
    assert_reviewed!(desk.terminal(&[
        &["diff", "ratekeeper.toml", "ratekeeper.toml"],
        &["diff", "two.toml", "next.toml"],
        &["diff", "two.toml", "next.toml", "--log", "access.log"],
        &[
            "diff",
            "ratekeeper.toml",
            "next.toml",
            "--log",
            "access.log",
            "--json"
        ],
        &["diff", "users.toml", "two.toml", "--log", "access.log"],
    ]));
}

/// Returns the refused requests of a limit of the policy, as `replay` and `--choose` count them.
fn refused(fields: &str, number: u64) -> [Value; 2] {
    let policy = format!("version = 1\n[[limit]]\nname = \"own\"\nkey = [\"ip\"]\n{fields}\n");
    let desk = desk().with("own.toml", policy);
    let json = |arguments: &[&str]| -> Value {
        let output =
            desk.run(&[&["replay", "own.toml", "access.log", "--json"], arguments].concat());
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let chosen = json(&["--choose", "own"]);
    let points = chosen["points"].as_array().expect("a list");
    let own = points.iter().find(|point| point["number"] == number);
    [
        json(&[])["limits"][0]["refused"].clone(),
        own.expect("the number of the policy")["refused"].clone(),
    ]
}

/// A limit is tried with all that it has beside its number.
#[test]
fn the_number_of_the_policy_is_decided_as_it_is() {
    let queue = "queue = { max = 2, max_wait = \"1m\" }";
    for (fields, number) in [
        (
            "limit = \"5/1h\"\nalgorithm = { name = \"sliding-window-log\", min_gap = \"2s\" }",
            5,
        ),
        (&format!("limit = \"3/30s\"\n{queue}"), 3),
        (
            &format!("limit = \"3/30s\"\nalgorithm = \"leaky-bucket\"\n{queue}"),
            3,
        ),
        (
            "limit = \"10/10s\"\nwarmup = { period = \"10s\", cold_factor = 3 }",
            10,
        ),
        ("bucket = { size = 4, refill = \"1/1h\" }", 4),
        (&format!("limit = \"3/1m\"\n{SPARE}"), 3),
    ] {
        let [replayed, chosen] = refused(fields, number);
        assert_eq!(replayed, chosen, "{fields}");
        assert!(replayed.as_u64() > Some(0), "{fields}");
    }
    let steps = "version = 1\n[[limit]]\nname = \"own\"\nkey = [\"ip\"]\n\
                 bucket = { size = 4, refill = \"2/1h\", step = true }\n";
    let output = desk().with("own.toml", steps).run(&[
        "replay",
        "own.toml",
        "access.log",
        "--choose",
        "own",
    ]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("no other can be tried"), "{said}");
}

/// Values of JSON are read as the service reads them.
#[test]
fn booleans_and_decimal_numbers_of_a_log_are_attributes() {
    let limit = "[[limit]]\nname = \"a\"\nkey = [\"all\"]\nmatch = { attr.risky = \"true\" }\n\
                 limit = \"100/1h\"\ncost = \"attr:cents\"\n";
    let line = r#"{"ts": "2019-01-22T00:00:00Z", "ip": "192.0.2.1", "path": "/", "risky": true, "cents": 60.0}"#;
    let desk = Desk::new()
        .with("own.toml", format!("version = 1\n{limit}"))
        .with("own.jsonl", format!("{line}\n").repeat(3));
    let fields = "json time=ts client=ip attr:risky=risky attr:cents=cents";
    let output = desk.run(&[
        "replay",
        "own.toml",
        "own.jsonl",
        "--format",
        fields,
        "--json",
    ]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["limits"][0]["refused"], 2, "{report}");
}

#[test]
fn conditions_decide_the_exit_code() {
    let run = |condition| {
        [
            "replay",
            "two.toml",
            "access.log",
            "--json",
            "--fail-if",
            condition,
        ]
    };
    let exit = |condition| desk().run(&run(condition)).status.code();
    for (condition, code) in [
        ("refused > 41%", 1),
        ("refused > 42%", 0),
        ("clients > 4", 1),
        ("clients > 5", 0),
        ("total.refused > 120", 1),
        ("per-ip.clients > 99 %", 0),
        ("nobody.clients > 1", 2),
        ("refused", 2),
    ] {
        assert_eq!(exit(condition), Some(code), "{condition}");
    }
}

#[test]
fn errors_name_the_file_the_line_and_a_way_out() {
    assert_reviewed!(desk().terminal(&[
        &["replay", "ratekeeper.toml", "prose.log"],
        &[
            "replay",
            "ratekeeper.toml",
            "access.log",
            "--format",
            "caddy"
        ],
        &[
            "replay",
            "ratekeeper.toml",
            "access.log",
            "--format",
            "nginx"
        ],
        &[
            "replay",
            "ratekeeper.toml",
            "access.log",
            "--format",
            "$remote_addr$request_time [$time_local]"
        ],
        &["replay", "ratekeeper.toml", "missing.log"],
        &["replay", "ratekeeper.toml", "access.log", "access.log"],
        &[
            "replay",
            "ratekeeper.toml",
            "access.log",
            "--choose",
            "per-iq"
        ],
        &[
            "replay",
            "ratekeeper.toml",
            "access.log",
            "--fail-if",
            "requests > 1"
        ],
        &[
            "replay",
            "ratekeeper.toml",
            "access.log",
            "--memory",
            "1KiB"
        ],
        &[
            "replay",
            "ratekeeper.toml",
            "access.log",
            "--zone",
            "Mars/Base"
        ],
        &["replay", "ratekeeper.toml"],
    ]));
}

/// What clients sent is no command for a terminal.
#[test]
fn keys_are_printed_without_control_characters() {
    let line =
        "192.0.2.1 - - [22/Jan/2019:00:00:00 +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"\\x1b[2J\"\n";
    let json =
        r#"{"time":"2019-01-22T00:00:00Z","client":"\u001b[2J","path":"/"}"#.to_owned() + "\n";
    let desk = desk()
        .with(
            "agents.toml",
            LIMIT.replace("\"ip\"", "\"header:user-agent\""),
        )
        .with("paths.toml", LIMIT.replace("\"ip\"", "\"path\""))
        .with("agents.log", line.repeat(4))
        .with("clients.jsonl", json.repeat(4));
    for (policy, log, words) in [
        ("agents.toml", "agents.log", "header:user-agent= [2J"),
        ("agents.toml", "clients.jsonl", "header:user-agent=~ip= [2J"),
        ("paths.toml", "clients.jsonl", "most:  [2J 1"),
        ("ratekeeper.toml", "clients.jsonl", "ip= [2J"),
    ] {
        let output = desk
            .command(&["replay", policy, log])
            .env("CLICOLOR_FORCE", "1")
            .output();
        let output = output.expect("the command starts").stdout;
        let output = String::from_utf8_lossy(&output);
        assert!(output.contains(words), "{output:?}");
        assert!(!output.contains("\x1b[2J"), "{output:?}");
    }
}

#[test]
fn a_page_needs_no_network() {
    let desk = desk();
    let arguments = [
        "replay",
        "two.toml",
        "access.log",
        "--choose",
        "per-ip",
        "--html",
        "a.html",
    ];
    assert!(desk.run(&arguments).status.success());
    let page = std::fs::read_to_string(desk.path().join("a.html")).expect("a page");
    for absent in ["http:", "https:", "<script", "src=", "@import"] {
        assert!(!page.contains(absent), "{absent}");
    }
    for words in [
        "Which number for per-ip?",
        "ip=192.0.2.8",
        "the smallest number",
        "</html>",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
}

/// A log that does not fit into the memory: its lines are all accounted for.
#[test]
fn the_counts_of_a_log_that_is_not_decided_to_its_end_add_up() {
    let line = "192.0.2.1 - - [22/Jan/2019:00:00:00 +0000] \"GET / HTTP/1.1\" 200 5\n";
    let desk = desk().with("burst.log", line.repeat(50_000));
    let command = ["replay", "ratekeeper.toml", "burst.log", "--memory", "1MiB"];
    let output = desk.terminal(&[&command]);
    let (_, counts) = output.split_once(" after ").expect("the counts are stated");
    let counts = counts.lines().next().unwrap_or_default();
    let numbers = counts.split_whitespace().map(|word| word.replace(',', ""));
    let numbers: Vec<u64> = numbers.filter_map(|word| word.parse().ok()).collect();
    assert_eq!(numbers.len(), 4, "{output}");
    assert!(numbers[0] > 0, "{output}");
    assert_eq!(numbers[0], numbers[1..].iter().sum::<u64>(), "{output}");
}
