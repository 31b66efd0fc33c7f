//! Configurations of nginx, and the policies that they become.

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
fn locations_have_their_own_limits_or_those_around_them() {
    let text = format!(
        "events {{}} http {{ {ZONES}
           limit_req_status 429;
           include mime.types;
           server {{
             listen 80; server_name shop.example;
             limit_req zone=general burst=20 nodelay;
             location / {{ proxy_pass http://app; }}
             location = /login {{ limit_req zone=login burst=5; limit_req_dry_run on; }}
             location /files/ {{ limit_conn downloads 2; limit_req zone=general burst=20 nodelay; }}
             location ~ \\.php$ {{ fastcgi_pass app; }}
             location /api {{
               limit_req zone=keys burst=12 delay=8;
               location /api/health {{ limit_req zone=general burst=20 nodelay; }}
             }}
           }} }}"
    );
    insta::assert_snapshot!(import(&text));
}

#[test]
fn servers_are_hosts() {
    let text = format!(
        "{ZONES}
         server {{ listen 80; server_name a.example; return 301 https://a.example$request_uri; }}
         server {{ listen 443 ssl; server_name a.example *.a.example; limit_req zone=general; }}
         server {{ listen 443 ssl; server_name .b.example; limit_req zone=general; limit_req_status 429;
                   location /free {{ limit_req zone=login; }} }}
         server {{ listen 443 ssl; server_name c.example; }}"
    );
    insta::assert_snapshot!(import(&text));
}

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

#[test]
fn unsupported_features_are_listed() {
    let text = format!(
        "{ZONES}
         include /etc/nginx/conf.d/*.conf;
         map $http_x $limit {{ default \"\"; }}
         limit_req_zone $limit zone=mapped:1m rate=1r/s;
         limit_req_zone $binary_remote_addr zone=never:1m rate=x;
         limit_req_log_level error;
         set_real_ip_from 10.0.0.0/8; set_real_ip_from unix:; real_ip_header X-Forwarded-For;
         upstream app {{ server 127.0.0.1:3000 max_conns=10; }}
         stream {{ limit_conn_zone $binary_remote_addr zone=t:1m; server {{ limit_conn t 1; }} }}
         server {{
           limit_req zone=mapped; limit_req zone=missing; limit_conn general 5; limit_conn downloads;
           location ~ ^/a {{ limit_req zone=login; }}
           location /b {{ limit_rate 10k; limit_req zone=general burst=1; }}
           location /b/c {{ limit_req zone=login; }}
           location /b/c/d {{ limit_req zone=general burst=1; }}
           location /e*f {{ limit_req zone=general burst=-1; }}
         }}"
    );
    insta::assert_snapshot!(import(&text));
}
