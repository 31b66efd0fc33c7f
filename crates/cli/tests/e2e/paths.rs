//! Paths in every spelling, as a real application routes them: each request that reaches a handler
//! was counted by the limit on it.

use std::collections::BTreeMap;

use tempfile::TempDir;

use crate::harness::application::{Application, EXPRESS_ROUTES, FLASK_ROUTES, Framework};
use crate::harness::proxy::{Around, Kind, Proxy, WhenDown};
use crate::harness::service::{Service, write_policy};
use crate::harness::visitor::{Answer, Visitor};

/// The login limit of the sample policy, one on a longer path, and one on everything below a path.
/// None refuses here, because the answer shows whether a request was counted.
const LIMITS: &str = r#"
[[limit]]
name   = "login"
match  = { method = "POST", path = "/login" }
key    = ["ip"]
bucket = { size = 1000, refill = "1/1h" }

[[limit]]
name   = "nested"
match  = { method = "POST", path = "/api/login" }
key    = ["ip"]
bucket = { size = 1000, refill = "1/1h" }

[[limit]]
name   = "api"
match  = { method = "POST", path = "/api/**" }
key    = ["ip"]
bucket = { size = 1000, refill = "1/1h" }
"#;

/// `@` stands for `/login`, then for `/api/login`: 43 spellings of each.
const SPELLINGS: [&str; 43] = [
    "@",
    "@/",
    "@//",
    "/@",
    "//@",
    "@?",
    "@?x=1",
    "@#",
    "@#x",
    "@#?x",
    "@?#",
    "@;",
    "@;v=1",
    "@;v=1/",
    "@/;v=1",
    "@/.",
    "/.@",
    "/x/..@",
    "/x/y/../..@",
    "/..@",
    "/x/..;@",
    "/;x@",
    "/%2e@",
    "/x/%2e%2e@",
    "/x/%2E.@",
    "@%2f",
    "@%2F",
    "/%2f@",
    "/x%2f..@",
    "/x/..%2f@",
    "@%20",
    "@%00",
    "@%23",
    "@%3f",
    "@.",
    "@.json",
    "@%2e",
    "@\\",
    "\\@",
    "/x\\..@",
    "//host@",
    "@%09",
    "@%5c",
];

/// The same paths with other letters.
const LETTERS: [&str; 12] = [
    "/LOGIN",
    "/Login",
    "/loGin/",
    "/%6cogin",
    "/%6Cogin",
    "/%4cogin",
    "/log%69n/",
    "/api/LOGIN",
    "/API/login",
    "/api%2flogin",
    "/api%2Flogin/",
    "/api\\login",
];

/// Paths below `/api` that leave it when dots are resolved.
const BELOW: [&str; 8] = [
    "/api/a",
    "/api/../x",
    "/api/a/../../x",
    "/api/..;/x",
    "/api/%2e%2e/x",
    "/api/..%2fx",
    "/api/a%2F..%2F..%2Fx",
    "/api\\..\\x",
];

fn spellings() -> Vec<String> {
    let of = |path: &str| SPELLINGS.map(|spelling| spelling.replace('@', path));
    let mut all: Vec<String> = [of("/login"), of("/api/login")].concat();
    all.extend(LETTERS.iter().chain(&BELOW).map(|path| (*path).to_owned()));
    all
}

/// Returns the limits that were counted, according to an answer.
fn counted(answer: &Answer) -> Vec<String> {
    let told = answer.header("ratelimit").unwrap_or_default();
    let names = told.split('"').skip(1).step_by(2);
    names.map(str::to_owned).collect()
}

/// Asks for each spelling; returns the number of requests that reached each handler.
fn reached(framework: Framework, source: &str) -> Option<BTreeMap<String, usize>> {
    let nginx = Kind::Nginx.program()?;
    let dir = TempDir::new().expect("the system has a temporary directory");
    let application = Application::start(framework, source, dir.path())?;
    let policy = write_policy(dir.path(), LIMITS);
    let service = Service::start(dir.path(), &policy);
    let around = Around {
        dir: dir.path(),
        service: service.http(),
        upstream: application.address(),
        policy: &policy,
        when_down: WhenDown::Refuse,
    };
    let proxy = Proxy::start(Kind::Nginx, &nginx, &around);
    let mut reached = BTreeMap::new();
    let mut uncounted = Vec::new();
    for spelling in spellings() {
        let answer = Visitor::at(2).post(proxy.address(), &spelling);
        let Some(handler) = answer.header("x-handler") else {
            continue; // no handler: another status, or a redirect, which is a request of its own
        };
        *reached.entry(handler.to_owned()).or_default() += 1;
        if !counted(&answer).iter().any(|limit| limit == handler) {
            uncounted.push(format!("{spelling} reaches {handler}"));
        }
    }
    assert_eq!(uncounted, Vec::<String>::new(), "{framework:?}");
    Some(reached)
}

#[test]
fn every_path_that_express_routes_to_a_handler_is_counted() {
    let Some(reached) = reached(Framework::Express, EXPRESS_ROUTES) else {
        return;
    };
    // Enough spellings arrive to make the test meaningful.
    assert!(reached["login"] >= 8, "{reached:?}");
    assert!(reached["nested"] >= 8, "{reached:?}");
    assert!(reached["api"] >= 12, "{reached:?}");
}

#[test]
fn every_path_that_flask_routes_to_a_handler_is_counted() {
    let Some(reached) = reached(Framework::Flask, FLASK_ROUTES) else {
        return;
    };
    assert!(reached["login"] >= 6, "{reached:?}");
    assert!(reached["nested"] >= 6, "{reached:?}");
    assert!(reached["api"] >= 12, "{reached:?}");
}
