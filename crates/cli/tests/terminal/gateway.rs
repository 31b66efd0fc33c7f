//! Settings of the gateway, as `explain` lists them.

use crate::desk::Desk;

#[test]
fn explain_shows_adaptive_limits_of_the_gateway() {
    let policy = r#"
version = 1
[listen.proxy]
upstream = "http://127.0.0.1:3000"
adaptive_concurrency.min = 10
adaptive_concurrency.max = 500
adaptive_concurrency.priority = { last = "20%", match = { path = "/checkout/**" } }
[[listen.proxy.route]]
name = "reports"
match = { path = "/reports/**" }
upstream = "http://127.0.0.1:3000"
adaptive_concurrency = { min = 2, max = 20 }
[[listen.proxy.route]]
name = "plain"
match = { path = "/plain/**" }
upstream = "http://127.0.0.1:3000"
adaptive_concurrency = "off"
[[limit]]
name = "per-ip"
key = ["ip"]
limit = "300/1m"
"#;
    let told = Desk::new()
        .with("ratekeeper.toml", policy)
        .terminal(&[&["explain"]]);
    let adaptive: Vec<_> = told.lines().filter(|line| line.starts_with("[l")).collect();
    assert_eq!(
        adaptive,
        [
            "[listen.proxy]  adaptive_concurrency: from 10 to 500 requests wait for a response at \
             a time; the last 20% are for path /checkout/**",
            "[listen.proxy]  adaptive_concurrency of the route `reports`: from 2 to 20 requests wait for \
             a response at a time",
        ],
        "{told}"
    );
}
