//! Configurations of nginx, and the policies that they become.

mod gateway;
mod include;
mod servers;

use super::nginx;

/// Returns the policy without its heading; unsupported features are comments in it.
fn import(text: &str) -> String {
    let imported = nginx(text).unwrap();
    let (_, body) = imported.text.split_once("version = 1\n").unwrap();
    body.trim().to_owned()
}

const ZONES: &str = "
limit_req_zone  $binary_remote_addr zone=general:10m rate=10r/s;
limit_req_zone  $binary_remote_addr zone=login:10m   rate=5r/m;
limit_req_zone  $http_x_api_key     zone=keys:10m    rate=30r/m;
limit_conn_zone $binary_remote_addr zone=downloads:10m;
";

#[test]
fn servers_that_redirect_take_no_limits_away() {
    let certbot = format!(
        "{ZONES}
         server {{ listen 443 ssl; server_name shop.example; limit_req zone=general; }}
         server {{
           if ($host = shop.example) {{ return 301 https://$host$request_uri; }}
           listen 80; server_name shop.example; return 404;
         }}"
    );
    let by_location = format!(
        "{ZONES}
         server {{ listen 443 ssl; server_name shop.example; limit_req zone=general; }}
         server {{ listen 80; server_name shop.example;
                   location / {{ return 301 https://$host$request_uri; }} }}"
    );
    for text in [certbot, by_location] {
        let policy = import(&text);
        assert!(policy.contains("name = \"general\""), "{policy}");
        assert!(!policy.contains("[[exempt]]"), "{policy}");
    }
}

#[test]
fn ports_shared_in_part_are_reported() {
    let policy = import(&format!(
        "{ZONES}
         server {{ listen 80; listen 443 ssl; server_name _; limit_req zone=general; }}
         server {{ listen 80; server_name shop.example; }}"
    ));
    assert!(!policy.contains("[[exempt]]"), "{policy}");
    assert!(
        policy.contains("general: also counts requests of server shop.example"),
        "{policy}"
    );
}

#[test]
fn a_place_of_one_port_takes_no_limits_away_at_another() {
    let policy = import(&format!(
        "{ZONES}
         server {{ listen 443 ssl; server_name a.example; limit_req zone=general; }}
         server {{ listen 80; server_name a.example; limit_req zone=general;
                   location /free {{ limit_req zone=login; }} }}"
    ));
    assert!(!policy.contains("[[exempt]]"), "{policy}");
    assert!(
        policy.contains("they arrive at some of its ports"),
        "{policy}"
    );
}

#[test]
fn names_are_above_wildcards() {
    let policy = import(&format!(
        "{ZONES}
         server {{ listen 80 default_server; server_name _; }}
         server {{ server_name *.a.example; location /long/path {{ }} limit_req zone=general; }}
         server {{ server_name shop.a.example; limit_req zone=login; }}"
    ));
    let (_, exempt) = policy.split_once("[[exempt]]").unwrap();
    assert!(
        exempt.contains("match = { host = \"shop.a.example\" }"),
        "{policy}"
    );
    assert!(!exempt.contains("login"), "{policy}");
}

/// Returns the message and the help of the refusal.
fn refusal(text: &str) -> String {
    let finding = nginx(text).unwrap_err().remove(0);
    format!("{}; {}", finding.message, finding.help.unwrap_or_default())
}

#[test]
fn a_text_of_another_form_is_refused() {
    let ingress = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  annotations:\n    \
                   nginx.ingress.kubernetes.io/limit-rps: \"5\"\n";
    for text in [
        ingress,
        "hello world",
        "{\"limit\": 5}",
        "<html></html>",
        "[[limit]]\nname = \"a\"\n",
        "services:\n  web: { image: nginx }\n",
        "frontend www\n  bind :80\n",
    ] {
        let refusal = refusal(text);
        let expected = "this is not a configuration of nginx";
        assert!(refusal.starts_with(expected), "{text}: {refusal}");
    }
    for text in [
        "kind: ConfigMap\ndata:\n  a: |\n    limit_req zone=a;\n",
        "hello world;",
        "",
        "# a comment\n",
    ] {
        let refusal = refusal(text);
        let expected = "text without a directive of nginx";
        assert!(refusal.contains(expected), "{text}: {refusal}");
        assert!(refusal.contains("nginx -T"), "{text}: {refusal}");
    }
    assert!(refusal("server { listen 80 }").starts_with("this is not a configuration of nginx"));
    // Of the right form, without limits.
    assert_eq!(nginx("server { listen 80; }").unwrap().unsupported, [""; 0]);
}

/// Asserts that each text is in the list of unsupported features.
fn lists(text: &str, expected: &[&str]) {
    let unsupported = nginx(text).unwrap().unsupported.join("\n");
    for words in expected {
        assert!(unsupported.contains(words), "{words}\n{unsupported}");
    }
}

#[test]
fn each_skipped_word_is_listed() {
    lists(
        "limit_req_zone $binary_remote_addr $uri zone=a:1m rate=1r/s color=red sync;
         limit_conn_zone $binary_remote_addr zone=c:1m shape=round;
         limit_req_whitelist geo_var_name=free;
         server { limit_req zone=a burst=5 forbid_action=@busy; limit_conn c 2;
                  limit_req_status often; limit_req_status 444; }",
        &[
            "`$uri` is part of one key",
            "`color=red` is skipped",
            "`sync` is skipped: machines share counters by [store.redis]",
            "`shape=round` is skipped",
            "limit_req_whitelist: nginx itself has no such directive",
            "`forbid_action=@busy` is skipped",
            "limit_req_status: `often` is not a status of an answer",
            "limit_req_status: `444` is not a status of an answer",
        ],
    );
    let policy = import(
        "limit_req_zone $binary_remote_addr $uri zone=a:1m rate=1r/s; server { limit_req zone=a; }",
    );
    assert!(policy.contains("key = [\"ip/128\", \"path\"]"), "{policy}");
    // Limits that no request would meet.
    let zone = "limit_req_zone $uri zone=a:1m rate=1r/s;";
    lists(
        &format!("{zone} limit_req zone=a;"),
        &["limits outside of any `server`"],
    );
    lists(
        &format!("{zone} location /a {{ limit_req zone=a; }}"),
        &["any `server`"],
    );
}

/// Returns the lines of the only limit of a policy with a zone of the variable `$key`.
fn of_key(variables: &str) -> String {
    let policy = import(&format!(
        "{variables} limit_req_zone $key zone=a:1m rate=1r/s; server {{ limit_req zone=a; }}"
    ));
    policy
        .lines()
        .filter(|line| !line.starts_with("bucket"))
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn an_empty_key_is_an_exception() {
    for (variables, expected) in [
        (
            "geo $free { default 0; 10.0.0.0/8 1; 192.168.0.0/16 1; 172.16.0.1 0; }
             map $free $key { 0 $binary_remote_addr; 1 \"\"; }",
            "match = { ip = [\"!10.0.0.0/8\", \"!192.168.0.0/16\"] }\nkey = [\"ip/128\"]",
        ),
        (
            "geo $slow { default \"\"; 203.0.113.0/24 slow; }
             map $slow $key { slow $binary_remote_addr; }",
            "match = { ip = \"203.0.113.0/24\" }\nkey = [\"ip/128\"]",
        ),
        (
            "map $request_method $key { default \"\"; POST $binary_remote_addr; }",
            "match = { method = \"POST\" }\nkey = [\"ip/128\"]",
        ),
        (
            "map $request_method $key { default \"\"; GET $uri; PUT $uri; }",
            "match = { method = [\"GET\", \"PUT\", \"!HEAD\"] }\nkey = [\"path\"]",
        ),
        (
            "map $request_method $key { default \"\"; GET $uri; HEAD $uri; }",
            "match = { method = [\"GET\", \"HEAD\"] }\nkey = [\"path\"]",
        ),
        (
            "map $request_method $key { default $uri; GET \"\"; }",
            "match = { method = \"!GET\" }\nkey = [\"path\"]",
        ),
        (
            "map $http_x_internal $key { default $http_x_api_key; 1 ''; }",
            "match = { header.\"x-internal\" = \"!1\" }\nkey = [\"header:x-api-key\"]\n\
             missing_key = \"skip\"",
        ),
        (
            "map $remote_addr $key { default $binary_remote_addr; 192.0.2.1 \"\"; }",
            "match = { ip = \"!192.0.2.1\" }\nkey = [\"ip/128\"]",
        ),
        (
            "geo $remote_addr $key { default ''; 192.0.2.0/24 all; }",
            "match = { ip = \"192.0.2.0/24\" }\nkey = [\"all\"]",
        ),
    ] {
        let policy = of_key(variables);
        assert!(policy.contains(expected), "{policy}");
        assert!(!policy.contains("UNSUPPORTED"), "{policy}");
    }
    for (variables, why) in [
        (
            "map $http_user_agent $key { default \"\"; ~*bot 1; }",
            "`~*bot 1` has no counterpart",
        ),
        ("map $http_a $key { default \"\"; }", "is always empty"),
        (
            "map $http_a $key { default $uri; b $host; }",
            "several keys",
        ),
        (
            "map $scheme$uri $key { default $uri; b \"\"; }",
            "$scheme$uri has no counterpart",
        ),
        (
            "map $key $key { default $uri; b \"\"; }",
            "$key has no counterpart",
        ),
        (
            "geo $key { default 1; 10.0.0.0/8 \"\"; 10.1.0.0/16 1; }",
            "10.1.0.0/16 is within another network",
        ),
    ] {
        let policy = of_key(variables);
        assert!(policy.contains("UNSUPPORTED"), "{policy}");
        assert!(policy.contains(why), "{why}\n{policy}");
    }
}

#[test]
fn a_variable_that_nginx_compares_by_another_text_is_not_translated() {
    for (variables, why) in [
        (
            "map $remote_addr $key { default $uri; 127.0.0.0/8 ''; }",
            "the value `127.0.0.0/8` has no counterpart",
        ),
        (
            "map $remote_addr $key { default $uri; 2001:DB8:0::1 ''; }",
            "the value `2001:DB8:0::1` has no counterpart",
        ),
        (
            "map $binary_remote_addr $key { default $uri; 127.0.0.1 ''; }",
            "$binary_remote_addr has no counterpart",
        ),
        (
            "map $http_host $key { default $uri; a.example ''; }",
            "$http_host has no counterpart",
        ),
        (
            "map $server_name $key { default ''; a.example $uri; }",
            "$server_name has no counterpart",
        ),
        (
            "geo $http_x_real_ip $free { default 0; 192.0.2.0/24 1; }
             map $free $key { 0 $uri; 1 ''; }",
            "`geo $http_x_real_ip` has no counterpart",
        ),
        // A value of `geo` is a text.
        (
            "geo $key { default $binary_remote_addr; 192.0.2.0/24 ''; }",
            "`geo value $binary_remote_addr` has no counterpart",
        ),
        (
            "geo $binary_remote_addr $key { default $uri; 192.0.2.0/24 ''; }",
            "`geo $binary_remote_addr` has no counterpart",
        ),
        // The name ends before the dash, and before the dot.
        (
            "map $http_x-foo $key { default ''; 1-foo $uri; }",
            "$http_x-foo has no counterpart",
        ),
        (
            "map \"$arg_x.b\" $key { default ''; \"1.b\" $uri; }",
            "$arg_x.b has no counterpart",
        ),
    ] {
        let policy = of_key(variables);
        assert!(policy.contains(why), "{why}\n{policy}");
        assert!(!policy.contains("[[limit]]"), "{policy}");
    }
}

#[test]
fn values_that_nginx_compares_in_any_case_are_listed() {
    for (source, field) in [
        ("$http_user_agent", "header.\"user-agent\""),
        ("$cookie_tier", "cookie.\"tier\""),
        ("$arg_mode", "query.\"mode\""),
    ] {
        let map = |cases: &str| of_key(&format!("map {source} $key {{ {cases} }}"));
        let policy = map("default ''; Bad $uri;");
        let why = "UNSUPPORTED a: the values of $key are compared exactly, by nginx in any case";
        assert!(policy.contains(why), "{policy}");
        assert!(policy.contains(&format!("{field} = \"Bad\"")), "{policy}");
        let policy = map("default $uri; 12 '';");
        assert!(policy.contains(&format!("{field} = \"!12\"")), "{policy}");
        assert!(!policy.contains("UNSUPPORTED"), "{policy}");
    }
}

#[test]
fn a_key_of_which_all_parts_may_be_empty_is_listed() {
    let zone = |key: &str| {
        import(&format!(
            "limit_req_zone {key} zone=a:1m rate=1r/s; server {{ limit_req zone=a; }}"
        ))
    };
    for (key, missing, is_listed) in [
        ("$arg_s$arg_t", "shared", true),
        ("$http_x_api_key$cookie_sid", "shared", true),
        ("$arg_s$arg_s", "skip", false),
        ("x$arg_s$arg_t", "shared", false),
        ("$uri$arg_s", "shared", false),
    ] {
        let policy = zone(key);
        let missing = format!("missing_key = \"{missing}\"");
        assert!(policy.contains(&missing), "{policy}");
        let why = "a: requests with no part of its key are counted together, by nginx not at all";
        assert_eq!(policy.contains(why), is_listed, "{policy}");
    }
}

#[test]
fn locations_that_answer_before_nginx_counts_are_exempt() {
    let policy = import(&format!(
        "{ZONES}
         server {{ limit_req zone=general;
           location = /health {{ return 200 ok; }}
           location /old/ {{ if ($arg_x) {{ return 404; }} return 301 /new/; }}
           location /last/ {{ rewrite ^ /health break; return 404; }}
           location /api {{ return 404; location /api/v1 {{ }} }}
         }}"
    ));
    let (_, exempt) = policy.split_once("[[exempt]]").unwrap();
    let paths = "path = [\"/health\", \"/old/**\"]";
    assert!(exempt.contains(paths), "{policy}");
    assert!(!exempt.contains("/last/"), "{policy}");
    let inner = "general: also counts requests of location /api of server of line 7, because \
                 location /api/v1";
    assert!(policy.contains(inner), "{policy}");
}

#[test]
fn requests_that_nginx_counts_elsewhere_or_never_are_listed() {
    let why = "nginx counts such requests by another path, or not at all; here they count by \
               their own";
    for (inner, name) in [
        ("if ($request_method = DELETE) { return 405; }", "return"),
        ("if ($arg_a) { rewrite ^ /b redirect; }", "rewrite"),
        ("rewrite ^/old /new permanent;", "rewrite"),
        ("rewrite ^/old https://b.example;", "rewrite"),
        ("location ~ ^/old { return 404; }", "return"),
        ("location /old { rewrite ^ /new redirect; }", "rewrite"),
    ] {
        let text = format!("{ZONES} server {{ limit_req zone=general; {inner} }}");
        lists(&text, &[&format!("{name}: {why}")]);
        // Where nginx counts nothing, nothing is lost.
        let policy = import(&format!("{ZONES} server {{ {inner} }}"));
        assert!(!policy.contains(why), "{policy}");
    }
    for (inner, name) in [
        ("try_files $uri /app;", "try_files"),
        ("rewrite ^/old /app last;", "rewrite"),
    ] {
        let limited = "location /app { limit_req zone=login; }";
        let text = format!("{ZONES} server {{ {inner} {limited} }}");
        lists(&text, &[&format!("{name}: {why}")]);
        // One limit for all locations counts them all.
        let policy = import(&format!(
            "{ZONES} server {{ limit_req zone=login; {inner} location /app {{}} }}"
        ));
        assert!(!policy.contains(why), "{policy}");
    }
    for (inner, name) in [
        ("error_page 404 = /app?a;", "error_page"),
        ("location /b { error_page 502 /app/down; }", "error_page"),
        ("index index.html app;", "index"),
        ("auth_request /app;", "auth_request"),
        ("limit_conn downloads 2; mirror /app;", "mirror"),
    ] {
        let limited = "location /app { limit_req zone=login; }";
        let text = format!("{ZONES} server {{ {inner} {limited} }}");
        lists(&text, &[&format!("{name}: {why}")]);
        // A request is counted once, and these lead to no place with limits.
        let counted = format!("{ZONES} server {{ limit_req zone=general; {inner} {limited} }}");
        let other = format!("{ZONES} server {{ {inner} location /b {{ limit_req zone=login; }} }}");
        for text in [counted, other.replace("/app/down", "/c")] {
            let policy = import(&text);
            assert!(!policy.contains(why), "{policy}");
        }
    }
    let policy = import(&format!(
        "{ZONES} server {{ limit_req zone=general; rewrite ^/a /b break; try_files $uri =404; }}"
    ));
    assert!(!policy.contains(why), "{policy}");
}

#[test]
fn each_use_of_a_line_is_listed_once() {
    let uses = "limit_req zone=c; limit_req zone=d;";
    let text = format!(
        "limit_req_zone $x zone=c:1m rate=1r/s; limit_req_zone $x zone=d:1m rate=1r/s;
         server {{ {uses} location /a {{}} }}"
    );
    let expected = ["c", "d"].map(|zone| {
        format!("line 2: not imported: zone {zone}: the variable $x has no counterpart")
    });
    assert_eq!(nginx(&text).unwrap().unsupported, expected);
}

#[test]
fn receivers_of_proxy_pass_are_those_of_the_gateway() {
    let policy = import(
        "upstream app { server 10.0.0.1:3000; server 10.0.0.2:3000 max_fails=3; keepalive 8; }
         server {
           location / { proxy_pass http://app; }
           location /img/ { proxy_pass http://127.0.0.1:81/img/; }
           location = /health { proxy_pass http://app; }
         }",
    );
    let expected = "\
[listen.proxy]
upstream = [\"http://10.0.0.1:3000\", \"http://10.0.0.2:3000\"]

[[listen.proxy.route]]
name = \"location-health-of-server-of-line-2-1\"
match = { path = \"/health\" }
upstream = [\"http://10.0.0.1:3000\", \"http://10.0.0.2:3000\"]

[[listen.proxy.route]]
name = \"location-img-of-server-of-line-2-2\"
match = { path = \"/img/**\" }
upstream = [\"http://127.0.0.1:81\"]";
    assert_eq!(policy, expected);
    lists(
        "upstream app { least_conn; server 10.0.0.1:3000 weight=5; server 10.0.0.2 backup; }
         server {
           location / { proxy_pass http://app; }
           location /a/ { proxy_pass http://app/b/; }
           location /c { proxy_pass $target; }
           location /d { proxy_pass https://unix:/run/d.sock; }
           location /e { proxy_pass http://unix:/run/e.sock:/v1; }
           location ~ x { proxy_pass http://app; }
           location /files/ { root /srv; }
         }",
        &[
            "`least_conn` is skipped",
            "`weight=5` is skipped",
            "`backup` is skipped",
            "proxy_pass http://app/b/: the upstream receives the path of the request",
            "proxy_pass $target: no http://",
            "proxy_pass https://unix:/run/d.sock: a socket is reached without TLS",
            "proxy_pass http://unix:/run/e.sock:/v1: the upstream receives the path of the request",
            "location ~ x of server of line 2: its proxy_pass is not imported",
            "location /files/ of server of line 2: it has no `proxy_pass`",
        ],
    );
    lists(
        "server { server_name a.example; location / { proxy_pass http://10.0.0.1; } }
         server { server_name a.example; listen 443; location / { proxy_pass http://10.0.0.2; } }
         server { location / {
           proxy_pass http://10.0.0.3;
           if ($http_x_beta) { proxy_pass http://10.0.0.4; }
           limit_except GET { proxy_pass http://10.0.0.5; } } }",
        &[
            "some of its requests meet the route of location / of server a.example",
            "line 5: if: its proxy_pass http://10.0.0.4 is not imported",
            "line 6: limit_except: its proxy_pass http://10.0.0.5 is not imported",
        ],
    );
    let policy = import(
        "upstream app { server unix:/run/a.sock; server 10.0.0.1; }
         server { location / { proxy_pass http://app; }
                  location /b/ { proxy_pass http://unix:/run/b.sock:/b/; }
                  location /c { proxy_pass http://unix:/run/c.sock; } }",
    );
    for urls in [
        "[\"unix:/run/a.sock\", \"http://10.0.0.1\"]",
        "[\"unix:/run/b.sock\"]",
        "[\"unix:/run/c.sock\"]",
    ] {
        assert!(policy.contains(urls), "{urls}\n{policy}");
    }
    assert!(!policy.contains("UNSUPPORTED"), "{policy}");
}

#[test]
fn callers_of_a_socket_are_trusted_as_in_nginx() {
    let policy = import("set_real_ip_from unix:; server { }");
    assert!(policy.contains("trusted_proxies = [\"unix:\"]"), "{policy}");
    lists(
        "set_real_ip_from 10.0.0.7; real_ip_header proxy_protocol; server { }",
        &["write `proxy_protocol = true` in [listen.proxy]"],
    );
    lists(
        "server { listen 80 proxy_protocol; location / { grpc_pass grpc://10.0.0.1; } }",
        &[
            "line 1: listen: not imported: write `proxy_protocol = true` in [listen.proxy]",
            "line 1: grpc_pass: its receiver is not imported: write it with h2c://",
        ],
    );
}
