//! Comments of the policies that ship: each number in them is one of the policy or of `explain`.
//!
//! ```text
//!   # Each user: 2 requests a second, at most 3 in any second.
//!                2/1s                  at most 3 in any 1 s
//! ```

use std::path::PathBuf;

use crate::desk::Desk;

/// Words for periods, with those of the policy and of `explain`.
const PERIODS: [(&str, &[&str]); 4] = [
    ("second", &["1s", "1 s"]),
    ("minute", &["1m", "1 min"]),
    ("hour", &["1h", "1 h"]),
    ("day", &["day", "1 d", "24h"]),
];

/// Returns the policies of the examples and each starter, with its comments of further limits as limits.
fn shipped() -> Vec<(String, String)> {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let examples = std::fs::read_dir(root.join("examples/policies")).expect("the examples");
    let examples = examples.map(|entry| entry.expect("an entry").path());
    let mut files: Vec<_> = examples
        .filter(|path| path.extension().is_some_and(|end| end == "toml"))
        .collect();
    files.sort();
    let read = |path: &PathBuf| std::fs::read_to_string(path).expect("a text");
    let mut texts: Vec<_> = files
        .iter()
        .map(|path| (path.display().to_string(), read(path)))
        .collect();
    let variants: [&[&str]; 3] = [
        &["init"],
        &["init", "--upstream", "127.0.0.1:3000"],
        &["init", "--for", "nginx"],
    ];
    for arguments in variants {
        let desk = Desk::new();
        desk.run(arguments);
        let starter = read(&desk.path().join("ratekeeper.toml"));
        let (limits, more) = starter
            .split_once("commented out:\n#\n")
            .expect("the starter has more limits in comments");
        let more = more
            .lines()
            .map(|line| line.trim_start_matches("# ").trim_start_matches('#'));
        let more: Vec<_> = more.collect();
        texts.push((
            arguments.join(" "),
            format!("{limits}\n{}\n", more.join("\n")),
        ));
    }
    texts
}

/// Returns the words of comments, and the texts in them between quotes or backticks; without commands.
fn comments(text: &str) -> (Vec<String>, String) {
    let comments = text.lines().filter_map(|line| line.split_once('#'));
    let comments = comments.map(|(_, comment)| comment);
    let prose = comments.filter(|comment| !comment.starts_with("   "));
    let prose: Vec<_> = prose.collect();
    let prose = prose.join(" ");
    let parts: Vec<_> = prose.split(['`', '"']).collect();
    let quoted: Vec<_> = parts.iter().copied().skip(1).step_by(2).collect();
    let words = parts.into_iter().step_by(2);
    let words = words.flat_map(str::split_whitespace);
    let words = words.map(|word| word.trim_matches(['.', ',', ';', ':', '(', ')']).to_owned());
    let words = words.filter(|word| !word.is_empty());
    (words.collect(), quoted.join("\n"))
}

/// Returns the numbers of a text, without separators of thousands.
fn numbers(text: &str) -> Vec<String> {
    let text = text.replace(',', "");
    let numbers = text.split(|c: char| !c.is_ascii_digit());
    numbers
        .filter(|it| !it.is_empty())
        .map(str::to_owned)
        .collect()
}

fn is_number(word: &str) -> bool {
    word.chars().all(|c| c.is_ascii_digit())
}

#[test]
fn each_number_in_a_comment_is_of_the_policy() {
    let mut compared = 0;
    for (name, text) in shipped() {
        let desk = Desk::new().with("ratekeeper.toml", &text);
        let told = desk.terminal(&[&["explain"]]).replace(',', "");
        assert!(told.ends_with("[exit 0]\n\n"), "{name}: {told}");
        let code = text
            .lines()
            .map(|line| line.split('#').next().unwrap_or_default());
        let code: Vec<_> = code.collect();
        let (words, quoted) = comments(&text);
        let known = format!("{}\n{told}\n{quoted}", code.join("\n"));
        for (at, word) in words.iter().enumerate() {
            if !is_number(word) {
                continue;
            }
            compared += 1;
            assert!(
                numbers(&known).contains(word),
                "{name}: {word} in a comment"
            );
            // `20 new accounts a day`: up to three words between the number and the period.
            let after = words[at + 1..].iter().take(5);
            let after: Vec<_> = after.take_while(|word| !is_number(word)).collect();
            let each = after.iter().position(|it| *it == "a" || *it == "any");
            let period = each.and_then(|each| {
                after[each + 1..]
                    .iter()
                    .find_map(|word| PERIODS.iter().find(|(period, _)| *word == period))
            });
            let Some((period, spellings)) = period else {
                continue;
            };
            let is_bound = after.iter().any(|it| *it == "any");
            let is_told = spellings.iter().any(|spelling| {
                known.contains(&format!("at most {word} in any {spelling}"))
                    || !is_bound && known.contains(&format!("\"{word}/{spelling}\""))
            });
            assert!(is_told, "{name}: {word} a {period} in a comment");
        }
    }
    assert!(compared >= 15, "{compared} numbers");
}
