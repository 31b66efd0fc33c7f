//! Overrides beside the policy: the file, its errors, and the time.

use std::fmt::Write as _;

use ratekeeper_core::Time;
use ratekeeper_policy::Policy;
use ratekeeper_policy::config::{
    Context, Diagnostic, OverridesCsv, PolicyFiles, override_lines, parse, parse_file,
};

const POLICY: &str = "version = 1\noverrides = \"o.csv\"\n\
    [[limit]]\nname = \"api\"\nkey = [\"attr:user\"]\nlimit = \"3/1m\"\n\
    [[limit]]\nname = \"two\"\nkey = [\"attr:user\", \"host\"]\nlimit = \"3/1m\"\n\
    [[limit]]\nname = \"spend\"\nkey = [\"attr:user\"]\nlimit = \"3.00/1m\"\n\
    cost = \"attr:amount\"\nunit = { name = \"USD\", decimals = 2 }\n";

type Read = Result<(Policy, Vec<Diagnostic>), Vec<Diagnostic>>;

fn read(csv: &str) -> Read {
    read_named("o.csv", csv)
}

fn read_toml(toml: &str) -> Read {
    read_named("o.toml", toml)
}

fn read_named(file: &str, text: &str) -> Read {
    let policy = POLICY.replacen("o.csv", file, 1);
    let files = PolicyFiles::read(&policy, |name, _| {
        assert_eq!(name, file);
        Ok(text.to_owned())
    });
    let now = Time::from_nanos(1_000_000_000_000);
    let loaded = parse_file(&policy, &files, Context::default(), now)?;
    Ok((loaded.policy, loaded.warnings))
}

/// Returns `[[override]]` with these lines.
fn table(lines: &str) -> String {
    format!("[[override]]\n{lines}\n")
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

/// Spreadsheets write a byte order mark, and semicolons where a comma is the decimal point.
#[test]
fn a_file_of_a_spreadsheet_is_read_or_has_a_help() {
    let marked = "\u{feff}limit,key,set\r\napi,acme,5/1m\r\n";
    let (policy, warnings) = read(marked).unwrap();
    assert_eq!(policy.rules[0].variants.overrides().len(), 1);
    assert_eq!(warnings, []);
    let csv = OverridesCsv::of("o.csv", marked).unwrap();
    let rest = csv.remove("api", "acme");
    assert_eq!(rest, ("\u{feff}limit,key,set\r\n".to_owned(), 1));
    for (csv, help) in [
        (
            "limit;key;set\napi;acme;5/1m\n",
            "write commas between the values",
        ),
        (
            "[{\"limit\": \"api\"}]",
            "begin the file with the line: limit,key,set",
        ),
        ("limit,key,set\napi,acme,unlimted\n", "write \"unlimited\""),
        ("limit,key,set\napi,acme,0/1m\n", "write \"blocked\""),
    ] {
        let errors = read(csv).unwrap_err();
        let found = errors[0].help.as_deref().unwrap_or_default();
        assert!(found.contains(help), "{csv}{found}");
    }
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
            "limit,key,set\ntwo,attr:user=a;host=b;attr:user=c,5/1m",
            "o.csv:2:5: the key names `attr:user` twice",
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
fn tables_of_a_toml_file_become_overrides() {
    let acme = table(
        "limit = \"api\"\nkey = { \"attr:user\" = \"acme\" }\nset = \"20/1m\"\n\
         until = 2036-12-31T00:00:00Z\nreason = \"one, \\\"two\\\"\"",
    );
    let two =
        table("limit = \"two\"\nkey = { host = \"B\", \"attr:user\" = \"a\" }\nset = \"blocked\"");
    let toml = format!("# ours\n{acme}\n{two}");
    let (policy, warnings) = read_toml(&toml).unwrap();
    assert_eq!(warnings, []);
    let api = &policy.rules[0].variants.overrides()[0];
    assert_eq!((&*api.reason, api.line), ("one, \"two\"", 2));
    assert_eq!(api.until_unix_nanos, Some(2_114_294_400_000_000_000));
    assert!(api.from_file);
    assert_eq!(policy.rules[1].variants.overrides()[0].line, 9);
    // The listing of a service shows them as lines.
    let lines = override_lines("o.toml", &toml);
    let (line, first) = &lines[0];
    assert_eq!((*line, &*first.key, &*first.set), (2, "acme", "20/1m"));
    assert_eq!(first.until, "2036-12-31T00:00:00Z");
    assert_eq!((lines[1].0, &*lines[1].1.key), (9, "attr:user=a;host=B"));
    assert!(OverridesCsv::of("o.toml", &toml).is_none());
    assert!(read_toml("override = []").is_ok());
}

#[test]
fn both_forms_of_a_file_have_the_same_effect() {
    let csv = "limit,key,set,until,reason\napi,acme,20/1m,2036-12-31T00:00:00Z,one\n\
               two,host=*.b;attr:user=a,unlimited,,\n";
    let mut toml = String::new();
    for (_, line) in override_lines("o.csv", csv) {
        let key = match line.key.split_once("host=") {
            Some(_) => "host = \"*.b\", \"attr:user\" = \"a\"".to_owned(),
            None => format!("\"attr:user\" = \"{}\"", line.key),
        };
        let until = match &*line.until {
            "" => String::new(),
            until => format!("until = \"{until}\"\n"),
        };
        let (limit, set, reason) = (line.limit, line.set, line.reason);
        toml += &table(&format!(
            "limit = \"{limit}\"\nkey = {{ {key} }}\nset = \"{set}\"\n{until}reason = \"{reason}\""
        ));
    }
    let overrides = |read: Read| {
        let (policy, _) = read.unwrap();
        let each = policy
            .rules
            .iter()
            .flat_map(|rule| rule.variants.overrides());
        let each = each.map(|one| (one.allowance, one.until_unix_nanos, one.reason.clone()));
        each.collect::<Vec<_>>()
    };
    let of_toml = overrides(read_toml(&toml));
    assert_eq!(of_toml.len(), 2);
    assert_eq!(of_toml, overrides(read(csv)));
}

#[test]
fn errors_have_the_line_and_the_column_of_the_toml_file() {
    const USER: &str = "key = { \"attr:user\" = \"acme\" }";
    for (toml, expected) in [
        ("", "o.toml:1:1: the file is empty"),
        ("# nothing\n", "o.toml:1:1: the file is empty"),
        (
            &table(&format!("limit = \"api\"\n{USER}\nset = 5/1m")),
            "o.toml:4:7: a string must be in quotes",
        ),
        (
            "[[overrides]]\nlimit = \"api\"",
            "o.toml:1:3: unknown field `overrides` in a file of overrides",
        ),
        (
            &format!(
                "version = 1\n{}",
                table(&format!("limit = \"api\"\n{USER}\nset = \"5/1m\""))
            ),
            "o.toml:1:1: unknown field `version` in a file of overrides",
        ),
        (
            &table(&format!(
                "limit = \"api\"\n{USER}\nset = \"5/1m\"\nsett = 1"
            )),
            "o.toml:5:1: unknown field `sett` in override 1",
        ),
        (
            &table(&format!("limit = \"api\"\n{USER}")),
            "o.toml:1:1: override 1 has no `set`",
        ),
        (
            &table(&format!("limit = 7\n{USER}\nset = \"5/1m\"")),
            "o.toml:2:9: `limit` of override 1 must be a string",
        ),
        (
            &table(&format!("limit = \"api\"\n{USER}\nset = \"5/min\"")),
            "o.toml:4:7: \"5/min\" is not a valid limit",
        ),
        (
            &table(&format!("limit = \"spend\"\n{USER}\nset = \"500/1m\"")),
            "o.toml:4:7: a limit with a `unit` has the same numbers for every key",
        ),
        (
            &table(&format!("limit = \"apo\"\n{USER}\nset = \"5/1m\"")),
            "o.toml:2:9: no limit is called `apo`",
        ),
        (
            &table("limit = \"two\"\nkey = { ip = \"192.0.2.1\" }\nset = \"5/1m\""),
            "o.toml:3:9: `ip` is not in the key of limit `two`",
        ),
        (
            &table(&format!(
                "limit = \"api\"\n{USER}\nset = \"5/1m\"\nuntil = \"tomorrow\""
            )),
            "o.toml:5:9: \"tomorrow\" is not a time with an offset",
        ),
        (
            &table(&format!(
                "limit = \"api\"\n{USER}\nset = \"5/1m\"\nset = \"6/1m\""
            )),
            "o.toml:5:1: `set` is set twice",
        ),
    ] {
        let errors = read_toml(toml).unwrap_err();
        let messages: Vec<_> = errors.iter().map(|error| &*error.message).collect();
        assert_eq!(messages, [expected], "{toml}");
        assert_eq!((errors[0].line, errors[0].column), (2, 13));
    }
    let toml = table(&format!("limit = \"api\"\n{USER}\nset = \"5\""));
    let help = read_toml(&toml).unwrap_err()[0].help.clone().unwrap();
    assert!(
        help.contains("set = \""),
        "the help names the field: {help}"
    );
    for (found, expected) in [
        (read("limit,key,set\ntwo,acme,5/1m"), "write attr:user=acme"),
        (
            read_toml(&table(
                "limit = \"two\"\nkey = { ip = \"1.2.3.4\" }\nset = \"5/1m\"",
            )),
            "write key = { \"attr:user\" = \"1.2.3.4\" }",
        ),
    ] {
        let help = found.unwrap_err()[0].help.clone();
        assert_eq!(help.as_deref(), Some(expected));
    }
}

#[test]
fn a_toml_file_has_the_bound_of_the_policy() {
    let toml = |count: u32| -> String {
        let one =
            |n| format!("limit = \"api\"\nkey = {{ \"attr:user\" = \"k{n}\" }}\nset = \"5/1m\"");
        (0..count).map(|n| table(&one(n))).collect()
    };
    let (policy, _) = read_toml(&toml(100_000)).unwrap();
    assert_eq!(policy.rules[0].variants.overrides().len(), 100_000);
    assert_eq!(read_toml(&toml(100_001)).unwrap_err()[0].code, "RK0107");
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

/// Contracts end all the time: thousands of them are one warning more than a few.
#[test]
fn ended_overrides_are_counted_and_not_each_a_warning() {
    let mut csv = "limit,key,set,until\n".to_owned();
    for number in 0..1_000 {
        writeln!(csv, "api,k{number},5/1m,1970-01-01T00:16:40Z").unwrap();
    }
    let (_, warnings) = read(&csv).unwrap();
    let messages: Vec<_> = warnings.iter().map(|one| &*one.message).collect();
    assert_eq!(messages.len(), 4, "{messages:?}");
    assert_eq!(messages[3], "o.csv:5:13: 997 more overrides have ended");
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
    let (policy, warnings) = read(&file(100_000, 3)).unwrap();
    assert_eq!(warnings, []);
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

const GUIDE: &str = include_str!("../../../../docs/guide/plans.md");

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
fn the_extra_to_an_override_is_reported_at_the_limit() {
    let policy = "version = 1\noverrides = \"o.csv\"\n[[limit]]\nname = \"api\"\n\
        key = [\"attr:user\"]\nlimit = \"100/1m\"\nsoft = { extra = \"1%\" }\n";
    let csv = "limit,key,set\napi,acme,5/1m\n";
    let files = PolicyFiles::read(policy, |_, _| Ok(csv.to_owned()));
    let errors = parse_file(policy, &files, Context::default(), Time::ZERO).unwrap_err();
    let found = errors.iter().map(|it| (&*it.message, it.line, it.column));
    let expected = ("the extra of limit `api` is nothing", 7, 18);
    assert_eq!(found.collect::<Vec<_>>(), [expected]);
}

#[test]
fn a_plan_of_digits_is_refused() {
    let text = "version = 1\n[plan]\nfrom = \"attr:plan\"\ndefault = \"free\"\n\
        [[limit]]\nname = \"x\"\nkey = [\"ip\"]\nconcurrency = 10\nplans = { \"200\" = 50 }\n\
        [[override]]\nlimit = \"x\"\nkey = { ip = \"192.0.2.1\" }\nset = 200";
    let errors = parse(text, Context::default()).unwrap_err();
    assert!(errors[0].message.contains("no letter"), "{errors:?}");
}
