//! What a gateway in place of nginx would serve otherwise.

use super::{ZONES, import, lists};

const APP: &str = "location / { proxy_pass http://10.0.0.1; }";

#[test]
fn names_of_routes_are_names_of_the_language() {
    let inner = "location /api/ { proxy_pass http://10.0.0.2; }";
    let policy = import(&format!(
        "server {{ server_name shop.example.com; {APP} {inner} }}"
    ));
    let name = "name = \"location-api-of-server-shop-example-co-1\"";
    assert!(policy.contains(name), "{policy}");
    assert!(!policy.contains("UNSUPPORTED"), "{policy}");
}

#[test]
fn a_refused_route_takes_no_other_away() {
    let servers = |count: usize| {
        let locations = (0..count)
            .map(|number| format!("location /{number}/ {{ proxy_pass http://10.0.1.{number}; }}"));
        format!("server {{ {APP} {} }}", locations.collect::<String>())
    };
    let odd =
        "server { server_name b\u{fc}cher.example; location / { proxy_pass http://10.0.0.3; } }";
    let policy = import(&format!("{} {odd}", servers(2)));
    assert!(policy.contains("[listen.proxy]\nupstream = "), "{policy}");
    assert!(
        policy.contains("\nmatch = { path = \"/0/**\" }"),
        "{policy}"
    );
    let why = "UNSUPPORTED location / of server b\u{fc}cher.example: not imported: ";
    assert!(policy.contains(why), "{policy}");
    // A gateway has 64 routes.
    let policy = import(&servers(66));
    let routes = policy.matches("\n[[listen.proxy.route]]").count();
    assert_eq!(routes, 64, "{policy}");
    assert_eq!(policy.matches("UNSUPPORTED").count(), 2, "{policy}");
}

/// nginx answers requests for it by 404, and sends requests of its own to it.
#[test]
fn an_internal_location_has_no_route() {
    let protected = "location /files/ { internal; proxy_pass http://10.0.0.2; \
                     location /files/a/ { proxy_pass http://10.0.0.3; } }";
    for inner in [
        protected,
        "location = /auth { internal; proxy_pass http://10.0.0.2; }",
    ] {
        let text = format!("server {{ {APP} {inner} }}");
        let policy = import(&text);
        assert!(!policy.contains("[[listen.proxy.route]]"), "{policy}");
        lists(
            &text,
            &[
                "line 1: internal: the gateway does without it",
                "it has no `proxy_pass` for requests of clients; the gateway forwards them",
            ],
        );
    }
    let policy = import(&format!("server {{ {protected} }}"));
    assert!(!policy.contains("[listen.proxy]"), "{policy}");
}

#[test]
fn what_a_gateway_does_without_is_listed() {
    for (word, name) in [
        ("rewrite ^/b/(.*)$ /$1 break;", "rewrite"),
        ("rewrite ^/old /new last;", "rewrite"),
        ("if ($http_x_bad) { return 403; }", "if"),
        ("limit_except GET { deny all; }", "limit_except"),
        ("allow 10.0.0.0/8; deny all; deny 10.0.0.1;", "deny"),
        ("auth_basic staff;", "auth_basic"),
        ("auth_request /auth;", "auth_request"),
        ("error_page 502 /down.html;", "error_page"),
        (
            "add_header Strict-Transport-Security max-age=1;",
            "add_header",
        ),
        ("set $limit_rate 100k;", "set"),
        ("secure_link $arg_md5;", "secure_link"),
    ] {
        let line = format!("{name}: the gateway does without it");
        let line = if name == "set" {
            "set: bandwidth"
        } else {
            &line[..]
        };
        for text in [
            format!("http {{ server {{ location / {{ proxy_pass http://10.0.0.1; {word} }} }} }}"),
            format!("http {{ server {{ {word} {APP} }} }}"),
        ] {
            let policy = import(&text);
            assert_eq!(policy.matches(line).count(), 1, "{text}\n{policy}");
        }
        // nginx keeps its work where no gateway takes its place.
        let policy = import(&format!("{ZONES} server {{ location / {{ {word} }} }}"));
        assert!(!policy.contains("the gateway"), "{policy}");
    }
    let policy = import(
        "user www; worker_processes 2; events { worker_connections 9; }
         http { include mime.types; sendfile on; access_log off; gzip on; client_max_body_size 1m;
           server { listen 80; server_name a.example; root /srv; ssl_certificate a.pem; http2 on;
             location / { proxy_pass http://10.0.0.1; proxy_set_header Host $host; } } }",
    );
    assert!(!policy.contains("UNSUPPORTED"), "{policy}");
}

#[test]
fn answers_to_refused_requests_are_listed() {
    let limited = "location / { limit_req zone=login; }";
    for page in [
        "error_page 503 =429 /429.html;",
        "error_page 500 503 = @slow; location @slow { return 429; }",
        "limit_req_status 429; error_page 429 @slow;",
    ] {
        let why = "error_page: answers to refused requests are those of `status` and `response`";
        lists(&format!("{ZONES} server {{ {page} {limited} }}"), &[why]);
        let policy = import(&format!("{ZONES} server {{ {page} }}"));
        assert!(!policy.contains(why), "{policy}");
    }
    let policy = import(&format!(
        "{ZONES} server {{ error_page 404 /404.html; {limited} }}"
    ));
    assert!(!policy.contains("error_page"), "{policy}");
}

#[test]
fn servers_of_another_address_or_port_are_not_lost() {
    let server = |listen: &str, name: &str, number: u8| {
        format!(
            "server {{ listen {listen}; {name} \
             location / {{ proxy_pass http://10.0.0.{number}; }} }}"
        )
    };
    let named = "server_name a.example;";
    for (first, second, why) in [
        (
            "203.0.113.1:80",
            "10.0.0.1:80",
            "at another port or address",
        ),
        ("8080-8085", "80", "at another port or address"),
        ("10.0.0.1", "80", "at another port or address"),
        (
            "80",
            "0.0.0.0:80",
            "servers before it have its names and ports",
        ),
        ("80", "*:80", "servers before it have its names and ports"),
        (
            "[::]:80",
            "80",
            "servers before it have its names and ports",
        ),
        ("unix:/run/a", "unix:/run/b", "at another port or address"),
    ] {
        lists(
            &format!("{} {}", server(first, named, 1), server(second, named, 2)),
            &[why],
        );
    }
    lists(
        &format!("{} {}", server("80", "", 1), server("8080", "", 2)),
        &["it has no name, and is not the default server"],
    );
}

#[test]
fn limits_in_lua_and_of_a_variable_are_listed() {
    lists(
        "server { access_by_lua_block { return 1 } rewrite_by_lua_file /srv/a.lua;
           location / { set $limit_rate 100k; if ($slow) { set $limit_rate 4k; } } }",
        &[
            "line 1: access_by_lua_block: not imported, with the limits that it may have",
            "line 1: rewrite_by_lua_file: not imported",
            "line 2: set: bandwidth is not limited here",
        ],
    );
    let policy = import("server { set $limit_rate_of_mine 1; }");
    assert_eq!(policy, "");
}
