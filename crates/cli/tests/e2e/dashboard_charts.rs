//! The charts and numbers of the dashboard: they equal the traffic, `ratekeeper top` and the metrics,
//! and tell their values to the pointer and the keyboard.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::{Value, json};

use crate::dashboard::{ask, choose, click, open, policy, tab_to, text};
use crate::harness::service::Service;

/// Each request asks three limits; the last one would refuse more than the first does.
const COUNTED: &str = r#"
version = 1

[[limit]]
name   = "all"
key    = ["all"]
limit  = "1000/1h"

[[limit]]
name   = "login"
key    = ["attr:user"]
missing_key = "deny"
bucket = { size = 5, refill = "1/1h" }

[[limit]]
name   = "trial"
mode   = "shadow"
key    = ["attr:user"]
missing_key = "deny"
bucket = { size = 3, refill = "1/1h" }
"#;

#[test]
fn requests_and_decisions_equal_the_traffic_and_top_and_the_metrics() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let path = dir.path().join("policy.toml");
    std::fs::write(&path, COUNTED).expect("it is writable");
    let service = Service::start(dir.path(), &path);
    // Before the page, which opens on the limit that refuses most.
    ask(service.http(), ("user", "ada"), 8);
    ask(service.http(), ("user", "bob"), 4);
    ask(service.http(), ("visitor", "without the key"), 2);
    let Some(mut browser) = open(dir.path(), &service) else {
        return;
    };
    browser.wait(&format!("{} === 'live'", text("#connection")));
    click(&mut browser, "#range input[value='1h']");

    let requests = text("#requests-value");
    browser.wait(&format!("{requests}.endsWith(': 9 allowed, 5 refused')"));
    let note = text("#keys-note");
    let unlisted = "Not listed: 2 refusals without a part of the key.";
    browser.wait(&format!("{note}.endsWith(' {unlisted}')"));
    let row = |name: &str| {
        format!(
            "[...document.querySelector('#limits').tBodies[0].rows].find(row => \
             row.querySelector('button').textContent === '{name}')"
        )
    };
    let rows = json!({
        "login": ["14", "5", "36 %", "1 of 2, 50 %"],
        "all": ["14", "0", "0 %", "0 of 1, 0 %"],
        "trial": ["14", "8 would be", "57 %", "2 of 2, 100 %"],
    });
    for (name, cells) in rows.as_object().expect("an object") {
        let shown = format!(
            "JSON.stringify([...{}.cells].slice(1, 5).map(it => it.textContent)) === '{cells}'",
            row(name)
        );
        browser.wait(&shown);
    }
    let order = "[...document.querySelectorAll('#limits button')].map(it => it.textContent).join()";
    browser.wait(&format!("{order} === 'login,trial,all'"));
    browser.wait(&format!("{}.startsWith('login: ')", text("#detail-title")));
    choose(&mut browser, "login");
    let decisions = text("#decisions-value");
    browser.wait(&format!("{decisions}.endsWith(': 9 allowed, 5 refused')"));

    let server = format!("http://{}", service.admin());
    let top = Command::new(env!("CARGO_BIN_EXE_ratekeeper"))
        .args(["top", "--once", "--json", "--window", "1h"])
        .args(["--server", &server])
        .output()
        .expect("it runs");
    let top: Value = serde_json::from_slice(&top.stdout).expect("JSON");
    let mut all = 0.0;
    for limit in top["limits"].as_array().expect("a list") {
        let name = limit["limit"].as_str().expect("a name");
        let mode = limit["mode"].as_str().expect("a mode");
        let counts = ["allowed", "denied"].map(|outcome| {
            let series = format!(
                r#"ratekeeper_decisions_total{{limit="{name}",outcome="{outcome}",mode="{mode}"}}"#
            );
            let count = service.metric(&series);
            assert_eq!(
                limit["decisions"][outcome].as_f64(),
                Some(count),
                "{series}"
            );
            count
        });
        let shown = browser.run(&format!("{}.cells[1].textContent", row(name)));
        assert_eq!(limit["denied"].as_f64(), Some(counts[1]), "{name}");
        let uncharged = if name == "all" { 5.0 } else { 0.0 }; // while `login` refused
        let sum: f64 = counts.iter().sum::<f64>() + uncharged;
        assert_eq!(shown, json!(sum.to_string()), "{name}");
        all += sum;
    }
    assert_eq!(all.to_string(), "42");
    for (result, count) in [("allowed", "9"), ("denied", "5")] {
        let series = format!(r#"ratekeeper_requests_total{{protocol="http",result="{result}"}}"#);
        assert_eq!(service.metric(&series).to_string(), count, "{series}");
    }
}

#[test]
fn charts_have_axes_and_tell_the_value_of_a_bar() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let service = Service::start(dir.path(), &policy(dir.path()));
    let Some(mut browser) = open(dir.path(), &service) else {
        return;
    };
    browser.wait(&format!("{} === 'live'", text("#connection")));
    ask(service.http(), ("user", "mallory"), 40);
    ask(service.http(), ("visitor", "v"), 10);
    let value = text("#requests-value");
    let sums = format!("/^last .*: 12 allowed, 38 refused$/.test({value})");
    browser.wait(&sums);
    let words = "[...document.querySelectorAll('#requests text')].map(it => it.textContent)";
    browser.wait(&format!("{words}[0] === 'requests in 1 s'"));
    browser.wait(&format!(
        "{words}.some(it => /^[0-9][0-9]:[0-9][0-9]:[0-9][0-9]$/.test(it))"
    ));
    // A day of which a minute has passed is shown by the minute.
    for range in ["24h", "1h"] {
        click(&mut browser, &format!("#range input[value='{range}']"));
        browser.wait(&format!("{words}[0] === 'requests in 60 s'"));
        browser.wait(&sums);
    }
    let told = "document.querySelector('#requests').getAttribute('aria-valuetext')";
    tab_to(&mut browser, "#requests");
    let mut refused = BTreeMap::new();
    for _ in 0..3 {
        browser.press("ArrowLeft");
        let bar = browser.run("document.querySelector('#requests').getAttribute('aria-valuenow')");
        let told = browser.run(told).as_str().expect("a text").to_owned();
        let (time, counts) = told.split_once(": ").expect("a time");
        assert_eq!(time.len(), "20:15".len(), "{told}");
        let count = counts
            .split(' ')
            .nth(2)
            .and_then(|it| it.parse::<u32>().ok());
        refused.insert(bar.to_string(), count.unwrap_or_else(|| panic!("{told}")));
    }
    assert_eq!(refused.values().sum::<u32>(), 38, "{refused:?}");
    browser.press("Escape");
    browser.wait(&sums);
    let point = "const it = document.querySelector('#requests'), box = it.getBoundingClientRect(); \
         it.dispatchEvent(new PointerEvent('pointermove', \
         { clientX: box.right - 12, clientY: box.top + 40 })); true";
    browser.run(&format!("{{ {point} }}"));
    browser.wait(&format!("/^[0-9][0-9]:[0-9][0-9]: /.test({value})"));
    browser
        .run("document.querySelector('#requests').dispatchEvent(new PointerEvent('pointerleave'))");
    browser.wait(&sums);

    choose(&mut browser, "signup");
    browser.wait(&format!(
        "{}.endsWith('2 allowed, 0 refused, 8 would be refused')",
        text("#decisions-value")
    ));
    let forms =
        "['shadow', 'denied'].map(it => document.querySelectorAll(`#decisions .${it}`).length)";
    browser.wait(&format!("({forms}).join() !== '0,0' && ({forms})[1] === 0"));
    let hollow = "getComputedStyle(document.querySelector('#decisions .shadow')).fill";
    assert_eq!(browser.run(hollow), "none");
}

#[test]
fn a_refused_policy_is_in_the_head_until_it_is_repaired() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let path = policy(dir.path());
    let service = Service::start(dir.path(), &path);
    let Some(mut browser) = open(dir.path(), &service) else {
        return;
    };
    let head = text("#policy");
    browser.wait(&format!("{head}.startsWith('policy version 1, ')"));
    let right = std::fs::read_to_string(&path).expect("it is there");
    std::fs::write(&path, "version = 7").expect("it is writable");
    browser.wait(&format!(
        "/^policy refused [0-9]+ s ago, version 1 still serves$/.test({head})"
    ));
    std::fs::write(&path, right).expect("it is writable");
    browser.wait(&format!("{head}.startsWith('policy version 1, ')"));
}
