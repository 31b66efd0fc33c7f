//! Help pages: snapshots of the whole text, because they are the manual.

use crate::desk::Desk;

#[test]
fn every_verb_has_a_page_with_examples_and_exit_codes() {
    let desk = Desk::new();
    for verb in [
        "run",
        "validate",
        "explain",
        "check",
        "peek",
        "top",
        "try",
        "simulate",
        "doctor",
        "init",
        "import",
        "grant",
        "overrides",
        "help",
    ] {
        let page = desk.terminal(&[&[verb, "--help"]]);
        assert!(
            page.contains("Examples:") && page.contains("Exit codes:"),
            "{page}"
        );
        insta::assert_snapshot!(format!("help_{verb}"), page);
    }
}

#[test]
fn the_first_page_shows_the_first_steps() {
    insta::assert_snapshot!(Desk::new().terminal(&[&[], &["--help"], &["--version"]]));
}

#[test]
fn help_explains_verbs_and_refuses_the_unknown() {
    let desk = Desk::new();
    let page = |arguments: &[&str]| String::from_utf8(desk.run(arguments).stdout).expect("text");
    assert_eq!(page(&["help"]), page(&["--help"]));
    assert_eq!(page(&["help", "try"]), page(&["try", "--help"]));
    assert_eq!(
        page(&["help", "check-config"]),
        page(&["validate", "--help"])
    );
    insta::assert_snapshot!(desk.terminal(&[
        &["help", "chekc"],
        &["help", "zebra"],
        &["help", "RK9999"],
        &["help", "rk0504"]
    ]));
}

#[test]
fn a_field_of_the_policy_is_explained() {
    let desk = Desk::new();
    insta::assert_snapshot!(desk.terminal(&[
        &["help", "bucket.size"],
        &["help", "status"],
        &["help", "limit.brust"]
    ]));
}

#[test]
fn colour_is_used_only_where_it_is_wanted() {
    let desk = Desk::new();
    let coloured = |variables: &[(&str, &str)]| {
        let mut command = desk.command(&["explain", "nothing.toml"]);
        let output = command
            .envs(variables.iter().copied())
            .output()
            .expect("it starts");
        output.stderr.contains(&0x1b)
    };
    assert!(!coloured(&[]), "not a terminal");
    assert!(coloured(&[("CLICOLOR_FORCE", "1")]));
    assert!(!coloured(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]));
}
