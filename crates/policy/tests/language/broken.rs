//! Broken policies: the whole page that a reader receives, for each case of `broken/`.

use std::collections::BTreeSet;

use ratekeeper_core::Origin;
use ratekeeper_policy::config::{Colour, Context, Diagnostic, explain, parse, render};
use ratekeeper_policy::envoy::{EnvoySettings, File, load};

use crate::cases;

/// Codes that no small file can show.
const NOT_SHOWN: [&str; 6] = [
    "RK0100", // a file above its size
    "RK0113", // more findings than are shown
    "RK0150", // found by the server
    "RK0350", // depends on the time
    "RK0364", // depends on the time
    "RK0417", // of nginx: tested in import/nginx/directive.rs
];

/// Returns all findings for a text.
fn findings(text: &str) -> Vec<Diagnostic> {
    match parse(text, Context::default()) {
        Ok(loaded) => loaded.warnings,
        Err(errors) => errors,
    }
}

#[test]
fn pages_are_as_reviewed() {
    let count = cases::check("broken", |text| {
        render("ratekeeper.toml", text, &findings(text), Colour::Never)
    });
    assert_eq!(count, 637);
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
    let count = cases::check("broken_envoy", |text| {
        let found = envoy_findings(text);
        let pages = found
            .iter()
            .map(|(text, findings)| render("limits.yaml", text, findings, Colour::Never));
        pages.collect()
    });
    assert_eq!(count, 30);
}

#[test]
fn every_code_is_explained_and_shown() {
    let mut shown = BTreeSet::new();
    let mut found = Vec::new();
    for case in cases::read("broken") {
        found.push((findings(&case.input), case.name));
    }
    for case in cases::read("broken_envoy") {
        let all = envoy_findings(&case.input).into_iter();
        found.push((all.flat_map(|(_, findings)| findings).collect(), case.name));
    }
    for (findings, name) in found {
        for finding in findings {
            assert!(explain(finding.code).is_some(), "{}", finding.code);
            assert!(finding.help.is_some(), "{name}: {}", finding.message);
            shown.insert(finding.code);
        }
    }
    let known = (0..1000).map(|number| format!("RK0{number:03}"));
    for code in known.filter(|code| explain(code).is_some()) {
        let expected = !NOT_SHOWN.contains(&&*code);
        assert_eq!(shown.contains(&*code), expected, "{code}");
    }
}
