//! Files of `nginx -T`, where they are included.

use super::{ZONES, import, lists, nginx};

/// The output of `nginx -T` for files of `/etc/nginx`.
fn dumped(files: &[(&str, &str)]) -> String {
    let files = files.iter();
    let each =
        files.map(|(name, text)| format!("# configuration file /etc/nginx/{name}:\n{text}\n\n"));
    each.collect()
}

#[test]
fn included_files_are_read_where_they_are_included() {
    let text = dumped(&[
        (
            "nginx.conf",
            "include modules-enabled/*.conf;\nhttp { include mime.types; include conf.d/*.conf; }",
        ),
        ("mime.types", "types { text/html html; }"),
        (
            "conf.d/00-limits.conf",
            "limit_req_zone $key zone=a:1m rate=1r/s;\nlimit_req_status 429;\n\
             map $request_method $key { include maps/key; }\n\
             set_real_ip_from 10.0.0.1; limit_req_dry_run on;",
        ),
        ("maps/key", "default $binary_remote_addr;\nPUT '';"),
        (
            "conf.d/site.conf",
            "server { include /etc/nginx/snippets/health.conf;\n limit_req zone=a; \
             location / { proxy_pass http://10.0.0.1; } }",
        ),
        (
            "snippets/health.conf",
            "location = /healthz { return 200 ok; }\nlocation /img/ { include snippets/img; }\n",
        ),
        ("snippets/img", "proxy_pass http://10.0.0.2;"),
    ]);
    let expected = "\
[client_ip]
trusted_proxies = [\"10.0.0.1\"]
header = \"x-real-ip\"
# UNSUPPORTED location = /healthz of server of line 19: it has no `proxy_pass` for requests of clients; the gateway forwards them

[listen.proxy]
upstream = [\"http://10.0.0.1\"]

[[listen.proxy.route]]
name = \"location-img-of-server-of-line-19-1\"
match = { path = \"/img/**\" }
upstream = [\"http://10.0.0.2\"]

[[limit]]
name = \"a\"
match = { method = \"!PUT\" }
key = [\"ip/128\"]
bucket = { size = 1, refill = \"1/1s\" }
status = 429
mode = \"shadow\"

[[exempt]]
limits = [\"a\"]
match = { path = \"/healthz\" }
reason = \"location = /healthz of server of line 19\"";
    assert_eq!(import(&text), expected);
    // A use of one file in several places, and a condition that it brings.
    let text = dumped(&[
        ("nginx.conf", "http { include zone; include sites/*; }"),
        ("zone", ZONES),
        (
            "sites/a",
            "server { server_name a.example; include snippet; limit_req zone=general; }",
        ),
        ("snippet", "if ($request_method = PUT) { return 405; }"),
        (
            "sites/b",
            "server { server_name b.example; location / { include snippet; } include limit; }",
        ),
        ("limit", "limit_req zone=general;"),
    ]);
    let unsupported = nginx(&text).unwrap().unsupported;
    let returns = unsupported
        .iter()
        .filter(|line| line.contains("return: nginx counts"));
    assert_eq!(returns.count(), 2, "{unsupported:?}");
}

#[test]
fn files_that_are_not_read_are_listed() {
    for (files, why) in [
        (
            &[
                ("nginx.conf", "http { include sites/?; }"),
                ("sites/a", "server { }"),
            ][..],
            "line 2: include: sites/? is not read",
        ),
        (
            &[
                ("nginx.conf", "http { include sites/*; }"),
                ("sites/a/b", "server { }"),
            ],
            "/etc/nginx/sites/a/b: not imported: no `include` of the text names this file",
        ),
        (
            &[("nginx.conf", "http { include sites/a; }")],
            "sites/a is not read",
        ),
        (
            &[
                ("nginx.conf", "http { include a; }"),
                ("a", "include a; include a;"),
            ],
            "line 5: include: a is not read",
        ),
    ] {
        lists(&dumped(files), &[why]);
    }
    // A comment is no mark.
    for comment in ["of the shop", "(by hand):"] {
        lists(
            &format!("# configuration file {comment}\nhttp {{ include conf.d/*.conf; }}"),
            &["conf.d/*.conf is not read: import the output of `nginx -T`"],
        );
    }
    for stray in [
        "limit_req_status 429;",
        "limit_conn_dry_run on;",
        "set_real_ip_from 10.0.0.1;",
        "location = /healthz { return 200; }",
        "if ($arg_a) { return 204; }",
    ] {
        let name = stray.split(' ').next().unwrap();
        lists(
            &format!("http {{ server {{ }} }} {stray}"),
            &[&format!("{name}: not imported: it is beside `http`")],
        );
    }
}

/// `nginx -T 2>&1` writes them before the files.
#[test]
fn messages_of_nginx_are_skipped() {
    let policy = import(
        "nginx: [warn] conflicting server name \"a\" on 0.0.0.0:80, ignored\n\
         nginx: the configuration file /etc/nginx/nginx.conf syntax is ok\n\
         # configuration file /etc/nginx/nginx.conf:\n\
         http { limit_req_zone $uri zone=a:1m rate=1r/s;\n\
         nginx: configuration file /etc/nginx/nginx.conf test is successful\n\
         server { limit_req zone=a; } }\n",
    );
    assert!(policy.contains("[[limit]]"), "{policy}");
    assert!(!policy.contains("UNSUPPORTED"), "{policy}");
}
