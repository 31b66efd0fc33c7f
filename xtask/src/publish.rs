//! `cargo xtask publish`: every crate could be published, in the order of their dependencies.
//!
//! Nothing is uploaded. Cargo packs the crates and resolves each against the packages of those before
//! it, as if they were in the registry; the libraries are also compiled from their packages, so that
//! a file outside of its crate is found missing.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::test::run_command;

/// Files that each package has.
const FILES: [&str; 3] = ["README.md", "LICENSE-MIT", "LICENSE-APACHE"];
/// Lines that each manifest has.
const FIELDS: [&str; 4] = [
    "description = ",
    "readme = ",
    "keywords = ",
    "categories = ",
];
/// Packages that are compiled: those that other programs import.
const LIBRARIES: [&str; 5] = [
    "ratekeeper-core",
    "ratekeeper-policy",
    "ratekeeper-resilience",
    "ratekeeper-store",
    "ratekeeper",
];

/// Checks the packages, then the order.
pub(crate) fn run(root: &Path) -> Result<String, String> {
    let cargo = || {
        let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.current_dir(root);
        cargo
    };
    let crates = fs::read_dir(root.join("crates")).map_err(|error| error.to_string())?;
    let mut packages = 0;
    for entry in crates {
        let manifest = entry
            .map_err(|error| error.to_string())?
            .path()
            .join("Cargo.toml");
        let text = fs::read_to_string(&manifest).map_err(|error| error.to_string())?;
        let missing = FIELDS
            .iter()
            .find(|field| !text.lines().any(|line| line.starts_with(**field)));
        if let Some(field) = missing {
            return Err(format!("{} has no `{field}`", manifest.display()));
        }
        let mut list = cargo();
        list.args([
            "package",
            "--quiet",
            "--list",
            "--allow-dirty",
            "--manifest-path",
        ]);
        let listed = list
            .arg(&manifest)
            .output()
            .map_err(|error| error.to_string())?;
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        let missing = FILES
            .iter()
            .find(|file| !listed.lines().any(|line| line == **file));
        if let Some(file) = missing {
            return Err(format!("{} packs no {file}", manifest.display()));
        }
        packages += 1;
    }
    let mut all = cargo();
    all.args(["publish", "--quiet", "--dry-run", "--allow-dirty"]);
    all.args(["--workspace", "--no-verify"]);
    let mut libraries = cargo();
    libraries.args(["publish", "--quiet", "--dry-run", "--allow-dirty"]);
    for library in LIBRARIES {
        libraries.args(["--package", library]);
    }
    // Cargo keeps what it has unpacked and compiled of a version in a directory, and these change
    // while their version does not.
    let target = root.join(format!("target/publish-{}", std::process::id()));
    libraries.env("CARGO_TARGET_DIR", &target);
    let done = run_command(&mut all)? && run_command(&mut libraries)?;
    let _ = fs::remove_dir_all(&target);
    if !done {
        return Err("see above".into());
    }
    Ok(format!(
        "{packages} packages, {} of them compiled",
        LIBRARIES.len()
    ))
}
