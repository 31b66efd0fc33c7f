//! The pictures of the dashboard in the guide: an hour of traffic in virtual time, at the end of
//! which an attack on the login begins.
//!
//! `RATEKEEPER_PICTURES=write` stages the whole hour and writes them; otherwise some minutes of it
//! are staged, and what a reader must see at once is checked.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ratekeeper_core::Nanos;
use ratekeeper_server::Door;
use serde_json::{Value, json};

use crate::dashboard::{click, text};
use crate::harness::chromium::{Chromium, Screen};
use crate::harness::clock::poll;
use crate::harness::in_process::InProcess;
use crate::harness::visitor::{Caller, Visitor};

const POLICY: &str = r#"
version = 1
reveal_keys = "raw"
overrides = "overrides.csv"

[client_ip]
trusted_proxies = ["10.0.0.0/8"]

[geo]
header = "cf-ipcountry"

[plan]
from    = "attr:plan"
default = "free"

[[limit]]
name  = "api"
key   = ["attr:customer"]
missing_key = "skip"
limit = "20/1m"
plans = { pro = "60/1m" }

[[limit]]
name  = "login"
key   = ["attr:user"]
missing_key = "skip"
limit = "5/1m"

[[limit]]
name  = "signup"
mode  = "shadow"
key   = ["attr:visitor"]
missing_key = "skip"
limit = "2/1m"

[[limit]]
name   = "by-country"
match  = { country = "!ZZ" }
key    = ["country"]
limit  = "40/1m"
"#;

/// Users, and their requests of a minute.
const ATTACK: &[(&str, u64)] = &[("mallory", 60), ("trudy", 9)];
const PATIENCE: Duration = Duration::from_secs(30);
const MINUTE: Nanos = Nanos::from_secs(60);

struct Stage {
    service: InProcess,
    /// Number of requests with a country so far.
    from_countries: u64,
    /// Requests of a minute times nanoseconds that are not sent yet.
    owed: u64,
}

impl Stage {
    /// Lets time pass, sends the traffic of a minute or a part of it, and waits until it is counted.
    fn play(&mut self, span: Nanos, minute: u64, attack: &[(&str, u64)]) {
        self.service.clock.clock.advance(span);
        let mut caller = Caller::connect(self.service.door(Door::Http));
        let owed = &mut self.owed;
        let mut send = |body: &Value, times: u64| {
            *owed += times * span.as_nanos();
            let due = *owed / MINUTE.as_nanos();
            *owed %= MINUTE.as_nanos();
            for _ in 0..due {
                caller.post_json("/v1/check", &body.to_string());
            }
            due
        };
        let wave = 8 + (minute % 10).min(9 - minute % 10) * 2;
        for customer in ["acme", "globex", "hooli", "initech", "umbrella", "wayne"] {
            let plan = if customer == "hooli" { "pro" } else { "free" };
            let more = if customer == "initech" && minute % 10 == 4 {
                14
            } else {
                0
            };
            let body = json!({ "attributes": { "customer": customer, "plan": plan } });
            send(&body, wave + more);
        }
        for user in 0..12 {
            let user = format!("user-{}", (minute * 7 + user) % 60);
            send(&json!({ "attributes": { "user": user } }), 1);
        }
        for (user, times) in attack {
            send(&json!({ "attributes": { "user": user } }), *times);
        }
        for visitor in 0..4 {
            let body = json!({ "attributes": { "visitor": format!("visitor-{visitor}") } });
            send(&body, 1 + visitor);
        }
        for (country, times) in [("NO", 48), ("SE", 14), ("DE", 9)] {
            let request = json!({ "ip": "10.0.0.1", "headers": { "cf-ipcountry": country } });
            self.from_countries += send(&json!({ "request": request }), times);
        }
        // The last ones: a reading that has them has all others.
        let counted = || {
            let day = self.service.get("/v1/history?limit=by-country");
            let day: Value = serde_json::from_str(&day).ok()?;
            let minutes = day["minutes"].as_array()?;
            let each = minutes.iter().flat_map(|cell| [&cell[0], &cell[1]]);
            let sum: u64 = each.filter_map(Value::as_u64).sum();
            (sum == self.from_countries).then_some(())
        };
        poll("the counts of the minute", PATIENCE, counted)
            .unwrap_or_else(|error| panic!("{error}"));
    }

    fn operate(&self, method: &str, target: &str) {
        let answer = Visitor::at(1).ask(self.service.door(Door::Admin), method, target);
        assert!(answer.is_ok_and(|answer| answer.status == 200), "{target}");
    }
}

#[test]
fn the_page_shows_an_attack_at_once() {
    let writes = std::env::var("RATEKEEPER_PICTURES").is_ok_and(|mode| mode == "write");
    let (minutes, seconds) = if writes { (60, 12) } else { (6, 2) };
    let dir = tempfile::tempdir().expect("a directory of its own");
    std::fs::write(
        dir.path().join("overrides.csv"),
        "limit,key,set,until,reason\n",
    )
    .expect("it is writable");
    let profile = tempfile::tempdir().expect("a directory of its own");
    let mut stage = Stage {
        service: InProcess::start_with(dir, POLICY, |config| config),
        from_countries: 0,
        owed: 0,
    };
    stage.service.clock.stride.store(4_000, Ordering::Relaxed); // so that decisions take time
    for minute in 0..minutes {
        if minute == minutes / 3 {
            stage.operate(
                "PUT",
                "/v1/overrides?limit=api&value=acme&set=40/1m&reason=launch",
            );
        }
        let attack = if minute * 3 > minutes * 2 {
            ATTACK
        } else {
            &[]
        };
        stage.play(MINUTE, minute, attack);
    }
    let page = format!("http://{}/dashboard", stage.service.door(Door::Admin));
    let Some(mut browser) = Chromium::open(profile.path(), &page) else {
        return;
    };
    browser.wait(&format!("{} === 'live'", text("#connection")));
    click(&mut browser, "#range input[value='1h']");
    for _ in 0..seconds {
        stage.play(Nanos::SECOND, minutes, ATTACK);
    }
    browser.wait(&format!(
        "{}.startsWith('login: 5/1m')",
        text("#detail-title")
    ));
    browser.wait(&format!("{}.includes('mallory')", text("#keys tbody tr")));
    for (name, width, height, scheme) in [
        ("light", 1280, 800, "light"),
        ("dark", 1280, 800, "dark"),
        ("phone", 390, 844, "light"),
    ] {
        browser.show_on(Screen {
            width,
            height,
            scheme,
        });
        browser.wait("document.documentElement.scrollWidth <= innerWidth");
        let drawn = "document.querySelector('#requests').viewBox.baseVal.width === \
             document.querySelector('#requests').clientWidth";
        browser.wait(drawn);
        assert_eq!(browser.violations(), json!([]), "{name}");
        if width > 1000 {
            let below = "document.querySelector('#keys tbody').getBoundingClientRect().bottom";
            browser.wait(&format!("{below} < innerHeight"));
        }
        if writes {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/dashboard");
            let picture = browser.picture();
            assert!(picture.len() < 150_000, "{name}: {} bytes", picture.len());
            std::fs::write(folder.join(format!("{name}.png")), picture).expect("it is writable");
        }
    }
    assert_eq!(browser.errors(), Vec::<Value>::new());
}
