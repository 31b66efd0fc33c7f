//! The guide shows the tested files.

use crate::harness::proxy;

const GUIDE: &str = include_str!("../../../../docs/guide/proxies.md");

#[test]
fn the_guide_shows_the_snippets_of_the_command() {
    for (language, snippet) in [
        ("nginx", proxy::NGINX),
        ("caddyfile", proxy::CADDY),
        ("haproxy", proxy::HAPROXY),
        ("lua", proxy::HAPROXY_LUA),
        ("yaml", include_str!("../../src/snippets/traefik.yml")),
        ("yaml", include_str!("../../src/snippets/envoy.yaml")),
    ] {
        let block = format!("```{language}\n{snippet}```\n");
        assert!(
            GUIDE.contains(&block),
            "the guide has another `{language}` block than the CLI"
        );
    }
}

#[test]
fn the_guide_names_the_trust_the_tests_use() {
    let trust = "[client_ip]\ntrusted_proxies = [\"127.0.0.1/32\"]";
    assert!(GUIDE.contains(trust));
    assert!(crate::harness::service::policy("").contains(trust));
}
