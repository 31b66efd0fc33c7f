//! Help pages: the whole text is reviewed, because they are the manual.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::desk::Desk;
use crate::reviewed::{self, assert_reviewed};

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
        "replay",
        "diff",
        "doctor",
        "init",
        "import",
        "grant",
        "overrides",
        "bans",
        "reset",
        "help",
    ] {
        let page = desk.terminal(&[&[verb, "--help"]]);
        assert!(
            page.contains("Examples:") && page.contains("Exit codes:"),
            "{page}"
        );
        reviewed::compare(&format!("help::{verb}"), &page);
    }
}

/// Every command that the guide and the README write has a verb and options that exist.
#[test]
fn commands_of_the_guide_have_verbs_and_options_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let guide = fs::read_dir(root.join("docs/guide")).expect("the guide is there");
    let guide = guide.map(|entry| entry.expect("it can be read").path());
    let pages = guide.filter(|path| path.extension().is_some_and(|end| end == "md"));
    let desk = Desk::new();
    let mut helps: BTreeMap<String, String> = BTreeMap::new();
    let mut options = 0;
    for path in pages.chain([root.join("README.md")]) {
        let page = fs::read_to_string(&path).expect("it can be read");
        // Spans and blocks of code are at every other place between backticks.
        let code = page.split('`').skip(1).step_by(2);
        for command in code.flat_map(str::lines) {
            let command = command.split(" #").next().unwrap_or_default();
            let command = command.trim_start().trim_start_matches("$ ");
            let Some(words) = command.strip_prefix("ratekeeper ") else {
                continue;
            };
            let mut words = words.split_whitespace();
            let verb = words.next().unwrap_or_default();
            if !verb.starts_with(|letter: char| letter.is_ascii_lowercase()) {
                continue; // options of the command itself, or `VERB`
            }
            let help = helps.entry(verb.to_owned()).or_insert_with(|| {
                let output = desk.run(&[verb, "--help"]);
                assert!(output.status.success(), "{}: {command}", path.display());
                String::from_utf8(output.stdout).expect("text")
            });
            for option in words.filter(|word| word.starts_with("--")) {
                let name = option.split('=').next().unwrap_or_default();
                let mut known =
                    help.split(|letter: char| !(letter.is_alphanumeric() || letter == '-'));
                assert!(
                    known.any(|known| known == name),
                    "{}: {command}",
                    path.display()
                );
                options += 1;
            }
        }
    }
    assert!(helps.len() >= 12 && options >= 40, "{helps:?}: {options}");
}

#[test]
fn the_first_page_shows_the_first_steps() {
    assert_reviewed!(Desk::new().terminal(&[&[], &["--help"], &["--version"]]));
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
    assert_reviewed!(desk.terminal(&[
        &["help", "chekc"],
        &["help", "zebra"],
        &["help", "RK9999"],
        &["help", "rk0504"]
    ]));
}

#[test]
fn every_listed_code_is_explained_with_its_title() {
    let desk = Desk::new();
    let page = |arguments: &[&str]| String::from_utf8(desk.run(arguments).stdout).expect("text");
    let list = page(&["help", "codes"]);
    for kind in ["RK0103: ", "RK0417: ", "RK0504: ", "RK-W104: "] {
        assert!(list.contains(kind), "{kind}");
    }
    assert!(list.lines().is_sorted(), "{list}");
    for title in list.lines() {
        let (code, _) = title.split_once(": ").expect("a code and its title");
        let explained = page(&["help", code]);
        assert!(explained.starts_with(&format!("# {title}")), "{explained}");
    }
}

#[test]
fn a_field_of_the_policy_is_explained() {
    let desk = Desk::new();
    assert_reviewed!(desk.terminal(&[
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
