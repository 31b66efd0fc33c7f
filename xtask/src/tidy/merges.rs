//! Rule about merges.

use super::{Finding, SourceFile};

/// No file has the marks of an unfinished merge: in prose nothing else notices them.
pub(super) fn finished_merges(files: &[SourceFile], findings: &mut Vec<Finding>) {
    for file in files {
        for (line, text) in file.lines() {
            if text.starts_with("<<<<<<< ") || text.starts_with(">>>>>>> ") {
                findings.push(Finding {
                    path: file.path.clone(),
                    line,
                    rule: "finished-merges",
                    message: "a mark of a merge that is not finished".into(),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::found;
    use super::*;

    #[test]
    fn marks_of_a_merge_are_found() {
        let text = "one\n<<<<<<< HEAD\ntwo\n=======\nthree\n>>>>>>> other\n";
        let found = found(
            finished_merges,
            &[("a.md", text), ("b.md", "a <<<<<<< b\n=======\n")],
        );
        let message = "finished-merges: a mark of a merge that is not finished";
        assert_eq!(
            found,
            [format!("a.md:2: {message}"), format!("a.md:6: {message}")]
        );
    }
}
