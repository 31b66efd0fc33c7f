//! The dashboard in a real browser: it follows traffic, changes keys only when asked twice, and
//! shows the bytes of strangers as text.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::harness::chromium::{Chromium, Screen};
use crate::harness::service::{Admin, Service};
use crate::harness::visitor::{Caller, Visitor};

const POLICY: &str = r#"
version = 1
reveal_keys = "raw"
overrides = "overrides.csv"

[listen]
admin_writes = "open"

[client_ip]
trusted_proxies = ["10.0.0.0/8"]

[geo]
header = "cf-ipcountry"

[[limit]]
name  = "login"
key   = ["attr:user"]
missing_key = "skip"
bucket = { size = 2, refill = "1/1h" }
ban   = { after = 100, within = "24h", for = "1h" }

[[limit]]
name  = "signup"
mode  = "shadow"
key   = ["attr:visitor"]
missing_key = "skip"
bucket = { size = 2, refill = "1/1h" }

[[limit]]
name  = "api"
key   = ["attr:customer"]
missing_key = "skip"
bucket = { size = 40, refill = "40/1s" }

[[limit]]
name   = "night"
match  = { country = ["NO", "SE"] }
key    = ["country"]
active = { hours = "01:00-06:00", timezone = "Europe/Oslo" }
limit  = "300/1m"

[[limit]]
name   = "by-country"
match  = { country = "!ZZ" }
key    = ["country"]
limit  = "90/1m"
"#;

pub(crate) fn policy(dir: &Path) -> PathBuf {
    let path = dir.join("policy.toml");
    std::fs::write(&path, POLICY).expect("the directory is writable");
    let overrides = "limit,key,set,until,reason\n";
    std::fs::write(dir.join("overrides.csv"), overrides).expect("the directory is writable");
    path
}

pub(crate) fn ask(to: SocketAddr, (attribute, value): (&str, &str), times: usize) {
    let body = json!({ "attributes": { (attribute): value } }).to_string();
    let mut caller = Caller::connect(to);
    for _ in 0..times {
        caller.post_json("/v1/check", &body);
    }
}

fn from_country(to: SocketAddr, country: &str, times: usize) {
    let request = json!({ "ip": "10.0.0.1", "headers": { "cf-ipcountry": country } });
    let body = json!({ "request": request }).to_string();
    let mut caller = Caller::connect(to);
    for _ in 0..times {
        caller.post_json("/v1/check", &body);
    }
}

pub(crate) fn open(dir: &Path, service: &Service) -> Option<Chromium> {
    Chromium::open(dir, &format!("http://{}/dashboard", service.admin()))
}

/// A script that returns the text of an element.
pub(crate) fn text(selector: &str) -> String {
    format!("document.querySelector('{selector}').innerText")
}

pub(crate) fn click(browser: &mut Chromium, selector: &str) {
    browser.run(&format!("document.querySelector(\"{selector}\").click()"));
}

/// Chooses a limit by its name.
pub(crate) fn choose(browser: &mut Chromium, limit: &str) {
    browser.run(&format!(
        "[...document.querySelectorAll('#limits button')].find(it => it.textContent === '{limit}').click()"
    ));
    let title = text("#detail-title");
    browser.wait(&format!("{title}.startsWith('{limit}: ')"));
}

#[test]
fn it_follows_traffic_and_changes_a_key_after_a_confirmation() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let service = Service::start(dir.path(), &policy(dir.path()));
    let Some(mut browser) = open(dir.path(), &service) else {
        return;
    };
    browser.wait(&format!("{} === 'live'", text("#connection")));
    ask(service.http(), ("user", "mallory"), 40);
    let limits = text("#limits");
    browser.wait(&format!("{limits}.includes('one key: an abuser')"));
    browser.wait(&format!("{}.includes('mallory')", text("#keys")));
    browser.wait("document.querySelectorAll('#requests .denied').length > 0");

    click(&mut browser, "#keys button");
    browser.wait(&format!("{}.includes('0 of 2 remain')", text("#found")));
    click(&mut browser, "#reset");
    browser.wait("document.querySelector('#confirm').open");
    click(&mut browser, "#confirm button[value=no]");
    browser.wait("!document.querySelector('#confirm').open");
    let peek = json!({ "attributes": { "user": "mallory" }, "limits": ["login"] }).to_string();
    let remaining = || {
        let answer = Visitor::at(1).post_json(service.http(), "/v1/peek", &peek);
        let answer: serde_json::Value = serde_json::from_str(&answer.body).expect("JSON");
        answer["limits"][0]["remaining"].clone()
    };
    assert_eq!(
        remaining(),
        0,
        "a question that is declined changes nothing"
    );
    click(&mut browser, "#reset");
    click(&mut browser, "#confirm button[value=yes]");
    browser.wait(&format!("{}.includes('is reset')", text("#found")));
    assert_eq!(remaining(), 2);

    click(&mut browser, "#ban");
    click(&mut browser, "#confirm button[value=yes]");
    browser.wait(&format!(
        "{}.includes('banned by hand for')",
        text("#found")
    ));
    browser.wait(&format!("{}.includes('mallory')", text("#bans")));
    browser.wait(&format!("{}.includes('banned')", text("#changes")));
    click(&mut browser, "#lift");
    click(&mut browser, "#confirm button[value=yes]");
    browser.wait(&format!("{}.includes('ban is lifted')", text("#found")));
    click(&mut browser, "#allow");
    click(&mut browser, "#confirm button[value=yes]");
    browser.wait(&format!(
        "{}.includes('allowed by hand for')",
        text("#found")
    ));
    click(&mut browser, "#lift");
    click(&mut browser, "#confirm button[value=yes]");
    browser.wait(&format!("{}.includes('ban is lifted')", text("#found")));

    fill(&service);
    browser.wait(&format!(
        "{limits}.includes('keys: the number may be too low')"
    ));
    browser.wait(&format!("/^[0-9]+ [um]s$/.test({})", text("#time")));
    browser.wait(&format!(
        "/[0-9]+ keys, .* of [0-9]+ MiB/.test({})",
        text("#service")
    ));
    browser.wait(&format!(
        "{}.startsWith('127.0.0.1:')",
        "document.querySelector('#changes').tBodies[0].rows[0].cells[3].innerText"
    ));
    browser.wait("document.querySelectorAll('#requests .mark').length >= 3");
    let facts = text("#facts");
    for (limit, fact) in [
        ("login", "/highest key has spent 100 %/"),
        ("api", r"/Near\s+[0-9.]*[1-9]/"),
        ("by-country", r"/Keys refused\s+1 in this hour/"),
        (
            "by-country",
            "/NO 144, [1-9][0-9.]* % refused, most at [0-9]+:00; SE 60,/",
        ),
        ("night", r"/Applies\s+01:00-06:00 in Europe.Oslo/"),
    ] {
        choose(&mut browser, limit);
        browser.wait(&format!("{fact}.test({facts})"));
    }
    for (width, height) in [(1400, 900), (800, 900), (375, 1000)] {
        browser.show_on(Screen {
            width,
            height,
            scheme: "light",
        });
        browser.wait("document.documentElement.scrollWidth <= innerWidth");
    }
}

/// Sends ordinary traffic.
fn fill(service: &Service) {
    for round in 0..12 {
        for customer in ["ada", "bob", "eve", "kim"] {
            ask(service.http(), ("customer", customer), 10 + round * 3);
        }
        for visitor in 0..8 {
            ask(service.http(), ("visitor", &visitor.to_string()), 1);
        }
        ask(service.http(), ("user", "mallory"), 6 + round % 5);
        for (country, times) in [("NO", 12), ("SE", 5), ("DE", 3), ("JP", 1)] {
            from_country(service.http(), country, times);
        }
    }
}

#[test]
fn it_tries_another_number_and_sets_and_removes_an_override() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let service = Service::start(dir.path(), &policy(dir.path()));
    let Some(mut browser) = open(dir.path(), &service) else {
        return;
    };
    ask(service.http(), ("user", "mallory"), 5);
    ask(service.http(), ("user", "ada"), 3);
    browser.wait(&format!("{}.includes('mallory')", text("#keys")));
    let enter = |browser: &mut Chromium, field: &str, value: &str| {
        browser.run(&format!(
            "document.querySelector('{field}').value = '{value}'"
        ));
    };
    enter(&mut browser, "#whatif-number", "4/1h");
    browser.run("document.querySelector('#whatif').requestSubmit()");
    let told = text("#whatif-result");
    browser.wait(&format!("{told}.includes('Of 8 requests of 2 keys')"));
    browser.wait(&format!("{told}.includes('refuses 4 requests of 2 keys')"));
    browser.wait(&format!(
        "{told}.includes('4/1h refuses 1 request of 1 key')"
    ));
    enter(&mut browser, "#whatif-number", "many");
    browser.run("document.querySelector('#whatif').requestSubmit()");
    browser.wait(&format!("{told}.includes('is not a number')"));

    click(&mut browser, "#keys button");
    browser.wait(&format!("{}.includes('0 of 2 remain')", text("#found")));
    browser.wait("!document.querySelector('#override').hidden");
    assert_eq!(
        browser.run("document.querySelector('#override-remove').hidden"),
        true
    );
    let file = || std::fs::read_to_string(dir.path().join("overrides.csv")).expect("readable");
    enter(&mut browser, "#override-set", "50/1h");
    enter(&mut browser, "#override-reason", "a good customer");
    browser.run("document.querySelector('#override').requestSubmit()");
    browser.wait("document.querySelector('#confirm').open");
    browser.wait(&format!("{}.includes('50/1h')", text("#question")));
    click(&mut browser, "#confirm button[value=no]");
    browser.wait("!document.querySelector('#confirm').open");
    assert!(!file().contains("mallory"), "declined: nothing is changed");
    browser.run("document.querySelector('#override').requestSubmit()");
    click(&mut browser, "#confirm button[value=yes]");
    browser.wait(&format!("{}.includes('override is set')", text("#found")));
    browser.wait(&format!("{}.includes('Override: 50/1h')", text("#found")));
    assert!(file().contains("login,mallory,50/1h,,a good customer"));
    ask(service.http(), ("user", "mallory"), 1);
    browser.wait(&format!("{}.includes('override')", text("#changes")));
    click(&mut browser, "#override-remove");
    click(&mut browser, "#confirm button[value=yes]");
    browser.wait(&format!(
        "{}.includes('override is removed')",
        text("#found")
    ));
    assert!(!file().contains("mallory"));
    browser.wait("document.querySelector('#override-remove').hidden");
}

/// A client that calls itself `*` is on top of the list; the operator blocks it, and it alone.
#[test]
fn an_override_of_the_key_named_star_is_for_it_alone() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let service = Service::start(dir.path(), &policy(dir.path()));
    let Some(mut browser) = open(dir.path(), &service) else {
        return;
    };
    ask(service.http(), ("user", "*"), 9);
    browser.wait(&format!("{}.includes('*')", text("#keys")));
    click(&mut browser, "#keys button");
    browser.wait("!document.querySelector('#override').hidden");
    browser.run("document.querySelector('#override-set').value = 'blocked'");
    browser.run("document.querySelector('#override').requestSubmit()");
    browser.wait("document.querySelector('#confirm').open");
    browser.wait(&format!("{}.includes('this one key')", text("#question")));
    click(&mut browser, "#confirm button[value=yes]");
    browser.wait(&format!("{}.includes('Override: blocked')", text("#found")));
    let file = std::fs::read_to_string(dir.path().join("overrides.csv")).expect("readable");
    assert!(file.contains("login,\\*,blocked"), "{file}");
    let allowed = |user: &str| {
        let body = json!({ "attributes": { "user": user } }).to_string();
        Visitor::at(2)
            .post_json(service.http(), "/v1/check", &body)
            .status
    };
    assert_eq!((allowed("bob"), allowed("*")), (200, 429));
}

/// Presses Tab until the focus is on an element.
pub(crate) fn tab_to(browser: &mut Chromium, selector: &str) {
    let is_there = format!("document.activeElement?.matches('{selector}') ?? false");
    tab_until(browser, &is_there);
}

fn tab_until(browser: &mut Chromium, is_there: &str) {
    for _ in 0..40 {
        browser.press("Tab");
        if browser.run(is_there) == true {
            return;
        }
    }
    panic!("the keyboard does not reach: {is_there}");
}

#[test]
fn the_keyboard_alone_resets_a_key() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let service = Service::start(dir.path(), &policy(dir.path()));
    let Some(mut browser) = open(dir.path(), &service) else {
        return;
    };
    browser.wait(&format!("{} === 'live'", text("#connection")));
    ask(service.http(), ("user", "mallory"), 60);
    ask(service.http(), ("customer", "ada"), 60);
    // Its row depends on how many of them were refused, which the machine decides.
    browser.wait(&format!("/^api /m.test({})", text("#limits")));
    let row = "document.activeElement?.closest('#limits tr')";
    tab_until(
        &mut browser,
        &format!("{row}?.innerText.startsWith('api') ?? false"),
    );
    browser.press("Enter");
    browser.wait(&format!("{}.startsWith('api')", text("#detail-title")));
    tab_to(&mut browser, "#parts input");
    browser.type_text("ada");
    browser.press("Enter");
    browser.wait(&format!("{}.includes('ada: ')", text("#found")));
    tab_to(&mut browser, "#reset");
    browser.press("Enter");
    browser.wait("document.querySelector('#confirm').open");
    let focused = "document.activeElement.textContent";
    assert_eq!(
        browser.run(focused),
        "Cancel",
        "the safe answer comes first"
    );
    browser.press("Escape");
    browser.wait("!document.querySelector('#confirm').open");
    assert_eq!(browser.run("document.activeElement.id"), "reset");
    assert_eq!(
        browser.run(&format!("{}.includes('is reset')", text("#found"))),
        false
    );
    browser.press("Enter");
    browser.wait("document.querySelector('#confirm').open");
    tab_to(&mut browser, "#confirm button[value=yes]");
    browser.press("Enter");
    browser.wait(&format!("{}.includes('is reset')", text("#found")));
}

#[test]
fn ten_thousand_keys_and_hostile_names_are_shown_as_text() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let service = Service::start(dir.path(), &policy(dir.path()));
    let Some(mut browser) = open(dir.path(), &service) else {
        return;
    };
    let evil = "attr:user=<img src=x onerror=hit()></td><script>hit()</script>\u{202e}\u{1b}[2J";
    let mut caller = Caller::connect(service.http());
    for visitor in 0..10_000 {
        let body = json!({ "attributes": { "user": format!("k{visitor}") } }).to_string();
        caller.post_json("/v1/check", &body);
    }
    // Last, because the list covers a minute, and a busy machine needs more for the others.
    ask(service.http(), ("user", evil), 60);
    browser.wait(&format!("{}.includes('<img src=x')", text("#keys")));
    assert_eq!(
        browser.run("document.querySelectorAll('img, td script').length"),
        0
    );
    let listed = browser.run("document.querySelector('#keys').tBodies[0].rows.length");
    assert!((1..=20).contains(&listed.as_u64().expect("a number")));
    click(&mut browser, "#keys button");
    browser.wait(&format!("{}.includes('0 of 2 remain')", text("#found")));
    let trusted = "try { document.body.innerHTML = '<p>x</p>'; 'written' } catch { 'refused' }";
    assert_eq!(browser.run(trusted), "refused");
}

#[test]
fn a_page_that_may_not_write_has_a_reason_in_place_of_buttons() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let path = policy(dir.path());
    let closed = POLICY.replace("admin_writes = \"open\"\n", "");
    std::fs::write(&path, closed).expect("the directory is writable");
    let service = Service::start(dir.path(), &path);
    let Some(mut browser) = open(dir.path(), &service) else {
        return;
    };
    ask(service.http(), ("user", "mallory"), 3);
    browser.wait(&format!("{}.includes('mallory')", text("#keys")));
    click(&mut browser, "#keys button");
    browser.wait(&format!("{}.includes('admin_writes')", text("#found")));
    let hidden = "['acts', 'override'].every(id => document.getElementById(id).hidden)";
    assert_eq!(browser.run(hidden), true);
}

#[test]
fn hashed_keys_stay_hidden_and_a_network_is_reset() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let path = policy(dir.path());
    let hashed = POLICY
        .replace("reveal_keys = \"raw\"", "reveal_keys = \"hash\"")
        .replace("key   = [\"attr:user\"]", "key   = [\"ip\"]");
    std::fs::write(&path, hashed).expect("the directory is writable");
    let service = Service::start(dir.path(), &path);
    let Some(mut browser) = open(dir.path(), &service) else {
        return;
    };
    let body = json!({ "request": { "ip": "2001:db8::1" }, "limits": ["login"] }).to_string();
    let mut caller = Caller::connect(service.http());
    for _ in 0..4 {
        caller.post_json("/v1/check", &body);
    }
    let connected = format!("{} === 'live'", text("#connection"));
    browser.wait(&connected);
    let limits = text("#limits");
    browser.wait(&format!("{limits}.includes('one key')"));
    let few = browser.run(&format!("{limits}.includes('abuser')"));
    assert_eq!(few, false, "two refusals are no abuse");

    browser.run(
        "document.querySelector('#parts input').value = '2001:db8::1'; \
         document.querySelector('#lookup').requestSubmit()",
    );
    browser.wait(&format!("{}.includes('0 of 2 remain')", text("#found")));
    click(&mut browser, "#ban");
    click(&mut browser, "#confirm button[value=yes]");
    browser.wait(&format!("{}.includes('ip=~')", text("#bans")));
    let shown = browser.run(&format!("{}.includes('2001:db8')", text("#bans")));
    assert_eq!(shown, false, "a ban shows no more of a key than the policy");
    click(&mut browser, "#lift");
    click(&mut browser, "#confirm button[value=yes]");
    browser.wait(&format!("{}.includes('ban is lifted')", text("#found")));
    click(&mut browser, "#reset");
    click(&mut browser, "#confirm button[value=yes]");
    browser.wait(&format!("{}.includes('is reset')", text("#found")));
    assert_eq!(caller.post_json("/v1/check", &body), 200);
}

#[test]
fn a_wrong_token_is_refused_and_a_restart_is_survived() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let path = policy(dir.path());
    let admin = Admin {
        address: None,
        token: Some("right"),
    };
    let service = Service::start_admin(dir.path(), &path, admin);
    let Some(mut browser) = open(dir.path(), &service) else {
        return;
    };
    browser.wait("!document.querySelector('#token-form').hidden");
    let enter = |browser: &mut Chromium, token: &str| {
        browser.run(&format!(
            "document.querySelector('#token').value = '{token}'"
        ));
        click(browser, "#token-form button");
    };
    enter(&mut browser, "wrong");
    browser.wait(&format!(
        "{}.includes('refused this token')",
        text("#token-error")
    ));
    assert_eq!(
        browser.run("document.querySelector('#panels').hidden"),
        true
    );
    enter(&mut browser, "right");
    browser.wait(&format!("{} === 'live'", text("#connection")));
    assert_eq!(browser.run("location.search + document.cookie"), "");

    let address = Some(service.admin());
    drop(service);
    browser.wait(&format!("{}.includes('trying again')", text("#connection")));
    let _service = Service::start_admin(dir.path(), &path, Admin { address, ..admin });
    browser.wait(&format!("{} === 'live'", text("#connection")));
}
