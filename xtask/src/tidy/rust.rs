//! Rules about Rust files.

use super::{Finding, SourceFile};

/// Maximum number of lines of a file before its tests.
const MAX_LINES: usize = 400;

/// Directory of the algorithms, one core per file.
const ALGORITHMS: &str = "crates/core/src/algorithms/";

// Spelled in two halves, so that the rules do not find their own source.
const ALLOW: [&str; 2] = [concat!("#[", "allow("), concat!("#![", "allow(")];
const EXPECT: [&str; 2] = [concat!("#[", "expect("), concat!("#![", "expect(")];
const UNFINISHED: [&str; 3] = [
    concat!("to", "do!("),
    concat!("unimple", "mented!("),
    concat!("FIX", "ME"),
];

/// A Rust file of a crate opens with `//!`: essence, figure, trade-offs.
pub(super) fn module_header(files: &[SourceFile], out: &mut Vec<Finding>) {
    for file in rust(files).filter(|file| file.path.starts_with("crates/")) {
        let first = file.text.lines().find(|line| !line.trim().is_empty());
        if !first.is_some_and(|line| line.starts_with("//!")) {
            let message =
                "does not open with `//!`: essence in one line, then figure and trade-offs";
            out.push(finding(file, 1, "header", message));
        }
    }
}

/// A file of an algorithm shows a figure in its header.
pub(super) fn algorithm_figure(files: &[SourceFile], out: &mut Vec<Finding>) {
    for file in algorithms(files) {
        let drawn = file
            .text
            .lines()
            .any(|line| line.trim_end() == "//! ```text");
        if !drawn {
            out.push(finding(
                file,
                1,
                "figure",
                "has no figure (```text) in its header",
            ));
        }
    }
}

/// A file of an algorithm has a row in the table of `algorithms/mod.rs`, which names it or its type:
/// `QuotaReset` is `quota_reset.rs`.
pub(super) fn algorithm_row(files: &[SourceFile], out: &mut Vec<Finding>) {
    let table = files
        .iter()
        .find(|file| file.path == format!("{ALGORITHMS}mod.rs"));
    let table = table.map_or("", |file| &file.text);
    for file in algorithms(files) {
        let type_name = stem(&file.path).replace('_', "");
        let is_named = |word: &str| word.replace('_', "").eq_ignore_ascii_case(&type_name);
        let named = table
            .lines()
            .filter(|line| line.starts_with("//!") && line.contains('|'))
            .any(|line| words(line).any(is_named));
        if !named {
            let message = format!("no row of the table in {ALGORITHMS}mod.rs names this file");
            out.push(finding(file, 1, "table", &message));
        }
    }
}

/// A file has at most [`MAX_LINES`] lines before its tests. Files of tests may be longer.
pub(super) fn file_size(files: &[SourceFile], out: &mut Vec<Finding>) {
    let code =
        |file: &&SourceFile| !file.path.contains("/tests/") && !file.path.ends_with("/tests.rs");
    for file in rust(files).filter(code) {
        let lines: Vec<_> = file.text.lines().collect();
        let tests = lines.windows(2).position(opens_tests);
        let size = tests.unwrap_or(lines.len());
        if size > MAX_LINES {
            let message = format!("{size} lines before its tests; the maximum is {MAX_LINES}");
            out.push(finding(file, MAX_LINES + 1, "size", &message));
        }
    }
}

fn opens_tests(lines: &[&str]) -> bool {
    matches!(lines, ["#[cfg(test)]", next] if next.starts_with("mod "))
}

/// Lints are suppressed with `expect` and a reason, so that the compiler reports a suppression that
/// is no longer needed.
pub(super) fn suppressions(files: &[SourceFile], out: &mut Vec<Finding>) {
    for file in rust(files) {
        for (line, text) in code(file) {
            if ALLOW.iter().any(|word| text.contains(word)) {
                out.push(finding(
                    file,
                    line,
                    "allow",
                    "suppress with `expect` and a reason",
                ));
            }
            if EXPECT.iter().any(|word| text.contains(word)) && !states_reason(file, line) {
                out.push(finding(file, line, "expect", "state the `reason = \"..\"`"));
            }
        }
    }
}

/// Returns true if the attribute that begins at `line` has a reason before it ends.
fn states_reason(file: &SourceFile, line: usize) -> bool {
    let mut attribute = String::new();
    for text in file.text.lines().skip(line - 1) {
        attribute.push_str(text);
        if text.contains(")]") {
            break;
        }
    }
    attribute.contains("reason =")
}

/// No marker of unfinished work remains.
pub(super) fn unfinished(files: &[SourceFile], out: &mut Vec<Finding>) {
    for file in rust(files) {
        for (line, text) in file.lines() {
            if let Some(word) = UNFINISHED.iter().find(|word| text.contains(**word)) {
                out.push(finding(
                    file,
                    line,
                    "unfinished",
                    &format!("`{word}` must be removed"),
                ));
            }
        }
    }
}

/// Source is ASCII, so that figures line up and no character looks like another.
pub(super) fn ascii(files: &[SourceFile], out: &mut Vec<Finding>) {
    for file in rust(files) {
        for (line, text) in file.lines() {
            if let Some(found) = text.chars().find(|c| !c.is_ascii()) {
                let message = format!("U+{:04X} is not ASCII: write an escape", u32::from(found));
                out.push(finding(file, line, "ascii", &message));
            }
        }
    }
}

/// Returns handwritten Rust; generated code is checked by the test that generates it again.
fn rust(files: &[SourceFile]) -> impl Iterator<Item = &SourceFile> {
    let written = |file: &&SourceFile| file.is_rust() && !file.path.contains("/generated/");
    files.iter().filter(written)
}

/// Returns the cores: the files directly in the directory of algorithms.
fn algorithms(files: &[SourceFile]) -> impl Iterator<Item = &SourceFile> {
    rust(files).filter(|file| {
        let name = file.path.strip_prefix(ALGORITHMS);
        name.is_some_and(|name| name != "mod.rs" && !name.contains('/'))
    })
}

fn stem(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.strip_suffix(".rs").unwrap_or(name)
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
}

/// Returns the lines that are not comments.
fn code(file: &SourceFile) -> impl Iterator<Item = (usize, &str)> {
    file.lines()
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
}

fn finding(file: &SourceFile, line: usize, rule: &'static str, message: &str) -> Finding {
    Finding {
        path: file.path.clone(),
        line,
        rule,
        message: message.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::found;
    use super::*;

    const GCRA: &str = "crates/core/src/algorithms/gcra.rs";
    const TABLE: &str = "crates/core/src/algorithms/mod.rs";

    #[test]
    fn a_file_of_a_crate_opens_with_its_essence() {
        let check = |path, text| found(module_header, &[(path, text)]).len();
        assert_eq!(check("crates/a/src/lib.rs", "//! Essence.\n"), 0);
        assert_eq!(check("crates/a/src/lib.rs", "\n\n//! Essence.\n"), 0);
        assert_eq!(check("crates/a/src/lib.rs", "use std::io;\n//! Late.\n"), 1);
        assert_eq!(check("crates/a/src/lib.rs", "// Not a header.\n"), 1);
        assert_eq!(check("crates/a/src/lib.rs", ""), 1);
        assert_eq!(check("xtask/src/main.rs", "fn main() {}"), 0, "crates only");
    }

    #[test]
    fn an_algorithm_shows_a_figure() {
        let check = |path, text| found(algorithm_figure, &[(path, text)]).len();
        assert_eq!(
            check(GCRA, "//! Essence.\n//! ```text\n//! --\n//! ```\n"),
            0
        );
        assert_eq!(check(GCRA, "//! Essence.\n//! ```\n//! code\n//! ```\n"), 1);
        assert_eq!(check(TABLE, "//! The table.\n"), 0);
        assert_eq!(check("crates/core/src/time.rs", "//! No figure.\n"), 0);
    }

    #[test]
    fn an_algorithm_has_a_row() {
        let check = |table| found(algorithm_row, &[(TABLE, table), (GCRA, "")]).len();
        assert_eq!(check("//! | [`gcra`] | one number |\n"), 0);
        assert_eq!(check("//! The gcra is not in a table.\n"), 1);
        assert_eq!(check("//! | gcra_twin | another |\n"), 1);
        assert_eq!(check("mod gcra; // a | b\n"), 1);
        let warm_up = ("crates/core/src/algorithms/warm_up.rs", "");
        for table in ["//! | warm_up | 24 |\n", "//! | WarmUp::bursty | 24 |\n"] {
            assert_eq!(found(algorithm_row, &[(TABLE, table), warm_up]).len(), 0);
        }
        assert_eq!(
            found(algorithm_row, &[(GCRA, "")]).len(),
            1,
            "no table at all"
        );
    }

    #[test]
    fn a_file_is_small_before_its_tests() {
        let check = |path, text: &str| found(file_size, &[(path, text)]).len();
        let lines = |count| "x\n".repeat(count);
        assert_eq!(check("crates/a/src/a.rs", &lines(400)), 0);
        assert_eq!(check("crates/a/src/a.rs", &lines(401)), 1);
        let tested = |count| {
            format!(
                "{}#[cfg(test)]\nmod tests {{\n{}}}\n",
                lines(count),
                lines(900)
            )
        };
        assert_eq!(check("crates/a/src/a.rs", &tested(400)), 0);
        assert_eq!(check("crates/a/src/a.rs", &tested(401)), 1);
        let gated = format!("#[cfg(test)]\nuse std::io;\n{}", lines(400));
        assert_eq!(
            check("crates/a/src/a.rs", &gated),
            1,
            "a gated import opens no tests"
        );
        assert_eq!(check("crates/a/tests/long.rs", &lines(900)), 0);
        assert_eq!(check("crates/a/src/a/tests.rs", &lines(900)), 0);
        assert_eq!(check("crates/a/src/a/no_tests.rs", &lines(900)), 1);
    }

    #[test]
    fn a_lint_is_suppressed_with_a_reason() {
        let check = |text: String| found(suppressions, &[("crates/a/src/a.rs", &text)]);
        let [allow, expect] = [ALLOW[0], EXPECT[0]];
        assert_eq!(check(format!("{allow}dead_code)]\n")).len(), 1);
        assert_eq!(check(format!("{}dead_code)]\n", ALLOW[1])).len(), 1);
        assert_eq!(check(format!("// about {allow}..)]\n")).len(), 0);
        assert_eq!(check(format!("{expect}dead_code)]\n")).len(), 1);
        assert_eq!(
            check(format!("{expect}dead_code, reason = \"x\")]\n")).len(),
            0
        );
        assert_eq!(
            check(format!("{expect}\n  dead_code,\n  reason = \"x\"\n)]\n")).len(),
            0
        );
        assert_eq!(
            check(format!("{expect}\n  dead_code\n)]\nlet reason = 1;\n")).len(),
            1
        );
    }

    #[test]
    fn unfinished_code_is_found() {
        let check = |text: String| found(unfinished, &[("xtask/src/a.rs", &text)]);
        for word in UNFINISHED {
            let findings = check(format!("fn a() {{\n    {word}\n}}\n"));
            assert_eq!(
                findings,
                [format!(
                    "xtask/src/a.rs:2: unfinished: `{word}` must be removed"
                )]
            );
        }
        assert!(check("fn a() { done!() }\n".into()).is_empty());
    }

    #[test]
    fn source_is_ascii() {
        let findings = found(ascii, &[("crates/a/src/a.rs", "ok\nna\u{ef}ve\n")]);
        assert_eq!(
            findings,
            ["crates/a/src/a.rs:2: ascii: U+00EF is not ASCII: write an escape"]
        );
        assert!(
            found(ascii, &[("README.md", "na\u{ef}ve")]).is_empty(),
            "Rust only"
        );
    }
}
