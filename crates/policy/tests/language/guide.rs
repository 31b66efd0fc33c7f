//! The guide to the algorithms writes each of them as the policy does; the guides to results and to
//! bodies have policies that are right.

#![expect(clippy::unwrap_used, reason = "a test fails where it panics")]

use std::collections::BTreeSet;
use std::path::Path;

use ratekeeper_core::Algorithm as _;
use ratekeeper_policy::config::{Context, parse};
use saphyr_parser::{Event, Parser};

const GUIDE: &str = include_str!("../../../../docs/guide/algorithms.md");

/// Returns the rows of the second table: a name, and the fields that make it.
fn rows() -> impl Iterator<Item = (&'static str, String)> {
    let table = GUIDE.split("| how it is written |\n|---|---|\n").nth(1);
    let rows = table.unwrap().lines().take_while(|line| !line.is_empty());
    rows.map(|line| {
        let (name, written) = line.trim_matches('|').split_once('|').unwrap();
        let fields = written.split('`').skip(1).step_by(2);
        (name.trim(), fields.collect::<Vec<_>>().join("\n"))
    })
}

#[test]
fn every_way_to_write_an_algorithm_is_read_as_that_algorithm() {
    let mut names = BTreeSet::new();
    for (name, fields) in rows() {
        let text = format!(
            "version = 1\ntimezone = \"UTC\"\n[[limit]]\nname = \"a\"\nkey = [\"ip\"]\n{fields}\n"
        );
        let loaded = parse(&text, Context::default()).unwrap();
        assert_eq!(
            loaded.policy.rules[0].limit.algorithm.name(),
            name,
            "{text}"
        );
        names.insert(name);
    }
    assert_eq!(names.len(), 14, "{names:?}");
}

#[test]
fn every_policy_of_the_guide_to_results_is_right() {
    let guide = include_str!("../../../../docs/guide/outcomes.md");
    let blocks: Vec<_> = guide.split("```toml\n").skip(1).collect();
    assert_eq!(blocks.len(), 3);
    for block in blocks {
        let text = block.split("```").next().unwrap();
        let loaded = parse(text, Context::default()).unwrap();
        assert_eq!(loaded.warnings, [], "{text}");
        assert!(loaded.policy.rules.are_corrected(), "{text}");
    }
}

#[test]
fn the_policy_of_the_guide_to_bodies_is_right() {
    let guide = include_str!("../../../../docs/guide/matching.md");
    let guide = guide.split("## Values of the body\n").nth(1).unwrap();
    let block = guide.split("```toml\n").nth(1).unwrap();
    let text = block.split("```").next().unwrap();
    let loaded = parse(text, Context::default()).unwrap();
    assert_eq!(loaded.warnings, [], "{text}");
    let fields = loaded.policy.rules.body_fields().iter();
    let fields: Vec<_> = fields.map(ToString::to_string).collect();
    assert_eq!(fields, ["form:username", "json:/model", "json:/max_tokens"]);
    let settled = loaded.policy.rules[1].correction.as_deref().unwrap();
    assert_eq!(
        settled.settle.as_ref().map(ToString::to_string).as_deref(),
        Some("x-tokens-used")
    );
    assert_eq!(settled.within.as_secs_ceil(), 120);
    let block = guide.split("```toml\n").nth(2).unwrap();
    let text = block.split("```").next().unwrap();
    let loaded = parse(text, Context::default()).unwrap();
    assert_eq!(loaded.warnings, [], "{text}");
}

/// Returns the blocks of a guide in a language.
fn blocks<'t>(guide: &'t str, language: &str) -> impl Iterator<Item = &'t str> {
    let mark = format!("```{language}\n");
    let blocks = guide.split(&mark).skip(1).collect::<Vec<_>>();
    blocks
        .into_iter()
        .filter_map(|rest| rest.split("```").next())
}

#[test]
fn every_policy_of_the_guide_to_deployment_is_right() {
    let guide = include_str!("../../../../docs/guide/deploy.md");
    let mut policies: Vec<_> = blocks(guide, "toml").map(str::to_owned).collect();
    // A manifest is YAML, and the policy is one of its texts.
    let manifest = include_str!("../../../../packaging/image/kubernetes.yaml");
    for event in Parser::new_from_str(manifest) {
        if let (Event::Scalar(text, ..), _) = event.unwrap()
            && text.starts_with("version = 1")
        {
            policies.push(text.into_owned());
        }
    }
    policies.push(include_str!("../../../../packaging/image/ratekeeper.toml").to_owned());
    policies.push(include_str!("../../../../packaging/debian/ratekeeper.toml").to_owned());
    assert_eq!(policies.len(), 8);
    for text in policies {
        let loaded = parse(&text, Context::default()).unwrap();
        assert_eq!(loaded.warnings, [], "{text}");
    }
}

/// Returns the texts that a block of a page may stand for: a whole policy, tables of one, or fields
/// of one limit.
fn readings(block: &str) -> [String; 4] {
    const LIMIT: &str = "[[limit]]\nname = \"default\"\n";
    const FIELDS: &str = "key = [\"ip\"]\nlimit = \"5/1m\"\n";
    let mut head = String::from("version = 1\n");
    if !block.starts_with("timezone") {
        head += "timezone = \"UTC\"\n";
    }
    let has_key = block.lines().any(|line| line.starts_with("key "));
    let key = if has_key { "" } else { "key = [\"ip\"]\n" };
    [
        block.to_owned(),
        format!("{head}{block}"),
        format!("{head}{block}\n{LIMIT}{FIELDS}"),
        format!("{head}{LIMIT}{key}{block}"),
    ]
}

/// Returns true if the text has no error, except that its other files (a database, keys) are absent.
fn is_right(text: &str) -> bool {
    match parse(text, Context::default()) {
        Ok(_) => true,
        Err(errors) => errors
            .iter()
            .all(|error| error.message.ends_with("it is not read with this policy")),
    }
}

#[test]
fn every_policy_of_every_guide_is_read_without_an_error() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    // The second has the tour and the worked examples.
    let folders = ["docs/guide", "crates/cli/tests/e2e"];
    let pages = folders
        .iter()
        .flat_map(|folder| std::fs::read_dir(root.join(folder)).unwrap());
    let mut count = 0;
    for entry in pages {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let page = std::fs::read_to_string(&path).unwrap();
        let mut before = String::new();
        for block in blocks(&page, "toml").filter(|block| !block.starts_with("ratekeeper = {")) {
            let text = format!("{before}{block}");
            assert!(
                readings(&text).iter().any(|text| is_right(text)),
                "{}:\n{block}",
                path.display()
            );
            if path.ends_with("first-policy.md") {
                before = text; // each block is added to those before it
            }
            count += 1;
        }
    }
    assert!(count >= 140, "{count} policies");
}
