//! Checks and chores of the repository: `cargo xtask CHORE`.
//!
//! A chore is one row of [`CHORES`] and one module. Nothing but the standard library is
//! used, so that a check is compiled in a second and never drifts with a dependency.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

mod book;
mod dist;
mod features;
mod publish;
mod soak;
mod test;
mod tidy;
mod wasm;

/// Name, description, and function. An error is a sentence; the chore has printed its findings by
/// then.
const CHORES: &[(&str, &str, Chore)] = &[
    (
        "book",
        "build the guide as a book with a search, and check its links",
        book::run,
    ),
    (
        "dist",
        "make archives, Debian packages and images, then install and run each; see xtask/src/dist.rs",
        dist::run,
    ),
    (
        "features",
        "check that every library compiles with each of its features alone",
        features::run,
    ),
    (
        "publish",
        "check that every crate could be published, without an upload",
        publish::run,
    ),
    (
        "soak",
        "load every listener for `--minutes N` while stores and policies change",
        soak::run,
    ),
    (
        "test",
        "install the programs that the tests drive, and run the tests; `--all`: the long ones too",
        test::run,
    ),
    (
        "tidy",
        "fail on files that break the house style (CONTRIBUTING.md)",
        tidy::run,
    ),
    (
        "wasm",
        "run limits as WebAssembly under node, one without a standard library",
        wasm::run,
    ),
];

/// A chore, which runs in the root of the repository.
type Chore = fn(&Path) -> Result<String, String>;

fn main() -> ExitCode {
    let name = std::env::args().nth(1).unwrap_or_default();
    let Some((_, _, chore)) = CHORES.iter().find(|(known, _, _)| *known == name) else {
        say(&usage());
        return ExitCode::from(2);
    };
    match chore(&root()) {
        Ok(sentence) => {
            say(&format!("{name}: {sentence}"));
            ExitCode::SUCCESS
        }
        Err(sentence) => {
            say(&format!("{name}: {sentence}"));
            ExitCode::FAILURE
        }
    }
}

fn usage() -> String {
    let mut usage = String::from("usage: cargo xtask CHORE\n");
    for (name, purpose, _) in CHORES {
        let _ = write!(usage, "\n  {name:<9} {purpose}");
    }
    usage
}

/// Returns the root of the repository: the directory above this crate.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// Prints to standard error; a closed pipe is ignored.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
