//! Fields: parts of a limit besides its quantity, settings, responses and exemptions.

use ratekeeper_core::Permits;
use ratekeeper_policy::config::{Context, parse};
use ratekeeper_policy::{Body, Cost, HeaderStyle, KeyPart, MissingKey, Refusal, RuleMode, Secret};

use super::policy;

#[test]
fn prices_of_an_estimate_have_the_decimals_of_the_unit() {
    let text = r#"
version = 1
[[limit]]
name = "purchases"
key = ["ip"]
unit = { name = "USD", decimals = 2 }
bucket = { size = "200.00", refill = "50.50/24h" }
cost = { reserve = [{ path = "/a", is = "1.50" }, { path = "/b", is = "20.00" }] }
"#;
    let Cost::Priced(prices) = &policy(text).rules[0].cost else {
        panic!("it has prices");
    };
    assert_eq!(prices.usual, Permits::new(100));
    let higher = prices.higher.iter().map(|price| price.is.get());
    assert_eq!(higher.collect::<Vec<_>>(), [2_000, 150]);
}

#[test]
fn fields_of_a_limit_reach_the_rule() {
    let text = r#"
version = 1

[defaults]
mode         = "shadow"
missing_key  = "skip"
response     = "slow"
status       = 503

[response.slow]
body   = { text = "Slow down." }
detail = "Try again in {retry_after}."

[response.quiet]
status = 430
body   = "none"

[[limit]]
name  = "usual"
key   = ["attr:user_id", "ip/24"]
limit = "5/1m"

[[limit]]
name        = "own"
key         = ["all"]
limit       = "5/1m"
mode        = "enforce"
missing_key = "use:header:X-Device"
response    = "quiet"
status      = 429
cost        = 3

[[limit]]
name = "by-attribute"
key  = ["api_key"]
cost = "attr:amount"
bucket = { size = 20, refill = "10/1s" }
missing_key = "shared"
mode = "off"
"#;
    let policy = policy(text);
    let [usual, own, third] = &policy.rules[..] else {
        panic!("the policy has three limits");
    };
    assert_eq!(
        (usual.mode, own.mode, third.mode),
        (RuleMode::Shadow, RuleMode::Enforce, RuleMode::Off)
    );
    assert_eq!((usual.line, own.line, third.line), (18, 23, 33));
    assert_eq!(
        usual.key,
        [
            KeyPart::Attribute("user_id".into()),
            KeyPart::Ip { bits: Some(24) }
        ]
    );
    assert_eq!(own.key, [], "`all` adds nothing");
    assert_eq!(usual.missing_key, MissingKey::Skip);
    assert_eq!(
        own.missing_key,
        MissingKey::Use(KeyPart::Header("x-device".into()))
    );
    assert_eq!(third.missing_key, MissingKey::Shared);
    assert_eq!(
        (&usual.cost, &own.cost),
        (&Cost::Request, &Cost::Fixed(Permits::new(3)))
    );
    assert_eq!(third.cost, Cost::Attribute("amount".into(), None));
    let slow = Refusal {
        status: 503,
        body: Body::Text {
            content: "Slow down.".into(),
            content_type: "text/plain; charset=utf-8".into(),
        },
        detail: Some("Try again in {retry_after}.".into()),
    };
    assert_eq!(*usual.refusal, slow);
    let quiet = Refusal {
        status: 429,
        body: Body::Empty,
        detail: None,
    };
    assert_eq!(*own.refusal, quiet);
}

#[test]
fn the_nearest_status_is_taken() {
    for (defaults, limit, status) in [
        ("", "", 429),
        ("status = 503", "", 503),
        ("status = 503", "status = 430", 430),
        ("status = 503", "response = \"plain\"", 503),
        ("status = 503", "response = \"own\"", 431),
        ("status = 503", "response = \"own\"\nstatus = 430", 430),
        ("response = \"own\"", "", 431),
        ("response = \"own\"\nstatus = 503", "", 503),
        ("response = \"own\"", "response = \"plain\"", 429),
    ] {
        let responses = "[response.own]\nstatus = 431\n[response.plain]\nbody = \"none\"";
        let key = "[[limit]]\nname = \"a\"\nkey = [\"ip\"]\nlimit = \"5/1m\"";
        let text = format!("version = 1\n[defaults]\n{defaults}\n{responses}\n{key}\n{limit}\n");
        assert_eq!(policy(&text).rules[0].refusal.status, status, "{text}");
    }
}

#[test]
fn settings_reach_the_policy() {
    let text = r#"
version = 1
headers = "both"

[client_ip]
trusted_proxies = ["10.0.0.0/8", "::1", "::ffff:192.0.2.0/120"]
header          = "X-Real-IP"
ipv6_prefix     = 56

[listen]
http  = "[::1]:0"
admin = "off"

[store.memory]
budget = "64MiB"

[[limit]]
name = "all"
key = ["all"]
limit = "1/1s"
"#;
    let policy = policy(text);
    assert_eq!(policy.headers, HeaderStyle::Both);
    let proxies: Vec<_> = policy
        .client_ip
        .trusted_proxies
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(proxies, ["10.0.0.0/8", "::1/128", "192.0.2.0/24"]);
    assert_eq!(
        (
            policy.client_ip.header.as_str(),
            policy.client_ip.ipv6_prefix
        ),
        ("x-real-ip", 56)
    );
    assert_eq!(policy.settings.listen.http.as_deref(), Some("[::1]:0"));
    assert_eq!(policy.settings.listen.admin.as_deref(), Some("off"));
    assert_eq!(policy.settings.memory_budget, Some(64 << 20));
    assert_eq!(policy.version, 0, "counted by the keeper");

    let bare =
        self::policy("version = 1\n[[limit]]\nname = \"a\"\nkey = [\"all\"]\nlimit = \"1/1s\"");
    assert_eq!(
        (bare.headers, bare.settings.memory_budget),
        (HeaderStyle::Ietf, None)
    );
    assert_eq!(
        &*bare.sha,
        "d221aebc58d57e302456c80296f9a86067af60c63917bbb391a4be2630159e23"
    );
}

#[test]
fn exemptions_reach_the_limits_they_name() {
    let text = r#"
version = 1
[[limit]]
name = "api-minute"
key = ["ip"]
limit = "60/1m"
[[limit]]
name = "api-second"
key = ["ip"]
limit = "5/1s"
[[limit]]
name = "login"
key = ["ip"]
limit = "5/1m"
match = { path = "/login" }
[[exempt]]
limits = ["api-*"]
match = { ip = ["192.0.2.0/24"], path = "/health" }
reason = "uptime probes"
[[exempt]]
limits = ["*"]
match = { header.x-internal = "yes" }
"#;
    let policy = policy(text);
    let exempt: Vec<_> = policy
        .rules
        .iter()
        .map(|rule| rule.exemptions.len())
        .collect();
    assert_eq!(exempt, [2, 2, 1]);
    assert_eq!(policy.rules[0].exemptions[0].reason, "uptime probes");
}

#[test]
fn a_webhook_is_read_as_it_is_written() {
    for (url, is_right) in [
        ("https://hooks.example.com", true),
        ("http://127.0.0.1:8080/a/b?c=d", true),
        ("https://[::1]:8443/x", true),
        ("https://[::1]/x", true),
        ("https://h:1?x", true),
        ("https://", false),
        ("https://:443/", false),
        ("https://h:0/", false),
        ("https://h:/", false),
        ("https:/h/", false),
        ("HTTPS://h/", false),
        ("ftp://h/", false),
        ("https://h/\u{e9}", false),
    ] {
        let text = format!(
            "version = 1\n[alerts]\nwebhook = {{ url = \"{url}\", secret = \"env:S\" }}\n\
             [[limit]]\nname = \"l\"\nkey = [\"ip\"]\nlimit = \"1/1s\"\n\
             alert = {{ above = \"80%\", for = \"2m\" }}\n"
        );
        let read = parse(&text, Context::default());
        assert_eq!(read.is_ok(), is_right, "{url}");
        if let Ok(loaded) = read {
            let webhook = loaded.policy.settings.alerts.webhook.unwrap();
            assert_eq!(webhook.url, url);
            assert_eq!(webhook.secret, Secret::Env("S".to_owned()));
        }
    }
}

#[test]
fn attributes_are_received_beside_the_gateway_and_headers_of_a_proxy_are_no_choice() {
    let gateway = "[listen.proxy]\nupstream = \"http://127.0.0.1:3000\"\n";
    for (head, limit) in [
        (
            "[listen]\nhttp = \"127.0.0.1:8081\"\nproxy = { upstream = \"http://127.0.0.1:3000\" }\n",
            "key = [\"attr:user\"]\n",
        ),
        ("", "key = [\"attr:user\"]\n"),
        ("", "key = [\"header:x-request-id\"]\n"),
        (gateway, "key = [\"header:x-user\"]\n"),
        (
            &format!(
                "[client_ip]\ntrusted_proxies = [\"10.0.0.5\"]\ntrusted_headers = [\"x-request-id\"]\n{gateway}"
            ),
            "key = [\"header:x-request-id\"]\n",
        ),
    ] {
        let text = format!("version = 1\n{head}[[limit]]\nname = \"a\"\nlimit = \"1/1s\"\n{limit}");
        let loaded = parse(&text, Context::default()).unwrap();
        assert_eq!(loaded.warnings, [], "{text}");
    }
}

/// A gateway that is off receives no requests of visitors.
#[test]
fn a_limit_by_an_attribute_may_stand_beside_a_gateway_that_is_off() {
    let limit = "[[limit]]\nname = \"a\"\nkey = [\"attr:user\"]\nlimit = \"5/1m\"\n";
    let proxy = "[listen.proxy]\naddress = \"off\"\nupstream = \"http://127.0.0.1:3000\"\n";
    let policy = super::policy(&format!("version = 1\n{limit}{proxy}"));
    assert_eq!(policy.rules.len(), 1);
}

#[test]
fn an_origin_is_read_as_browsers_write_it() {
    for (written, origin) in [
        ("https://a.example", "https://a.example"),
        ("HTTPS://A.example:443", "https://a.example"),
        ("http://a.example:80", "http://a.example"),
        ("http://a.example:443", "http://a.example:443"),
        ("https://a.example:8443", "https://a.example:8443"),
        ("https://[::1]:443", "https://[::1]"),
    ] {
        let proxy = "[listen.proxy]\nupstream = \"http://127.0.0.1:3000\"\n";
        let limit = "[[limit]]\nname = \"a\"\nkey = [\"ip\"]\nlimit = \"5/1m\"\n";
        let text = format!("version = 1\n{proxy}cors = [\"{written}\"]\n{limit}");
        let proxy = super::policy(&text).settings.listen.proxy.unwrap();
        assert_eq!(proxy.cors, [origin], "{written}");
    }
}
