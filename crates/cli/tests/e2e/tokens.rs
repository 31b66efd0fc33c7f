//! Tokens of a real service: their subjects are counted, and other keys are read without a restart.

use serde_json::json;

use crate::harness::clock;
use crate::harness::service::{Service, write_policy};
use crate::harness::visitor::Visitor;
use crate::reload::RELOADED_WITHIN;

const LIMITS: &str = r#"
[jwt]
keys       = "file:secret"
algorithms = ["HS256"]

[[limit]]
name        = "per-user"
key         = ["jwt:sub"]
missing_key = "deny"
match       = { path = "/" }
limit       = "3/24h"

[[limit]]
name        = "wide"
key         = ["jwt:sub"]
missing_key = "deny"
match       = { path = "/wide" }
limit       = "1000000/24h"
"#;
const SECRET: &str = "a shared secret of 32 bytes or so";
/// `{"sub":"ada","exp":7258118400}`, in 2200.
const ADA: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJhZGEiLCJleHAiOjcyNTgxMTg0MDB9.\
                   Qipzxvw9XkIsrDkxnuh1rJ_iNQyq4_VKmqEjWbNXsuM";
/// `{"sub":"eve","exp":7258118400}`
const EVE: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJldmUiLCJleHAiOjcyNTgxMTg0MDB9.\
                   eyxMKhXH7-MdXFNmpA0i8XWiHzv9K_B4rMxP_xMEfP4";
/// `{"sub":"ada","exp":1700000000}`, in 2023.
const ENDED: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJhZGEiLCJleHAiOjE3MDAwMDAwMDB9.\
                     3NJobeDLhe-xXMcTT7kuPLJ0_-yVC28LgH8CFdipqko";

#[test]
fn subjects_of_tokens_are_counted_until_the_keys_change() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let keys = dir.path().join("secret");
    std::fs::write(&keys, SECRET).expect("the test's directory is writable");
    let service = Service::start(dir.path(), &write_policy(dir.path(), LIMITS));
    let http = service.http();
    let status_at = |path: &str, token: &str| {
        let headers = json!({ "authorization": format!("Bearer {token}") });
        let body = json!({ "request": { "path": path, "ip": "192.0.2.1", "headers": headers } });
        let answer = Visitor::at(2).post_json(http, "/v1/check", &body.to_string());
        answer.status
    };
    let status = |token| status_at("/", token);
    assert_eq!([ADA; 4].map(status), [200, 200, 200, 429]);
    assert_eq!([EVE; 4].map(status), [200, 200, 200, 429]);
    let unsigned = format!("{}.", ADA.rsplit_once('.').expect("a token has dots").0);
    for invalid in [
        "",
        "x",
        &unsigned,
        ENDED,
        &ADA.replace("eyJzdWIi", "eyJzdWIj"),
    ] {
        assert_eq!(status_at("/wide", invalid), 429, "{invalid}");
    }

    assert_eq!(status_at("/wide", ADA), 200);
    let other = dir.path().join("other");
    std::fs::write(&other, "another shared secret of 32 bytes").expect("writable");
    std::fs::rename(&other, &keys).expect("renamable");
    let refused = || (status_at("/wide", ADA) == 429).then_some(());
    clock::poll("refusal by the new keys", RELOADED_WITHIN, refused).expect("reloaded");
}
