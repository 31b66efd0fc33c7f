//! Configurations of Envoy's rate limit service at the desk.

use crate::desk::Desk;
use crate::reviewed::assert_reviewed;

const GOOD: &str = "\
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: minute, requests_per_unit: 5 }
";

const BROKEN: &str = "\
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: minutes, requests_per_unit: 5 }
  - kye: path
";

fn desk() -> Desk {
    let desk = Desk::new()
        .with("good.yaml", GOOD)
        .with("broken.yaml", BROKEN);
    std::fs::create_dir(desk.path().join("two")).expect("a directory");
    desk.with("two/a.yaml", GOOD).with("two/b.yaml", GOOD)
}

/// As `run` reads them: beside the policy.
#[test]
fn the_files_that_a_policy_names_are_validated() {
    let policy = |file: &str| format!("version = 1\n[envoy]\nconfig = \"{file}\"\n");
    let desk = desk()
        .with("two/good.toml", policy("a.yaml"))
        .with("broken.toml", policy("broken.yaml"))
        .with("gone.toml", policy("gone.yaml"));
    let status = |file| desk.run(&["validate", file]).status.code();
    assert_eq!(status("two/good.toml"), Some(0));
    assert_eq!(status("broken.toml"), Some(1));
    assert_eq!(status("gone.toml"), Some(2));
    let told = desk.terminal(&[
        &["validate", "two/good.toml", "broken.toml", "gone.toml"],
        &[
            "explain",
            "two/good.toml",
            "--descriptor",
            "user=bob",
            "--domain",
            "shop",
        ],
    ]);
    for expected in [
        "two/a.yaml: 1 limit, nothing found",
        "--> broken.yaml:4:",
        "cannot read `gone.yaml`",
        "the limits of `a.yaml` are not shown here",
    ] {
        assert!(told.contains(expected), "{expected}: {told}");
    }
}

#[test]
fn files_are_validated() {
    assert_reviewed!(desk().terminal(&[
        &["validate", "--envoy-config", "good.yaml"],
        &["validate", "--envoy-config", "broken.yaml"],
        &["validate", "--envoy-config", "two"],
        &["validate", "--envoy-config", "gone"],
        &[
            "validate",
            "--json",
            "--envoy-config",
            "two",
            "--merge-domains"
        ],
        &["run", "--envoy-config", "broken.yaml"],
    ]));
}
