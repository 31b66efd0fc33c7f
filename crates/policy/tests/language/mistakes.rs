//! Mistakes that people made in policies: each is found at its place, with an edit that helps.
//!
//! The files of `mistakes` hold the mistakes of testers of the language, of newcomers, of users of
//! other programs, and of attackers. A mistake is some lines `LINE:COLUMN CODE HELP`, one for each
//! finding, and then the policy, indented; of the help a part is enough. The lines `> LINE TEXT`
//! behind it are the edit that the helps propose: texts for a line stand in its place, and a line
//! without a text is removed. The edited policy has no finding.
//!
//! `<U+0430>` stands for a character beyond ASCII.

use std::collections::BTreeMap;
use std::fs;

use ratekeeper_policy::config::{Context, Diagnostic, parse};

use crate::cases;

const INDENT: &str = "    ";

#[test]
fn every_mistake_is_found_at_its_place_and_mended_by_its_edit() {
    let files = cases::files(&cases::root().join("mistakes"));
    let texts = files.iter().map(|file| fs::read_to_string(file).unwrap());
    let tried: Vec<_> = texts.map(|text| check(&text)).collect();
    let count: usize = tried.iter().map(|(count, _)| count).sum();
    let edited: usize = tried.iter().map(|(_, edited)| edited).sum();
    cases::say(&format!("mistakes: {count} cases, {edited} with an edit"));
    assert_eq!((count, edited), (352, 234));
}

/// Checks all mistakes of a file; returns their number, and the number of those with an edit.
fn check(mistakes: &str) -> (usize, usize) {
    let blocks = mistakes.split("\n\n").filter(|it| !it.starts_with('#'));
    let (mut count, mut edited) = (0, 0);
    for block in blocks {
        let (policy, rest): (Vec<&str>, Vec<&str>) =
            block.lines().partition(|line| line.starts_with(INDENT));
        let (edits, expected): (Vec<&str>, Vec<&str>) =
            rest.into_iter().partition(|line| line.starts_with("> "));
        let policy: Vec<_> = policy
            .iter()
            .map(|line| cases::raw(&line[INDENT.len()..]))
            .collect();
        let text = policy.join("\n") + "\n";
        let found = findings(&text);
        let places: Vec<_> = found
            .iter()
            .map(|one| format!("{}:{} {}", one.line, one.column, one.code))
            .collect();
        assert_eq!(found.len(), expected.len(), "{text}{places:#?}");
        for ((finding, place), expected) in found.iter().zip(&places).zip(&expected) {
            let mut words = expected.splitn(3, ' ');
            let [at, code, edit] = [(); 3].map(|()| words.next().unwrap_or_default());
            assert_eq!(*place, format!("{at} {code}"), "{text}");
            let help = finding.help.as_deref().unwrap_or_default();
            assert!(
                !edit.is_empty() && help.contains(&cases::raw(edit)),
                "{text}{help}"
            );
        }
        if !edits.is_empty() {
            let text = with_edits(&policy, &edits);
            assert_eq!(findings(&text), [], "{text}");
            edited += 1;
        }
        count += 1;
    }
    (count, edited)
}

fn findings(text: &str) -> Vec<Diagnostic> {
    match parse(text, Context::default()) {
        Ok(loaded) => loaded.warnings,
        Err(findings) => findings,
    }
}

/// Returns the policy with the lines of `> LINE TEXT` in place of its own.
fn with_edits(policy: &[String], edits: &[&str]) -> String {
    let mut changed: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    for edit in edits {
        let edit = &edit["> ".len()..];
        let (line, text) = edit.split_once(' ').unwrap_or((edit, ""));
        let texts = changed.entry(line.parse().unwrap_or_default()).or_default();
        texts.extend((!text.is_empty()).then_some(text));
    }
    let mut text = String::new();
    for (line, own) in (1..).zip(policy) {
        let own = [own.as_str()];
        let lines = changed.remove(&line).unwrap_or_else(|| own.to_vec());
        for line in lines {
            text.push_str(line);
            text.push('\n');
        }
    }
    assert_eq!(
        changed.len(),
        0,
        "an edit of a line that is not there: {text}"
    );
    text
}
