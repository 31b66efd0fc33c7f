//! Tidy: the part of the house style that a machine can check.
//!
//! ```text
//!   files --> [rule, rule, ...] --> findings, one a line: path:line: rule: message
//! ```
//!
//! Each rule is a pure function over the files; only [`run`] touches the disk.

use std::fmt;
use std::path::Path;

mod files;
mod links;
mod merges;
mod rust;

pub(crate) use files::SourceFile;

/// One violation of the style.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Finding {
    /// Path relative to the root.
    pub(crate) path: String,
    /// Line number, from 1.
    pub(crate) line: usize,
    /// Name of the rule.
    pub(crate) rule: &'static str,
    /// Lower case, no full stop.
    pub(crate) message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            path,
            line,
            rule,
            message,
        } = self;
        write!(f, "{path}:{line}: {rule}: {message}")
    }
}

/// A rule receives all files, because some rules need more than one.
type Rule = fn(&[SourceFile], &mut Vec<Finding>);

/// All rules.
const RULES: &[Rule] = &[
    rust::module_header,
    rust::algorithm_figure,
    rust::algorithm_row,
    rust::file_size,
    rust::suppressions,
    rust::unfinished,
    rust::ascii,
    links::relative_links,
    links::indexed_pages,
    links::named_decisions,
    merges::finished_merges,
];

/// Checks the repository at `root`, prints the findings.
pub(crate) fn run(root: &Path) -> Result<String, String> {
    let files = files::read(root).map_err(|why| format!("cannot read the repository: {why}"))?;
    let findings = check(&files);
    for finding in &findings {
        crate::say(&finding.to_string());
    }
    if findings.is_empty() {
        Ok(format!("{} files, nothing found", files.len()))
    } else {
        Err(format!(
            "{} findings in {} files",
            findings.len(),
            files.len()
        ))
    }
}

/// Returns the findings of every rule, by file and line.
fn check(files: &[SourceFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for rule in RULES {
        rule(files, &mut findings);
    }
    findings.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the rule's findings on `files`, as `line message`.
    pub(crate) fn found(rule: Rule, files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> = files
            .iter()
            .map(|(path, text)| SourceFile::new(path, text))
            .collect();
        let mut findings = Vec::new();
        rule(&files, &mut findings);
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn findings_are_ordered_by_file_and_line() {
        let files = [
            SourceFile::new("crates/b/src/lib.rs", "//! B.\n// caf\u{e9}\n"),
            SourceFile::new("crates/a/src/lib.rs", "fn main() {}\n"),
        ];
        let places: Vec<_> = check(&files)
            .into_iter()
            .map(|f| (f.path, f.line))
            .collect();
        assert_eq!(
            places,
            [
                ("crates/a/src/lib.rs".into(), 1),
                ("crates/b/src/lib.rs".into(), 2)
            ]
        );
    }
}
