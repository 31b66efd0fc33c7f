//! `validate`: findings for people, for scripts and for CI.

use crate::desk::{Desk, POLICY};
use crate::reviewed::assert_reviewed;

const BROKEN: &str = r#"version = 1

[[limit]]
name  = "partner-api"
key   = ["api_key"]
brust = 40
limit = "20/1s"

[[limit]]
name  = "per-day"
key   = ["ip"]
limit = "5/day"
"#;

/// A limit that cannot be reached because of another limit.
const WARNED: &str = r#"version = 1

[[limit]]
name  = "minute"
key   = ["ip"]
limit = "10/1m"

[[limit]]
name  = "day"
key   = ["ip"]
limit = "20000/1d"
"#;

fn desk() -> Desk {
    Desk::new()
        .with("good.toml", POLICY)
        .with("broken.toml", BROKEN)
        .with("warned.toml", WARNED)
}

#[test]
fn people_read_findings_with_line_and_caret() {
    assert_reviewed!(desk().terminal(&[
        &["validate", "good.toml"],
        &["validate", "broken.toml"],
        &["check-config", "good.toml", "warned.toml"],
        &["validate", "--deny-warnings", "warned.toml"],
        &["validate", "good.toml", "missing.toml"],
    ]));
}

#[test]
fn programs_read_findings_too() {
    assert_reviewed!(desk().terminal(&[
        &["validate", "--json", "good.toml", "broken.toml"],
        &[
            "validate",
            "--format",
            "github",
            "broken.toml",
            "warned.toml"
        ],
        &["validate", "--format", "sarif", "broken.toml"],
        &["validate", "--format", "sarif", "good.toml"],
        &["validate", "--json", "--format", "json", "good.toml"],
    ]));
}

#[test]
fn without_a_name_the_default_file_is_meant() {
    let desk = Desk::new().with("ratekeeper.toml", BROKEN);
    let output = desk.run(&["validate"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("ratekeeper.toml: 2 errors"));
}

#[test]
fn a_policy_comes_from_standard_input() {
    use std::io::Write;
    let desk = Desk::new();
    let mut child = desk
        .command(&["validate", "-"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(BROKEN.as_bytes()).expect("it reads");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("<stdin>:6:1"));
}

#[test]
fn the_policy_of_the_readme_has_no_findings() {
    const README: &str = include_str!("../../../../README.md");
    let policies = README.split("```toml\n").skip(1);
    let policies: Vec<_> = policies.filter_map(|it| it.split("```").next()).collect();
    assert!(!policies.is_empty(), "the README lost its policy");
    for policy in policies {
        let desk = Desk::new().with("ratekeeper.toml", policy);
        let output = desk.run(&["validate", "--deny-warnings"]);
        assert!(output.status.success(), "{output:?}");
    }
}

#[test]
fn the_schema_is_json() {
    let output = Desk::new().run(&["validate", "--schema"]);
    assert_eq!(output.status.code(), Some(0));
    let schema: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(schema["properties"]["limit"].is_object(), "{schema:#}");
}

#[test]
fn every_code_shown_is_explained() {
    let desk = desk();
    let output = desk.run(&["validate", "--json", "broken.toml", "warned.toml"]);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let policies = document["policies"].as_array().expect("policies");
    let findings = policies
        .iter()
        .flat_map(|one| one["findings"].as_array().expect("findings"));
    let codes: Vec<&str> = findings
        .map(|one| one["code"].as_str().expect("a code"))
        .collect();
    assert!(codes.len() >= 3, "{codes:?}");
    for code in codes {
        let page = desk.run(&["help", &code.to_lowercase()]);
        assert_eq!(page.status.code(), Some(0), "{code}");
        assert!(
            page.stdout.len() > code.len() + 40,
            "{code} has a page of its own"
        );
    }
}

/// Returns twelve limits, each with the same warning, and a listener that needs a token.
fn repetitive() -> String {
    let mut text = "version = 1\n[listen]\nadmin = \"0.0.0.0:9090\"\n".to_owned();
    for number in 1..=12 {
        let limit = format!(
            "name = \"l{number}\"\nkey = [\"header:forwarded\", \"attr:{number}\"]\nlimit = \"5/1m\"\n"
        );
        text.extend(["[[limit]]\n", &limit]);
    }
    text
}

#[test]
fn a_limit_that_refuses_nothing_promises_nothing() {
    let limit = |name: &str, more: &str| {
        format!("[[limit]]\nname = \"{name}\"\nkey = [\"ip\"]\nlimit = \"5/1m\"\n{more}\n")
    };
    let off = limit("a", "mode = \"off\"\ncandidate = \"9/1m\"");
    let shadow = limit("b", "mode = \"shadow\"");
    let policy = format!("version = 1\n{off}{shadow}");
    let desk = Desk::new().with("ratekeeper.toml", policy);
    let validated = desk.terminal(&[&["validate"]]);
    for line in [
        "ratekeeper.toml: 2 limits, nothing found",
        "  a (off): at most 9 in any 1 min; 5 at once",
        "  b (shadow): at most 9 in any 1 min; 5 at once",
        "  a+candidate (off): at most 17 in any 1 min; 9 at once",
    ] {
        let shown = validated.lines().any(|shown| shown == line);
        assert!(shown, "{line}\n{validated}");
    }
    let json = desk.terminal(&[&["validate", "--json"]]);
    assert_eq!(json.matches(r#""mode":"off""#).count(), 2, "{json}");
}

#[test]
fn repeated_warnings_are_counted() {
    let desk = Desk::new().with("ratekeeper.toml", repetitive());
    let validated = desk.terminal(&[&["validate"]]);
    for line in [
        "ratekeeper.toml: 12 limits, 12 warnings",
        "! other machines can reach admin = \"0.0.0.0:9090\": `ratekeeper run` refuses it unless \
         RATEKEEPER_ADMIN_TOKEN is set; write admin = \"127.0.0.1:9090\" for this machine alone",
    ] {
        assert!(
            validated.lines().any(|shown| shown == line),
            "{line}\n{validated}"
        );
    }
    // Another verb shows one, and counts the others.
    let explained = desk.terminal(&[&["explain"]]);
    assert_eq!(
        explained.matches("warning[RK0313]").count(),
        1,
        "{explained}"
    );
    let more = "and 11 more RK0313: `ratekeeper validate ratekeeper.toml` shows all";
    assert!(explained.contains(more), "{explained}");
}

#[cfg(unix)]
#[test]
fn a_policy_that_everybody_may_write_is_remarked_on() {
    use std::os::unix::fs::PermissionsExt as _;
    let desk = Desk::new().with("ratekeeper.toml", POLICY);
    let path = desk.path().join("ratekeeper.toml");
    for (mode, remarks) in [(0o644, 0), (0o666, 1)] {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&path, permissions).expect("it is ours");
        let page = desk.terminal(&[&["validate"]]);
        assert_eq!(
            page.matches("! RK-W102: ").count(),
            remarks,
            "{mode:o} {page}"
        );
    }
}
