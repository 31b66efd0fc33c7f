//! `cargo xtask features`: every library crate compiles with no features, with each of its features
//! alone, and with all of them together.
//!
//! The tests turn features on for one another, so no other check finds a line that needs a feature
//! it does not name, or two that do not fit together. `ratekeeper-core` is `no_std`: compiling it shows that it uses nothing of the
//! standard library.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Crates that others import.
const LIBRARIES: [&str; 5] = ["core", "policy", "store", "keeper", "resilience"];

/// Checks them one after the other.
pub(crate) fn run(root: &Path) -> Result<String, String> {
    let cargo = env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut checked = 0;
    for library in LIBRARIES {
        let manifest = root.join("crates").join(library).join("Cargo.toml");
        let text = fs::read_to_string(&manifest).map_err(|error| format!("{library}: {error}"))?;
        let features = features(&text);
        let alone = features.iter().map(|feature| vec!["--features", feature]);
        let ends = [Vec::new(), vec!["--all-features"]];
        for asked in ends.into_iter().chain(alone) {
            let mut check = Command::new(&cargo);
            check.args(["check", "--quiet", "--lib", "--no-default-features"]);
            check.arg("--manifest-path").arg(&manifest).args(&asked);
            let status = check.status().map_err(|error| error.to_string())?;
            if !status.success() {
                return Err(format!("{library} does not compile with {asked:?}"));
            }
            checked += 1;
        }
    }
    Ok(format!("{checked} combinations compile"))
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
    fn features_are_read_from_their_section_only() {
        let manifest = "[package]\nname = \"a\"\n\n[features]\n# Adds b.\nb = []\nc = [\"b\"]\n\n\
            [dependencies]\nd = \"1\"\n";
        assert_eq!(features(manifest), ["b", "c"]);
        assert!(features("[package]\nname = \"a\"\n").is_empty());
    }
}
