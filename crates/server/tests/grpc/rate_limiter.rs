//! The check API over gRPC, beside the one over HTTP: both decide alike.

mod twins;

use std::collections::BTreeMap;

use prost::Message;
use ratekeeper_core::Nanos;
use ratekeeper_resilience::{Random as _, SplitMix};
use ratekeeper_server::Door;
use ratekeeper_wire::rate_limiter::check_request::descriptor::Entry;
use ratekeeper_wire::rate_limiter::check_request::{Descriptor, Request};
use ratekeeper_wire::rate_limiter::{CheckRequest, CheckResponse, ReportRequest, ReportResponse};
use ratekeeper_wire::{MAX_FIELDS, MAX_REQUEST_BYTES, RateLimitResponse};

use super::client::{Answer, Client, SHOULD_RATE_LIMIT, framed};
use super::json::http;
use super::rls::user;
use super::{Fixture, run};
use twins::Twins;

pub(crate) const CHECK: &str = "/ratekeeper.v1.RateLimiter/Check";
const REPORT: &str = "/ratekeeper.v1.RateLimiter/Report";

/// Limits of each kind that an answer shows in its own way.
const POLICY: &str = r#"
version = 1
[client_ip]
trusted_proxies = ["192.0.2.9/32"]
header = "x-forwarded-for"

[[limit]]
name  = "per-ip"
match = { path = "/ip" }
key   = ["ip", "header:x-user"]
missing_key = "skip"
limit = "3/1m"
ban   = { after = 2, within = "1m", for = "5m" }

[[limit]]
name     = "logins"
match    = { path = "/login", method = "POST", host = "a.example" }
key      = ["header:x-user"]
missing_key = "skip"
bucket   = { size = 4, refill = "1/1h", step = true }
count    = { status = [401], outcome = "wrong" }
reset_on = { status = 200 }

[[limit]]
name   = "tokens"
match  = { path = "/complete" }
key    = ["attr:user"]
missing_key = "skip"
bucket = { size = 1000, refill = "100/1m" }
cost   = { reserve = "attr:max_tokens", expire = "2m" }
on_store_error = "deny"
otherwise = ["credits"]

[[limit]]
name    = "credits"
match   = { path = "/complete" }
key     = ["attr:user"]
missing_key = "skip"
balance = { start = 500, max = 1000 }
on_store_error = "deny"
cost    = { reserve = "attr:max_tokens", expire = "2m" }

[[limit]]
name  = "trial"
mode  = "shadow"
key   = ["query:k"]
missing_key = "skip"
limit = "1/1m"

[[limit]]
name    = "paced"
match   = { path = "/paced" }
key     = ["all"]
spacing = "1s"
queue   = { max = 2 }

[[limit]]
name  = "per-user"
match = { domain = "edge" }
key   = ["descriptor:user"]
limit = "3/1h"
count = { status = [401] }
"#;

fn texts<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
    pairs.into_iter().collect()
}

/// Returns a check of a path by a user.
fn path(path: &str, user: &str) -> CheckRequest {
    CheckRequest {
        request: Some(Request {
            method: "POST".into(),
            path: path.into(),
            host: "A.example:443".into(),
            ip: "192.0.2.1".into(),
            query: String::new(),
            headers: texts([("X-User", user)]),
        }),
        ..CheckRequest::default()
    }
}

/// Returns a check that reserves tokens.
fn tokens(user: &str, number: &str) -> CheckRequest {
    CheckRequest {
        attributes: texts([("user", user), ("max_tokens", number)]),
        request: Some(Request {
            path: "/complete".into(),
            ..Request::default()
        }),
        ..CheckRequest::default()
    }
}

fn described(user: &str) -> CheckRequest {
    let entry = Entry {
        key: "user".into(),
        value: user.into(),
    };
    CheckRequest {
        descriptor: Some(Descriptor {
            domain: "edge".into(),
            entries: vec![entry],
        }),
        ..CheckRequest::default()
    }
}

fn settled(decision: &str, cost: u64) -> ReportRequest {
    ReportRequest {
        decision: decision.into(),
        cost: Some(cost),
        ..ReportRequest::default()
    }
}

/// Random calls, the same for the same seed.
struct RandomCalls(SplitMix);

impl RandomCalls {
    fn below(&mut self, bound: u64) -> u64 {
        self.0.draw() % bound
    }

    fn one_of<'a, T: ?Sized>(&mut self, values: &[&'a T]) -> &'a T {
        values[usize::try_from(self.below(values.len() as u64)).unwrap()]
    }

    fn check(&mut self) -> CheckRequest {
        let user = self.one_of(&["ann", "bob", ""]);
        let mut check = match self.below(3) {
            0 => tokens(user, self.one_of(&["0", "1", "400", "2000", "many"])),
            1 => described(user),
            _ => path(self.one_of(&["/ip", "/login", "/paced", "/?k=1"]), user),
        };
        if let Some(request) = &mut check.request {
            request.ip = self
                .one_of(&["", "192.0.2.1", "192.0.2.9", "2001:db8::1"])
                .into();
            let forwarded = self.one_of(&["198.51.100.7", "nonsense"]);
            request
                .headers
                .extend(texts([("X-Forwarded-For", forwarded)]));
        }
        match self.below(8) {
            0 => check.cost = Some(self.below(4)),
            1 => check.limits = vec![self.one_of(&["logins", "trial", "login"]).into()],
            2 => check.attributes.extend(texts([("k", "v")])),
            _ => {}
        }
        check
    }

    fn report(&mut self) -> ReportRequest {
        let mut report = ReportRequest::default();
        match self.below(6) {
            0 => report.status = Some(*self.one_of(&[&200, &401, &500, &99, &600, &70_000])),
            1 => report.outcome = Some(self.one_of(&["wrong", "right", ""]).into()),
            2 => report.cost = Some(*self.one_of(&[&0, &63, &1_500, &u64::MAX])),
            3 => {
                let limit = self.one_of(&["tokens", "credits", "token"]);
                report.costs = BTreeMap::from([(limit.to_owned(), self.below(900))]);
            }
            4 => {
                report.status = Some(401);
                report.cost = Some(5);
            }
            _ => {}
        }
        report
    }
}

#[test]
fn both_listeners_decide_alike() {
    let mut seen = BTreeMap::new();
    for seed in 0..4 {
        println!("seed {seed}");
        let mut random = RandomCalls(SplitMix::new(seed));
        let fixtures = [POLICY; 2].map(Fixture::new);
        run(async {
            let mut twins = Twins::of(&fixtures).await;
            for _ in 0..150 {
                let result = match random.below(5) {
                    0..3 => twins.check(&random.check()).await,
                    3 => {
                        let number = twins.decisions.len() as u64;
                        let decision = usize::try_from(random.below(number)).unwrap();
                        twins.report(decision, &random.report()).await
                    }
                    _ => {
                        twins.pass(*random.one_of(&[&0, &1, &20, &130]));
                        continue;
                    }
                };
                let result = result.split(':').next().unwrap().to_owned();
                *seen.entry(result).or_insert(0) += 1;
            }
        });
    }
    // The calls reach each kind of answer.
    for result in [
        "allow",
        "allow_after",
        "corrected",
        "deny",
        "deny_forever",
        "none",
        "repeated",
        "RK0503",
        "RK0504",
        "RK0590",
    ] {
        assert!(seen.contains_key(result), "{result} is not in {seen:?}");
    }
}

#[test]
fn a_reservation_is_settled_once_and_within_its_time() {
    let fixture = Fixture::new(POLICY);
    run(async {
        let mut client = Client::connect(fixture.grpc()).await;
        // Cost reserved, actual cost, and the remaining tokens before and after the report.
        for (reserved, actual, before, after) in [
            ("400", 63, 600, 937),
            ("100", 0, 837, 937),
            ("100", 337, 837, 600),
        ] {
            let answer: CheckResponse = client.call(CHECK, &tokens("ann", reserved)).await.read();
            assert_eq!(answer.limits[0].remaining, before);
            assert_eq!(answer.expires_in_ms, 120_000);
            for word in ["corrected", "repeated"] {
                let report = settled(&answer.decision, actual);
                let done: ReportResponse = client.call(REPORT, &report).await.read();
                assert_eq!(done.done, word);
                let look: CheckResponse = client.call(CHECK, &tokens("ann", "0")).await.read();
                assert_eq!(look.limits[0].remaining, after);
            }
        }
        let answer: CheckResponse = client.call(CHECK, &tokens("bob", "400")).await.read();
        fixture.clock.advance(Nanos::from_secs(121));
        let late = client.call(REPORT, &settled(&answer.decision, 1)).await;
        assert_eq!(late.code, 5, "{late:?}");
        assert!(
            late.message
                .starts_with("RK0590: its time for a report is over"),
            "{late:?}"
        );
    });
}

#[test]
fn a_decision_for_envoy_is_reported_by_grpc() {
    let fixture = Fixture::new(POLICY);
    run(async {
        let mut client = Client::connect(fixture.grpc()).await;
        let mut last = None;
        for _ in 0..3 {
            let answer: RateLimitResponse =
                client.call(SHOULD_RATE_LIMIT, &user("ada")).await.read();
            let mut fields = answer.request_headers_to_add.into_iter();
            last = fields.find(|field| field.key == "x-ratekeeper-decision");
        }
        let look = CheckRequest {
            cost: Some(0),
            ..described("ada")
        };
        let spent: CheckResponse = client.call(CHECK, &look).await.read();
        assert_eq!(spent.limits[0].remaining, 0);
        let report = ReportRequest {
            decision: last.expect("the limit has `count`").value,
            status: Some(200),
            ..ReportRequest::default()
        };
        let done: ReportResponse = client.call(REPORT, &report).await.read();
        assert_eq!(done.done, "corrected");
        let back: CheckResponse = client.call(CHECK, &look).await.read();
        assert_eq!(back.limits[0].remaining, 1);
    });
}

fn many(number: usize) -> BTreeMap<String, String> {
    let name = |index| (format!("n{index}"), String::new());
    (0..number).map(name).collect()
}

fn of_request(request: Request) -> CheckRequest {
    CheckRequest {
        request: Some(request),
        ..CheckRequest::default()
    }
}

fn of_limits(name: &str, number: usize) -> CheckRequest {
    CheckRequest {
        limits: vec![name.into(); number],
        ..CheckRequest::default()
    }
}

fn of_attributes(number: usize) -> CheckRequest {
    CheckRequest {
        attributes: many(number),
        ..CheckRequest::default()
    }
}

fn of_headers(number: usize) -> CheckRequest {
    of_request(Request {
        headers: many(number),
        ..Request::default()
    })
}

fn of_entries(keys: &[&str]) -> CheckRequest {
    let entry = |key: &&str| Entry {
        key: (*key).into(),
        value: String::new(),
    };
    CheckRequest {
        descriptor: Some(Descriptor {
            domain: "d".into(),
            entries: keys.iter().map(entry).collect(),
        }),
        ..CheckRequest::default()
    }
}

#[test]
fn checks_have_the_bounds_and_the_errors_of_http() {
    let fixtures = [POLICY; 2].map(Fixture::new);
    let long = "n".repeat(200);
    let of_ip = |ip: &str| {
        of_request(Request {
            ip: ip.into(),
            ..Request::default()
        })
    };
    let mut both = of_entries(&["k"]);
    both.attributes = many(1);
    let costly = CheckRequest {
        cost: Some(1 << 53),
        ..CheckRequest::default()
    };
    run(async {
        let mut twins = Twins::of(&fixtures).await;
        for (check, expected) in [
            (of_attributes(100), "none"),
            (
                of_attributes(101),
                "`attributes`: invalid length 101, expected an object of at most 100 fields",
            ),
            (of_headers(100), "none"),
            (
                of_headers(101),
                "`request.headers`: invalid length 101, expected an object of at most 100 fields",
            ),
            (of_limits("trial", 100), "none"),
            (
                of_limits("trial", 101),
                "`limits`: invalid length 101, expected a list of at most 100 items",
            ),
            (of_entries(&["k"; 64]), "none"),
            (
                of_entries(&["k"; 65]),
                "`descriptor.entries`: invalid length 65, expected a list of at most 64 items",
            ),
            (
                of_entries(&["k", ""]),
                "`descriptor.entries[1].key`: invalid length 0, expected at least 1 character",
            ),
            (
                both,
                "`descriptor` stands instead of `request` and `attributes`; a limit is for one or \
                 the other",
            ),
            (
                costly,
                "`cost`: invalid value: integer `9007199254740992`, expected a whole number from \
                 0 to 9007199254740991",
            ),
            (
                of_ip("localhost"),
                "`request.ip`: invalid value: string \"localhost\", expected an IP address such \
                 as \"192.0.2.1\"",
            ),
            // Cut, because clients drop a long `grpc-message`.
            (
                of_ip(&"n".repeat(60_000)),
                &*format!("`request.ip`: invalid value: string \"{}...", &long[..57]),
            ),
            (
                of_limits("login", 1),
                "`limits` names `login`; did you mean `logins`?",
            ),
            (
                of_limits(&long, 1),
                &*format!("`limits` names `{}...`", &long[..80]),
            ),
        ] {
            let result = twins.check(&check).await;
            let result = result
                .split_once(": ")
                .map_or(&*result, |(_, detail)| detail);
            assert_eq!(result, expected);
        }
    });
}

#[test]
fn reports_have_the_bounds_and_the_errors_of_http() {
    let fixtures = [POLICY; 2].map(Fixture::new);
    let costs = |number: u64| ReportRequest {
        costs: (0..number).map(|index| (format!("n{index}"), 1)).collect(),
        ..ReportRequest::default()
    };
    let status = ReportRequest {
        status: Some(65_936),
        ..ReportRequest::default()
    };
    run(async {
        let mut twins = Twins::of(&fixtures).await;
        twins.check(&tokens("ann", "1")).await;
        for (decision, report, expected) in [
            (
                0,
                settled("", 1),
                "RK0503: `decision`: invalid value: string \"unknown\", expected a decision id \
                 that a check returned",
            ),
            (
                1,
                costs(101),
                "RK0503: `costs`: invalid length 101, expected an object of at most 100 names and \
                 costs",
            ),
            (
                1,
                costs(1),
                "RK0504: `costs` names `n0`, which charged no estimate in this decision",
            ),
            (
                1,
                status,
                "RK0503: `status`: invalid value: integer `65936`, expected a status from 100 to \
                 599",
            ),
            (
                1,
                ReportRequest::default(),
                "RK0503: the report says nothing; send `status`, `outcome`, `cost` or `costs`",
            ),
        ] {
            assert_eq!(twins.report(decision, &report).await, expected);
        }
    });
}

#[test]
fn malformed_messages_are_refused_and_counted() {
    let fixture = Fixture::new(POLICY);
    run(async {
        let mut client = Client::connect(fixture.grpc()).await;
        let unread = "the message cannot be read: ";
        let fields = format!("the message has more than {MAX_FIELDS} fields");
        let size = MAX_REQUEST_BYTES + 1;
        let large = format!("the message has {size} bytes, at most {MAX_REQUEST_BYTES} are read");
        for path in [CHECK, REPORT] {
            for (bytes, code, message) in [
                (b"\xff".to_vec(), 3, unread),
                (
                    b"\x2a\x05x".to_vec(),
                    3,
                    "the message cannot be read: the message ends too early",
                ),
                (b"\x2a\x02\xc3\x28".to_vec(), 3, unread),
                (b"\x2a\x00".repeat(MAX_FIELDS + 1), 3, &*fields),
                (vec![0; size], 8, &*large),
            ] {
                let answer: Answer = client.raw(path, &[], framed(&bytes)).await;
                assert_eq!(answer.code, code, "{answer:?}");
                assert!(answer.message.starts_with(message), "{answer:?}");
            }
        }
        // Fields of a newer client are skipped.
        let newer = [&b"\x7a\x01x"[..], &path("/ip", "ann").encode_to_vec()].concat();
        let answer: CheckResponse = client.raw(CHECK, &[], framed(&newer)).await.read();
        assert_eq!(answer.limits[0].key, ["ip=192.0.2.1", "header:x-user=ann"]);
    });
    let admin = fixture.service.address(Door::Admin).unwrap();
    let (_, metrics) = http(admin, "GET /metrics", "");
    for line in [
        r#"ratekeeper_requests_total{protocol="rls",result="error"} 10"#,
        r#"ratekeeper_requests_total{protocol="rls",result="allowed"} 1"#,
    ] {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
    }
}
