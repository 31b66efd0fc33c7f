//! Files of cases: many inputs, each with the text that is expected for it.
//!
//! ```text
//!   === name of the case
//!   the input
//!   --- expect
//!   the expected text, as long as the next case, behind an empty line
//! ```
//!
//! `RATEKEEPER_CASES=write cargo test -p ratekeeper-policy --test language` writes the expected texts
//! again; read the changes before they are committed. `<U+000D>` stands for a control character.

#![expect(clippy::unwrap_used, reason = "a test fails where it panics")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Policies that the fuzzer begins with, from the folder of the tests.
pub(crate) const CORPUS: &str = "../../../fuzz/corpus/policy";

const EXPECT: &str = "--- expect\n";

/// One input with its expected text.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) input: String,
    written: String,
    expected: String,
}

/// Compares the text for each case below a folder with the expected one; returns their number.
pub(crate) fn check(folder: &str, text: impl Fn(&str) -> String) -> usize {
    let write = std::env::var("RATEKEEPER_CASES").is_ok_and(|word| word == "write");
    let (mut count, mut wrong) = (0, String::new());
    for file in files(&root().join(folder)) {
        let mut all = Vec::new();
        for case in cases(&file) {
            let Case { name, written, .. } = &case;
            let found = escaped(text(&case.input).trim_end());
            assert!(!found.is_empty(), "nothing is said about {name}");
            if found != case.expected {
                let expected = &case.expected;
                wrong.extend(["=== ", name, "\n", written, "--- expected\n", expected]);
                wrong.extend(["\n--- found\n", &found, "\n\n"]);
            }
            all.push(format!("=== {name}\n{written}{EXPECT}{found}\n"));
            count += 1;
        }
        if write {
            fs::write(file, all.join("\n")).unwrap();
        }
    }
    say(&format!("{folder}: {count} cases"));
    assert!(
        write || wrong.is_empty(),
        "{wrong}RATEKEEPER_CASES=write writes what was found"
    );
    count
}

/// Prints a line of a test that passes: `cargo test -- --nocapture` shows it.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Returns all cases below a folder.
pub(crate) fn read(folder: &str) -> Vec<Case> {
    let files = files(&root().join(folder));
    let all: Vec<_> = files.iter().flat_map(|file| cases(file)).collect();
    let names: BTreeSet<_> = all.iter().map(|case| &case.name).collect();
    assert_eq!(names.len(), all.len(), "a name is used twice in {folder}");
    all
}

/// Returns the folder of the tests.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

/// Returns all files below a folder, sorted.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let below = |path: PathBuf| {
        if path.is_dir() {
            files(&path)
        } else {
            vec![path]
        }
    };
    paths.into_iter().flat_map(below).collect()
}

fn cases(file: &Path) -> Vec<Case> {
    let text = fs::read_to_string(file).unwrap();
    let text = format!("\n{text}");
    let mut blocks = text.split("\n=== ");
    assert_eq!(
        blocks.next(),
        Some(""),
        "{} begins with a case",
        file.display()
    );
    let case = |block: &str| {
        let (name, rest) = block.split_once('\n').unwrap();
        let (written, expected) = rest.split_once(EXPECT).unwrap_or((rest, ""));
        Case {
            name: name.to_owned(),
            input: raw(written),
            written: written.to_owned(),
            expected: expected.trim_end().to_owned(),
        }
    };
    blocks.map(case).collect()
}

/// Returns the text with each control character but tabs and ends of lines as `<U+000D>`.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars() {
        if character.is_control() && !matches!(character, '\n' | '\t') {
            let _ = write!(out, "<U+{:04X}>", u32::from(character));
        } else {
            out.push(character);
        }
    }
    out
}

/// Returns the text with `<U+0430>` as the character.
pub(crate) fn raw(text: &str) -> String {
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
