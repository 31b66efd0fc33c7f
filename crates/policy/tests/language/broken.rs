//! Broken policies: the whole page that a reader receives, for each file of `broken/`.
//!
//! `INSTA_UPDATE=always cargo test -p ratekeeper-policy --test language broken` writes the pages again;
//! read the changes before they are committed.

#![expect(clippy::unwrap_used, reason = "a test fails where it panics")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ratekeeper_core::Origin;
use ratekeeper_policy::config::{Colour, Context, Diagnostic, explain, parse, render};
use ratekeeper_policy::envoy::{EnvoySettings, File, load};

/// Codes that no small file can show.
const NOT_SHOWN: [&str; 6] = [
    "RK0100", // a file above its size
    "RK0113", // more findings than are shown
    "RK0150", // found by the server
    "RK0350", // depends on the time
    "RK0364", // depends on the time
    "RK0417", // of nginx: tested in import/nginx/directive.rs
];

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(folder);
    let entries = std::fs::read_dir(folder).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// Returns all findings for a text.
fn findings(text: &str) -> Vec<Diagnostic> {
    match parse(text, Context::default()) {
        Ok(loaded) => loaded.warnings,
        Err(errors) => errors,
    }
}

/// Compares the page about each file of a folder with the one that people reviewed; it is stored
/// under the file's name behind `prefix`. The folder holds at least `least` files.
fn reviewed(folder: &str, least: usize, prefix: &str, page: impl Fn(&str) -> String) {
    let files = files(folder);
    assert!(files.len() >= least, "{}", files.len());
    let mut settings = insta::Settings::clone_current();
    settings.set_omit_expression(true);
    settings.set_snapshot_path("../snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.bind(|| {
        for file in files {
            let name = file.file_stem().unwrap().to_str().unwrap();
            let page = page(&std::fs::read_to_string(&file).unwrap());
            assert!(!page.is_empty(), "{name} is not broken");
            insta::assert_snapshot!(format!("{prefix}{name}"), page);
        }
    });
}

#[test]
fn pages_are_as_reviewed() {
    reviewed("broken", 70, "", |text| {
        render("ratekeeper.toml", text, &findings(text), Colour::Never)
    });
}

/// Returns the findings for the files of the rate limit service, with their texts.
fn envoy_findings(text: &str) -> Vec<(String, Vec<Diagnostic>)> {
    let texts: Vec<_> = text.split("# other file\n").collect();
    let named = texts.iter().map(|text| File {
        name: "a.yaml",
        text,
    });
    let files: Vec<_> = named.collect();
    let found = match load(&files, EnvoySettings::default(), Origin::UNIX) {
        Ok(loaded) => loaded.warnings,
        Err(errors) => errors,
    };
    let texts = texts.iter().map(|text| (*text).to_owned());
    texts.zip(found).collect()
}

#[test]
fn pages_about_the_rate_limit_service_are_as_reviewed() {
    reviewed("broken_envoy", 25, "envoy_", |text| {
        let found = envoy_findings(text);
        let pages = found
            .iter()
            .map(|(text, findings)| render("limits.yaml", text, findings, Colour::Never));
        pages.collect()
    });
}

#[test]
fn every_code_is_explained_and_shown() {
    let mut shown = BTreeSet::new();
    let mut found = Vec::new();
    for file in files("broken") {
        let text = std::fs::read_to_string(&file).unwrap();
        found.push((file, findings(&text)));
    }
    for file in files("broken_envoy") {
        let text = std::fs::read_to_string(&file).unwrap();
        let all = envoy_findings(&text).into_iter();
        found.push((file, all.flat_map(|(_, findings)| findings).collect()));
    }
    for (file, findings) in found {
        for finding in findings {
            assert!(explain(finding.code).is_some(), "{}", finding.code);
            assert!(
                finding.help.is_some(),
                "{}: {}",
                file.display(),
                finding.message
            );
            shown.insert(finding.code);
        }
    }
    let known = (0..1000).map(|number| format!("RK0{number:03}"));
    for code in known.filter(|code| explain(code).is_some()) {
        let expected = !NOT_SHOWN.contains(&&*code);
        assert_eq!(shown.contains(&*code), expected, "{code}");
    }
}
