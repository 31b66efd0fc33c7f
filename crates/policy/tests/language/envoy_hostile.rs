//! Hostile files of the rate limit service: read or refused, in bounded work.

use ratekeeper_core::Origin;
use ratekeeper_policy::envoy::{EnvoySettings, File, load};

/// Maximum size of a file in bytes, less a little.
const LARGE: usize = (1 << 20) - 64;

/// Reads a text; returns the code of the first finding.
fn first_code(text: &str) -> Option<&'static str> {
    let file = File {
        name: "a.yaml",
        text,
    };
    let found = match load(&[file], EnvoySettings::default(), Origin::UNIX) {
        Ok(loaded) => loaded.warnings,
        Err(errors) => errors,
    };
    found
        .into_iter()
        .flatten()
        .map(|finding| finding.code)
        .next()
}

/// Returns `unit`, as often as a file may hold it.
fn filled(unit: &str) -> String {
    unit.repeat(LARGE / unit.len())
}

#[test]
fn hostile_files_are_refused() {
    let nested = (0..100).fold("domain: d\n".to_owned(), |text, level| {
        format!(
            "{text}{}descriptors:\n{}- key: a\n",
            "  ".repeat(level),
            "  ".repeat(level)
        )
    });
    let mut wrong = Vec::new();
    for (text, code) in [
        (filled("["), "RK0401"),
        (filled("{"), "RK0401"),
        (filled("{a: "), "RK0401"),
        (filled("- "), "RK0413"),
        (filled("? "), "RK0413"),
        (format!("a: [{}]", filled("x,")), "RK0413"),
        (filled("a\n"), "RK0102"),
        (filled("\""), "RK0401"),
        (filled("&a "), "RK0401"),
        (filled("*a "), "RK0401"),
        (filled("%"), "RK0401"),
        (filled("\u{0}"), "RK0401"),
        (filled("---\n"), "RK0415"),
        ("x".repeat((1 << 20) + 1), "RK0100"),
        (nested, "RK0413"),
    ] {
        let found = first_code(&text);
        if found != Some(code) {
            let start = text.chars().take(20).collect::<String>();
            wrong.push(format!("{start:?}: {found:?}, not {code}"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn a_large_good_file_loads() {
    let limit = "rate_limit: {unit: day, requests_per_unit: 9}";
    let rule = |number| format!("- {{key: k, value: v{number}, {limit}}}");
    let rules: Vec<_> = (0..10_000).map(rule).collect();
    let rules = rules.join("\n");
    assert_eq!(
        first_code(&format!("domain: d\ndescriptors:\n{rules}")),
        None
    );
}
