//! The recipe of office hours and the example of a night by country, hour by hour.

use ratekeeper_core::Nanos;

use super::Fixture;
use super::client::Client;

const RECIPES: &str = include_str!("../../../../docs/guide/recipes.md");

/// Returns the policy of a recipe.
fn recipe(title: &str) -> String {
    let section = RECIPES.split("\n## ").find(|it| it.starts_with(title));
    let block = section.unwrap().split("```toml\n").nth(1).unwrap();
    let policy = block.split("```").next().unwrap();
    format!("version = 1\ntimezone = \"UTC\"\n{policy}")
}

/// Moves the clock to an hour after 2026-01-01 00:00 UTC, which is a Thursday.
fn go_to(fixture: &Fixture, hours: &mut u64, hour: u64) {
    fixture
        .clock
        .advance(Nanos::from_secs((hour - *hours) * 3_600));
    *hours = hour;
}

/// Returns how many requests of an address pass until one is refused, at most 120, and by which
/// limit.
fn passed(http: &mut Client, ip: &str) -> (usize, Option<String>) {
    let body = format!(r#"{{"request":{{"method":"GET","path":"/","ip":"{ip}"}}}}"#);
    for count in 0..120 {
        let answer = http.post("/v1/check", &body).json();
        if answer["allowed"] == false {
            return (count, answer["limit"].as_str().map(str::to_owned));
        }
    }
    (120, None)
}

#[test]
fn office_hours_have_a_number_of_their_own() {
    let fixture = Fixture::new(&recipe("Office hours"));
    let mut http = fixture.http();
    let mut now = 0;
    // In Berlin it is one hour later than in UTC.
    for (hour, expected) in [
        (6, Some((10, "out-of-office"))), // Thursday 07:00
        (7, Some((100, "office"))),       // 08:00
        (16, Some((100, "office"))),
        (17, Some((10, "out-of-office"))), // 18:00
        (24, Some((10, "out-of-office"))), // Friday 01:00
        (24 + 7, Some((100, "office"))),
        (24 + 23, Some((10, "out-of-office"))), // Saturday 00:00
        (48 + 7, Some((10, "out-of-office"))),  // Saturday 08:00
        (96 + 6, Some((10, "out-of-office"))),  // Monday 07:00
        (96 + 7, Some((100, "office"))),
    ] {
        go_to(&fixture, &mut now, hour);
        let expected = expected.map_or((120, None), |(count, name)| (count, Some(name.into())));
        assert_eq!(passed(&mut http, "192.0.2.1"), expected, "hour {hour}");
    }
}
