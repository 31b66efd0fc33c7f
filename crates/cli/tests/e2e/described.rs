//! The rules of `explain --json`, of `/v1/limits`, of `/v1/policy` and of the dashboard are described
//! by the same JSON, for each policy of the examples and of the guide.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::exchanges::{REDIS, guide};
use crate::harness::in_process::InProcess;
use crate::harness::redis::Redis;
use crate::recipes::blocks;

/// Returns the policies, each with its place.
fn policies() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/policies");
    let entries = std::fs::read_dir(folder).expect("the examples are there");
    let paths = entries.map(|entry| entry.expect("it can be read").path());
    let examples = paths.map(|path| {
        let text = std::fs::read_to_string(&path).expect("it is a text");
        (path.display().to_string(), text)
    });
    let pages = guide().flat_map(|(name, page)| {
        let blocks = blocks(&page, "toml").filter(|block| block.contains("[[limit]]"));
        // Without policies that name a file or a variable which a service would read.
        let blocks = blocks.filter(|block| !block.contains(".pem") && !block.contains("env:"));
        let policy = |block: &str| {
            let version = block.contains("version = 1");
            let head = if version { "" } else { "version = 1\n" };
            format!("{head}{block}")
        };
        let policies = blocks.map(|block| (format!("{name}: {block}"), policy(block)));
        policies.collect::<Vec<_>>()
    });
    examples.chain(pages).collect()
}

/// Returns the rules that `explain --json` describes; `None` for a policy that is not whole.
fn explained(policy: &str) -> Option<Vec<Value>> {
    let dir = tempfile::tempdir().expect("the system has a temporary directory");
    std::fs::write(dir.path().join("policy.toml"), policy).expect("it is writable");
    let ran = Command::new(env!("CARGO_BIN_EXE_ratekeeper"))
        .args(["explain", "policy.toml", "--json"])
        .current_dir(dir.path())
        .output()
        .expect("it runs");
    let printed = serde_json::from_slice(&ran.stdout).ok()?;
    Some(without(limits(printed), &["now"]))
}

fn limits(mut answer: Value) -> Vec<Value> {
    let limits = answer["limits"].as_array_mut();
    std::mem::take(limits.expect("an answer has limits"))
}

/// Returns rules without the fields beside their descriptions.
fn without(mut limits: Vec<Value>, beside: &[&str]) -> Vec<Value> {
    for limit in &mut limits {
        let fields = limit.as_object_mut().expect("a rule is an object");
        fields.retain(|name, _| !beside.contains(&&**name));
    }
    limits
}

#[test]
fn a_rule_has_one_description_everywhere() {
    let home = tempfile::tempdir().expect("the system has a temporary directory");
    let redis = Redis::start(home.path());
    let (mut compared, mut on_dashboard) = (0, 0);
    for (place, text) in policies() {
        let text = match &redis {
            Some(redis) => text.replace(REDIS, &redis.url()),
            None if text.contains(REDIS) => continue, // the harness prints that Redis is absent
            None => text,
        };
        let Some(explained) = explained(&text) else {
            continue;
        };
        let service = InProcess::start(&text);
        let answer = |target| {
            let answer = service.get(target);
            limits(serde_json::from_str(&answer).unwrap_or_else(|_| panic!("{place}: {answer}")))
        };
        let listed = without(answer("/v1/limits"), &["keys", "bytes"]);
        assert_eq!(listed, explained, "{place}");
        assert_eq!(answer("/v1/policy"), explained, "{place}");
        // It has the limits with a history.
        for shown in answer("/v1/dashboard") {
            on_dashboard += 1;
            let mut rules = explained.iter();
            let rule = rules.find(|rule| rule["name"] == shown["name"]);
            let explained = rule.unwrap_or_else(|| panic!("{place}: {shown}"));
            for (field, value) in explained.as_object().expect("a rule is an object") {
                assert_eq!(shown[field], *value, "{place}: {field}");
            }
        }
        compared += 1;
    }
    assert!(
        compared >= 60 && on_dashboard >= 60,
        "{compared} policies, {on_dashboard} rules on the dashboard"
    );
}
