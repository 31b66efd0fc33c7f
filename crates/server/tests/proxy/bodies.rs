//! Limits that count by values of the body, and by the cost that a response states.

use std::io::{BufRead as _, Write as _};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::message::{Message, read_response};
use super::upstream::{Next, Upstream};
use super::{Proxy, eventually};

const FORM: &str = "application/x-www-form-urlencoded";
const JSON: &str = "application/json";
/// One request for each user; without a user, for all.
const ONE: &str = "[[limit]]\nname = \"one\"\nkey = [\"form:user\"]\nlimit = \"1/1h\"\n\
    missing_key = \"deny\"\n";
/// Metric of the bytes that requests hold.
const HELD: &str = "ratekeeper_held_body_bytes";
/// Default of `max_inspected_body`.
const MAX: usize = 64 << 10;

fn post(path: &str, content_type: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: a\r\ncontent-type: {content_type}\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Returns the status of the response to a POST.
fn status(proxy: &Proxy, content_type: &str, body: &str) -> u16 {
    let mut client = proxy.client();
    client.ask(&post("/", content_type, body)).status()
}

#[test]
fn failed_logins_are_counted_by_the_name_in_the_form() {
    // From the page of the policy language.
    let policy = r#"
[[limit]]
name   = "login-failures"
match  = { path = "/login", method = "POST" }
key    = ["form:username"]
bucket = { size = 10, refill = "1/1h", step = true }
count  = { status = [401, 403] }
reset_on = { status = [200] }
ban    = { after = 3, within = "24h", for = "1h", grow = 2.0, max = "24h" }
"#;
    let upstream = Upstream::new(|visit| {
        let is_right = visit.request.text().ends_with("password=right");
        let status = if is_right {
            "200 OK"
        } else {
            "401 Unauthorized"
        };
        let response = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
        visit.stream.write_all(response.as_bytes()).unwrap();
        Next::Request
    });
    let proxy = Proxy::start(&[upstream.address], "", policy);
    let login = |user: &str, password: &str| {
        let body = format!("username={user}&password={password}");
        let mut client = proxy.client();
        client.ask(&post("/login", FORM, &body))
    };
    for _ in 0..9 {
        assert_eq!(login("ann", "wrong").status(), 401);
    }
    assert_eq!(login("ann", "right").status(), 200, "empties the record");
    for _ in 0..10 {
        assert_eq!(login("ann", "wrong").status(), 401);
    }
    assert_eq!(login("ann", "right").status(), 429);
    assert_eq!(login("ann", "right").status(), 429);
    let banned = login("ann", "right");
    assert_eq!(banned.one("retry-after"), Some("3600"), "{banned:?}");
    assert_eq!(login("bob", "wrong").status(), 401, "another user");
    // Spelled in another way, the name is the same.
    let body = "user%6eame=a%6En&password=right";
    assert_eq!(
        proxy.client().ask(&post("/login", FORM, body)).status(),
        429
    );
    // One of two names may be the one that the application reads.
    let body = "username=eve&username=ann&password=right";
    assert_eq!(
        proxy.client().ask(&post("/login", FORM, body)).status(),
        429
    );
}

#[test]
fn the_tokens_of_a_model_are_reserved_and_settled() {
    let policy = r#"
[[limit]]
name    = "llm-tokens"
key     = ["api_key", "json:/model"]
missing_key = "deny"
bucket  = { size = 1000, refill = "1/1h" }
cost    = { reserve = "json:/max_tokens", settle = "response.header:x-tokens-used", expire = "2m" }
"#;
    let upstream = Upstream::new(|visit| {
        let used = visit.request.one("x-used").unwrap();
        let response = format!("HTTP/1.1 200 OK\r\n{used}content-length: 2\r\n\r\nhi");
        let response = response.replace('|', "\r\n");
        visit.stream.write_all(response.as_bytes()).unwrap();
        Next::Request
    });
    let proxy = Proxy::start(&[upstream.address], "", policy);
    let ask = |key: &str, used: &str, max: u32| {
        let body = format!("{{\"model\": \"m\", \"max_tokens\": {max}}}");
        let head = format!(
            "POST / HTTP/1.1\r\nhost: a\r\nx-api-key: {key}\r\nx-used: {used}\r\n\
             content-type: {JSON}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        proxy.client().ask(&(head + &body)).status()
    };
    // 600 are reserved, 100 stay charged.
    for _ in 0..4 {
        assert_eq!(ask("a", "x-tokens-used: 100|", 600), 200);
    }
    assert_eq!(ask("a", "x-tokens-used: 0|", 601), 429, "600 are left");
    assert_eq!(ask("a", "x-tokens-used: 0|", 600), 200);
    assert_eq!(ask("a", "X-Tokens-Used: 700|", 600), 200, "100 are owed");
    assert_eq!(ask("a", "x-tokens-used: 0|", 1), 429);
    let name = "ratekeeper_reports_total{result=\"unsettled\"}";
    assert_eq!(proxy.metric(name), 0);
    // The estimate stays where a response states no amount.
    for (key, used) in [
        ("b", ""),
        ("c", "x-tokens-used: many|"),
        ("d", "x-tokens-used: 1|x-tokens-used: 2|"),
        ("e", "x-tokens-used: -1|"),
        ("f", "x-tokens-used: 1.5|"),
    ] {
        assert_eq!(ask(key, used, 600), 200, "{used}");
        assert_eq!(ask(key, used, 401), 429, "{used}");
    }
    assert_eq!(proxy.metric(name), 5);
}

#[test]
fn the_example_of_the_policy_language_is_settled_by_the_response() {
    let policy = r#"
[listen]
http = "127.0.0.1:0"                    # where the application would state attributes

[[limit]]                               # LLM tokens: reserve before, settle after
name    = "llm-tokens"
key     = ["api_key", "attr:model"]
bucket  = { size = 100000, refill = "40000/1m" }
cost    = { reserve = "attr:max_tokens", settle = "response.header:x-tokens-used", expire = "2m" }
mode    = "shadow"                      # decide and record, never refuse
on_store_error = "local"                # allow | deny | local (limits divided by node count)
"#;
    let upstream =
        Upstream::with("HTTP/1.1 200 OK\r\nx-tokens-used: 200000\r\ncontent-length: 2\r\n\r\nhi");
    let proxy = Proxy::start(&[upstream.address], "", policy);
    let mut client = proxy.client();
    let mut shadow = || {
        let response = client.ask("POST / HTTP/1.1\r\nhost: a\r\nx-api-key: k\r\n\r\n");
        assert_eq!((response.status(), response.text()), (200, "hi"));
        assert_eq!(response.one("x-tokens-used"), Some("200000"));
        response.one("x-ratekeeper-shadow").map(str::to_owned)
    };
    assert_eq!(
        shadow(),
        None,
        "1 is reserved: no application states max_tokens"
    );
    assert_eq!(shadow().as_deref(), Some("llm-tokens"), "100000 are owed");
}

/// Returns what the upstream receives for a body, and what the client does.
fn forwarded(listener: &str, policy: &str, request: &[u8]) -> (u16, Option<Message>) {
    let upstream = Upstream::hello();
    let proxy = Proxy::start(&[upstream.address], listener, policy);
    let mut client = proxy.client();
    let mut writer = client.stream.get_ref().try_clone().unwrap();
    let bytes = request.to_vec();
    let writing = std::thread::spawn(move || {
        let _ = writer.write_all(&bytes); // refused before its end
    });
    let response = read_response(&mut client.stream, "POST").unwrap();
    drop(client);
    writing.join().unwrap();
    (response.status(), upstream.seen_already())
}

#[test]
fn a_body_reaches_the_upstream_byte_for_byte() {
    let long = format!("user=ann&x={}", "y".repeat(MAX - 11));
    let longer = format!("{long}y");
    let huge = format!("user=ann&x={}", "y".repeat(1 << 20));
    let skip = ONE.replace("deny", "skip");
    for (policy, body) in [
        (ONE, "user=ann&\u{e9}=%FF\0"),
        (ONE, &long),
        (&skip, &longer),
        (&skip, &huge),
        (&skip, ""),
    ] {
        let (status, seen) = forwarded("", policy, post("/", FORM, body).as_bytes());
        let seen = seen.unwrap();
        assert_eq!(status, 200);
        assert!(
            seen.is_whole && seen.body == body.as_bytes(),
            "{}",
            body.len()
        );
        let length = body.len().to_string();
        assert_eq!(seen.one("content-length"), Some(&*length));
    }
    let chunked = format!(
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-type: {FORM}\r\ntransfer-encoding: chunked\r\n\
         trailer: x-sum\r\n\r\n5\r\nuser=\r\n3\r\nann\r\n0\r\nx-sum: 7\r\n\r\n"
    );
    let (status, seen) = forwarded("", ONE, chunked.as_bytes());
    let seen = seen.unwrap();
    assert_eq!((status, seen.text()), (200, "user=ann"));
    assert_eq!(seen.trailers, [("x-sum".to_owned(), "7".to_owned())]);
    // Bodies of methods that rarely have one count as well.
    let get = post("/", FORM, "user=ann").replace("POST", "GET");
    let (status, seen) = forwarded("", ONE, get.as_bytes());
    assert_eq!((status, seen.unwrap().text()), (200, "user=ann"));
}

#[test]
fn a_body_that_cannot_be_read_has_no_value() {
    let longer = format!("user=ann&x={}", "y".repeat(MAX - 10));
    let encoded = post("/", FORM, "user=ann").replace("host", "content-encoding: gzip\r\nhost");
    let deep = format!("{{\"user\": {}}}", "[".repeat(50_000));
    for request in [
        post("/", FORM, &longer),
        post("/", JSON, "user=ann"),
        post("/", "multipart/form-data; boundary=x", "user=ann"),
        post("/", FORM, "user=%FF"),
        post("/", FORM, "user=ann&user=bob"),
        encoded,
    ] {
        let (status, seen) = forwarded("", ONE, request.as_bytes());
        assert!(status == 429 && seen.is_none(), "{}", &request[..90]);
    }
    let (status, seen) = forwarded(
        "max_inspected_body = \"1KiB\"",
        ONE,
        post("/", FORM, &format!("user=ann&x={}", "y".repeat(1014))).as_bytes(),
    );
    assert!(status == 429 && seen.is_none());
    let json = ONE.replace("form:user", "json:/user");
    for body in [
        &*deep,
        r#"{"user": 1e999}"#,
        r#"{"user": "a", "User": "b"}"#,
        r#"{"user": "a"}}"#,
        r#"{"user": "\ud800"}"#,
    ] {
        let (status, seen) = forwarded("", &json, post("/", JSON, body).as_bytes());
        assert!(status == 429 && seen.is_none(), "{body:.40}");
    }
    // Without an end: the limits are asked after 64 KiB.
    let mut endless = format!(
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-type: {FORM}\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    endless.push_str(&"1\r\nx\r\n".repeat(MAX + 1));
    let (status, seen) = forwarded("", ONE, endless.as_bytes());
    assert!(status == 429 && seen.is_none());
}

#[test]
fn a_body_is_read_only_if_a_limit_needs_it() {
    let upstream = Upstream::with("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let policy = ONE.replace("limit =", "match = { path = \"/login\" }\nlimit =");
    let proxy = Proxy::start(&[upstream.address], "", &policy);
    let mut client = proxy.client();
    // Of another path, the head reaches the upstream before the body is complete.
    let request = post("/upload", FORM, "user=ann");
    client.send(&request[..request.len() - 3]);
    eventually("a connection to the upstream", || {
        upstream
            .connections
            .load(std::sync::atomic::Ordering::SeqCst)
            == 1
    });
    client.send(&request[request.len() - 3..]);
    assert_eq!(client.response().status(), 200);
}

#[test]
fn a_client_that_waits_for_100_continue_is_answered() {
    let upstream = Upstream::hello();
    let proxy = Proxy::start(&[upstream.address], "", ONE);
    let request = post("/", FORM, "user=ann").replace("host", "expect: 100-continue\r\nhost");
    let (head, body) = request.split_at(request.len() - 8);
    for expected in [200, 429] {
        let mut client = proxy.client();
        client.send(head);
        let mut line = String::new();
        client.stream.read_line(&mut line).unwrap();
        assert_eq!(line, "HTTP/1.1 100 Continue\r\n");
        client.stream.read_line(&mut line).unwrap();
        client.send(body);
        assert_eq!(client.response().status(), expected);
    }
    assert_eq!(upstream.seen().text(), "user=ann");
}

#[test]
fn a_client_that_leaves_while_its_body_is_read_costs_nothing() {
    let upstream = Upstream::hello();
    let policy = format!(
        "{ONE}[[limit]]\nname = \"work\"\nkey = [\"all\"]\n\
         concurrency = {{ max = 1, lease = \"1h\" }}\n"
    );
    let proxy = Proxy::start(&[upstream.address], "", &policy);
    let request = post("/", FORM, "user=ann");
    for _ in 0..20 {
        let mut leaver = proxy.client();
        leaver.send(&request[..request.len() - 1]);
        eventually("the request is read", || proxy.metric(HELD) > 0);
    }
    let broken = "ratekeeper_requests_total{protocol=\"proxy\",result=\"error\"}";
    eventually("all were noticed", || proxy.metric(broken) == 20);
    assert!(upstream.saw_nothing());
    assert_eq!(status(&proxy, FORM, "user=ann"), 200);
    assert_eq!(
        status(&proxy, FORM, "user=bob"),
        200,
        "the permit came back"
    );
    eventually("no bytes are held", || proxy.metric(HELD) == 0);
}

#[test]
fn requests_of_http2_are_counted_by_their_bodies() {
    let upstream = Upstream::hello();
    let proxy = Proxy::start(&[upstream.address], "", ONE);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(proxy.address())
            .await
            .unwrap();
        let io = TokioIo::new(stream);
        let handshake = http2::handshake::<_, _, Full<Bytes>>(TokioExecutor::new(), io);
        let (mut sender, connection) = handshake.await.unwrap();
        tokio::spawn(connection);
        let long = format!("x={}&user=ann", "y".repeat(40_000));
        for (body, expected) in [(&*long, 200), ("user=ann", 429), ("user=bob", 200)] {
            let request = Request::post("http://a.example/")
                .header("content-type", FORM)
                .body(Full::from(body.to_owned()))
                .unwrap();
            let response = sender.send_request(request).await.unwrap();
            assert_eq!(response.status(), expected);
            drop(response.into_body().collect().await);
        }
    });
    assert_eq!(upstream.seen().body.len(), 40_011);
}
