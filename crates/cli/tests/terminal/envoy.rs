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
