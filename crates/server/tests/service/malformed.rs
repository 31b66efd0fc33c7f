//! Malformed requests: a 400 that names the error, and never a crash.

use std::fmt::Write as _;

use super::Fixture;
use super::client::Client;
use super::reviewed::assert_reviewed;

const POLICY: &str = r#"
version = 1
[[limit]]
name   = "login"
key    = ["ip"]
bucket = { size = 1000, refill = "1/1h" }
"#;

#[test]
fn every_error_is_named() {
    let deep = format!("{}1{}", "[".repeat(30_000), "]".repeat(30_000));
    let deep_attribute = format!(r#"{{"attributes":{{"a":{deep}}}}}"#);
    let many = |count: usize| {
        let pairs: Vec<String> = (0..count).map(|i| format!(r#""a{i}":"b""#)).collect();
        format!("{{{}}}", pairs.join(","))
    };
    let many_attributes = format!(r#"{{"attributes":{}}}"#, many(101));
    let many_headers = format!(r#"{{"request":{{"headers":{}}}}}"#, many(101));
    let long = format!(r#"{{"cost":"{}"}}"#, "x".repeat(60_000));
    let long_name = format!(r#"{{"{}":1}}"#, "x".repeat(60_000));
    let many_names = format!(r#"{{"limits":[{}"a"]}}"#, r#""a","#.repeat(100));
    let long_path = format!(r#"{{"attributes":{{"{}":[]}}}}"#, "x".repeat(60_000));
    let rows: &[(&[u8], &str)] = &[
        (b"", "RK0501"),
        (b"   ", "RK0501"),
        (b"{", "RK0501"),
        (b"}", "RK0501"),
        (b"nul", "RK0501"),
        (b"{\"cost\":1", "RK0501"),
        (b"{\"cost\":}", "RK0501"),
        (b"{\"cost\":1,}", "RK0501"),
        (b"{\"cost\":01}", "RK0501"),
        (b"{\"cost\":1} {}", "RK0501"),
        (b"{'cost':1}", "RK0501"),
        (b"{cost:1}", "RK0501"),
        (b"\xef\xbb\xbf{}", "RK0501"),
        (b"\xff\xfe", "RK0501"),
        (b"{\"request\":{\"path\":\"\xff\"}}", "RK0501"),
        (b"{\"request\":{\"path\":\"\n\"}}", "RK0501"),
        (b"{\"request\":{\"path\":\"\\ud800\"}}", "RK0501"),
        (b"{\"request\":{\"path\":\"\\x\"}}", "RK0501"),
        (b"{\"cost\":1e999}", "RK0501"),
        (b"method=POST&path=/login", "RK0501"),
        (deep.as_bytes(), "RK0503"),
        (deep_attribute.as_bytes(), "RK0503"),
        (b"null", "RK0503"),
        (b"[]", "RK0503"),
        (b"5", "RK0503"),
        (b"\"text\"", "RK0503"),
        (b"{\"cost\":-1}", "RK0503"),
        (b"{\"cost\":1.5}", "RK0503"),
        (b"{\"cost\":9007199254740992}", "RK0503"),
        (b"{\"cost\":99999999999999999999999}", "RK0503"),
        (b"{\"cost\":\"1\"}", "RK0503"),
        (b"{\"cost\":true}", "RK0503"),
        (b"{\"cost\":1,\"cost\":2}", "RK0503"),
        (b"{\"request\":[]}", "RK0503"),
        (b"{\"request\":{\"path\":5}}", "RK0503"),
        (b"{\"request\":{\"ip\":\"localhost\"}}", "RK0503"),
        (b"{\"request\":{\"ip\":\"192.0.2.1:80\"}}", "RK0503"),
        (b"{\"request\":{\"ip\":\"\"}}", "RK0503"),
        (b"{\"request\":{\"headers\":[\"a\"]}}", "RK0503"),
        (b"{\"request\":{\"headers\":{\"a\":1}}}", "RK0503"),
        (b"{\"request\":{\"path\":\"/\",\"path\":\"/b\"}}", "RK0503"),
        (b"{\"attributes\":{\"a\":[1]}}", "RK0503"),
        (b"{\"attributes\":{\"a\":{}}}", "RK0503"),
        (b"{\"attributes\":{\"a\":1,\"a\":2}}", "RK0503"),
        (b"{\"attributes\":{\"a\":18446744073709551616}}", "RK0503"),
        (many_attributes.as_bytes(), "RK0503"),
        (many_headers.as_bytes(), "RK0503"),
        (b"{\"limits\":\"login\"}", "RK0503"),
        (b"{\"limits\":[1]}", "RK0503"),
        (b"[\"POST\"]", "RK0503"),
        (b"{\"request\":[\"POST\",\"/\"]}", "RK0503"),
        (b"{\"cost\":null,\"cost\":2}", "RK0503"),
        (b"{\"descriptor\":[\"edge\"]}", "RK0503"),
        (b"{\"descriptor\":{\"entries\":null}}", "RK0503"),
        (b"{\"descriptor\":{\"entries\":[[\"k\",\"v\"]]}}", "RK0503"),
        (
            b"{\"descriptor\":{\"entries\":[{\"value\":\"v\"}]}}",
            "RK0503",
        ),
        (many_names.as_bytes(), "RK0503"),
        (long_path.as_bytes(), "RK0503"),
        (long.as_bytes(), "RK0503"),
        (b"{\"reqest\":{}}", "RK0502"),
        (b"{\"Cost\":1}", "RK0502"),
        (b"{\"\":1}", "RK0502"),
        (b"{\"request\":{\"url\":\"/\"}}", "RK0502"),
        (b"{\"request\":{\"hosts\":\"/\"}}", "RK0502"),
        (long_name.as_bytes(), "RK0502"),
        (b"{\"limits\":[\"logn\"]}", "RK0504"),
    ];
    let fixture = Fixture::new(POLICY);
    let mut http = fixture.http();
    let mut report = String::new();
    for (body, code) in rows {
        let (answer, detail) = refused(&mut http, body);
        assert_eq!(answer, *code, "{}", String::from_utf8_lossy(body));
        assert!(detail.len() < 500, "the message is bounded: {detail}");
        if body.len() < 100 {
            let body = String::from_utf8_lossy(body);
            writeln!(report, "{body:?}\n    {code} {detail}").unwrap();
        }
    }
    assert_reviewed!(report);
    let served = http.post("/v1/check", "{}");
    assert_eq!(served.status, 200, "the connection still serves");
}

fn refused(http: &mut Client, body: &[u8]) -> (String, String) {
    let answer = http.ask("POST /v1/check", body);
    assert_eq!(answer.status, 400, "{}", String::from_utf8_lossy(body));
    let text = |name: &str| answer.json()[name].as_str().unwrap().to_owned();
    (text("code"), text("detail"))
}

#[test]
fn deep_nesting_does_not_fill_the_stack() {
    let fixture = Fixture::new(POLICY);
    let mut http = fixture.http();
    for open in ["[", "{\"a\":", "{\"request\":"] {
        let body = open.repeat(60_000 / open.len());
        assert_eq!(http.post("/v1/check", &body).status, 400, "{open}");
    }
}

/// The door distinguishes HTTP/1 from HTTP/2 by 24 bytes, and finds this wrong by then.
#[test]
fn unread_bytes_do_not_reset_the_connection() {
    use std::io::{Read, Write};
    let fixture = Fixture::new(POLICY);
    for _ in 0..100 {
        let mut http = fixture.http();
        let stream = http.stream.get_mut();
        stream
            .write_all(b"POST /v1/check HTTP/9.9\r\n\r\n")
            .unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 400 "));
        stream.shutdown(std::net::Shutdown::Write).unwrap();
    }
}

#[test]
fn bytes_that_are_not_http_are_refused() {
    use std::io::{Read, Write};
    let fixture = Fixture::new(POLICY);
    for bytes in [
        &b"\0\0\0\0\r\n\r\n"[..],
        b"GET\r\n\r\n",
        b"POST /v1/check HTTP/9.9\r\n\r\n",
        b"POST /v1/check HTTP/1.1\r\ncontent-length: x\r\n\r\n",
        b"POST /v1/check HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"POST /v1/check HTTP/1.1\r\n: novalue\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", // TLS
    ] {
        let mut http = fixture.http();
        let stream = http.stream.get_mut();
        stream.write_all(bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer);
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 400 "),
            "{bytes:?}: {answer}"
        );
    }
    assert_eq!(fixture.http().post("/v1/check", "{}").status, 200);
}
