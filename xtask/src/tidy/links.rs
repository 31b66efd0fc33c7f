//! Rules about references: relative links and named decisions exist, an index names every page.

use std::collections::HashSet;

use super::{Finding, SourceFile};

/// A relative link names a file or a directory of the repository, and its heading exists if it
/// names one.
pub(super) fn relative_links(files: &[SourceFile], out: &mut Vec<Finding>) {
    let paths: HashSet<&str> = files.iter().map(|file| &*file.path).collect();
    for file in files.iter().filter(|file| file.is_markdown()) {
        for (line, target) in links(file) {
            if let Some(message) = broken(files, &paths, file, target) {
                out.push(Finding {
                    path: file.path.clone(),
                    line,
                    rule: "link",
                    message,
                });
            }
        }
    }
}

/// The words before the number of a decision, in two halves so that this file has none.
const DECISIONS: [&str; 2] = [concat!("AD", "R "), concat!("docs/", "adr/")];

/// Folders with an index, a README that links to each page beside it.
const INDEXED: [&str; 2] = ["docs/adr/", "docs/guide/"];

/// A page of a folder with an index is linked from there.
pub(super) fn indexed_pages(files: &[SourceFile], out: &mut Vec<Finding>) {
    for folder in INDEXED {
        let index = format!("{folder}README.md");
        let Some(index) = files.iter().find(|file| file.path == index) else {
            continue;
        };
        let named: HashSet<_> = links(index)
            .map(|(_, link)| resolve(&index.path, link))
            .collect();
        let pages = files.iter().filter(|file| file.is_markdown());
        let pages = pages.filter(|file| {
            let page = file.path.strip_prefix(folder);
            // The table of contents of the book is an index itself.
            page.is_some_and(|page| !page.contains('/') && page != "SUMMARY.md")
                && file.path != index.path
        });
        for page in pages.filter(|page| !named.contains(&page.path)) {
            out.push(Finding {
                path: page.path.clone(),
                line: 1,
                rule: "index",
                message: format!("{} does not link to this page", index.path),
            });
        }
    }
}

/// A decision that is named by its number, in prose or in a comment, has a page in docs/adr.
pub(super) fn named_decisions(files: &[SourceFile], out: &mut Vec<Finding>) {
    let is_page = |number: &str| {
        let page = format!("docs/adr/{number}-");
        files.iter().any(|file| file.path.starts_with(&page))
    };
    for file in files {
        for (line, text) in file.lines() {
            let places = DECISIONS.iter().flat_map(|words| text.split(words).skip(1));
            let numbers = places.filter_map(|rest| rest.get(..4));
            let numbers = numbers.filter(|four| four.bytes().all(|digit| digit.is_ascii_digit()));
            for number in numbers.filter(|number| !is_page(number)) {
                out.push(Finding {
                    path: file.path.clone(),
                    line,
                    rule: "decision",
                    message: format!("docs/adr has no decision {number}"),
                });
            }
        }
    }
}

/// Returns why `target` is broken; `None` if it exists or is outside the repository.
fn broken(
    files: &[SourceFile],
    paths: &HashSet<&str>,
    from: &SourceFile,
    target: &str,
) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = if path.is_empty() {
        from.path.clone()
    } else {
        resolve(&from.path, path)
    };
    let directory = format!("{path}/");
    let exists = paths.contains(&*path)
        || path.is_empty()
        || paths.iter().any(|known| known.starts_with(&directory));
    if !exists {
        return Some(format!("broken link `{target}`: there is no {path}"));
    }
    let page = files
        .iter()
        .find(|file| file.path == path && file.is_markdown())?;
    let known = anchor.is_empty() || headings(page).any(|heading| heading == anchor);
    (!known).then(|| format!("broken link `{target}`: {path} has no such heading"))
}

/// Resolves `link` in the file `from` to a path from the root.
fn resolve(from: &str, link: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    if !link.starts_with('/') {
        parts.extend(from.split('/'));
        parts.pop();
    }
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Returns the targets of `[text](target)` and `[text]: target`, outside of code.
fn links(file: &SourceFile) -> impl Iterator<Item = (usize, &str)> {
    prose(file).flat_map(|(line, text)| {
        let inline = text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split([')', ' ']).next());
        let reference = text
            .starts_with('[')
            .then(|| text.split_once("]: "))
            .flatten()
            .and_then(|(_, target)| target.split_whitespace().next());
        inline.chain(reference).map(move |target| (line, target))
    })
}

/// Returns the headings, converted to anchors as on GitHub.
fn headings(file: &SourceFile) -> impl Iterator<Item = String> {
    prose(file)
        .filter(|(_, line)| line.starts_with('#'))
        .map(|(_, line)| {
            let heading = line.trim_start_matches('#').trim();
            let kept = heading
                .chars()
                .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            kept.map(|c| {
                if c == ' ' {
                    '-'
                } else {
                    c.to_ascii_lowercase()
                }
            })
            .collect()
        })
}

/// Returns the lines outside of fenced code.
fn prose(file: &SourceFile) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    file.lines().filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::found;
    use super::*;

    #[test]
    fn a_relative_link_leads_somewhere() {
        let check = |from, text| {
            let pages = [
                (from, text),
                ("README.md", "# Rate keeper\n## The `run` verb\n"),
                ("docs/adr/0001-one.md", "# One\n"),
                ("LICENSE-MIT", ""),
            ];
            found(relative_links, &pages).len()
        };
        let rows = [
            (
                "a.md",
                "[x](README.md) and [y](docs/adr) and [z](LICENSE-MIT)",
                0,
            ),
            ("a.md", "[x](REEDME.md) and [y](docs/guide)", 2),
            ("docs/adr/a.md", "[x](../../README.md), [y](0001-one.md)", 0),
            ("docs/adr/a.md", "[x](README.md)", 1),
            (
                "a.md",
                "[x](https://example.com/no.md) [y](mailto:a@example.com)",
                0,
            ),
            ("a.md", "[x](README.md#the-run-verb)", 0),
            ("a.md", "[x](README.md#the-walk-verb)", 1),
            ("a.md", "# Here\n[x](#here)", 0),
            ("a.md", "# Here\n[x](#there)", 1),
            ("a.md", "[x][1]\n\n[1]: README.md\n[2]: REEDME.md", 1),
            ("a.md", "```\n[x](REEDME.md)\n```\n", 0),
        ];
        for (from, text, findings) in rows {
            assert_eq!(check(from, text), findings, "{from}: {text}");
        }
    }

    #[test]
    fn the_finding_names_line_and_target() {
        let findings = found(relative_links, &[("docs/a.md", "\n[x](b.md)\n")]);
        assert_eq!(
            findings,
            ["docs/a.md:2: link: broken link `b.md`: there is no docs/b.md"]
        );
    }

    #[test]
    fn a_decision_that_is_named_exists() {
        let named = |text: &str| {
            let text = text.replace('#', DECISIONS[0]).replace('@', DECISIONS[1]);
            let files = [("crates/a/src/a.rs", &*text), ("docs/adr/0001-one.md", "")];
            found(named_decisions, &files)
        };
        assert_eq!(named("//! See [#0001](x), an # of 2026, #12.\n").len(), 0);
        assert_eq!(
            named("//! One.\n// #0001 and #0002\n"),
            ["crates/a/src/a.rs:2: decision: docs/adr has no decision 0002"]
        );
        assert_eq!(
            named("[x](../@0001-one.md) [x](../@0003-three.md)").len(),
            1
        );
    }

    #[test]
    fn an_index_names_every_page() {
        let pages = [
            ("docs/guide/README.md", "[a](a.md)\n"),
            ("docs/guide/a.md", "# A\n"),
            ("docs/guide/b.md", "# B\n"),
            ("docs/guide/pictures/c.md", "# C\n"),
            ("docs/d.md", "# D\n"),
        ];
        assert_eq!(
            found(indexed_pages, &pages),
            ["docs/guide/b.md:1: index: docs/guide/README.md does not link to this page"]
        );
    }
}
