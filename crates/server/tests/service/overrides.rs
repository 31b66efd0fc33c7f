//! Overrides set by the admin listener: on the disk and in force, all or nothing.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use ratekeeper_core::Nanos;
use ratekeeper_server::{Event, OverrideAct};

use super::Fixture;
use super::client::{Client, Talk};
use super::reviewed::assert_reviewed;

const POLICY: &str = r#"
version = 1
overrides = "overrides.csv"

[[limit]]
name  = "api"
key   = ["attr:tenant"]
limit = "60/1m"

[[limit]]
name  = "model"
match = { attr.model = "*" }
key   = ["attr:tenant", "attr:model"]
limit = "10/1m"

[[override]]
limit = "api"
key   = { "attr:tenant" = "inline" }
set   = "70/1m"
"#;

const FILE: &str = "limit,key,set,until,reason\napi,globex,blocked,,\n";

fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("ratekeeper.toml"), POLICY).unwrap();
    fs::write(directory.path().join("overrides.csv"), FILE).unwrap();
    directory
}

fn started(directory: tempfile::TempDir) -> Fixture {
    let path = directory.path().join("ratekeeper.toml");
    Fixture::at(directory, &path, |config| config)
}

fn put(admin: &mut Client, query: &str) -> u16 {
    admin.ask(&format!("PUT /v1/overrides?{query}"), b"").status
}

/// Returns the quota of a tenant; `None` if it is blocked.
fn quota(fixture: &Fixture, tenant: &str) -> Option<u64> {
    let body = format!(r#"{{"attributes": {{"tenant": "{tenant}"}}, "limits": ["api"]}}"#);
    let answer = fixture.http().post("/v1/peek", &body).json();
    let allowed = answer["allowed"] == true;
    answer["limits"][0]["quota"].as_u64().filter(|_| allowed)
}

fn file(directory: &Path) -> String {
    fs::read_to_string(directory.join("overrides.csv")).unwrap()
}

#[test]
fn a_change_keeps_the_usage_and_a_look_shows_it_at_once() {
    for key in ["acme", "ac*"] {
        let fixture = started(directory());
        let mut admin = fixture.admin();
        let check = || {
            let body = r#"{"attributes": {"tenant": "acme"}, "limits": ["api"]}"#;
            let answer = fixture.http().post("/v1/check", body).json();
            answer["limits"][0]["remaining"].as_u64().unwrap()
        };
        let shown = |admin: &mut Client| {
            let key = admin.get("/v1/keys/api?key=acme").json();
            (key["quota"].clone(), key["remaining"].clone())
        };
        assert_eq!((1..=40).map(|_| check()).min(), Some(20));
        let mut left = Vec::new();
        for set in ["100/1m", "1000/1m", "50/1m"] {
            let query = format!("limit=api&key={key}&set={set}");
            assert_eq!(put(&mut admin, &query), 200);
            left.push((shown(&mut admin), check()));
        }
        let removal = format!("DELETE /v1/overrides?limit=api&key={key}");
        assert_eq!(admin.ask(&removal, b"").status, 200);
        left.push((shown(&mut admin), check()));
        let expected = [
            ((100, 60), 59),
            ((1_000, 959), 958),
            ((50, 8), 7),
            ((60, 17), 16),
        ];
        let json = |(quota, left): (i32, i32)| (quota.into(), left.into());
        assert_eq!(left, expected.map(|(shown, left)| (json(shown), left)));
        let mut reset = || admin.ask("DELETE /v1/keys/api?key=acme", b"").json();
        assert_eq!(reset()["was_counted"], true);
        assert_eq!(reset()["was_counted"], false);
        assert_eq!(check(), 59);
    }
}

/// A client may be called `*`, and an operator may choose that key.
#[test]
fn an_override_by_values_is_for_one_key() {
    let fixture = started(directory());
    let mut admin = fixture.admin();
    for tenant in ["*", "a*", "ev;attr:model=large", " ", r"\*", r"a\"] {
        let mut key = "limit=api&value=".to_owned();
        for byte in tenant.bytes() {
            write!(key, "%{byte:02X}").unwrap();
        }
        assert_eq!(put(&mut admin, &format!("{key}&set=blocked")), 200);
        let escaped = tenant.replace('\\', r"\\");
        assert_eq!(quota(&fixture, &escaped), None, "{tenant}");
        for other in ["bob", "abc", "", "ev", "large", r"\\", r"\\x", "b"] {
            assert_eq!(quota(&fixture, other), Some(60), "{other} beside {tenant}");
        }
        let listed = admin.get(&format!("/v1/overrides?{key}")).json();
        assert_eq!(listed["count"], 1, "{listed}");
        let removed = admin
            .ask(&format!("DELETE /v1/overrides?{key}"), b"")
            .json();
        assert_eq!(removed["removed"], 1, "{removed}");
        assert_eq!(quota(&fixture, &escaped), Some(60), "{tenant}");
    }
    let with_name = "limit=api&key=attr:tenant=carl&set=7/1m";
    assert_eq!(put(&mut admin, with_name), 200);
    assert_eq!(quota(&fixture, "carl"), Some(7), "as lists show the key");
    // A client may be called like another one with the name of the part.
    let twice = "limit=api&value=attr:tenant=attr:tenant=carl";
    assert_eq!(put(&mut admin, &format!("{twice}&set=blocked")), 200);
    assert_eq!(quota(&fixture, "attr:tenant=carl"), None);
    assert_eq!(quota(&fixture, "carl"), Some(7));
    let listed = admin.get(&format!("/v1/overrides?{twice}")).json();
    let listed = listed["overrides"][0]["key"].as_str().unwrap();
    let removed = format!("DELETE /v1/overrides?limit=api&key={listed}");
    assert_eq!(admin.ask(&removed, b"").json()["removed"], 1, "{removed}");
    assert_eq!(quota(&fixture, "attr:tenant=carl"), Some(60));
    assert_eq!(quota(&fixture, "carl"), Some(7));
    // Two parts, of which one looks like both.
    let both = "limit=model&value=ev%3Battr%3Amodel%3Dlarge&value=own&set=blocked";
    assert_eq!(put(&mut admin, both), 200);
    assert!(
        file(fixture.directory.path())
            .contains(r"model,attr:tenant=ev\;attr:model=large;attr:model=own,blocked")
    );
    let model = |tenant: &str, model: &str| {
        let attributes = format!(r#"{{"tenant": "{tenant}", "model": "{model}"}}"#);
        let body = format!(r#"{{"attributes": {attributes}, "limits": ["model"]}}"#);
        fixture.http().post("/v1/peek", &body).json()["allowed"] == true
    };
    assert!(!model("ev;attr:model=large", "own"));
    assert!(model("ev", "own") && model("ev", "large"));

    for (query, detail) in [
        ("limit=model&value=a&set=1/1m", "has 2 parts"),
        ("limit=api&key=a&value=a&set=1/1m", "both name the key"),
        // As lists show it: the policy shows hashes.
        ("limit=api&key=~e2cd2bb3d9f9f777&set=1/1m", "show this hash"),
        (
            "limit=model&key=attr:tenant=a;attr:model=~e2cd2bb3d9f9f777&set=1/1m",
            "show this hash",
        ),
    ] {
        let answer = admin.ask(&format!("PUT /v1/overrides?{query}"), b"");
        assert_eq!(answer.status, 400, "{query}");
        assert!(answer.body.contains(detail), "{}", answer.body);
    }
    let twice = "limit=model&key=attr:tenant=a;attr:model=x;attr:tenant=b&set=1/1m";
    let answer = admin.ask(&format!("PUT /v1/overrides?{twice}"), b"");
    assert_eq!(answer.status, 422);
    assert!(
        answer.body.contains("names `attr:tenant` twice"),
        "{}",
        answer.body
    );
}

#[test]
fn an_override_is_in_force_with_the_answer_and_after_a_restart() {
    let fixture = started(directory());
    let mut admin = fixture.admin();
    assert_eq!(quota(&fixture, "acme"), Some(60));
    let query =
        "limit=api&key=acme&set=90/1m&until=2026-02-01T00:00:00Z&reason=contract+4711,+signed";
    let set = admin.ask(&format!("PUT /v1/overrides?{query}"), b"").json();
    assert_eq!(
        (set["line"].as_u64(), &set["in_force"]),
        (Some(3), &true.into()),
        "{set}"
    );
    assert_eq!(
        (quota(&fixture, "acme"), set["version"].as_u64()),
        (Some(90), Some(2))
    );
    let acme = "api,acme,90/1m,2026-02-01T00:00:00Z,\"contract 4711, signed\"\n";
    assert_eq!(file(fixture.directory.path()), format!("{FILE}{acme}"));
    let act = fixture.await_event(|event| match event {
        Event::OverrideChanged { act, key, line, .. } => Some((act, key, line)),
        _ => None,
    });
    assert_eq!(
        act,
        (OverrideAct::Set, None, Some(3)),
        "keys are not revealed"
    );
    let metrics = admin.get("/metrics").body;
    assert!(metrics.contains(r#"ratekeeper_override_changes_total{change="set"} 1"#));
    // The same line again writes nothing.
    let again = admin.ask(&format!("PUT /v1/overrides?{query}"), b"").json();
    assert_eq!(again["version"], 2);
    assert!(admin.get("/metrics").body.contains(r#"{change="set"} 1"#));
    // Another number takes its place.
    assert_eq!(put(&mut admin, "limit=api&key=acme&set=95/1m"), 200);
    assert_eq!(
        file(fixture.directory.path()),
        format!("{FILE}api,acme,95/1m,,\n")
    );

    let Fixture {
        service, directory, ..
    } = fixture;
    drop(admin);
    service.shutdown();
    let fixture = started(directory);
    assert_eq!(quota(&fixture, "acme"), Some(95));
    let mut admin = fixture.admin();
    let removal = "DELETE /v1/overrides?limit=api&key=acme";
    assert_eq!(admin.ask(removal, b"").json()["removed"], 1);
    assert_eq!(quota(&fixture, "acme"), Some(60));
    assert_eq!(file(fixture.directory.path()), FILE);
    assert_eq!(admin.ask(removal, b"").json()["removed"], 0);
}

#[test]
fn the_event_of_a_change_shows_no_secret() {
    let directory = directory();
    let policy = POLICY.replacen("attr:tenant", "header:x-api-key", 1);
    let policy = policy.replace("{ \"attr:tenant\" =", "{ \"header:x-api-key\" =");
    let policy = format!("{policy}\n[alerts]\nreveal_keys = true\n");
    fs::write(directory.path().join("ratekeeper.toml"), policy).unwrap();
    let fixture = started(directory);
    assert_eq!(
        put(&mut fixture.admin(), "limit=api&key=sk-4711&set=90/1m"),
        200
    );
    let key = fixture.await_event(|event| match event {
        Event::OverrideChanged { key, .. } => key,
        _ => None,
    });
    assert!(key.starts_with("sha256:"), "{key}");
    // The key as it is shown names the line, which has it in full.
    let mut admin = fixture.admin();
    assert_eq!(
        put(&mut admin, &format!("limit=api&key={key}&set=80/1m")),
        200
    );
    let set = file(fixture.directory.path());
    assert!(set.contains("api,sk-4711,80/1m"), "{set}");
    let removal = format!("DELETE /v1/overrides?limit=api&key={key}");
    assert_eq!(admin.ask(&removal, b"").json()["removed"], 1);
    assert_eq!(file(fixture.directory.path()), FILE);
}

#[test]
fn the_lines_in_force_are_listed() {
    let fixture = started(directory());
    let mut admin = fixture.admin();
    put(
        &mut admin,
        "limit=model&key=attr:tenant%3Dacme;attr:model%3Dlarge&set=1/1m",
    );
    put(
        &mut admin,
        "limit=api&key=acme&set=unlimited&until=2026-01-01T00:00:10Z&reason=trial",
    );
    let lines = |answer: serde_json::Value| -> Vec<(u64, bool)> {
        let each = answer["overrides"].as_array().unwrap().iter();
        each.map(|one| (one["line"].as_u64().unwrap(), one["in_force"] == true))
            .collect()
    };
    let all = admin.get("/v1/overrides").json();
    assert_eq!(
        (&all["count"], &all["file"]),
        (&3.into(), &"overrides.csv".into())
    );
    assert_eq!(all["overrides"][2]["reason"], "trial");
    assert_eq!(lines(all), [(2, true), (3, true), (4, true)]);
    assert_eq!(
        lines(admin.get("/v1/overrides?limit=api").json()),
        [(2, true), (4, true)]
    );
    assert_eq!(lines(admin.get("/v1/overrides?top=1").json()), [(2, true)]);
    fixture.clock.advance(Nanos::from_secs(10));
    let ended = admin.get("/v1/overrides?key=acme").json();
    assert_eq!(lines(ended), [(4, false)], "its `until` has passed");
}

#[test]
fn overrides_that_are_wrong_or_never_hold_change_nothing() {
    let fixture = started(directory());
    let mut admin = fixture.admin();
    let mut talk = Talk::default();
    for query in [
        "limit=api&key=acme",
        "limit=api&key=acme&set=9/1m&until=soon",
        "limit=api&key=acme&set=9/1m&until=2025-12-31T23:59:59Z",
        "limit=apo&key=acme&set=9/1m",
        "limit=api&key=acme&set=nine",
        "limit=api&key=acme&set=9/1m&priority=1",
        "limit=api&limit=model&key=acme&set=9/1m",
        "limit=api&key=acme%0A&set=9/1m",
        "limit=api&key=inline&set=9/1m",
        "limit=model&key=acme&set=9/1m",
    ] {
        talk.ask(&mut admin, &format!("PUT /v1/overrides?{query}"), "");
    }
    talk.ask(
        &mut admin,
        "POST /v1/overrides?limit=api&key=acme&set=9/1m",
        "",
    );
    talk.ask(&mut admin, "DELETE /v1/overrides?limit=api", "");
    talk.ask(&mut admin, "GET /v1/overrides?set=9/1m", "");
    assert_eq!(file(fixture.directory.path()), FILE);
    assert_eq!(admin.get("/v1/policy").json()["version"], 1);
    assert_reviewed!(talk.text());
}

#[test]
fn without_a_file_the_answer_names_the_line_to_add() {
    let fixture = Fixture::new(&POLICY.replace("overrides = \"overrides.csv\"\n", ""));
    let mut admin = fixture.admin();
    for head in [
        "GET /v1/overrides",
        "PUT /v1/overrides?limit=api&key=acme&set=9/1m",
        "DELETE /v1/overrides?limit=api&key=acme",
    ] {
        let refused = admin.ask(head, b"");
        assert_eq!(refused.status, 409, "{head}");
        assert!(
            refused.body.contains(r#"overrides = \"overrides.csv\""#),
            "{}",
            refused.body
        );
    }
}

/// A TOML file is listed, and not edited.
#[test]
fn a_toml_file_is_left_to_its_writer() {
    const TOML: &str = "# ours\n[[override]]\nlimit = \"api\"\n\
        key = { \"attr:tenant\" = \"globex\" }\nset = \"blocked\"\n";
    let directory = directory();
    let policy = POLICY.replace("overrides.csv", "overrides.toml");
    fs::write(directory.path().join("ratekeeper.toml"), policy).unwrap();
    let path = directory.path().join("overrides.toml");
    fs::write(&path, TOML).unwrap();
    let fixture = started(directory);
    assert_eq!(quota(&fixture, "globex"), None);
    let mut admin = fixture.admin();
    let listed = admin.get("/v1/overrides").json();
    let first = &listed["overrides"][0];
    assert_eq!((&listed["count"], &first["line"]), (&1.into(), &2.into()));
    assert_eq!(
        (&first["key"], &first["in_force"]),
        (&"globex".into(), &true.into())
    );
    for head in [
        "PUT /v1/overrides?limit=api&key=acme&set=9/1m",
        "DELETE /v1/overrides?limit=api&key=globex",
    ] {
        let refused = admin.ask(head, b"");
        assert_eq!(refused.status, 409, "{head}");
        assert!(refused.body.contains("RK0533"), "{}", refused.body);
        assert!(refused.body.contains("CSV file"), "{}", refused.body);
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), TOML);
}

#[test]
fn changes_need_the_token_if_there_is_one() {
    let directory = directory();
    let path = directory.path().join("ratekeeper.toml");
    let fixture = Fixture::at(directory, &path, |mut config| {
        config.admin_token = Some("open-sesame".into());
        config
    });
    let mut admin = fixture.admin();
    for head in [
        "PUT /v1/overrides?limit=api&key=acme&set=9/1m",
        "DELETE /v1/overrides?limit=api&key=acme",
        "GET /v1/overrides",
    ] {
        let with = |token: &str| format!("{head}\nauthorization: Bearer {token}");
        assert_eq!(admin.ask(head, b"").status, 401, "{head}");
        assert_eq!(admin.ask(&with("close-sesame"), b"").status, 401, "{head}");
        assert_eq!(admin.ask(&with("open-sesame"), b"").status, 200, "{head}");
    }
}

/// Without a token, reads are open on loopback, and changes need `admin_writes`.
#[test]
fn changes_are_writes() {
    let directory = directory();
    let path = directory.path().join("ratekeeper.toml");
    let fixture = Fixture::at(directory, &path, |mut config| {
        config.admin_writes = None;
        config
    });
    let mut admin = fixture.admin();
    assert_eq!(admin.get("/v1/overrides").status, 200);
    assert_eq!(put(&mut admin, "limit=api&key=acme&set=9/1m"), 403);
    assert_eq!(
        admin
            .ask("DELETE /v1/overrides?limit=api&key=globex", b"")
            .status,
        403
    );
    assert_eq!(file(fixture.directory.path()), FILE);
}

#[test]
fn concurrent_changes_are_all_there() {
    let fixture = started(directory());
    std::thread::scope(|scope| {
        for number in 0..20 {
            let mut admin = fixture.admin();
            scope.spawn(move || {
                let query = format!("limit=api&key=tenant-{number}&set=9/1m");
                assert_eq!(put(&mut admin, &query), 200);
            });
        }
    });
    let text = file(fixture.directory.path());
    assert_eq!(text.lines().count(), 22, "{text}");
    for number in 0..20 {
        assert_eq!(
            quota(&fixture, &format!("tenant-{number}")),
            Some(9),
            "{number}"
        );
    }
    let names = fs::read_dir(fixture.directory.path()).unwrap().count();
    assert_eq!(names, 2, "no temporary file is left behind");
}

/// A line that another program has written since the last look stays, and comes into force with
/// the next change.
#[test]
fn a_change_of_another_program_is_kept() {
    let fixture = started(directory());
    let mut admin = fixture.admin();
    let path = fixture.path("overrides.csv");
    fs::write(&path, format!("{FILE}api,other,80/1m,,\n")).unwrap();
    assert_eq!(put(&mut admin, "limit=api&key=acme&set=9/1m"), 200);
    assert_eq!(
        (quota(&fixture, "other"), quota(&fixture, "acme")),
        (Some(80), Some(9))
    );
    assert_eq!(
        file(fixture.directory.path()),
        format!("{FILE}api,other,80/1m,,\napi,acme,9/1m,,\n")
    );
    // An error of the file refuses the change, and stays for its writer to mend.
    fs::write(&path, "limit,key,set\napi,acme\n").unwrap();
    assert_eq!(put(&mut admin, "limit=api&key=acme&set=10/1m"), 422);
    assert_eq!(file(fixture.directory.path()), "limit,key,set\napi,acme\n");
    assert_eq!(quota(&fixture, "acme"), Some(9));
    fs::remove_file(&path).unwrap();
    assert_eq!(put(&mut admin, "limit=api&key=acme&set=10/1m"), 503);
    assert_eq!(quota(&fixture, "acme"), Some(9));
}

#[test]
fn overrides_make_no_metric_series_of_their_own() {
    let series = |rows: u32| {
        let directory = directory();
        let mut csv = "limit,key,set\n".to_owned();
        for row in 0..rows {
            let numbers = 100 + row % 50;
            writeln!(csv, "api,tenant-{row},{numbers}/1m").unwrap();
        }
        fs::write(directory.path().join("overrides.csv"), csv).unwrap();
        let fixture = started(directory);
        let mut http = fixture.http();
        for row in 0..100 {
            let body = format!(r#"{{"attributes": {{"tenant": "tenant-{row}"}}}}"#);
            assert_eq!(http.post("/v1/check", &body).status, 200);
        }
        let metrics = fixture.admin().get("/metrics").body;
        // The identity of the policy differs, as it should.
        let others = ["#", "ratekeeper_config_info"];
        let is_other = |line: &&str| others.iter().any(|start| line.starts_with(start));
        let names = metrics.lines().filter(|line| !is_other(line));
        let names = names.filter_map(|line| line.rsplit_once(' '));
        let names = names.map(|(name, _)| name.to_owned());
        names.collect::<BTreeSet<_>>()
    };
    let (none, thousands) = (series(0), series(10_000));
    assert_eq!(none, thousands);
}
