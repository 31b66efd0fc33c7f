//! The guide to the algorithms: its commands draw exactly the pictures that are checked in, and
//! its policy lines are valid.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::desk::Desk;

const GUIDE: &str = include_str!("../../../../docs/guide/algorithms.md");
const PICTURES: &str = "docs/guide/pictures";

/// Returns the directory of the checked-in pictures.
fn checked_in() -> std::path::PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("../..").join(PICTURES)
}

/// Returns the lines of all blocks of the guide in this language.
fn blocks(language: &str) -> Vec<String> {
    let start = format!("```{language}\n");
    let rest = GUIDE.split(&start).skip(1);
    rest.filter_map(|text| text.split("```").next())
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_commands_of_the_guide_draw_its_pictures() {
    let scratch = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(scratch.path().join(PICTURES)).unwrap();
    let binary = Path::new(env!("CARGO_BIN_EXE_ratekeeper"))
        .parent()
        .unwrap();
    let path = std::env::join_paths(
        std::iter::once(binary.to_owned())
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    );
    let path = path.unwrap();
    for block in blocks("console") {
        let command = block.trim().strip_prefix("$ ").unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).env("PATH", &path);
        let output = shell.current_dir(scratch.path()).output().unwrap();
        assert!(output.status.success(), "{command}: {output:?}");
    }
    let names = |directory: &Path| -> BTreeSet<_> {
        let files = std::fs::read_dir(directory).unwrap();
        files.map(|file| file.unwrap().file_name()).collect()
    };
    let (drawn, known) = (scratch.path().join(PICTURES), checked_in());
    assert_eq!(names(&drawn), names(&known), "each has its command");
    for name in names(&drawn) {
        let [now, then] = [&drawn, &known].map(|it| std::fs::read_to_string(it.join(&name)));
        // Not assert_eq: it would print both pictures.
        let same = now.unwrap() == then.unwrap();
        assert!(same, "{name:?} has changed: run its command again");
        let text = name.to_str().unwrap();
        assert!(
            GUIDE.contains(&format!("(pictures/{text})")),
            "{text} is shown"
        );
    }
}

#[test]
fn the_policy_lines_of_the_guide_are_valid() {
    let limit = |(number, fields): (usize, &String)| {
        format!("[[limit]]\nname = \"number-{number}\"\nkey = [\"all\"]\n{fields}\n")
    };
    let limits: String = blocks("toml").iter().enumerate().map(limit).collect();
    let desk = Desk::new().with(
        "ratekeeper.toml",
        format!("version = 1\ntimezone = \"UTC\"\n\n{limits}"),
    );
    let output = desk.run(&["validate", "ratekeeper.toml"]);
    assert!(output.status.success(), "{output:?}");
}
