//! Any text yields a policy or findings that can be rendered, within bounds.

#![expect(clippy::unwrap_used, reason = "a test fails where it panics")]

use std::fmt::Write as _;
use std::sync::LazyLock;

use proptest::prelude::*;
use ratekeeper_policy::config::{Colour, Context, Diagnostic, MAX_BYTES, Severity, parse, render};
use ratekeeper_policy::{UpstreamUrl, normal_path};

use crate::{cases, extent};

/// Maximum number of bytes of what a finding says, whatever it quotes.
const MAX_WORDS: usize = 8_000;

/// Parses, checks the invariants of every text, and returns the findings.
fn check(text: &str) -> Vec<Diagnostic> {
    let (findings, refused) = match parse(text, Context::default()) {
        Ok(loaded) => (loaded.warnings, false),
        Err(errors) => (errors, true),
    };
    let errors = findings
        .iter()
        .filter(|found| found.severity == Severity::Error)
        .count();
    assert_eq!(errors > 0, refused, "{text}");
    for found in &findings {
        assert!(text.get(found.start..found.end).is_some(), "{found:?}");
        let before = &text[..found.start];
        assert_eq!(found.line, before.matches('\n').count() + 1, "{found:?}");
        let line = before.rsplit('\n').next().unwrap_or_default();
        assert_eq!(found.column, line.chars().count() + 1, "{found:?}");
        assert!(!text[found.start..found.end].contains('\n'), "{found:?}");
        let help = found.help.as_deref().unwrap_or_default();
        let words = found.message.len() + found.label.len() + help.len();
        assert!(words < MAX_WORDS, "{} {words}", found.code);
    }
    assert!(
        findings.is_sorted_by_key(|found| found.start),
        "in the order of the text"
    );
    let page = render("ratekeeper.toml", text, &findings, Colour::Never);
    assert_eq!(page.is_empty(), findings.is_empty());
    assert!(
        !page.contains('\u{1b}'),
        "no escape of the file reaches a terminal"
    );
    findings
}

/// Generates lines of policies, so that arbitrary files get past the first error.
fn lines() -> impl Strategy<Value = String> {
    let mut lines: Vec<String> = Vec::new();
    for case in cases::read(cases::CORPUS) {
        lines.extend(case.input.lines().map(str::to_owned));
    }
    lines.sort();
    let line = prop_oneof![
        8 => prop::sample::select(lines),
        1 => "\\PC{0,20}",
        1 => "[a-z_]{1,8} = [\"\\[{]?[a-z0-9/:*!]{0,8}[\"\\]}]?",
    ];
    prop::collection::vec(line, 0..30).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #[test]
    fn any_text_is_a_policy_or_findings(text in "\\PC{0,200}|(.|\\n){0,100}") {
        check(&text);
    }

    #[test]
    fn any_lines_of_policies_are_a_policy_or_findings(text in lines()) {
        check(&text);
    }

    #[test]
    fn any_value_of_a_limit_is_read_or_refused(
        name in prop::sample::select(vec!["limit", "spacing", "key", "cost", "missing_key", "algorithm", "match", "bucket"]),
        value in "\"[ -~]{0,12}\"|[0-9]{1,12}|\"[0-9]{1,11}/[0-9]{1,20}(ns|s|d|w)\"|\\{ [a-z.]{1,6} = \"[ -!#-~]{0,6}\" \\}",
    ) {
        check(&format!("version = 1\n[[limit]]\nname = \"a\"\n{name} = {value}\n"));
        check(&format!("version = 1\n[[limit]]\nname = \"a\"\nkey = [\"ip\"]\n{name} = {value}\n"));
    }
}

#[test]
fn the_corpus_of_the_fuzzer_is_read() {
    let policies = cases::read(cases::CORPUS);
    for policy in &policies {
        check(&policy.input);
    }
    assert_eq!(policies.len(), 18);
}

/// Checks the text as the fuzz target `upstream` does.
fn check_upstream(text: &str) {
    if let Ok(url) = text.parse::<UpstreamUrl>() {
        assert_eq!(url.to_string().parse(), Ok(url.clone()));
        let address = url.address();
        let (host, port) = address.rsplit_once(':').unwrap();
        assert_eq!((host, port), (&*url.host, &*url.port.to_string()));
    }
    let normal = normal_path(text);
    let normal = std::str::from_utf8(normal.as_ref()).unwrap();
    assert!(normal.starts_with('/'), "{normal}");
    assert_eq!(normal_path(normal).as_ref(), normal.as_bytes());
}

#[test]
fn the_corpus_of_upstreams_is_read_or_refused() {
    let upstreams = cases::read("../../../fuzz/corpus/upstream");
    for upstream in &upstreams {
        check_upstream(upstream.input.trim_end());
    }
    assert_eq!(upstreams.len(), 6);
}

proptest! {
    #[test]
    fn any_text_is_an_upstream_or_an_error(
        text in "(http|https|h2c|ftp)?(:|://)?[\\[\\]:@a-c0-9./?#-]{0,30}|\\PC{0,40}",
    ) {
        check_upstream(&text);
    }
}

/// Returns a policy of `count` limits; `line` is added to each.
fn limits(count: usize, line: &str) -> String {
    let mut text = String::from("version = 1\n");
    for index in 0..count {
        writeln!(
            text,
            "[[limit]]\nname=\"l{index}\"\nkey=[\"ip\"]\nlimit=\"{}/1m\"\n{line}",
            index + 1
        )
        .unwrap();
    }
    text
}

#[test]
fn everything_has_a_bound() {
    let most = limits(100_000, "mode=\"shadow\"");
    assert!(most.len() < MAX_BYTES);
    assert_eq!(
        check(&most).len(),
        0,
        "limits in shadow mode do not make each other needless"
    );

    let more = limits(100_001, "");
    assert_eq!(check(&more)[0].code, "RK0107");

    let large = format!("version = 1\n#{}", "x".repeat(MAX_BYTES));
    assert_eq!(check(&large)[0].code, "RK0100");

    let wrong = limits(1_000, "brust=1");
    let findings = check(&wrong);
    assert_eq!(findings.len(), 201);
    let last = findings.last().unwrap();
    assert_eq!(
        (last.code, last.message.as_str()),
        ("RK0113", "800 more findings are not shown")
    );

    let odd = limits(1_000, "cost=3");
    let warned = check(&odd);
    assert!(
        warned.iter().all(|found| found.severity == Severity::Error),
        "a cost above the capacity is an error"
    );
}

/// Length of heavy texts, with which all work grows evenly: with `--all` a quarter of the longest
/// policy that is read.
static HEAVY: LazyLock<usize> = LazyLock::new(|| extent::cases(MAX_BYTES / 16, MAX_BYTES / 4));

/// Repeats `word` so often that with `before` it is not quite as long as a heavy text.
fn repeated(before: &str, word: &str) -> String {
    word.repeat((*HEAVY - before.len()) * 9 / 10 / word.len())
}

/// Returns heavy texts, each aimed at one part of the parser.
fn heavy() -> Vec<(&'static str, String)> {
    let fill = |line: &dyn Fn(usize) -> String| {
        let mut text = String::from("version = 1\n");
        for index in 0.. {
            let line = line(index);
            if text.len() + line.len() > *HEAVY {
                break;
            }
            text.push_str(&line);
        }
        text
    };
    let half = limits(*HEAVY / 160, "");
    let globs = |glob: &str| {
        let list = format!("\"{glob}\",").repeat(100);
        let table = format!("[[exempt]]\nmatch={{ip=\"::1\"}}\nlimits=[{list}]\n");
        format!("{half}{}", repeated(&half, &table))
    };
    vec![
        ("unknown fields", fill(&|index| format!("f{index}=1\n"))),
        (
            "one long name",
            format!("version = 1\n{} = 1", repeated("", "a")),
        ),
        (
            "one long word",
            format!("version = 1\nheaders = \"{}\"", repeated("", "a")),
        ),
        (
            "one long zone",
            format!("version = 1\ntimezone = \"{}\"", repeated("", "a")),
        ),
        (
            "errors on one line",
            format!("version = [{}", repeated("", "a ")),
        ),
        ("an error on each line", fill(&|_| "x = a/b\n".into())),
        (
            "one name for all",
            fill(&|_| "[[limit]]\nname=\"a\"\nkey=[\"ip\"]\nlimit=\"5/1m\"\n".into()),
        ),
        ("unknown globs", globs("q*x")),
        ("matching globs", globs("*l*")),
        ("unknown names", globs("xyz")),
        (
            "values",
            format!(
                "{half}{}",
                repeated(
                    &half,
                    &format!(
                        "[[exempt]]\nlimits=[\"*\"]\nmatch={{path=[{}]}}\n",
                        "\"/a\",".repeat(600)
                    )
                )
            ),
        ),
        (
            "proxies",
            format!(
                "version = 1\n[client_ip]\ntrusted_proxies = [{}]",
                repeated("", "\"10.0.0.0/8\",")
            ),
        ),
        (
            "braces",
            format!(
                "version = 1\n[response.a]\ndetail = \"{}\"",
                repeated("", "{a}")
            ),
        ),
        ("carets", format!("version = 1 {} x = 1", repeated("", " "))),
        (
            "lints",
            limits(*HEAVY / 150, "mode=\"off\"").replace("\"ip\"", "\"header:a\""),
        ),
    ]
}

/// Returns long values, which a finding quotes or takes apart for its help.
fn long_values() -> Vec<(&'static str, String)> {
    let half = limits(*HEAVY / 160, "");
    vec![
        (
            "one long key part",
            format!(
                "{half}[[limit]]\nname=\"a\"\nkey=[\"{}\"]",
                repeated(&half, "a")
            ),
        ),
        (
            "key parts in one",
            format!(
                "{half}[[limit]]\nname=\"a\"\nkey=[\"{}\"]",
                repeated(&half, "ip,")
            ),
        ),
        (
            "one long date",
            format!("version = 2026-02-30T{}", repeated("", "0")),
        ),
        (
            "servers in one URL",
            format!(
                "version = 1\n[store.redis]\nurl=\"redis://{}\"",
                repeated("", "a,")
            ),
        ),
    ]
}

#[test]
fn heavy_texts_give_a_bounded_number_of_findings() {
    for (name, text) in heavy().into_iter().chain(long_values()) {
        assert!(text.len() <= *HEAVY, "{name}: {}", text.len());
        assert!(check(&text).len() <= 201, "{name}");
    }
}

#[test]
fn deep_nesting_is_refused() {
    for (open, close) in [("[", "]"), ("{ a = ", " }")] {
        let text = format!("version = {}1{}", open.repeat(5_000), close.repeat(5_000));
        assert!(!check(&text).is_empty());
    }
    let dotted = format!("{} = 1", vec!["a"; 5_000].join("."));
    assert!(!check(&dotted).is_empty());
}

#[test]
fn a_byte_order_mark_is_not_an_error() {
    let text = "\u{feff}version = 1\n[[limit]]\nname = \"a\"\nkey = [\"ip\"]\nlimit = \"5/1m\"\n";
    assert_eq!(check(text), []);
}
