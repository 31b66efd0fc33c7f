//! Limits with a unit and prepaid credits, end to end in virtual time.

use ratekeeper::core::{Nanos, Origin, Permits};
use ratekeeper::policy::{Facts, Policy, config};
use ratekeeper::store::{MemoryConfig, MemoryStore};
use ratekeeper::{Answer, Keeper, ManualClock, Scope};

type TestKeeper = Keeper<MemoryStore, ManualClock>;

/// A time after 1970: before, the wall clock is taken for unknown.
const START: Origin = Origin::from_unix_nanos(1_800_000_000 * 1_000_000_000);

/// $200 of purchases per address and mail domain, refilling $50 a day.
const PURCHASES: &str = r#"
[[limit]]
name   = "purchases"
match  = { path = "/checkout", attr.email_domain = "mail.ru" }
key    = ["attr:geocoded_address", "attr:email_domain"]
unit   = { name = "USD", decimals = 2 } # counted in cents, never in floating point
bucket = { size = "200.00", refill = "50.00/24h", step = true }
cost   = "attr:amount"
"#;

fn policy(limits: &str) -> Policy {
    let text = format!("version = 1\ntimezone = \"UTC\"\n{limits}");
    match config::parse(&text, config::Context::from(START)) {
        Ok(loaded) => loaded.policy,
        Err(findings) => panic!("{findings:#?}"),
    }
}

fn keeper(limits: &str) -> TestKeeper {
    let store = MemoryStore::new(MemoryConfig::default());
    Keeper::new(policy(limits), store, ManualClock::at(START))
}

fn buy(keeper: &TestKeeper, amount: &str) -> Answer {
    let attributes = [
        ("geocoded_address", "1 Main St"),
        ("email_domain", "mail.ru"),
        ("amount", amount),
    ];
    let facts = Facts {
        path: "/checkout",
        attributes: &attributes,
        ..Facts::default()
    };
    keeper.check_now(&facts, Scope::All)
}

/// Returns whether the purchase passes, and the cents that remain.
fn bought(keeper: &TestKeeper, amount: &str) -> (bool, u64) {
    let answer = buy(keeper, amount);
    let remaining = answer.outcomes().next().map(|it| it.decision.remaining);
    (answer.allowed(), remaining.map_or(0, Permits::get))
}

#[test]
fn purchases_are_counted_in_cents() {
    let keeper = keeper(PURCHASES);
    assert_eq!(keeper.policy().rules[0].quota, Permits::new(20_000));
    for (amount, expected) in [
        ("120.00", (true, 8_000)),
        ("80.01", (false, 8_000)),
        ("12.5", (true, 6_750)),
        ("7", (true, 6_050)),
        ("0.001", (true, 6_049)),  // a part of a cent is one
        ("twelve", (true, 5_949)), // as one dollar: a whole of the unit
        ("", (true, 5_849)),
        ("99999999999999999999.00", (false, 5_849)),
    ] {
        assert_eq!(bought(&keeper, amount), expected, "{amount}");
    }
    keeper.clock().advance(Nanos::from_secs(86_400));
    assert_eq!(bought(&keeper, "0"), (true, 10_849), "50 dollars a day");
    keeper.clock().advance(Nanos::from_secs(5 * 86_400));
    assert_eq!(bought(&keeper, "200.00"), (true, 0), "200 at most");
}

#[test]
fn people_read_dollars() {
    let keeper = keeper(PURCHASES);
    assert_eq!(
        keeper.policy().rules[0].text.split(" USD").next(),
        Some("bucket of 200.00")
    );
    let refused = buy(&keeper, "250.5");
    let body = refused.body().expect("a refusal has a body").content;
    assert!(
        body.contains("costs 250.50 USD, more than limit purchases can ever allow (200.00 USD)"),
        "{body}"
    );
}

#[test]
fn a_refused_request_reads_the_credits_left() {
    let keeper = keeper(
        r#"
[[limit]]
name    = "credits"
key     = ["attr:user"]
missing_key = "shared"
unit    = { name = "EUR", decimals = 2 }
balance = { start = "10.00", max = "100.00" }
cost    = "attr:amount"
"#,
    );
    let ask = |amount| {
        let attributes = [("user", "ann"), ("amount", amount)];
        let facts = Facts {
            path: "/",
            attributes: &attributes,
            ..Facts::default()
        };
        keeper.check_now(&facts, Scope::All)
    };
    assert!(ask("7.50").allowed());
    let refused = ask("2.51");
    assert!(!refused.allowed());
    assert_eq!(refused.retry_after(), None, "no wait brings credits");
    let body = refused.body().expect("a refusal has a body").content;
    assert!(
        body.contains("costs 2.51 EUR, and limit credits has 2.50 EUR left, which is not refilled"),
        "{body}"
    );
    keeper.clock().advance(Nanos::from_secs(365 * 86_400));
    assert!(!ask("2.51").allowed());
    assert!(ask("2.50").allowed());
}
