//! Servers whose names and trusted proxies meet.

use super::{ZONES, import, lists};

/// Returns the policy, which has no exemption, and lists the words as unsupported.
fn keeps_limits(servers: &str, why: &str) {
    let policy = import(&format!("{ZONES}{servers}"));
    assert!(!policy.contains("[[exempt]]"), "{policy}");
    assert!(policy.contains(&format!("UNSUPPORTED {why}")), "{policy}");
}

#[test]
fn longer_wildcards_are_above_shorter_ones() {
    // A location of the shorter wildcard takes nothing from the longer one.
    let api = "location /api/v1/ { limit_req zone=keys; }";
    let policy = import(&format!(
        "{ZONES}
         server {{ server_name _; }}
         server {{ server_name *.example.com; limit_req zone=general; {api} }}
         server {{ server_name *.pay.example.com; limit_req zone=login; }}"
    ));
    assert!(
        policy.contains(
            "[[exempt]]
limits = [\"general\"]
match = { host = \"*.example.com\", path = \"/api/v1/**\" }
reason = \"location /api/v1/ of server *.example.com\"

[[exempt]]
limits = [\"general\", \"keys\"]
match = { host = \"*.pay.example.com\" }"
        ),
        "{policy}"
    );
    assert!(!policy.contains("also counts"), "{policy}");
    // The usual pair of names, without a limit below another pair with one.
    let policy = import(&format!(
        "{ZONES}
         server {{ server_name _; }}
         server {{ server_name example.com *.example.com; limit_req zone=general; }}
         server {{ server_name .blog.example.com; }}"
    ));
    assert!(
        policy.contains("match = { host = [\"blog.example.com\", \"*.blog.example.com\"] }"),
        "{policy}"
    );
    assert!(!policy.contains("also counts"), "{policy}");
}

#[test]
fn names_that_servers_take_from_one_another_keep_their_limits() {
    // The default server has a name within the wildcard, or the same name at one of two ports.
    keeps_limits(
        "server { server_name pay.example.com; limit_req zone=general; }
         server { server_name *.example.com; }",
        "general: also counts requests of server *.example.com, because server pay.example.com",
    );
    keeps_limits(
        "server { server_name _; }
         server { server_name *.example.com a.b.example.com; limit_req zone=general; }
         server { server_name *.b.example.com; }",
        "general: also counts requests of server *.b.example.com, because server *.example.com",
    );
}

#[test]
fn a_name_at_another_port_takes_no_limits_away() {
    let policy = import(&format!(
        "{ZONES}
         server {{ listen 80; server_name a.example; limit_req zone=general; }}
         server {{ listen 80; listen 81; server_name a.example; location /x {{ }} }}"
    ));
    assert!(!policy.contains("[[exempt]]"), "{policy}");
}

#[test]
fn routes_of_longer_wildcards_are_first() {
    let server = |names: &str, port: u16| {
        format!(
            "server {{ server_name {names}; location / {{ proxy_pass http://10.0.0.1:{port}; }} "
        )
    };
    let policy = import(&format!(
        "{} }} {} location /api {{ proxy_pass http://10.0.0.1:3; }} }} {} }}",
        server("_", 1),
        server("*.example.com", 2),
        server("*.pay.example.com", 4)
    ));
    let at = |port: u16| policy.find(&format!("10.0.0.1:{port}")).unwrap();
    assert!(at(1) < at(4) && at(4) < at(3) && at(3) < at(2), "{policy}");
    assert!(!policy.contains("UNSUPPORTED"), "{policy}");
    // The default server has a name that a wildcard covers.
    lists(
        &format!(
            "{} }} {} }}",
            server("pay.example.com", 1),
            server("*.example.com", 2)
        ),
        &["location / of server pay.example.com: some of its requests meet the route of"],
    );
}

#[test]
fn trusted_proxies_of_some_servers_are_listed() {
    let trust = "set_real_ip_from 10.0.0.1; real_ip_header CF-Connecting-IP;";
    let other = "set_real_ip_from 10.0.0.2; real_ip_header X-Real-IP;";
    for text in [
        format!("server {{ {trust} }} server {{ server_name b.example; }}"),
        format!("server {{ {trust} }} server {{ server_name b.example; {other} }}"),
        format!("http {{ {trust} server {{ location /a {{ {other} }} }} }}"),
        format!("{trust} server {{ location / {{ real_ip_header X-Real-IP; }} }}"),
        format!("{trust} server {{ }} server {{ server_name b.example; real_ip_recursive on; }}"),
    ] {
        let policy = import(&text);
        assert!(!policy.contains("trusted_proxies"), "{text}\n{policy}");
        let why = "UNSUPPORTED set_real_ip_from, real_ip_header, real_ip_recursive: not imported";
        assert!(policy.contains(why), "{text}\n{policy}");
    }
    for text in [
        format!("http {{ {trust} server {{ }} server {{ server_name b.example; }} }}"),
        format!(
            "server {{ {trust} location / {{ }} }} server {{ server_name b.example; {trust} }}"
        ),
        format!("server {{ {trust} }} server {{ listen 81; return 301 https://a.example; }}"),
        format!("server {{ {trust} }} stream {{ server {{ {other} }} }}"),
        trust.to_owned(),
    ] {
        let policy = import(&text);
        let expected =
            "[client_ip]\ntrusted_proxies = [\"10.0.0.1\"]\nheader = \"cf-connecting-ip\"";
        assert_eq!(policy, expected, "{text}");
    }
}

/// `$server_name` has no value that a client could choose, as the host of a request has.
#[test]
fn the_name_of_a_server_is_no_host_that_a_client_can_choose() {
    let import = |servers: &str| {
        import(&format!(
            "limit_req_zone $server_name zone=a:1m rate=1r/s;
             limit_req_zone $server_name$uri zone=b:1m rate=1r/s;\n{servers}"
        ))
    };
    let any = "server { listen 80 default_server; server_name _; location / { limit_req zone=a; } \
               location /b { limit_req zone=b; } }";
    let wild = "server { server_name *.a.example; limit_req zone=a; }";
    let exact = "server { server_name b.example; limit_req zone=a; }";
    let other = "server { server_name c.example; limit_req zone=a; }";
    let none = "server { listen 80 default_server; }";
    for (servers, keys, is_listed) in [
        (
            vec![any],
            &["key = [\"all\"]", "key = [\"path\"]"][..],
            false,
        ),
        (
            vec![any, exact],
            &["key = [\"host\"]", "key = [\"path\"]"],
            true,
        ),
        (vec![exact, wild], &["key = [\"host\"]"], true),
        (vec![none, exact, other], &["key = [\"host\"]"], false),
        (
            vec![exact, "server { server_name c.example; }"],
            &["key = [\"all\"]"],
            false,
        ),
    ] {
        let policy = import(&servers.join("\n"));
        let found = policy.lines().filter(|line| line.starts_with("key = "));
        assert_eq!(found.collect::<Vec<_>>(), keys, "{policy}");
        let why = "a: $server_name is the host here";
        assert_eq!(policy.contains(why), is_listed, "{policy}");
    }
}

/// Without a name, `$server_name` is empty, and nginx does not count an empty key.
#[test]
fn a_server_without_a_name_is_not_counted_by_its_name() {
    for (server, is_counted) in [
        ("server { limit_req zone=a; }", false),
        (
            "server { server_name \"\"; location /b { limit_req zone=a; } }",
            false,
        ),
        ("server { server_name _; limit_req zone=a; }", true),
        ("server { server_name b.example; limit_req zone=a; }", true),
    ] {
        for key in ["$server_name", "${server_name}", "$server_name$uri"] {
            let policy = import(&format!(
                "limit_req_zone {key} zone=a:1m rate=1r/s; {server}"
            ));
            let is_counted = is_counted || key.contains("uri");
            assert_eq!(policy.contains("[[limit]]"), is_counted, "{policy}");
            let why = "UNSUPPORTED zone a: not imported: it counts no request";
            assert_eq!(policy.contains(why), !is_counted, "{policy}");
        }
    }
}

/// nginx ignores a name that an earlier server has, also within `.b.example`.
#[test]
fn a_server_has_no_name_of_an_earlier_one() {
    for (first, second) in [
        ("b.example", "b.example"),
        (".b.example", "b.example"),
        (".b.example", "*.b.example"),
        ("b.example", ".b.example"),
        ("*.b.example", ".b.example"),
    ] {
        let policy = import(&format!(
            "{ZONES} server {{ server_name a.example; }} server {{ server_name {first}; }}
             server {{ server_name {second}; limit_req zone=general; }}"
        ));
        assert!(!policy.contains("[[limit]]"), "{first} {second}\n{policy}");
        let why = "servers before it have its names and ports";
        assert!(policy.contains(why), "{first} {second}\n{policy}");
    }
}

/// nginx takes the longest of the locations side by side, and only then looks within it.
#[test]
fn a_location_within_a_shorter_one_is_not_reached() {
    for (locations, limited) in [
        (
            "location /a/b { limit_req zone=general; } location /a/ { location /a/b { } }",
            true,
        ),
        (
            "location /a/ { location /a/b/c { } } location /a/b { limit_req zone=general; }",
            true,
        ),
        (
            "location /a/b { } location /a/ { location /a/b/c { limit_req zone=general; } }",
            false,
        ),
        (
            "location /a/b { } location / { location /a { location /a/b { limit_req zone=general; } } }",
            false,
        ),
        (
            "location = /a/b { } location /a/ { location = /a/b { limit_req zone=general; } }",
            false,
        ),
        (
            "location = /a/b { } location /a/ { location /a/b { limit_req zone=general; } }",
            true,
        ),
        (
            "location /a/b/c { } location /a/ { location /a/b { limit_req zone=general; } }",
            true,
        ),
    ] {
        let policy = import(&format!("{ZONES} server {{ {locations} }}"));
        assert_eq!(
            policy.contains("[[limit]]"),
            limited,
            "{locations}\n{policy}"
        );
    }
    let policy = import(&format!(
        "{ZONES} server {{ limit_req zone=login; location /a/b {{ limit_req zone=general; }}
                           location /a/ {{ location /a/b/c {{ }} }} }}"
    ));
    assert!(!policy.contains("/a/b/c"), "{policy}");
}

/// By `break` a server ends its rewriting, and looks for the location of the new path.
#[test]
fn a_server_that_rewrites_leads_to_other_limits() {
    let rewrite = "rewrite ^/old/(.*)$ /new/$1 break;";
    let new = "location /new/ { limit_req zone=general; }";
    for (steps, is_listed) in [
        (format!("{rewrite} {new}"), true),
        (format!("if ($arg_a) {{ {rewrite} }} {new}"), true),
        (rewrite.to_owned(), false),
        (format!("location /old/ {{ {rewrite} }} {new}"), false),
    ] {
        let policy = import(&format!("{ZONES} server {{ {steps} }}"));
        let why = "rewrite: nginx counts such requests by another path";
        assert_eq!(policy.contains(why), is_listed, "{steps}\n{policy}");
    }
}
