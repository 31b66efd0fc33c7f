//! Reload: by signal or request or file change; atomic; the old policy stays if in doubt.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use ratekeeper_server::{Event, Trigger};

use super::client::{Client, Talk};
use super::reviewed::assert_reviewed;
use super::{Fixture, masked};

fn policy(size: u32) -> String {
    format!(
        "version = 1\n[[limit]]\nname = \"all\"\nkey = [\"all\"]\nbucket = {{ size = {size}, refill = \"1/1h\" }}\n"
    )
}

fn quota(http: &mut Client) -> u64 {
    http.post("/v1/peek", "{}").json()["limits"][0]["quota"]
        .as_u64()
        .unwrap()
}

fn watched(directory: tempfile::TempDir, path: &Path) -> Fixture {
    Fixture::at(directory, path, |mut config| {
        config.watch = true;
        config
    })
}

/// Waits for the next reload by file change; returns its new version.
fn reloaded(fixture: &Fixture) -> u32 {
    fixture.await_event(|event| match event {
        Event::Reloaded {
            trigger: Trigger::File,
            to,
            ..
        } => Some(to),
        _ => None,
    })
}

/// Writes a file whole: a write in place may be read when it has emptied the file.
fn replace(path: &Path, text: impl AsRef<[u8]>) {
    let next = path.with_extension("next");
    fs::write(&next, text).unwrap();
    fs::rename(next, path).unwrap();
}

#[test]
fn a_write_in_place_is_seen() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ratekeeper.toml");
    fs::write(&path, policy(5)).unwrap();
    let fixture = watched(directory, &path);
    fs::write(&path, policy(6)).unwrap();
    assert_eq!(reloaded(&fixture), 2);
    assert_eq!(quota(&mut fixture.http()), 6);
}

#[test]
fn a_list_of_values_is_read_again_with_its_policy() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ratekeeper.toml");
    let list = directory.path().join("blocked.txt");
    let limit = "[[limit]]\nname = \"all\"\nkey = [\"all\"]\nlimit = \"9/1h\"\n";
    let policy = format!("version = 1\n{limit}match = {{ attr.user = \"file:blocked.txt\" }}\n");
    fs::write(&list, "ada\n").unwrap();
    fs::write(&path, policy).unwrap();
    let fixture = watched(directory, &path);
    let limited = |user: &str| {
        let body = format!(r#"{{"attributes": {{"user": "{user}"}}}}"#);
        let answer = fixture.http().post("/v1/peek", &body).json();
        !answer["limits"].as_array().unwrap().is_empty()
    };
    assert!(limited("ada") && !limited("bob"));
    replace(&list, "ada\nbob # since today\n");
    reloaded(&fixture);
    assert!(limited("ada") && limited("bob"));

    fs::write(&list, "!ada\n").unwrap();
    let answer = fixture.admin().post("/v1/reload", "");
    assert_eq!(answer.status, 422);
    assert!(answer.json().to_string().contains("blocked.txt, line 1"));
    fs::remove_file(&list).unwrap();
    assert_eq!(fixture.admin().post("/v1/reload", "").status, 422);
    assert!(limited("ada") && limited("bob"), "the list in force stays");
}

#[test]
fn a_rename_over_is_seen() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ratekeeper.toml");
    fs::write(&path, policy(5)).unwrap();
    let fixture = watched(directory, &path);
    for size in 6..9 {
        let next = fixture.path("next.tmp");
        fs::write(&next, policy(size)).unwrap();
        fs::rename(&next, &path).unwrap();
        reloaded(&fixture);
        assert_eq!(quota(&mut fixture.http()), u64::from(size));
    }
}

#[test]
fn a_symlink_swap_is_seen() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().to_owned();
    fs::write(root.join("v1.toml"), policy(5)).unwrap();
    fs::write(root.join("v2.toml"), policy(6)).unwrap();
    symlink("v1.toml", root.join("ratekeeper.toml")).unwrap();
    let fixture = watched(directory, &root.join("ratekeeper.toml"));
    symlink("v2.toml", root.join("next")).unwrap();
    fs::rename(root.join("next"), root.join("ratekeeper.toml")).unwrap();
    reloaded(&fixture);
    assert_eq!(quota(&mut fixture.http()), 6);
}

/// Config maps are mounted like this: the file never changes, a directory on the way does.
#[test]
fn a_swap_of_a_parent_directory_is_seen() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().to_owned();
    for (version, size) in [("..1", 5), ("..2", 6), ("..3", 7)] {
        fs::create_dir(root.join(version)).unwrap();
        fs::write(root.join(version).join("ratekeeper.toml"), policy(size)).unwrap();
    }
    symlink("..1", root.join("..data")).unwrap();
    symlink("..data/ratekeeper.toml", root.join("ratekeeper.toml")).unwrap();
    let fixture = watched(directory, &root.join("ratekeeper.toml"));
    for (version, size) in [("..2", 6), ("..3", 7)] {
        symlink(version, root.join("..tmp")).unwrap();
        fs::rename(root.join("..tmp"), root.join("..data")).unwrap();
        reloaded(&fixture);
        assert_eq!(quota(&mut fixture.http()), size);
    }
}

#[test]
fn a_bad_file_keeps_the_old_policy() {
    let fixture = Fixture::new(&policy(5));
    let path = fixture.path("ratekeeper.toml");
    let (mut http, mut admin) = (fixture.http(), fixture.admin());
    http.post("/v1/check", r#"{"cost":2}"#);
    let mut talk = Talk::default();
    for text in ["", "version = 1\nbrust = 1\nburst = 2\n", "\u{0}"] {
        fs::write(&path, text).unwrap();
        talk.say(&format!("{text:?}"));
        talk.ask(&mut admin, "POST /v1/reload", "");
        assert_eq!(quota(&mut http), 5);
    }
    fs::remove_file(&path).unwrap();
    talk.say("no file");
    talk.ask(&mut admin, "POST /v1/reload", "");
    fs::write(&path, policy(5)).unwrap();
    talk.say("the old text again");
    talk.ask(&mut admin, "POST /v1/reload", "");
    fs::write(&path, policy(6)).unwrap();
    talk.say("new parameters, old balances");
    talk.ask(&mut admin, "POST /v1/reload", "");
    talk.ask(&mut http, "POST /v1/peek", "{}");
    let root = fixture.directory.path().to_string_lossy().into_owned();
    // The words of findings are tested where they are written.
    let masks = [
        (root.as_str(), "[root]"),
        (
            r#""detail":"[^"/]*; version"#,
            r#""detail":"[first finding]; version"#,
        ),
        (r#""findings":\[\{.*\}\]"#, r#""findings":"[all of them]""#),
    ];
    assert_reviewed!(masked(talk.text(), &masks));
    let metrics = admin.get("/metrics").body;
    for line in [
        "ratekeeper_config_reload_total{result=\"applied\"} 1",
        "ratekeeper_config_reload_total{result=\"rejected\"} 4",
    ] {
        assert!(metrics.contains(line), "{line}");
    }
    let report = fixture.await_event(|event| match event {
        Event::ReloadRejected { report, .. } if report.contains("brust") => Some(report),
        _ => None,
    });
    assert!(
        report.contains("burst"),
        "the report lists all findings: {report}"
    );
}

#[test]
fn a_bad_file_is_reported_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ratekeeper.toml");
    fs::write(&path, policy(5)).unwrap();
    let fixture = watched(directory, &path);
    replace(&path, "version = \n");
    let rejected = |event| matches!(event, Event::ReloadRejected { .. }).then_some(());
    fixture.await_event(rejected);
    // The same bytes again, then a good file: nothing is reported in between.
    replace(&path, "version = \n");
    replace(&path, policy(6));
    fixture.await_event(|event| match event {
        Event::ReloadRejected { report, .. } => panic!("reported again: {report}"),
        Event::Reloaded { .. } => Some(()),
        _ => None,
    });
}

#[test]
fn removed_limits_leave_the_metrics() {
    let fixture = Fixture::new(&policy(5));
    let mut admin = fixture.admin();
    let other = policy(5).replace("\"all\"\nkey", "\"other\"\nkey");
    fs::write(fixture.path("ratekeeper.toml"), other).unwrap();
    assert_eq!(admin.post("/v1/reload", "").status, 200);
    let metrics = admin.get("/metrics").body;
    assert!(!metrics.contains("limit=\"all\""), "{metrics}");
    assert!(metrics.contains(
        "ratekeeper_decisions_total{limit=\"other\",outcome=\"allowed\",mode=\"enforce\"} 0"
    ));
}

#[test]
fn changes_that_need_a_restart_are_reported() {
    let fixture = Fixture::new(&policy(5));
    let changed = format!("{}\n[listen]\nhttp = \"127.0.0.1:1\"\n", policy(5));
    fs::write(fixture.path("ratekeeper.toml"), changed).unwrap();
    let answer = fixture.admin().post("/v1/reload", "");
    assert_eq!(answer.status, 200, "{}", answer.body);
    fixture.await_event(|event| match event {
        Event::Notice(text) if text.contains("[listen]") => Some(()),
        _ => None,
    });
}

#[test]
fn a_changed_file_of_overrides_is_reloaded_and_a_wrong_one_changes_nothing() {
    check_overrides(
        "overrides.csv",
        |set| format!("limit,key,set\nper-user,ada,{set}\n"),
        "overrides.csv:2:14",
    );
}

#[test]
fn so_is_one_in_toml() {
    check_overrides(
        "overrides.toml",
        |set| {
            let key = "key = { \"attr:user\" = \"ada\" }";
            format!("[[override]]\nlimit = \"per-user\"\n{key}\nset = \"{set}\"\n")
        },
        "overrides.toml:4:7",
    );
}

/// Changes a file of overrides, with one of a key to numbers, and then to wrong ones at `place`.
fn check_overrides(name: &str, file: fn(&str) -> String, place: &str) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ratekeeper.toml");
    let overrides = directory.path().join(name);
    fs::write(&overrides, file("1/1h burst 7")).unwrap();
    let text = policy(5).replace("[\"all\"]", "[\"attr:user\"]");
    let text = text.replace("name = \"all\"", "name = \"per-user\"");
    fs::write(&path, format!("overrides = \"{name}\"\n{text}")).unwrap();
    let fixture = watched(directory, &path);
    let quota_of = |user: &str| {
        let body = format!("{{\"attributes\":{{\"user\":\"{user}\"}}}}");
        let answer = fixture.http().post("/v1/peek", &body).json();
        answer["limits"][0]["quota"].as_u64().unwrap()
    };
    assert_eq!([quota_of("ada"), quota_of("bob")], [7, 5]);
    replace(&overrides, file("1/1h burst 8"));
    assert_eq!(reloaded(&fixture), 2);
    assert_eq!([quota_of("ada"), quota_of("bob")], [8, 5]);
    replace(&overrides, file("8"));
    let report = fixture.await_event(|event| match event {
        Event::ReloadRejected { report, .. } => Some(report),
        _ => None,
    });
    assert!(report.contains(place), "{report}");
    assert_eq!(quota_of("ada"), 8);
}
