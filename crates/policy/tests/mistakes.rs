//! Mistakes that people made in policies: each is found at its place, with an edit that helps.
//!
//! `mistakes.txt` holds about a hundred that testers of the language tried, by kind. A mistake is
//! some lines `LINE:COLUMN CODE HELP`, one for each finding, and then the policy, indented; of the
//! help a part is enough.

use ratekeeper_policy::config::{Context, parse};

const MISTAKES: &str = include_str!("mistakes.txt");
const INDENT: &str = "    ";

#[test]
fn every_mistake_is_found_at_its_place_with_an_edit() {
    let blocks = MISTAKES.split("\n\n").filter(|it| !it.starts_with('#'));
    let mut count = 0;
    for block in blocks {
        let (policy, expected): (Vec<&str>, Vec<&str>) =
            block.lines().partition(|line| line.starts_with(INDENT));
        let policy: Vec<_> = policy.iter().map(|line| &line[INDENT.len()..]).collect();
        let text = policy.join("\n") + "\n";
        let found = match parse(&text, Context::default()) {
            Ok(loaded) => loaded.warnings,
            Err(findings) => findings,
        };
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
            assert!(!edit.is_empty() && help.contains(edit), "{text}{help}");
        }
        count += 1;
    }
    assert_eq!(count, 98);
}
