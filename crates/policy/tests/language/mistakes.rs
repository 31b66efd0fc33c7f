//! Mistakes that people made in policies: each is found at its place, with an edit that helps.
//!
//! `mistakes.txt` holds about a hundred that testers of the language tried, and `second_set.txt` those
//! of newcomers, of users of other programs, and of attackers. A mistake is some lines `LINE:COLUMN
//! CODE HELP`, one for each finding, and then the policy, indented; of the help a part is enough. The
//! lines `> LINE TEXT` behind it are the edit that the helps propose: texts for a line stand in its
//! place, and a line without a text is removed. The edited policy has no finding.
//!
//! `<U+0430>` stands for a character beyond ASCII.

use std::collections::BTreeMap;

use ratekeeper_policy::config::{Context, Diagnostic, parse};

const INDENT: &str = "    ";

#[test]
fn every_mistake_is_found_at_its_place_with_an_edit() {
    let tried = check(include_str!("mistakes.txt"));
    assert_eq!(tried, (98, 0));
}

#[test]
fn every_mistake_of_the_second_set_is_mended_by_its_edit() {
    let tried = check(include_str!("second_set.txt"));
    assert_eq!(tried, (256, 241));
}

/// Checks all mistakes; returns their number, and the number of those with an edit.
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
            .map(|line| raw(&line[INDENT.len()..]))
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
                !edit.is_empty() && help.contains(&raw(edit)),
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

/// Returns the text with `<U+0430>` as the character.
fn raw(text: &str) -> String {
    let mut parts = text.split("<U+");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.split_once('>');
        let character = code.and_then(|(code, _)| u32::from_str_radix(code, 16).ok());
        out.extend(character.and_then(char::from_u32));
        out.push_str(code.map_or(part, |(_, rest)| rest));
    }
    out
}
