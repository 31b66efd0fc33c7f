//! Overrides beside the policy: the file, its errors, and the time.

use std::fmt::Write as _;

use ratekeeper_core::Time;
use ratekeeper_policy::Policy;
use ratekeeper_policy::config::{Context, Diagnostic, PolicyFiles, parse, parse_file};

const POLICY: &str = "version = 1\noverrides = \"o.csv\"\n\
    [[limit]]\nname = \"api\"\nkey = [\"attr:user\"]\nlimit = \"3/1m\"\n\
    [[limit]]\nname = \"two\"\nkey = [\"attr:user\", \"host\"]\nlimit = \"3/1m\"\n\
    [[limit]]\nname = \"spend\"\nkey = [\"attr:user\"]\nlimit = \"3.00/1m\"\n\
    cost = \"attr:amount\"\nunit = { name = \"USD\", decimals = 2 }\n";

fn read(csv: &str) -> Result<(Policy, Vec<Diagnostic>), Vec<Diagnostic>> {
    let files = PolicyFiles::read(POLICY, |name, _| {
        assert_eq!(name, "o.csv");
        Ok(csv.to_owned())
    });
    let now = Time::from_nanos(1_000_000_000_000);
    let loaded = parse_file(POLICY, &files, Context::default(), now)?;
    Ok((loaded.policy, loaded.warnings))
}

#[test]
fn rows_become_overrides() {
    let csv = "set,limit,key,reason\r\n20/1m,api,acme,\"one, \"\"two\"\"\"\r\n\r\n\
               unlimited,two,attr:user=a;host=B,\nblocked,two, host=*.example.com ,";
    let (policy, warnings) = read(csv).unwrap();
    assert_eq!(warnings, []);
    let api = policy.rules[0].variants.overrides();
    assert_eq!((&*api[0].reason, api[0].line), ("one, \"two\"", 2));
    assert!(api[0].from_file);
    let lines: Vec<_> = policy.rules[1]
        .variants
        .overrides()
        .iter()
        .map(|one| one.line)
        .collect();
    assert_eq!(lines, [4, 5]);
}

#[test]
fn errors_have_the_line_and_the_column_of_the_file() {
    for (csv, expected) in [
        ("", "o.csv:1:1: the file is empty"),
        (
            "limit,key\napi,acme",
            "o.csv:1:1: the column `set` is missing",
        ),
        (
            "limit,key,set,sett\n",
            "o.csv:1:15: `sett` is not a column, or comes twice",
        ),
        (
            "limit,key,set\napi,acme,5/min",
            "o.csv:2:10: \"5/min\" is not a valid limit",
        ),
        (
            "limit,key,set\nspend,acme,500/1m",
            "o.csv:2:12: a limit with a `unit` has the same numbers for every key",
        ),
        (
            "limit,key,set\n\n\napo,acme,5/1m",
            "o.csv:4:1: no limit is called `apo`",
        ),
        (
            "limit,key,set\napi,acme",
            "o.csv:2:1: an override without a limit, a key or numbers",
        ),
        (
            "limit,key,set\napi,a,5/1m,x",
            "o.csv:2:12: a line with more cells than columns",
        ),
        (
            "limit,key,set\napi,\"a\"b,5/1m",
            "o.csv:2:5: a quote ends inside a cell",
        ),
        (
            "limit,key,set\napi,\"a,5/1m\n",
            "o.csv:2:5: a quote has no end",
        ),
        (
            "limit,key,set\ntwo,acme,5/1m",
            "o.csv:2:5: `acme` is not in the key of limit `two`",
        ),
        (
            "limit,key,set,until\napi,acme,5/1m,tomorrow",
            "o.csv:2:15: \"tomorrow\" is not a time with an offset",
        ),
    ] {
        let errors = read(csv).unwrap_err();
        let messages: Vec<_> = errors.iter().map(|error| &*error.message).collect();
        assert_eq!(messages, [expected], "{csv}");
        assert_eq!((errors[0].line, errors[0].column), (2, 13));
    }
}

#[test]
fn every_error_of_the_file_is_reported_within_a_bound() {
    let mut csv = "limit,key,set\n".to_owned();
    for number in 0..1_000 {
        writeln!(csv, "none-{number},k,5/1m").unwrap();
    }
    let errors = read(&csv).unwrap_err();
    assert!((100..=201).contains(&errors.len()), "{}", errors.len());
}

#[test]
fn ended_and_hidden_overrides_are_warned_of() {
    let csv = "limit,key,set,until\napi,a,5/1m,1970-01-01T00:16:40Z\n\
               api,b,5/1m,1970-01-01T00:16:41Z\napi,b,6/1m,\n";
    let (_, warnings) = read(csv).unwrap();
    let codes: Vec<_> = warnings.iter().map(|one| one.code).collect();
    assert_eq!(codes, ["RK0350", "RK0351"]);
    assert_eq!(
        warnings[0].message,
        "o.csv:2:12: an override of limit `api` has ended"
    );
}

#[test]
fn a_file_that_cannot_be_read_is_an_error() {
    let files = PolicyFiles::read(POLICY, |_, _| {
        Err::<String, _>("there is no such file".to_owned())
    });
    let errors = parse_file(POLICY, &files, Context::default(), Time::ZERO).unwrap_err();
    assert_eq!(errors[0].code, "RK0252");
    assert!(parse(POLICY, Context::default()).is_err());
    assert_eq!(files.names().collect::<Vec<_>>(), ["o.csv"]);
}

#[test]
fn the_identity_of_a_policy_has_its_overrides() {
    let sha = |csv| read(csv).unwrap().0.sha;
    assert_ne!(
        sha("limit,key,set\napi,a,5/1m"),
        sha("limit,key,set\napi,a,6/1m")
    );
}

#[test]
fn overrides_and_their_numbers_have_a_bound() {
    let file = |rows: u32, numbers: u32| {
        let mut csv = "limit,key,set\n".to_owned();
        for row in 0..rows {
            writeln!(csv, "api,k{row},{}/1m", 5 + row % numbers).unwrap();
        }
        csv
    };
    let (policy, _) = read(&file(100_000, 3)).unwrap();
    let variants = &policy.rules[0].variants;
    assert_eq!(
        (variants.overrides().len(), variants.numbers().len()),
        (100_000, 3)
    );
    assert_eq!(read(&file(100_001, 3)).unwrap_err()[0].code, "RK0107");
    assert!(read(&file(10_000, 10_000)).is_ok());
    assert_eq!(read(&file(10_001, 10_001)).unwrap_err()[0].code, "RK0107");
    let mut patterns = "limit,key,set\n".to_owned();
    for number in 0..101 {
        writeln!(patterns, "api,k{number}*,5/1m").unwrap();
    }
    assert_eq!(read(&patterns).unwrap_err()[0].code, "RK0107");
}

const GUIDE: &str = include_str!("../../../docs/guide/plans.md");

#[test]
fn the_guide_writes_what_is_read() {
    let block = |language: &str| {
        let start = GUIDE.split(&format!("```{language}\n")).nth(1).unwrap();
        start.split("```").next().unwrap().to_owned()
    };
    let text = block("toml").replacen("version = 1\n", "version = 1\noverrides = \"o.csv\"\n", 1);
    let csv = block("text");
    let files = PolicyFiles::read(&text, |_, _| Ok(csv.clone()));
    let loaded = parse_file(&text, &files, Context::default(), Time::ZERO).unwrap();
    let variants = &loaded.policy.rules[0].variants;
    assert_eq!(
        (variants.overrides().len(), variants.numbers().len()),
        (2, 2)
    );
    // The policy and the file name the same customer once each.
    let codes: Vec<_> = loaded.warnings.iter().map(|one| one.code).collect();
    assert_eq!(codes, ["RK0351"]);
}

#[test]
fn a_line_of_too_many_cells_is_one_error() {
    let errors = read(&format!("limit,key,set\n{}", ",".repeat(1_000_000))).unwrap_err();
    assert_eq!(errors.len(), 1);
    assert!(
        errors[0].message.contains("more cells than columns"),
        "{}",
        errors[0].message
    );
}

#[test]
fn overrides_of_a_limit_with_an_error_are_no_errors_of_their_own() {
    let text = "version = 1\n[[limit]]\nname = \"api\"\nkey = [\"ip\"]\nlimit = \"3 a minute\"\n\
        [[override]]\nlimit = \"api\"\nkey = { ip = \"192.0.2.1\" }\nset = \"9/1m\"";
    let errors = parse(text, Context::default()).unwrap_err();
    assert_eq!(errors.len(), 1, "{errors:?}");
}

#[test]
fn a_plan_of_digits_is_refused() {
    let text = "version = 1\n[plan]\nfrom = \"attr:plan\"\ndefault = \"free\"\n\
        [[limit]]\nname = \"x\"\nkey = [\"ip\"]\nconcurrency = 10\nplans = { \"200\" = 50 }\n\
        [[override]]\nlimit = \"x\"\nkey = { ip = \"192.0.2.1\" }\nset = 200";
    let errors = parse(text, Context::default()).unwrap_err();
    assert!(errors[0].message.contains("no letter"), "{errors:?}");
}
