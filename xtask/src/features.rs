//! `cargo xtask features`: every library crate compiles with no features, with each of its features
//! alone, and with all of them together; and a limit in a program, alone or as a layer, stays light.
//!
//! The tests turn features on for one another, so no other check finds a line that needs a feature
//! it does not name, or two that do not fit together. `ratekeeper-core` is `no_std`: compiling it shows that it uses nothing of the
//! standard library.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Crates that others import.
const LIBRARIES: [&str; 5] = ["core", "policy", "store", "keeper", "resilience"];

/// Maximum number of crates that a program compiles for `ratekeeper` with a feature, itself included.
/// A layer for limits made in code brings no language.
const WEIGHTS: [(&str, usize); 2] = [("", 8), ("tower", 30)];

/// Checks them one after the other.
pub(crate) fn run(root: &Path) -> Result<String, String> {
    let weights = weights(root)?;
    let mut checked = 0;
    for library in LIBRARIES {
        let manifest = root.join("crates").join(library).join("Cargo.toml");
        let text = fs::read_to_string(&manifest).map_err(|error| format!("{library}: {error}"))?;
        let features = features(&text);
        let alone = features.iter().map(|feature| vec!["--features", feature]);
        let ends = [Vec::new(), vec!["--all-features"]];
        for asked in ends.into_iter().chain(alone) {
            compile(&manifest, &asked)?;
            checked += 1;
        }
    }
    Ok(format!("{checked} combinations compile, {weights}"))
}

/// Compiles a library with these features.
fn compile(manifest: &Path, features: &[&str]) -> Result<(), String> {
    let cargo = env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut check = Command::new(cargo);
    check.args(["check", "--quiet", "--lib", "--no-default-features"]);
    check.arg("--manifest-path").arg(manifest).args(features);
    let status = check.status().map_err(|error| error.to_string())?;
    let what = || format!("{} does not compile with {features:?}", manifest.display());
    status.success().then_some(()).ok_or_else(what)
}

/// Counts the crates that a limit in a program compiles, and compiles it.
fn weights(root: &Path) -> Result<String, String> {
    let cargo = env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut weights = Vec::new();
    for (feature, most) in WEIGHTS {
        let mut tree = Command::new(&cargo);
        tree.args(["tree", "--package", "ratekeeper", "--no-default-features"]);
        tree.args(["--features", feature, "--edges", "normal"]);
        tree.args(["--prefix", "none"]).current_dir(root);
        let tree = tree.output().map_err(|error| error.to_string())?;
        let count = crates(&String::from_utf8_lossy(&tree.stdout));
        if !tree.status.success() || count > most {
            return Err(format!(
                "`{feature}` needs {count} crates, of at most {most}"
            ));
        }
        let manifest = root.join("crates/keeper/Cargo.toml");
        compile(&manifest, &["--features", feature])?;
        weights.push(format!("{count} crates for `{feature}`"));
    }
    Ok(weights.join(", "))
}

/// Returns the number of crates in the output of `cargo tree`, which names some of them repeatedly.
fn crates(tree: &str) -> usize {
    let lines = tree.lines().map(|line| line.trim_end_matches(" (*)"));
    lines.collect::<BTreeSet<_>>().len()
}

/// The names below `[features]`.
fn features(manifest: &str) -> Vec<&str> {
    let lines = manifest.lines().map(str::trim);
    let section = lines.skip_while(|line| *line != "[features]").skip(1);
    let names = section
        .take_while(|line| !line.starts_with('['))
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once('='));
    names.map(|(name, _)| name.trim()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_in_a_program_compiles_and_stays_light() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        weights(&root).unwrap();
    }

    #[test]
    fn features_are_read_from_their_section_only() {
        let manifest = "[package]\nname = \"a\"\n\n[features]\n# Adds b.\nb = []\nc = [\"b\"]\n\n\
            [dependencies]\nd = \"1\"\n";
        assert_eq!(features(manifest), ["b", "c"]);
        assert_eq!(crates("a v1\nb v1\nb v1 (*)\nb v2\n"), 3);
        assert!(features("[package]\nname = \"a\"\n").is_empty());
    }
}
