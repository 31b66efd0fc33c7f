//! Each library compiles with the fewest features, and with each feature alone: what one of
//! them needs is not lent by another, as it is when the workspace is compiled together.

use std::path::Path;
use std::process::Command;

/// Packages, and each set of features that a user may choose.
const PACKAGES: [(&str, &[&str]); 5] = [
    ("ratekeeper-core", &["", "testing"]),
    ("ratekeeper-policy", &[""]),
    ("ratekeeper-store", &["", "testing", "redis", "redis-tls"]),
    ("ratekeeper", &["", "tokio", "tower"]),
    ("ratekeeper-resilience", &["", "tower", "reqwest"]),
];

#[test]
fn each_feature_compiles_alone() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (package, choices) in PACKAGES {
        for features in choices {
            let output = Command::new(env!("CARGO"))
                .args(["check", "--quiet", "--lib", "--package", package])
                .args(["--no-default-features", "--features", features])
                .args(["--target-dir", "target/api"])
                .env_remove("RUSTFLAGS")
                .current_dir(&root)
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            let clean = output.status.success() && said.is_empty();
            assert!(clean, "{package} with [{features}]: {said}");
        }
    }
}

/// Every feature of a package is in the table above.
#[test]
fn no_feature_is_left_out() {
    for (package, choices) in PACKAGES {
        let directory = match package.strip_prefix("ratekeeper-") {
            Some(short) => short,
            None => "keeper",
        };
        let manifest = format!("../crates/{directory}/Cargo.toml");
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join(manifest);
        let text = std::fs::read_to_string(manifest).unwrap();
        let features = text.split("[features]").nth(1).unwrap_or_default();
        let features = features.split("\n[").next().unwrap_or_default().lines();
        let names = features.filter_map(|line| Some(line.split_once(" = ")?.0));
        for name in names.filter(|name| !name.starts_with('#')) {
            assert!(choices.contains(&name), "{package} has the feature {name}");
        }
    }
}
