//! Native histograms: a real Prometheus scrapes them, and computes quantiles from them.

use std::fs;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ratekeeper_server::Door;
use serde_json::Value;

use crate::harness::clock::poll;
use crate::harness::in_process::InProcess;
use crate::harness::ports::free_address;
use crate::harness::process::{self, Process};
use crate::harness::say;
use crate::harness::visitor::Visitor;

const PATIENCE: Duration = Duration::from_secs(60);
const POLICY: &str = "version = 1\n[[limit]]\nname = \"api\"\nkey = [\"attr:user\"]\n\
                      limit = \"9/1h\"\n";

/// Values up to this one are zero, and Prometheus takes them for evenly spread: 2^-128.
const ZERO: f64 = 3e-39;

#[test]
fn prometheus_computes_quantiles_of_native_histograms() {
    if process::find("prometheus").is_none() {
        say("skipped: prometheus is not installed");
        return;
    }
    let service = InProcess::start(POLICY);
    let times = |nanos: u64, users: std::ops::Range<u32>| {
        let stride = &service.clock.stride;
        stride.store(nanos, Ordering::Relaxed);
        service.ask("user", users.map(|user| user.to_string()));
        stride.store(0, Ordering::Relaxed);
    };
    times(0, 0..10);
    times(70_000, 0..60); // each look at the clock takes so long
    times(300_000_000, 60..90);

    let dir = tempfile::tempdir().expect("a directory of its own");
    let (config, own) = (dir.path().join("prometheus.yml"), free_address());
    let text = format!(
        "global: {{ scrape_interval: 1s }}\nscrape_configs:\n  - job_name: ratekeeper\n    \
         static_configs: [{{ targets: [\"{}\"] }}]\n",
        service.door(Door::Admin)
    );
    fs::write(&config, text).expect("it is writable");
    let mut command = Command::new("prometheus");
    command
        .arg("--enable-feature=native-histograms")
        .arg(format!("--config.file={}", config.display()))
        .arg(format!(
            "--storage.tsdb.path={}",
            dir.path().join("data").display()
        ))
        .arg(format!("--web.listen-address={own}"));
    let (out, log) = (dir.path().join("out"), dir.path().join("log"));
    let prometheus = Process::start("prometheus", &mut command, out, log);

    let series = r#"ratekeeper_decision_duration_seconds{protocol="http"}"#;
    let query = |text: &str| -> Option<f64> {
        let escaped = text
            .replace('{', "%7B")
            .replace('}', "%7D")
            .replace('"', "%22");
        let target = format!("/api/v1/query?query={}", escaped.replace(' ', "%20"));
        let answer = Visitor::at(1).ask(own, "GET", &target).ok()?;
        let found: Value = serde_json::from_str(&answer.body).ok()?;
        found["data"]["result"][0]["value"][1]
            .as_str()?
            .parse()
            .ok()
    };
    let count = poll("a scrape with the histogram", PATIENCE, || {
        query(&format!("histogram_count({series})"))
    });
    let count = count.unwrap_or_else(|error| panic!("{error}\n{}", prometheus.log()));
    assert!((count - 100.0).abs() < 0.1, "{count}");
    let quantile = |part: &str| {
        let found = query(&format!("histogram_quantile({part},{series})"));
        found.unwrap_or_else(|| panic!("no quantile\n{}", prometheus.log()))
    };
    // A bucket is a fifth wider than the one before it.
    for (part, expected) in [("0.05", 0.0), ("0.4", 70e-6), ("0.9", 0.3)] {
        let found = quantile(part);
        let is_close = (found - expected).abs() <= expected * 0.2 + ZERO;
        assert!(is_close, "{part}: {found}, not {expected}");
    }
    // The other metrics come in the same format.
    let allowed = query(r#"ratekeeper_decisions_total{limit="api",outcome="allowed"}"#);
    assert_eq!(allowed, Some(100.0));
    assert_eq!(query("ratekeeper_limits_folded"), Some(0.0));
}
