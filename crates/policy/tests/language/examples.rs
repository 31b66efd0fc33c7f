//! The policies of `examples/policies` are valid, and without a warning.

#![expect(clippy::unwrap_used, reason = "a test fails where it panics")]

use std::path::{Path, PathBuf};

use ratekeeper_core::{Algorithm as _, Nanos};
use ratekeeper_policy::config::{Colour, Context, parse, render};

/// Returns the policy files of the examples, by name.
fn policies() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/policies");
    let entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries
        .filter(|path| path.extension().is_some_and(|end| end == "toml"))
        .collect();
    files.sort();
    files
}

#[test]
fn examples_are_right_and_give_no_warning() {
    let files = policies();
    assert!(files.len() >= 5, "{files:?}");
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let findings = match parse(&text, Context::default()) {
            Ok(loaded) => {
                assert!(!loaded.policy.rules.is_empty(), "{}", file.display());
                loaded.warnings
            }
            Err(errors) => errors,
        };
        let page = render(&file.display().to_string(), &text, &findings, Colour::Never);
        assert_eq!(page, "");
    }
}

/// The comment says "at most 5 in any minute", as `explain` does.
#[test]
fn a_bound_in_a_comment_is_that_of_its_limit() {
    let mut compared = 0;
    for file in policies() {
        let text = std::fs::read_to_string(&file).unwrap();
        let comment = text.lines().next().unwrap();
        let Some((said, span)) = comment.split_once(" in any ") else {
            continue;
        };
        let seconds = match span.trim_end_matches('.') {
            "second" => 1,
            "minute" => 60,
            other => panic!("{other} in {}", file.display()),
        };
        let (_, most) = said.rsplit_once("at most ").expect("an upper bound");
        let loaded = parse(&text, Context::default()).unwrap();
        let algorithm = &loaded.policy.rules[0].limit.algorithm;
        let bound = algorithm.bound(Nanos::from_secs(seconds));
        assert_eq!(most, bound.to_string(), "{}", file.display());
        compared += 1;
    }
    assert_eq!(compared, 2);
}
