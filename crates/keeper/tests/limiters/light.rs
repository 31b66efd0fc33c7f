//! A limiter alone is light: without features, few crates are built for it.

use std::collections::BTreeSet;
use std::process::Command;

/// The front crate, two of ours below it, and the crates of others.
const CRATES: [&str; 8] = [
    "arc-swap",
    "foldhash",
    "ratekeeper",
    "ratekeeper-core",
    "ratekeeper-store",
    "rustversion",
    "smallvec",
    "tick_counter",
];

#[test]
fn a_limiter_alone_needs_eight_crates() {
    let mut tree = Command::new(env!("CARGO"));
    tree.args(["tree", "--offline", "--package=ratekeeper", "--prefix=none"]);
    tree.args(["--edges=normal,build", "--target=x86_64-unknown-linux-gnu"]);
    let output = tree.current_dir(env!("CARGO_MANIFEST_DIR")).output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    let names = text.lines().filter_map(|line| line.split(' ').next());
    let names: BTreeSet<&str> = names.filter(|name| !name.is_empty()).collect();
    assert_eq!(names, BTreeSet::from(CRATES));
}
