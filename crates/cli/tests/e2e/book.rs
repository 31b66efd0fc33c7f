//! The guide as a book, in a real browser: nothing in its console, and nothing that hinders a
//! reader, on a desk and on a phone, in the light and in the dark.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::chromium::{Chromium, Screen};
use crate::harness::process::carried;

/// Builds the book as `cargo xtask book` does; `None` if mdBook is not there.
fn build(book: &Path) -> Option<()> {
    let mdbook = carried("target/mdbook-0.5.4/mdbook")?;
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut build = Command::new(mdbook);
    let build = build.arg("build").arg(docs).arg("-d").arg(book).output();
    let build = build.expect("mdBook runs");
    assert!(build.status.success(), "{build:?}");
    Some(())
}

/// Returns the addresses of its pages, in order.
fn pages(book: &Path) -> Vec<String> {
    let files = fs::read_dir(book).expect("the book is there");
    let files = files.map(|file| file.expect("it can be read").path());
    let is_page = |path: &Path| {
        // The others are made of these, or of nothing.
        let is_made = ["404.html", "print.html", "toc.html"].map(|name| path.ends_with(name));
        path.extension().is_some_and(|end| end == "html") && !is_made.contains(&true)
    };
    let pages = files.filter(|path| is_page(path));
    let mut pages: Vec<_> = pages
        .map(|path| format!("file://{}", path.display()))
        .collect();
    pages.sort();
    pages
}

#[test]
fn nothing_hinders_its_readers() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let book = dir.path().join("book");
    let Some(()) = build(&book) else { return };
    let Some(mut browser) = Chromium::open(dir.path(), "about:blank") else {
        return;
    };
    let pages = pages(&book);
    assert!(pages.len() > 25, "{pages:?}");
    for (width, scheme) in [(1200, "light"), (1200, "dark"), (375, "dark")] {
        browser.show_on(Screen {
            width,
            height: 800,
            scheme,
        });
        for page in &pages {
            browser.visit(page);
            browser.wait("document.documentElement.scrollWidth <= innerWidth");
            assert_eq!(browser.errors(), Vec::<Value>::new(), "{page}");
            assert_eq!(browser.violations(), json!([]), "{page} {width} {scheme}");
            browser.errors(); // axe asks for style sheets, which may not be read in files
        }
    }
    // On a phone the contents are hidden until a button shows them.
    let contents = "document.documentElement.classList.contains('sidebar-visible')";
    browser.wait(&format!("!{contents}"));
    browser.run("document.querySelector('button[aria-expanded=false]').focus()");
    browser.press("Enter");
    browser.wait(contents);
    assert_eq!(browser.violations(), json!([]));
}
