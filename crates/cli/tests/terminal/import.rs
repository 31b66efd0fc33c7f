//! Limits of other limiters at the desk.

use crate::desk::Desk;
use crate::reviewed::assert_reviewed;

const NGINX: &str = "\
limit_req_zone $binary_remote_addr zone=api:1m rate=5r/s;
server { limit_req zone=api burst=10 nodelay; }
";

#[test]
fn limits_are_imported_from_nginx_alone() {
    let desk = Desk::new().with("nginx.txt", NGINX);
    std::fs::create_dir(desk.path().join("conf.d")).expect("a directory");
    assert_reviewed!(desk.terminal(&[
        &[
            "import",
            "--from",
            "nginx",
            "nginx.txt",
            "-o",
            "native.toml"
        ],
        &["validate", "native.toml"],
        &[
            "import",
            "--from",
            "nginx",
            "nginx.txt",
            "-o",
            "native.toml"
        ],
        &["import", "--from", "nginx", "conf.d"],
        &["import", "--from", "traefik", "dynamic.yaml"],
        &["import", "--from", "envoy-ratelimit", "config.yaml"],
    ]));
}
