//! What a gateway in place of nginx would serve otherwise.

use super::{import, lists};

const APP: &str = "location / { proxy_pass http://10.0.0.1; }";

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
                "it has no `proxy_pass` for requests of clients; the gateway forwards them",
            ],
        );
    }
    let policy = import(&format!("server {{ {protected} }}"));
    assert!(!policy.contains("[listen.proxy]"), "{policy}");
}
