//! Configurations of nginx: any text yields a policy that the language accepts, or findings.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use ratekeeper_policy::config::{Context, parse};
use ratekeeper_policy::import::{Imported, nginx};

use crate::cases;

/// Words of the language, and characters that break them.
const WORDS: &[&str] = &[
    " ",
    "\n",
    ";",
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "- ",
    "'",
    "\"",
    "`",
    "\\",
    "#",
    "$",
    "=",
    "(",
    ")",
    "&&",
    "||",
    "~",
    "*",
    "\u{0}",
    "\u{1b}",
    "\u{e9}",
    "http",
    "server ",
    "location ",
    "/api ",
    "= /login ",
    "limit_req ",
    "limit_req_zone ",
    "limit_conn ",
    "limit_conn_zone ",
    "zone=a:1m ",
    "rate=1r/s ",
    "burst=5 ",
    "nodelay ",
    "$binary_remote_addr ",
    "$http_x ",
    "server_name a.example ",
    "http: ",
    "4294967295",
    "0",
    "-1",
];

/// A file that has everything.
const FILE: &str = "limit_req_zone $binary_remote_addr zone=a:1m rate=1r/s;\nlimit_conn_zone $arg_b zone=c:1m;\n\
     server { server_name a.example; location /x { limit_req zone=a burst=5; limit_conn c 4; } }\n\
     server { server_name .b.example; limit_req zone=a; location = /y { limit_req zone=a delay=1; } }";

fn check(text: &str) {
    match nginx(text) {
        Ok(imported) => accepted(&imported),
        Err(findings) => assert!(!findings.is_empty(), "{text}"),
    }
}

/// Asserts that the language accepts the policy; a policy must have a limit.
fn accepted(imported: &Imported) {
    if imported.limits > 0 {
        let refused = parse(&imported.text, Context::default()).err();
        assert!(refused.is_none(), "{refused:?}\n{}", imported.text);
    }
    for line in &imported.unsupported {
        assert!(imported.text.contains(&format!("# UNSUPPORTED {line}")));
    }
}

proptest! {
    #[test]
    fn any_words_are_imported_or_refused(words in vec(select(WORDS), 0..60)) {
        check(&words.concat());
    }

    #[test]
    fn files_with_a_mistake_are_imported_or_refused(
        at in any::<prop::sample::Index>(),
        cut in 0_usize..20,
        words in vec(select(WORDS), 0..4),
    ) {
        let at = at.index(FILE.len());
        let end = (at + cut).min(FILE.len());
        prop_assume!(FILE.is_char_boundary(at) && FILE.is_char_boundary(end));
        check(&[&FILE[..at], &words.concat(), &FILE[end..]].concat());
    }
}

#[test]
fn large_files_are_imported_or_refused() {
    let filled = |unit: &str| unit.repeat((1 << 20) / unit.len());
    for unit in [
        "{",
        "a {",
        "a;",
        "'",
        "$",
        "location /a {}",
        "server {}",
        "[",
        "- ",
        "\\",
    ] {
        check(&filled(unit));
    }
    let location = |number| format!("location /{number} {{ limit_req zone=a burst={number}; }}");
    let locations = (0..2_000).map(location).collect::<Vec<_>>().concat();
    let zone = "limit_req_zone $uri zone=a:1m rate=1r/s;";
    check(&format!("{zone} server {{ {locations} }}"));
    let deep = "location /a { ".repeat(10_000);
    check(&format!("{zone} server {{ {deep}"));
}

/// Returns the first block of a guide in a language.
fn block<'t>(guide: &'t str, language: &str) -> &'t str {
    let (_, rest) = guide
        .split_once(&format!("```{language}\n"))
        .expect("the guide has the block");
    rest.split("```").next().unwrap_or_default()
}

#[test]
fn the_guide_shows_the_imported_limits() {
    let guide = include_str!("../../../../docs/guide/from-another-limiter.md");
    let imported = nginx(block(guide, "nginx")).expect("the guide shows a right file");
    let (_, body) = imported
        .text
        .split_once("version = 1\n")
        .expect("it has a version");
    assert_eq!(block(guide, "toml").trim(), body.trim());
    assert_eq!(imported.unsupported, Vec::<String>::new());
}

#[test]
fn imported_policies_are_as_reviewed() {
    let count = cases::check("nginx", |text| {
        let imported = nginx(text).unwrap();
        let (_, body) = imported.text.split_once("version = 1\n").unwrap();
        body.trim().to_owned()
    });
    assert_eq!(count, 3);
}
