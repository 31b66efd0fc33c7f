//! Bans at the listeners: answers, and the admin routes that list, add and lift them.

use ratekeeper_core::Nanos;
use serde_json::json;

use super::Fixture;
use super::client::Talk;
use super::reviewed::assert_reviewed;

const POLICY: &str = r#"
version = 1

[[limit]]
name   = "login"
match  = { path = "/login" }
key    = ["ip", "method"]
bucket = { size = 1, refill = "1/1h" }
ban    = { after = 2, within = "24h", for = "2h", grow = 2, max = "24h" }

[[limit]]
name   = "plain"
match  = { path = "/plain" }
key    = ["ip"]
limit  = "10/1m"
"#;

const LOGIN: &str = r#"{"request":{"method":"POST","path":"/login","ip":"192.0.2.1"}}"#;
/// The key of `LOGIN`.
const KEY: &str = "limit=login&key=192.0.2.1&key=POST";

#[test]
fn answers_say_that_a_key_is_banned() {
    let fixture = Fixture::new(POLICY);
    let mut http = fixture.http();
    let answers: Vec<_> = (0..4)
        .map(|_| http.post("/v1/check", LOGIN).json())
        .collect();
    let banned: Vec<bool> = answers
        .iter()
        .map(|answer| answer["banned"] == true)
        .collect();
    assert_eq!(banned, [false, false, true, true]);
    assert_eq!(answers[2]["retry_after_ms"], 7_200_000);
    assert_eq!(answers[3]["limits"][0]["verdict"], "deny");
    assert_eq!(answers[3]["limits"][0]["banned"], true);
    let metrics = fixture.admin().get("/metrics").body;
    let counted = r#"ratekeeper_bans_total{limit="login",mode="enforce"} 1"#;
    assert!(metrics.contains(counted), "{metrics}");
    assert!(!metrics.contains(r#"ratekeeper_bans_total{limit="plain""#));
    let counted = r#"ratekeeper_banned_requests_total{limit="login",mode="enforce"} 1"#;
    assert!(metrics.contains(counted), "{metrics}");
    let top = fixture.admin().get("/v1/top?limit=login").json();
    assert_eq!(top["banned"], 2, "with the refusal that begins the ban");
}

#[test]
fn bans_are_listed_added_and_lifted() {
    let fixture = Fixture::new(POLICY);
    let (mut http, mut admin) = (fixture.http(), fixture.admin());
    for _ in 0..3 {
        http.post("/v1/check", LOGIN);
    }
    let list = "/v1/bans?limit=login";
    let bans = admin.get(list).json();
    assert_eq!(bans["bans"][0]["key"][0], "ip=192.0.2.1");
    assert_eq!(bans["bans"][0]["key"][1], "method=POST");
    let one = admin.get(&format!(
        "/v1/keys/login?{}",
        KEY.split_once('&').unwrap().1
    ));
    assert!(one.json()["ban_ends_after_ms"].as_u64().unwrap() <= 7_200_000);

    let removal = format!("DELETE /v1/bans?{KEY}");
    let lifted = admin.ask(&removal, b"").json();
    assert_eq!(lifted["was_banned"], true);
    assert!(lifted["ends_after_ms"].is_null());
    assert_eq!(admin.ask(&removal, b"").json()["was_banned"], false);
    assert_eq!(admin.get(list).json()["bans"].as_array().unwrap().len(), 0);

    let other = KEY.replace("2.1", "2.2");
    for (length, millis) in [("1h", 3_600_000), ("2d", 2 * 86_400_000), ("5m", 300_000)] {
        let added = admin
            .post(&format!("/v1/bans?{other}&for={length}"), "")
            .json();
        assert_eq!(added["ends_after_ms"], millis, "{length} replaces the last");
    }
    let refused = http.post("/v1/check", &LOGIN.replace("2.1", "2.2"));
    assert_eq!(
        (refused.status, &refused.json()["banned"]),
        (429, &true.into())
    );
    // Longest first, and no more than asked for.
    admin.post(&format!("/v1/bans?{KEY}&for=1h"), "");
    let first = admin.get(&format!("{list}&top=1")).json();
    assert_eq!(first["by_hand"][0]["key"][0], "ip=192.0.2.1");
    assert_eq!(first["by_hand"].as_array().unwrap().len(), 1);
}

const PLAIN: &str = r#"{"request":{"path":"/plain","ip":"192.0.2.1"}}"#;
const PLAIN_KEY: &str = "limit=plain&key=192.0.2.1";

#[test]
fn any_limit_bans_and_allows_by_hand_until_the_end() {
    let fixture = Fixture::new(POLICY);
    let (mut http, mut admin) = (fixture.http(), fixture.admin());
    let list = "/v1/bans?limit=plain";
    assert_eq!(admin.get(list).json()["by_hand"], json!([]));
    let set = admin.post(&format!("/v1/bans?{PLAIN_KEY}&for=1h"), "");
    assert_eq!((set.status, &set.json()["act"]), (200, &json!("ban")));
    assert_eq!(set.json()["mode"], "enforce");
    let refused = http.post("/v1/check", PLAIN).json();
    assert_eq!(refused["banned"], true);
    assert_eq!(refused["retry_after_ms"], 3_600_000);
    let listed = admin.get(list).json();
    let expected = json!([{"key": ["ip=192.0.2.1"], "ends_after_ms": 3_600_000, "act": "ban"}]);
    assert_eq!(listed["by_hand"], expected);
    let key = admin.get("/v1/keys/plain?key=192.0.2.1").json();
    assert_eq!(key["by_hand"]["ends_after_ms"], 3_600_000, "{key}");
    let metrics = fixture.admin().get("/metrics").body;
    for line in [
        r#"ratekeeper_banned_requests_total{limit="plain",mode="enforce"} 1"#,
        r#"ratekeeper_by_hand_keys{limit="plain",act="ban"} 1"#,
    ] {
        assert!(metrics.contains(line), "{line}");
    }
    fixture.clock.advance(Nanos::from_secs(3_600));
    let allowed = http.post("/v1/check", PLAIN).json();
    assert_eq!(allowed["allowed"], true, "the ban has ended by itself");
    assert_eq!(admin.get(list).json()["by_hand"], json!([]));

    for _ in 0..9 {
        http.post("/v1/check", PLAIN);
    }
    assert_eq!(http.post("/v1/check", PLAIN).json()["allowed"], false);
    admin.post(&format!("/v1/bans?{PLAIN_KEY}&act=allow&for=10s"), "");
    assert_eq!(http.post("/v1/check", PLAIN).json()["allowed"], true);
    let ended = admin
        .ask(&format!("DELETE /v1/bans?{PLAIN_KEY}"), b"")
        .json();
    assert_eq!(
        (&ended["was_allowed"], &ended["was_banned"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(http.post("/v1/check", PLAIN).json()["allowed"], false);
}

/// A key outside of `percent` is in shadow mode, whatever the mode of its limit.
#[test]
fn a_ban_that_refuses_nothing_says_so() {
    let policy = POLICY.replacen("[[limit]]", "[[limit]]\npercent = 0", 3);
    let fixture = Fixture::new(&policy);
    let set = fixture
        .admin()
        .post(&format!("/v1/bans?{PLAIN_KEY}&for=1h"), "");
    assert_eq!(set.json()["mode"], "shadow", "{}", set.body);
    let allowed = fixture.http().post("/v1/check", PLAIN).json();
    assert_eq!(allowed["allowed"], true);
}

#[test]
fn the_next_process_has_the_keys_that_were_set_by_hand() {
    let policy = POLICY.replacen(
        "version = 1",
        "version = 1\n[store.memory]\nstate = \"state\"",
        1,
    );
    let fixture = Fixture::new(&policy);
    let mut admin = fixture.admin();
    admin.post(&format!("/v1/bans?{PLAIN_KEY}&for=1h"), "");
    admin.post("/v1/bans?limit=plain&key=192.0.2.2&act=allow&for=1s", "");
    drop(admin);
    let Fixture {
        service, directory, ..
    } = fixture;
    service.stop();
    service.wait();
    let path = directory.path().join("ratekeeper.toml");
    let again = Fixture::at(directory, &path, |config| config);
    let banned = again.http().post("/v1/check", PLAIN).json();
    assert_eq!(banned["banned"], true, "{banned}");
    let listed = again.admin().get("/v1/bans?limit=plain").json();
    assert_eq!(listed["by_hand"].as_array().unwrap().len(), 2, "{listed}");
}

#[test]
fn invalid_calls_are_refused() {
    let fixture = Fixture::new(POLICY);
    let mut admin = fixture.admin();
    let mut talk = Talk::default();
    for head in [
        "GET /v1/bans",
        "GET /v1/bans?limit=logn",
        "GET /v1/bans?limit=login&act=ban",
        "GET /v1/bans?limit=login&top=1001",
        "GET /v1/bans?limit=login&key=192.0.2.1",
        "GET /v1/bans?limit=login&from=17",
        "PUT /v1/bans?limit=login",
        "POST /v1/bans?limit=login&key=192.0.2.1&key=POST",
        "POST /v1/bans?limit=login&key=192.0.2.1&key=POST&for=366d",
        "POST /v1/bans?limit=login&key=192.0.2.1&key=POST&for=0s",
        "POST /v1/bans?limit=login&key=192.0.2.1&for=1h",
        "POST /v1/bans?limit=login&key=1&key=2&key=3&for=1h",
        "POST /v1/bans?limit=login&key=192.0.2.300&key=POST&for=1h",
        "DELETE /v1/bans?limit=login&key=192.0.2.0/33&key=POST",
        "DELETE /v1/bans?limit=login",
        "DELETE /v1/bans?limit=login&key=192.0.2.1&key=POST&for=1h",
        "POST /v1/bans?limit=plain&key=192.0.2.1&for=1h&act=block",
        "DELETE /v1/bans?limit=plain&key=192.0.2.1&act=allow",
    ] {
        talk.ask(&mut admin, head, "");
    }
    assert_reviewed!(talk.text());
}

#[test]
fn all_calls_need_the_token_if_there_is_one() {
    let fixture = Fixture::with(POLICY, |mut config| {
        config.admin_token = Some("open-sesame".into());
        config
    });
    let mut admin = fixture.admin();
    for head in [
        "GET /v1/bans?limit=login".to_owned(),
        format!("POST /v1/bans?{KEY}&for=1h"),
        format!("DELETE /v1/bans?{KEY}"),
    ] {
        assert_eq!(admin.ask(&head, b"").status, 401, "{head}");
        let with_token = format!("{head}\nauthorization: Bearer open-sesame");
        assert_eq!(admin.ask(&with_token, b"").status, 200, "{head}");
    }
}

/// A megabyte of a key, and bytes that are no text, change nothing but this answer.
#[test]
fn keys_of_strangers_are_bounded() {
    let fixture = Fixture::new(POLICY);
    let mut admin = fixture.admin();
    let long = "x".repeat(60_000);
    let target = format!("/v1/bans?limit=login&key={long}&key=POST&for=1h");
    let status = admin.post(&target, "").status;
    assert!([200, 400, 414, 431].contains(&status), "{status}");
    let status = fixture
        .admin()
        .post("/v1/bans?limit=login&key=%ff&key=POST&for=1h", "")
        .status;
    assert_eq!(status, 400);
}

#[test]
fn a_list_for_viewers_shows_keys_as_the_policy_says() {
    for (how, shows) in [("hash", "ip=~"), ("raw", "ip=192.0.2.1")] {
        let policy = POLICY.replace(
            "version = 1",
            &format!("version = 1\nreveal_keys = \"{how}\""),
        );
        let fixture = Fixture::new(&policy);
        let mut admin = fixture.admin();
        admin.post(&format!("/v1/bans?{KEY}&for=1h"), "");
        let plain = admin.get("/v1/bans?limit=login").json();
        assert_eq!(plain["by_hand"][0]["key"][0], "ip=192.0.2.1");
        let shown = admin.get("/v1/bans?limit=login&reveal=policy").json();
        assert_eq!(shown["reveal_keys"], how);
        let key = shown["by_hand"][0]["key"][0].as_str().unwrap();
        assert!(key.starts_with(shows), "{key}");
    }
    let fixture = Fixture::new(POLICY);
    let wrong = fixture.admin().get("/v1/bans?limit=login&reveal=all");
    assert_eq!(wrong.status, 400);
}

/// A key is named as any request may bring it, and a network is not one key.
#[test]
fn a_key_is_set_by_hand_in_each_spelling_of_a_request() {
    let fixture = Fixture::new(
        r#"
        version = 1
        [[limit]]
        name  = "host"
        key   = ["host"]
        limit = "10/1m"
        [[limit]]
        name  = "path"
        key   = ["path"]
        limit = "10/1m"
        [[limit]]
        name  = "method"
        key   = ["method"]
        limit = "10/1m"
        [[limit]]
        name  = "user"
        key   = ["header:x-user"]
        limit = "10/1m"
        [[limit]]
        name  = "token"
        key   = ["bearer"]
        limit = "10/1m"
        [[limit]]
        name  = "ip"
        key   = ["ip"]
        limit = "10/1m"
        "#,
    );
    let (mut http, mut admin) = (fixture.http(), fixture.admin());
    let request = r#"{"request":{"method":"GET","path":"/x/a","host":"a.example","ip":"192.0.2.1",
        "headers":{"x-user":"ann","authorization":"Bearer tok"}}}"#;
    for key in [
        "host&key=A.Example:80",
        "path&key=/x//%61/",
        "method&key=get",
        "user&key=%20ann%20",
        "token&key=bearer%20tok",
        "ip&key=::ffff:192.0.2.1",
    ] {
        let banned = admin.post(&format!("/v1/bans?limit={key}&for=1h"), "");
        assert_eq!(banned.status, 200, "{key}: {}", banned.body);
        let answer = http.post("/v1/check", request).json();
        assert_eq!(answer["allowed"], false, "{key}: {answer}");
        let lifted = admin.ask(&format!("DELETE /v1/bans?limit={key}"), b"");
        assert_eq!(lifted.status, 200, "{key}: {}", lifted.body);
    }
    assert_eq!(http.post("/v1/check", request).json()["allowed"], true);
    for network in ["192.0.2.0/24", "192.0.2.1/32", "2001:db8::/32"] {
        let refused = admin.post(&format!("/v1/bans?limit=ip&key={network}&for=1h"), "");
        assert_eq!(refused.status, 400, "{network}: {}", refused.body);
        assert!(refused.body.contains("is a network"), "{}", refused.body);
    }
    // No key has an empty value: a request without one is counted by a stand-in.
    for limit in ["host", "method", "user", "token"] {
        let refused = admin.post(&format!("/v1/bans?limit={limit}&key=&for=1h"), "");
        assert_eq!(refused.status, 400, "{limit}: {}", refused.body);
    }
}
