//! The policies of the recipes and of a tour of the language: each is served, and answers its
//! requests as the page says, with its counters in memory and in Redis.

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::harness::redis::Redis;
use crate::harness::service::Service;
use crate::harness::visitor::{Answer, Caller, Visitor};

const RECIPES: &str = include_str!("../../../../docs/guide/recipes.md");
const TOUR: &str = include_str!("tour.md");
/// Maximum number of lines of a policy in the recipes.
const MAX_LINES: usize = 20;

/// The same, of those in the table of kinds.
const MAX_LINES_OF_A_KIND: usize = 12;

pub(crate) struct Recipe<'a> {
    pub(crate) title: &'a str,
    pub(crate) policy: String,
    pub(crate) requests: Vec<&'a str>,
}

pub(crate) fn recipes_of(page: &'static str) -> Vec<Recipe<'static>> {
    let sections = page.split("\n## ").skip(1);
    sections
        .map(|section| Recipe {
            title: section.lines().next().unwrap_or_default(),
            policy: blocks(section, "toml").collect::<Vec<_>>().join("\n"),
            requests: blocks(section, "text").flat_map(str::lines).collect(),
        })
        .collect()
}

/// The blocks of a language.
pub(crate) fn blocks<'a>(section: &'a str, language: &'a str) -> impl Iterator<Item = &'a str> {
    let fenced = section.split("```").skip(1).step_by(2);
    fenced.filter_map(move |block| block.strip_prefix(language)?.strip_prefix('\n'))
}

#[test]
fn every_recipe_answers_as_the_guide_shows() {
    let recipes = recipes_of(RECIPES);
    assert!(recipes.len() >= 15, "{}", recipes.len());
    for Recipe { title, policy, .. } in &recipes {
        let lines = policy.lines().filter(|line| !line.is_empty()).count();
        assert!((1..=MAX_LINES).contains(&lines), "{title}: {lines} lines");
    }
    answer_everywhere(&recipes);
}

#[test]
fn each_kind_of_limit_has_a_short_recipe() {
    let recipes = recipes_of(RECIPES);
    let head = RECIPES.split("\n## ").next().unwrap_or_default();
    let rows = head.lines().filter_map(|line| line.split_once(" | ["));
    let kinds: Vec<_> = rows
        .map(|(_, link)| {
            let title = link.split_once("](#").map_or(link, |(title, _)| title);
            let mut found = recipes.iter().filter(|recipe| recipe.title == title);
            let recipe = found.next().unwrap_or_else(|| panic!("no recipe: {title}"));
            let lines = recipe
                .policy
                .lines()
                .filter(|line| !line.is_empty())
                .count();
            assert!(lines <= MAX_LINES_OF_A_KIND, "{title}: {lines} lines");
            title
        })
        .collect();
    assert_eq!(kinds.len(), 8, "{kinds:?}");
}

#[test]
fn every_policy_of_the_tour_answers_as_it_shows() {
    let policies = recipes_of(TOUR);
    assert_eq!(policies.len(), 8);
    answer_everywhere(&policies);
}

/// The recipe of the page has one override; its title has 5,000, from a CSV file.
#[test]
fn five_thousand_customers_have_numbers_of_their_own() {
    const CUSTOMERS: u64 = 5_000;
    let recipe = recipes_of(RECIPES);
    let mut recipes = recipe.iter();
    let recipe = recipes.find(|recipe| recipe.title == "Other numbers for 5,000 customers");
    let policy = &recipe.expect("it is on the page").policy;
    let dir = tempfile::tempdir().expect("the system has a temporary directory");
    // Between 1 and 7 a day.
    let quota = |customer: u64| customer % 7 + 1;
    let line = |customer| format!("tenants,c{customer},{}/1d,,contract\n", quota(customer));
    let lines: String = (0..CUSTOMERS).map(line).collect();
    let csv = format!("limit,key,set,until,reason\n{lines}");
    let text = format!("version = 1\noverrides = \"overrides.csv\"\n{policy}");
    for (name, text) in [("overrides.csv", csv), ("policy.toml", text)] {
        std::fs::write(dir.path().join(name), text).expect("the test's directory is writable");
    }
    let service = Service::start(dir.path(), &dir.path().join("policy.toml"));
    let mut caller = Caller::connect(service.http());
    // One request more than each may send: the last is refused, and no other.
    let request = |name: &str| ("/v1/check", body(&format!("GET / attr.tenant={name}")));
    for customer in 0..CUSTOMERS {
        let quota = quota(customer);
        let asked = vec![request(&format!("c{customer}")); usize::try_from(quota).unwrap_or(0) + 1];
        let statuses: Vec<_> = caller.post_all(&asked);
        let passed = statuses.iter().filter(|answer| answer.status == 200);
        assert_eq!(passed.count() as u64, quota, "c{customer}");
        assert_eq!(statuses.last().map(|answer| answer.status), Some(429));
    }
    for (name, passes) in [("acme", 4), ("anyone", 2)] {
        let statuses = caller.post_all(&vec![request(name); 5]);
        let passed = statuses.iter().filter(|answer| answer.status == 200);
        assert_eq!(passed.count(), passes, "{name}");
    }
    let metrics = Visitor::at(1).get(service.admin(), "/metrics").body;
    let series = metrics.matches("ratekeeper_limit_quota{").count();
    assert_eq!(series, 1, "customers have no series");
    assert!(!service.process.log().contains("RK0"), "and no warnings");
}

/// Serves the policies from memory, and from a Redis if there is one.
fn answer_everywhere(recipes: &[Recipe<'_>]) {
    let dir = tempfile::tempdir().expect("the system has a temporary directory");
    for recipe in recipes {
        answer(dir.path(), recipe, "");
    }
    let Some(redis) = Redis::start(dir.path()) else {
        return;
    };
    let store = format!(
        "[store.redis]\nurl = \"{}\"\ndeadline = \"5s\"\n",
        redis.url()
    );
    for recipe in recipes {
        answer(dir.path(), recipe, &store);
        redis.run(&["FLUSHALL"]); // recipes may share names of limits
    }
}

/// Serves a policy, and sends its requests.
fn answer(dir: &Path, recipe: &Recipe<'_>, store: &str) {
    let path = dir.join("policy.toml");
    let text = format!("version = 1\ntimezone = \"UTC\"\n{store}{}", recipe.policy);
    std::fs::write(&path, text).expect("the test's directory is writable");
    let service = Service::start(dir, &path);
    let mut caller = Caller::connect(service.http());
    let steps: Vec<_> = recipe
        .requests
        .iter()
        .flat_map(|line| steps(line))
        .collect();
    let steps: Vec<_> = steps.iter().collect();
    ask(recipe.title, &steps, &mut caller);
}

/// Sends the requests, those without a report all at once, and checks the answers.
pub(crate) fn ask(title: &str, steps: &[&Step<'_>], caller: &mut Caller) {
    let at_once = |one: &&Step<'_>, next: &&Step<'_>| one.report.is_none() && next.report.is_none();
    for steps in steps.chunk_by(at_once) {
        let requests: Vec<_> = steps
            .iter()
            .map(|step| (step.call, step.body.clone()))
            .collect();
        for (step, answer) in steps.iter().zip(caller.post_all(&requests)) {
            step.check(title, &answer, caller);
        }
    }
}

/// One request of a recipe, and its answer.
pub(crate) struct Step<'a> {
    pub(crate) line: &'a str,
    call: &'static str,
    pub(crate) body: String,
    pub(crate) status: &'a str,
    /// A limit that denies; empty if it does not matter which.
    pub(crate) limit: &'a str,
    /// Remaining permits of the first limit of the answer.
    pub(crate) left: Option<u64>,
    pub(crate) report: Option<&'a str>,
}

/// Reads `N x [acquire] METHOD PATH FIELD=VALUE..: STATUS [LIMIT] [left N][, report RESULT]`. A result
/// is a status, `cost N`, or an outcome.
pub(crate) fn steps(line: &str) -> impl Iterator<Item = Step<'_>> {
    let parts = line.split_once(" x ").zip(line.rsplit_once(": "));
    let ((count, _), (request, expected)) =
        parts.unwrap_or_else(|| panic!("{line}: expected `N x REQUEST: STATUS`"));
    let (_, request) = request.split_once(" x ").unwrap_or_default();
    let (call, request) = match request.strip_prefix("acquire ") {
        Some(request) => ("/v1/acquire", request),
        None => ("/v1/check", request),
    };
    let (expected, report) = match expected.split_once(", report ") {
        Some((expected, report)) => (expected, Some(report)),
        None => (expected, None),
    };
    let (expected, left) = match expected.split_once(" left ") {
        Some((expected, left)) => (expected, Some(left.parse().expect("a number remains"))),
        None => (expected, None),
    };
    let (status, limit) = expected.split_once(' ').unwrap_or((expected, ""));
    let each = 0..count.parse().expect("a count");
    each.map(move |_: u32| Step {
        line,
        call,
        body: body(request),
        status,
        limit,
        left,
        report,
    })
}

impl Step<'_> {
    /// Checks the answer, and sends the report.
    fn check(&self, title: &str, answer: &Answer, caller: &mut Caller) {
        let place = format!("{title}: {}: {}", self.line, answer.body);
        assert_eq!(answer.status.to_string(), self.status, "{place}");
        let json: Value = serde_json::from_str(&answer.body).expect("an answer is JSON");
        let limits = json["limits"].as_array().into_iter().flatten();
        let mut denying = limits.filter(|limit| denies(&limit["verdict"]));
        let names = |found: &Value| found["name"] == self.limit;
        assert!(self.limit.is_empty() || denying.any(names), "{place}");
        let left = json["limits"][0]["remaining"].as_u64();
        assert!(self.left.is_none() || self.left == left, "{place}");
        if let Some(report) = self.report {
            let mut report = result(report);
            report["decision"] = json["decision"].clone();
            let status = caller.post_json("/v1/report", &report.to_string());
            assert_eq!(status, 200, "{place}: {report}");
        }
    }
}

/// `deny`, or `deny_forever` for what never fits.
fn denies(verdict: &Value) -> bool {
    verdict.as_str().is_some_and(|it| it.starts_with("deny"))
}

/// A result as a report.
fn result(text: &str) -> Value {
    match text.strip_prefix("cost ") {
        Some(cost) => json!({ "cost": cost.parse::<u32>().expect("a cost is a number") }),
        None => match text.parse::<u16>() {
            Ok(status) => json!({ "status": status }),
            Err(_) => json!({ "outcome": text }),
        },
    }
}

/// `METHOD PATH FIELD=VALUE..`, or `DOMAIN KEY=VALUE..`, as the body of a check.
fn body(request: &str) -> String {
    let mut words = request.split(' ');
    let first = words.clone().next().unwrap_or_default();
    if first.starts_with(|letter: char| letter.is_lowercase()) {
        let pairs = words.skip(1).filter_map(|word| word.split_once('='));
        let entries: Vec<_> = pairs
            .map(|(key, value)| json!({"key": key, "value": value}))
            .collect();
        return json!({"descriptor": {"domain": first, "entries": entries}}).to_string();
    }
    let (method, path) = (words.next(), words.next());
    let (mut ip, mut host, mut cost) = (None, None, 1);
    let (mut headers, mut attributes) = (Map::new(), Map::new());
    for word in words {
        let (field, value) = word.split_once('=').expect("FIELD=VALUE");
        match field.split_once('.') {
            None if field == "ip" => ip = Some(value),
            None if field == "host" => host = Some(value),
            None if field == "cost" => cost = value.parse().expect("a cost is a number"),
            Some(("header", name)) => drop(headers.insert(name.into(), value.into())),
            Some(("attr", name)) => drop(attributes.insert(name.into(), value.into())),
            _ => panic!("no such field: {field}"),
        }
    }
    let mut request = json!({"method": method, "path": path, "ip": ip, "headers": headers});
    if let Some(host) = host {
        request["host"] = host.into();
    }
    let mut call = json!({"request": request, "attributes": attributes});
    if cost != 1 {
        call["cost"] = cost.into(); // a number of its own; without one the policy's holds
    }
    call.to_string()
}
