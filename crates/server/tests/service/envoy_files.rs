//! The configuration of Envoy's rate limit service: read at the start, and when it changes.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use ratekeeper_server::{Config, Event, Service, StartError, Trigger};
use tempfile::TempDir;

use super::Fixture;

const POLICY: &str = "version = 1\n[envoy]\nconfig = \"limits\"\n";

fn domain(name: &str, rules: usize) -> String {
    let rule = |number| {
        format!("  - {{ key: k{number}, rate_limit: {{ unit: minute, requests_per_unit: 1 }} }}\n")
    };
    let rules: String = (0..rules).map(rule).collect();
    format!("domain: {name}\ndescriptors:\n{rules}")
}

/// Returns a service that watches `limits` in `directory`.
fn watching(directory: TempDir) -> Fixture {
    let path = directory.path().join("ratekeeper.toml");
    fs::write(&path, POLICY).unwrap();
    Fixture::at(directory, &path, |mut config| {
        config.watch = true;
        config
    })
}

/// Returns the domains and rules of the next configuration that a change brings.
fn reloaded(fixture: &Fixture) -> (usize, usize) {
    fixture.await_event(|event| match event {
        Event::EnvoyReloaded {
            trigger: Trigger::File,
            domains,
            rules,
        } => Some((domains, rules)),
        _ => None,
    })
}

fn refused(fixture: &Fixture) -> String {
    fixture.await_event(|event| match event {
        Event::EnvoyRejected { report, .. } => Some(report),
        _ => None,
    })
}

/// Kubernetes mounts a config map like this: every file leads through `..data`, which is swapped.
#[test]
fn a_config_map_is_followed() {
    let directory = tempfile::tempdir().unwrap();
    let mount = directory.path().join("limits");
    fs::create_dir(&mount).unwrap();
    for (version, rules) in [("..1", 1), ("..2", 2), ("..3", 3)] {
        fs::create_dir(mount.join(version)).unwrap();
        fs::write(mount.join(version).join("shop.yaml"), domain("shop", rules)).unwrap();
    }
    symlink("..1", mount.join("..data")).unwrap();
    symlink("..data/shop.yaml", mount.join("shop.yaml")).unwrap();
    let fixture = watching(directory);
    for (version, rules) in [("..2", 2), ("..3", 3)] {
        symlink(version, mount.join("..tmp")).unwrap();
        fs::rename(mount.join("..tmp"), mount.join("..data")).unwrap();
        assert_eq!(reloaded(&fixture), (1, rules));
    }
}

#[test]
fn added_changed_and_removed_files_are_reloaded() {
    let directory = tempfile::tempdir().unwrap();
    let limits = directory.path().join("limits");
    fs::create_dir(&limits).unwrap();
    fs::write(limits.join("a.yaml"), domain("a", 1)).unwrap();
    let fixture = watching(directory);
    fs::write(limits.join("b.yaml"), domain("b", 2)).unwrap();
    assert_eq!(reloaded(&fixture), (2, 3));
    fs::write(limits.join("a.yaml"), domain("a", 5)).unwrap();
    assert_eq!(reloaded(&fixture), (2, 7));
    fs::remove_file(limits.join("a.yaml")).unwrap();
    assert_eq!(reloaded(&fixture), (1, 2));
}

#[test]
fn a_bad_file_keeps_the_old_configuration() {
    let directory = tempfile::tempdir().unwrap();
    let limits = directory.path().join("limits");
    fs::create_dir(&limits).unwrap();
    fs::write(limits.join("a.yaml"), domain("a", 1)).unwrap();
    let path = directory.path().join("ratekeeper.toml");
    fs::write(&path, POLICY).unwrap();
    let fixture = Fixture::at(directory, &path, |config| config);
    let mut admin = fixture.admin();
    fs::write(limits.join("b.yaml"), "domain: a\ndescriptors: [x]\n").unwrap();
    assert_eq!(admin.post("/v1/reload", "").status, 422);
    let report = refused(&fixture);
    for part in [
        "error[RK0403]",
        "error[RK0411]",
        "b.yaml:1:9",
        "a.yaml already",
    ] {
        assert!(report.contains(part), "{part}: {report}");
    }
    fs::remove_file(limits.join("a.yaml")).unwrap();
    fs::remove_file(limits.join("b.yaml")).unwrap();
    assert_eq!(admin.post("/v1/reload", "").status, 422);
    assert!(refused(&fixture).contains("no *.yaml"));
    fs::write(limits.join("b.yaml"), domain("b", 4)).unwrap();
    assert_eq!(admin.post("/v1/reload", "").status, 200);
    let now = fixture.await_event(|event| match event {
        Event::EnvoyReloaded { domains, rules, .. } => Some((domains, rules)),
        _ => None,
    });
    assert_eq!(now, (1, 4));
}

/// With other settings the same files have another meaning.
#[test]
fn settings_are_reloaded_too() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("limits"), domain("a", 1)).unwrap();
    let fixture = watching(directory);
    let merged = format!("{POLICY}merge_domains = true\n");
    fs::write(fixture.path("ratekeeper.toml"), merged).unwrap();
    assert_eq!(reloaded(&fixture), (1, 1));
}

#[test]
fn a_start_needs_a_good_configuration() {
    let directory = tempfile::tempdir().unwrap();
    let start = |path: &Path| {
        let mut config = Config::new("");
        config.policy = None;
        config.envoy_config = Some(path.to_owned());
        let config = config.listen("http=127.0.0.1:0").unwrap();
        let config = config.listen("grpc=127.0.0.1:0").unwrap();
        Service::start(&config.listen("admin=off").unwrap())
    };
    let limits = directory.path().join("limits.yaml");
    assert!(matches!(
        start(&limits),
        Err(StartError::EnvoyUnreadable(_))
    ));
    fs::write(&limits, "domain: a\nlimits: []\n").unwrap();
    let Err(StartError::EnvoyFiles(report)) = start(&limits) else {
        panic!("a bad file was accepted");
    };
    assert!(report.contains("error[RK0103]"), "{report}");
    fs::write(&limits, domain("a", 1)).unwrap();
    start(&limits).unwrap().shutdown();
    let mut nothing = Config::new("");
    nothing.policy = None;
    assert!(matches!(
        Service::start(&nothing),
        Err(StartError::NoPolicy)
    ));
}

/// Returns a service with the file `limits`, which describes the domain `files`.
fn with_files(policy: &str, change: impl FnOnce(Config) -> Config) -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("limits"), domain("files", 1)).unwrap();
    let path = directory.path().join("ratekeeper.toml");
    fs::write(&path, format!("{POLICY}{policy}")).unwrap();
    Fixture::at(directory, &path, change)
}

/// Returns the statuses of calls of `domain` with one descriptor of this key.
fn statuses(fixture: &Fixture, domain: &str, key: &str, calls: usize) -> Vec<u16> {
    let entries = format!(r#"[{{"key": "{key}", "value": "a"}}]"#);
    let call = format!(r#"{{"domain": "{domain}", "descriptors": [{{"entries": {entries}}}]}}"#);
    let mut http = fixture.http();
    let statuses = (0..calls).map(|_| http.post("/json", &call).status);
    statuses.collect()
}

#[test]
fn native_limits_hold_beside_files() {
    let native = "
[[limit]]
name  = \"native\"
match = { domain = \"n\" }
key   = [\"descriptor:u\"]
limit = \"2/1h\"
";
    let fixture = with_files(native, |config| config);
    assert_eq!(statuses(&fixture, "n", "u", 4), [200, 200, 429, 429]);
    assert_eq!(statuses(&fixture, "files", "k0", 2), [200, 429]);
    // Neither decides the other's domain, nor an unknown one.
    assert_eq!(statuses(&fixture, "files", "u", 4), [200; 4]);
    assert_eq!(statuses(&fixture, "unknown", "u", 4), [200; 4]);
}

#[test]
fn a_service_in_shadow_mode_refuses_no_request_by_files() {
    let fixture = with_files("", |mut config| {
        config.shadow = true;
        config
    });
    assert_eq!(statuses(&fixture, "files", "k0", 3), [200; 3]);
    let metrics = fixture.admin().get("/metrics").body;
    let over = "ratekeeper_rls_hits_total{rule=\"files.k0\",kind=\"over_limit\"} 2";
    assert!(metrics.contains(over), "{metrics}");
}

#[test]
fn files_in_force_are_shown() {
    let fixture = with_files("", |config| config);
    let mut admin = fixture.admin();
    let rules = "files.k0: unit=MINUTE requests_per_unit=1, shadow_mode: false, \
                 quota_mode: false\n";
    assert_eq!(admin.get("/rlconfig").body, rules);
    let shown = |admin: &mut super::client::Client| {
        let policy = admin.get("/v1/policy").body;
        let policy: serde_json::Value = serde_json::from_str(&policy).unwrap();
        let envoy = &policy["envoy"];
        let sha = envoy["sha"].as_str().unwrap().to_owned();
        let metrics = admin.get("/metrics").body;
        let info = format!("ratekeeper_envoy_config_info{{sha=\"{sha}\"}} 1");
        assert!(metrics.contains(&info), "{info} in {metrics}");
        (sha, envoy["rules"].as_u64().unwrap())
    };
    let before = shown(&mut admin);
    fs::write(fixture.path("limits"), domain("files", 2)).unwrap();
    assert_eq!(admin.post("/v1/reload", "").status, 200);
    let after = shown(&mut admin);
    assert_eq!((before.1, after.1), (1, 2));
    assert_ne!(before.0, after.0);
}
