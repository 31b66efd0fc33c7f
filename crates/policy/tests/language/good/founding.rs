//! Founding policies: those of the documents that the language was made for.

use std::net::IpAddr;

use ratekeeper_policy::config::{Context, parse};
use ratekeeper_policy::{Charges, Facts, Policy, WallTime};

/// Returns the limits that charge a request.
fn charged(policy: &Policy, facts: &Facts<'_>) -> Vec<String> {
    let mut charges = Charges::default();
    policy.charges(facts, WallTime::UNKNOWN, &mut charges);
    charges
        .iter(policy)
        .map(|charge| charge.limit.name.to_string())
        .collect()
}

/// Policies of the founding documents, as far as this part of the language supports them.
const FOUNDING: &str = r#"
version  = 1
timezone = "UTC"

[client_ip]
trusted_proxies = ["10.0.0.0/8", "fd00::/8"]

[[limit]]   # accounts a day from an address
name  = "accounts"
match = { method = "POST", path = "/signup" }
key   = ["ip"]
limit = "20/day"

[[limit]]   # risky messages a day of a user
name     = "risky"
match    = { path = "/messages", attr.risky = "true" }
key      = ["attr:user_id"]
limit    = "1/day"
response = "review"

[[limit]]   # requests a second of a user
name      = "user-second"
key       = ["attr:user_id"]
limit     = "2/1s"
algorithm = "sliding-window-log"
missing_key = "skip"

[[limit]]   # log-ins of an account: one is forgiven every hour
name   = "logins"
match  = { path = "/login", method = "POST" }
key    = ["attr:username"]
bucket = { size = 10, refill = "1/1h", step = true }

[[limit]]   # everything together
name   = "total"
key    = ["all"]
bucket = { size = 2000, refill = "1000/1s" }
status = 503

[[limit]]   # a partner: bursts of 40, then shaped instead of refused
name   = "partner"
match  = { host = "partners.example.com" }
key    = ["api_key"]
bucket = { size = 40, refill = "20/1s" }
queue  = { max = 40, max_wait = "2s", order = "fifo" }
missing_key = "deny"

[[limit]]   # a key's month
name  = "month"
key   = ["api_key"]
limit = "10000/month"
missing_key = "skip"

[[limit]]   # tokens of a model, watched only
name   = "tokens"
key    = ["api_key", "attr:model"]
bucket = { size = 100000, refill = "40000/1m" }
cost   = "attr:max_tokens"
mode   = "shadow"
missing_key = "skip"

[[exempt]]
limits = ["user-*", "total"]
match  = { ip = ["192.0.2.0/24"], path = "/health" }
reason = "uptime probes"

[response.review]
detail = "This message is looked at first. Try again in {retry_after}."
"#;

#[test]
fn founding_policies_can_be_written() {
    let loaded = parse(FOUNDING, Context::default()).unwrap();
    assert_eq!(loaded.warnings, []);
    let policy = loaded.policy;
    let client = |ip: &str| ip.parse::<IpAddr>().ok();
    let key: (&str, &[u8]) = ("x-api-key", b"k1");
    let rows: [(Facts<'_>, &[&str]); 5] = [
        (
            Facts {
                method: "POST",
                path: "/signup",
                ip: client("198.51.100.7"),
                ..Facts::default()
            },
            &["accounts", "total"],
        ),
        (
            Facts {
                path: "/messages",
                attributes: &[("user_id", "u1"), ("risky", "true")],
                ..Facts::default()
            },
            &["risky", "user-second", "total"],
        ),
        (
            Facts {
                path: "/health",
                ip: client("192.0.2.9"),
                ..Facts::default()
            },
            &[],
        ),
        (
            Facts {
                path: "/",
                host: "partners.example.com",
                headers: &[key],
                ..Facts::default()
            },
            &["total", "partner", "month"],
        ),
        (
            Facts {
                path: "/",
                headers: &[key],
                attributes: &[("model", "m")],
                ..Facts::default()
            },
            &["total", "month", "tokens"],
        ),
    ];
    for (facts, limits) in rows {
        assert_eq!(charged(&policy, &facts), limits, "{facts:?}");
    }
}
