//! Limits by the claims of verified tokens, end to end in virtual time: policy text and token in,
//! answers out.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use ratekeeper::core::{Nanos, Origin, Time};
use ratekeeper::policy::config::{Context, PolicyFiles, parse_file};
use ratekeeper::policy::{Facts, Policy};
use ratekeeper::store::{MemoryConfig, MemoryStore};
use ratekeeper::{Answer, Keeper, ManualClock, Scope};
use serde_json::{Value, json};

type TestKeeper = Keeper<MemoryStore, ManualClock>;

const JWKS: &str = include_str!("../../../policy/tests/keys/jwks.json");
const RSA: &[u8] = include_bytes!("../../../policy/tests/keys/rsa.pem");
/// 2026-01-01T00:00:00Z
const START: u64 = 1_767_225_600;

const JWT: &str = "version = 1\n[jwt]\nkeys = \"file:jwks.json\"\nalgorithms = [\"RS256\"]\n";

fn policy(text: &str) -> Policy {
    let files = PolicyFiles::read(text, |_, _| Ok(JWKS.to_owned()));
    let origin = Origin::from_unix_nanos(START * 1_000_000_000);
    match parse_file(text, &files, Context::from(origin), Time::ZERO) {
        Ok(loaded) => loaded.policy,
        Err(findings) => panic!("{findings:#?}"),
    }
}

fn keeper(text: &str) -> TestKeeper {
    let origin = Origin::from_unix_nanos(START * 1_000_000_000);
    let store = MemoryStore::new(MemoryConfig::default());
    Keeper::new(
        policy(&format!("{JWT}{text}")),
        store,
        ManualClock::at(origin),
    )
}

fn token(claims: &Value) -> String {
    let header = Header {
        kid: Some("rsa-1".into()),
        ..Header::new(Algorithm::RS256)
    };
    let mut all = json!({ "exp": START + 600 });
    all.as_object_mut()
        .unwrap()
        .extend(claims.as_object().unwrap().clone());
    let token = encode(&header, &all, &EncodingKey::from_rsa_pem(RSA).unwrap());
    format!("Bearer {}", token.unwrap())
}

fn ask(keeper: &TestKeeper, authorization: &[&str]) -> Answer {
    let headers = authorization
        .iter()
        .map(|value| ("Authorization", value.as_bytes()));
    let headers: Vec<_> = headers.collect();
    let facts = Facts {
        path: "/",
        ip: "192.0.2.1".parse().ok(),
        headers: &headers,
        ..Facts::default()
    };
    keeper.check_now(&facts, Scope::All)
}

/// Returns the number of requests at once that pass, at most 99.
fn passed(keeper: &TestKeeper, authorization: &[&str]) -> usize {
    let passed = |_: &usize| ask(keeper, authorization).allowed();
    (0..99).take_while(passed).count()
}

const PER_USER: &str = "[[limit]]\nname = \"per-user\"\nkey = [\"jwt:sub\"]\nlimit = \"3/1m\"\n";

#[test]
fn each_subject_has_a_counter_whichever_token_names_it() {
    let keeper = keeper(PER_USER);
    let ada = token(&json!({ "sub": "ada" }));
    let again = token(&json!({ "sub": "ada", "jti": "2" }));
    let eve = token(&json!({ "sub": "eve" }));
    assert_eq!(passed(&keeper, &[&ada]), 3);
    assert_eq!(passed(&keeper, &[&again]), 0);
    assert_eq!(passed(&keeper, &[&eve]), 3);
}

#[test]
fn a_valid_token_is_found_where_an_application_may_read_it() {
    let ada = token(&json!({ "sub": "ada" }));
    let eve = token(&json!({ "sub": "eve" }));
    let alone = ada.replace("Bearer ", "");
    for lines in [
        &[&*ada][..],
        &[&format!("{ada} x")],
        &[&format!("{ada},x")],
        &[&format!("{ada} a b c d e f")],
        &[&format!("Bearer a b c d e f {ada}")],
        &[&format!("Bearer \"{alone}\"")],
        &[&format!("Bearer\t{alone}")],
        &[&format!("{ada}\u{a0}")],
        &[&alone],
        &["Bearer x", &ada],
        &[&ada, &ada],
        &[&ada, &eve],
    ] {
        let keeper = keeper(PER_USER);
        assert_eq!(passed(&keeper, lines), 3, "{lines:?}");
        assert_eq!(passed(&keeper, &[&ada]), 0, "{lines:?}");
    }
}

#[test]
fn a_request_without_a_valid_token_is_counted_by_address() {
    let ada = token(&json!({ "sub": "ada" }));
    let forged = format!("{}A", &ada[..ada.len() - 1]);
    let other_scheme = ada.replace("Bearer", "Basic");
    let no_subject = token(&json!({}));
    let empty = token(&json!({ "sub": "" }));
    let keeper = keeper(PER_USER);
    for invalid in [
        &[][..],
        &["Bearer"],
        &["Bearer  "],
        &[&forged],
        &[&other_scheme],
        &[&no_subject],
        &[&empty],
    ] {
        assert!(passed(&keeper, invalid) <= 3, "{invalid:?}");
        assert!(!ask(&keeper, invalid).allowed(), "{invalid:?}");
    }
    assert_eq!(passed(&keeper, &[&ada]), 3, "they used nothing of hers");
    let lower = ada.replace("Bearer", "bearer");
    assert_eq!(passed(&keeper, &[&lower]), 0, "the scheme has no case");
}

#[test]
fn the_limit_says_what_a_missing_token_means() {
    for (missing_key, expected) in [("deny", 0), ("shared", 3), ("skip", 99), ("use:ip", 3)] {
        let keeper = keeper(&format!("{PER_USER}missing_key = \"{missing_key}\"\n"));
        assert_eq!(
            passed(&keeper, &["Bearer x.y.z"]),
            expected,
            "{missing_key}"
        );
        assert_eq!(passed(&keeper, &[&token(&json!({ "sub": "ada" }))]), 3);
    }
}

#[test]
fn claims_select_limits_and_plans() {
    let keeper = keeper(
        r#"
[plan]
from = "jwt:plan"
default = "free"
[[limit]]
name = "by-plan"
key = ["jwt:sub"]
missing_key = "use:ip"
limit = "2/1m"
plans = { pro = "8/1m" }
[[limit]]
name = "trial"
key = ["jwt:sub"]
match = { jwt.plan = ["pro", "test"], jwt.trial = "true" }
limit = "5/1m"
[[exempt]]
limits = ["*"]
match = { jwt.role = "probe" }
"#,
    );
    for (claims, expected) in [
        (json!({ "sub": "a" }), 2),
        (json!({ "sub": "b", "plan": "gold" }), 2),
        (json!({ "sub": "c", "plan": "pro" }), 8),
        (json!({ "sub": "d", "plan": "pro", "trial": true }), 5),
        (json!({ "sub": "e", "plan": "pro", "trial": [true] }), 8),
        (json!({ "sub": "f", "role": "probe" }), 99),
    ] {
        assert_eq!(passed(&keeper, &[&token(&claims)]), expected, "{claims}");
    }
    let forged = token(&json!({ "sub": "g", "role": "probe" })).replace('.', "..");
    assert_eq!(passed(&keeper, &[&forged]), 2);
}

#[test]
fn a_token_expires_by_the_clock_of_the_keeper() {
    let keeper = keeper(&format!("{PER_USER}missing_key = \"deny\"\n"));
    let ada = token(&json!({ "sub": "ada" }));
    assert!(ask(&keeper, &[&ada]).allowed());
    keeper.clock().advance(Nanos::from_secs(659));
    assert!(
        ask(&keeper, &[&ada]).allowed(),
        "within a minute after its end"
    );
    keeper.clock().advance(Nanos::from_secs(1));
    assert!(!ask(&keeper, &[&ada]).allowed());
}

#[test]
fn other_keys_are_in_force_after_a_reload() {
    let keeper = keeper(&format!("{PER_USER}missing_key = \"deny\"\n"));
    let ada = token(&json!({ "sub": "ada" }));
    assert!(ask(&keeper, &[&ada]).allowed());
    let text = format!("{JWT}{PER_USER}missing_key = \"deny\"\n");
    let without = JWKS.replace("\"rsa-1\"", "\"rsa-2\"");
    let files = PolicyFiles::read(&text, |_, _| Ok(without.clone()));
    let context = Context::from(Origin::from_unix_nanos(START * 1_000_000_000));
    let changed = parse_file(&text, &files, context, Time::ZERO)
        .unwrap()
        .policy;
    assert_ne!(changed.sha, keeper.policy().sha);
    keeper.install(changed);
    assert!(!ask(&keeper, &[&ada]).allowed());
}

#[test]
fn the_policy_of_the_guide_is_right() {
    let guide = include_str!("../../../../docs/guide/matching.md");
    let section = guide.split("## Verified tokens\n").nth(1).unwrap();
    let text = section.split("```toml\n").nth(1).unwrap();
    let policy = policy(text.split("```").next().unwrap());
    assert_eq!(policy.rules.len(), 2);
    assert!(policy.tokens.is_some());
}
