//! `diff`: what differs between two policies, in the words and in the files.

use crate::desk::Desk;
use crate::mmdb;
use crate::reviewed::assert_reviewed;

/// Fields that no word of `explain` tells, other tables, and the files that a policy names.
#[test]
fn every_difference_between_two_policies_is_found() {
    let list = "[[limit]]\nname = \"a\"\nkey = [\"ip\"]\nlimit = \"3/1m\"\nmatch = { ip = \"file:list.txt\" }\n";
    let old = format!("version = 1\n{list}");
    let with = |rest: &str| format!("{old}{rest}");
    let other = |of: &str, to: &str| old.replace(of, to);
    let desk = Desk::new()
        .with("list.txt", "192.0.2.1\n")
        .with("old.toml", old.clone())
        .with("same.toml", with("# a comment\n"))
        .with("denied.toml", with("count_denied = true\n"))
        .with("percent.toml", with("percent = 10\n"))
        .with(
            "zone.toml",
            other("version = 1", "version = 1\ntimezone = \"Asia/Tokyo\""),
        )
        .with(
            "exempt.toml",
            with("[[exempt]]\nlimits = [\"a\"]\nreason = \"known\"\nmatch = { path = \"/a\" }\n"),
        )
        .with(
            "another.toml",
            with("[[exempt]]\nlimits = [\"a\"]\nreason = \"known\"\nmatch = { path = \"/b\" }\n"),
        );
    // Of patterns of one length, the first that fits applies.
    let key = "[[limit]]\nname = \"b\"\nkey = [\"header:x\"]\nlimit = \"3/1m\"\n";
    let [one, other] = [("a*", 5), ("*b", 6)].map(|(value, number)| {
        format!("[[override]]\nlimit = \"b\"\nkey = {{ \"header:x\" = \"{value}\" }}\nset = \"{number}/1m\"\n")
    });
    // Words that do not tell all of a field.
    let [hours, later] = [6, 7].map(|hour| {
        with(&format!(
            "active = {{ hours = \"01:00-0{hour}:00\", until = 2036-01-0{hour}, timezone = \"UTC\" }}\n"
        ))
    });
    let [list, longer] = [1, 2].map(|new| {
        let values: Vec<_> = (0..30)
            .map(|it| format!("\"/{it}/{}\"", it / 25 * new))
            .collect();
        let list = format!("path = [{}]", values.join(", "));
        old.replace("ip = \"file:list.txt\"", &list)
    });
    let [six, twelve] = [6, 12].map(|count| {
        let algorithm = format!("algorithm = {{ name = \"sub-buckets\", count = {count} }}\n");
        with(&algorithm).replace("3/1m", &format!("{count}/1m"))
    });
    let mut desk = desk;
    for (name, text) in [
        ("hours.toml", hours),
        ("later.toml", later),
        ("list.toml", list),
        ("longer.toml", longer),
        ("six.toml", six),
        ("twelve.toml", twelve),
    ] {
        desk = desk.with(name, text);
    }
    let desk = desk
        .with("first.toml", with(&format!("{key}{one}{other}")))
        .with("last.toml", with(&format!("{key}{other}{one}")));
    let mut calls: Vec<[&str; 3]> = Vec::new();
    for new in ["same.toml", "denied.toml", "percent.toml", "zone.toml"] {
        calls.push(["diff", "old.toml", new]);
    }
    calls.push(["diff", "percent.toml", "old.toml"]);
    calls.push(["diff", "exempt.toml", "another.toml"]);
    calls.push(["diff", "first.toml", "last.toml"]);
    calls.push(["diff", "hours.toml", "later.toml"]);
    calls.push(["diff", "list.toml", "longer.toml"]);
    calls.push(["diff", "six.toml", "twelve.toml"]);
    let calls: Vec<&[&str]> = calls.iter().map(<[_; 3]>::as_slice).collect();
    assert_reviewed!(desk.terminal(&calls));
}

/// The same policy in two folders, with other files beside it.
#[test]
fn policies_differ_by_the_files_that_they_name() {
    let policy = "version = 1\n[geo]\ncountry_db = \"c.mmdb\"\n[envoy]\nconfig = \"rl.yaml\"\n";
    let limits = |number| {
        format!(
            "domain: d\ndescriptors:\n  - key: a\n    rate_limit: {{ unit: minute, requests_per_unit: {number} }}\n"
        )
    };
    let desk = Desk::new();
    for (folder, country, number) in [("old", "NO", 1), ("geo", "SE", 1), ("rl", "NO", 2)] {
        std::fs::create_dir(desk.path().join(folder)).unwrap();
        let countries = mmdb::countries(4_102_444_800, &[("192.0.2.0/24", country)]);
        for (name, content) in [
            ("p.toml", policy.as_bytes()),
            ("c.mmdb", &countries),
            ("rl.yaml", limits(number).as_bytes()),
        ] {
            std::fs::write(desk.path().join(folder).join(name), content).unwrap();
        }
    }
    for (new, said) in [
        ("old", "the policies do not differ\n"),
        ("geo", "files: changed\n  c.mmdb: old -> new text\n"),
        ("rl", "files: changed\n  [envoy]: old -> new text\n"),
    ] {
        let output = desk.run(&["diff", "old/p.toml", &format!("{new}/p.toml")]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), said);
    }
}
