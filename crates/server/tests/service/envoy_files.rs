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

/// A service that watches `limits` in `directory`.
fn watching(directory: TempDir) -> Fixture {
    let path = directory.path().join("ratekeeper.toml");
    fs::write(&path, POLICY).unwrap();
    Fixture::at(directory, &path, |mut config| {
        config.watch = true;
        config
    })
}

/// The domains and rules of the next configuration that a change brings.
fn reloaded(fixture: &Fixture) -> (usize, u32) {
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

/// Kubernetes mounts a config map so: every file leads through `..data`, which is swapped.
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
fn files_come_change_and_go() {
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

/// Other settings read the same files otherwise.
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
        panic!("a bad file was taken");
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
