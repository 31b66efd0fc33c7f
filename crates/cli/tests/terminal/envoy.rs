//! Configurations of Envoy's rate limit service at the desk.

use crate::desk::Desk;

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
    insta::assert_snapshot!(desk().terminal(&[
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

const ALL: &str = r#"
domain: shop
descriptors:
  - key: category
    value: "account*"
    share_threshold: true
    rate_limit: { unit: minute, requests_per_unit: 4, replaces: [{ name: banned }] }
  - key: user
    value: probe
  - key: user
    value: root
    rate_limit: { unlimited: true }
  - key: user
    shadow_mode: true
    rate_limit: { unit: month, requests_per_unit: 5, name: Per User! }
    descriptors:
      - key: user
        value: "a*"
        detailed_metric: true
        rate_limit: { unit: second, requests_per_unit: 7 }
      - key: user
        value: "ab\"c"
        quota_mode: true
        metadata: { tier: gold }
        rate_limit: { unit: day, requests_per_unit: 9, name: per-user }
  - key: banned
    rate_limit: { unit: hour, requests_per_unit: 0, name: banned }
  - key: bang
    value: "!x"
    rate_limit: { unit: hour, requests_per_unit: 1 }
"#;

const LIMITADOR: &str = r#"
- namespace: edge
  name: reads
  max_value: 10
  seconds: 60
  conditions: ["descriptors[0]['req.method'] == 'GET'", "descriptors[0].plan != \"pro\""]
  variables: ["descriptors[0].user"]
- namespace: edge
  max_value: 5
  seconds: 3600
  conditions: ["method == POST"]
  variables: [user]
- namespace: edge
  max_value: 1
  seconds: 1
  conditions: ["descriptors[0].size > 5"]
  variables: []
- namespace: edge
  max_value: 0
  seconds: 1
"#;

#[test]
fn limits_of_other_services_are_imported() {
    let desk = desk()
        .with("all.yaml", ALL)
        .with("limitador.yaml", LIMITADOR);
    insta::assert_snapshot!(desk.terminal(&[
        &["import", "--from", "envoy-ratelimit", "all.yaml"],
        &[
            "import",
            "--from",
            "envoy-ratelimit",
            "good.yaml",
            "-o",
            "native.toml"
        ],
        &["validate", "native.toml"],
        &[
            "import",
            "--from",
            "envoy-ratelimit",
            "good.yaml",
            "-o",
            "native.toml"
        ],
        &["import", "--from", "envoy-ratelimit", "broken.yaml"],
        &["import", "--from", "limitador", "limitador.yaml"],
        &["import", "--from", "limitador", "good.yaml"],
        &["import", "--from", "nginx", "two"],
        &["import", "--from", "kong", "good.yaml", "--merge-domains"],
    ]));
}
