//! The guide's recipes: each policy is served, and answers its requests as the guide says.

use std::net::SocketAddr;

use serde_json::{Map, Value, json};

use crate::harness::service::Service;
use crate::harness::visitor::Visitor;

const GUIDE: &str = include_str!("../../../../docs/guide/recipes.md");
/// Maximum number of lines of a policy in the recipes.
const MAX_LINES: usize = 20;

struct Recipe<'a> {
    title: &'a str,
    policy: String,
    requests: Vec<&'a str>,
}

fn recipes() -> Vec<Recipe<'static>> {
    let sections = GUIDE.split("\n## ").skip(1);
    sections
        .map(|section| Recipe {
            title: section.lines().next().unwrap_or_default(),
            policy: blocks(section, "toml").collect::<Vec<_>>().join("\n"),
            requests: blocks(section, "text").flat_map(str::lines).collect(),
        })
        .collect()
}

/// The blocks of a language.
fn blocks<'a>(section: &'a str, language: &'a str) -> impl Iterator<Item = &'a str> {
    let fenced = section.split("```").skip(1).step_by(2);
    fenced.filter_map(move |block| block.strip_prefix(language)?.strip_prefix('\n'))
}

#[test]
fn every_recipe_answers_as_the_guide_shows() {
    let recipes = recipes();
    assert!(recipes.len() >= 15, "{}", recipes.len());
    for recipe in recipes {
        let Recipe { title, policy, .. } = &recipe;
        let lines = policy.lines().filter(|line| !line.is_empty()).count();
        assert!((1..=MAX_LINES).contains(&lines), "{title}: {lines} lines");
        let dir = tempfile::TempDir::new().expect("the system has a temporary directory");
        let path = dir.path().join("policy.toml");
        let text = format!("version = 1\ntimezone = \"UTC\"\n{policy}");
        std::fs::write(&path, text).expect("the test's directory is writable");
        let service = Service::start(dir.path(), &path);
        for line in &recipe.requests {
            answered(service.http(), title, line);
        }
    }
}

/// Sends `N x [acquire] METHOD PATH FIELD=VALUE..: STATUS [LIMIT][, report STATUS]`.
fn answered(to: SocketAddr, title: &str, line: &str) {
    let parts = line.split_once(" x ").zip(line.rsplit_once(": "));
    let ((count, _), (request, expected)) =
        parts.unwrap_or_else(|| panic!("{title}: {line}: expected `N x REQUEST: STATUS`"));
    let (_, request) = request.split_once(" x ").unwrap_or_default();
    let (call, request) = match request.strip_prefix("acquire ") {
        Some(request) => ("/v1/acquire", request),
        None => ("/v1/check", request),
    };
    let body = body(request);
    let (expected, report) = expected.split_once(", report ").unwrap_or((expected, ""));
    let (status, limit) = expected.split_once(' ').unwrap_or((expected, ""));
    for at in 0..count.parse().unwrap_or(0) {
        let answer = Visitor::at(2).post_json(to, call, &body);
        let place = format!("{title}: {line}: request {at}: {}", answer.body);
        assert_eq!(answer.status.to_string(), status, "{place}");
        let json: Value = serde_json::from_str(&answer.body).expect("an answer is JSON");
        let limits = json["limits"].as_array().into_iter().flatten();
        let mut denying = limits.filter(|limit| limit["verdict"] == "deny");
        let names = |found: &Value| found["name"] == limit;
        assert!(limit.is_empty() || denying.any(names), "{place}");
        if let Ok(result) = report.parse::<u16>() {
            let report = json!({ "decision": json["decision"], "status": result });
            let reported = Visitor::at(2).post_json(to, "/v1/report", &report.to_string());
            assert_eq!(reported.status, 200, "{place}: {}", reported.body);
        }
    }
}

/// `METHOD PATH FIELD=VALUE..` as the body of a check.
fn body(request: &str) -> String {
    let mut words = request.split(' ');
    let (method, path) = (words.next(), words.next());
    let (mut ip, mut headers, mut attributes) = (None, Map::new(), Map::new());
    for word in words {
        let (field, value) = word.split_once('=').expect("FIELD=VALUE");
        match field.split_once('.') {
            None if field == "ip" => ip = Some(value),
            Some(("header", name)) => drop(headers.insert(name.into(), value.into())),
            Some(("attr", name)) => drop(attributes.insert(name.into(), value.into())),
            _ => panic!("no such field: {field}"),
        }
    }
    let request = json!({"method": method, "path": path, "ip": ip, "headers": headers});
    json!({"request": request, "attributes": attributes}).to_string()
}
