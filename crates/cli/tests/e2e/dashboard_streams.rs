//! The stream that feeds the dashboard: one for each page that is seen, bounded, and found again.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use crate::dashboard::{ask, choose, open, policy, text};
use crate::harness::chromium::Chromium;
use crate::harness::clock;
use crate::harness::service::Service;
use crate::harness::visitor::Visitor;

/// Replaces `fetch` of the page by one that counts its calls by path.
const COUNT_CALLS: &str = "window.calls = {}; window.asked = window.fetch; window.fetch = (path, more) => { \
    const name = String(path).split('?')[0]; window.calls[name] = (window.calls[name] ?? 0) + 1; \
    return window.asked(path, more); }; true";

/// Hides the tab, or shows it again, as the page sees it.
fn set_hidden(browser: &mut Chromium, hidden: bool) {
    browser.run(&format!(
        "Object.defineProperty(document, 'hidden', {{ configurable: true, get: () => {hidden} }}); \
         document.dispatchEvent(new Event('visibilitychange'))"
    ));
}

/// Waits until the service has that number of streams.
fn await_streams(service: &Service, count: u64) {
    let open = || {
        let state = Visitor::at(1).get(service.admin(), "/v1/dashboard").body;
        let state: serde_json::Value = serde_json::from_str(&state).expect("JSON");
        (state["streams"] == count).then_some(())
    };
    let seen = clock::poll("the number of streams", Duration::from_secs(30), open);
    seen.unwrap_or_else(|error| panic!("{count}: {error}"));
}

#[test]
fn one_stream_brings_all_numbers_and_a_hidden_tab_has_none() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let service = Service::start(dir.path(), &policy(dir.path()));
    let Some(mut browser) = open(dir.path(), &service) else {
        return;
    };
    browser.wait(&format!("{} === 'live'", text("#connection")));
    await_streams(&service, 1);
    browser.run(COUNT_CALLS);
    ask(service.http(), ("user", "mallory"), 5);
    browser.wait(&format!("{}.includes('mallory')", text("#keys")));
    ask(service.http(), ("user", "mallory"), 5);
    let row = "document.querySelector('#keys').tBodies[0].rows[0].innerText";
    browser.wait(&format!("{row}.includes('10')"));
    assert_eq!(
        browser.run("JSON.stringify(window.calls)"),
        "{}",
        "states come without a call"
    );
    set_hidden(&mut browser, true);
    await_streams(&service, 0);
    set_hidden(&mut browser, false);
    await_streams(&service, 1);
    choose(&mut browser, "signup");
    browser.wait(&format!(
        "{}.includes('No key was refused')",
        text("#keys-note")
    ));
    await_streams(&service, 1);
    assert_eq!(
        browser.run("JSON.stringify(window.calls)"),
        r#"{"v1/dashboard/stream":2}"#
    );
}

#[test]
fn a_page_that_finds_no_room_says_so_and_comes_in_later() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let service = Service::start(dir.path(), &policy(dir.path()));
    let mut held: Vec<TcpStream> = (0..32)
        .map(|_| {
            let mut stream = TcpStream::connect(service.admin()).expect("it listens");
            let head = "GET /v1/dashboard/stream HTTP/1.1\r\nhost: localhost\r\n\r\n";
            stream.write_all(head.as_bytes()).expect("it is open");
            let mut first = [0; 12];
            stream.read_exact(&mut first).expect("an answer");
            assert_eq!(&first, b"HTTP/1.1 200");
            stream
        })
        .collect();
    let Some(mut browser) = open(dir.path(), &service) else {
        return;
    };
    let connection = text("#connection");
    browser.wait(&format!("{connection}.includes('32 dashboards are open')"));
    browser.wait(&format!("{connection}.includes('trying again in')"));
    held.pop();
    browser.wait(&format!("{connection} === 'live'"));
}

#[test]
fn a_service_that_hangs_is_noticed_and_found_again() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let service = Service::start(dir.path(), &policy(dir.path()));
    let Some(mut browser) = open(dir.path(), &service) else {
        return;
    };
    let connection = text("#connection");
    browser.wait(&format!("{connection} === 'live'"));
    service.process.signal("STOP");
    browser.wait(&format!(
        "{connection}.startsWith('no answer; trying again in')"
    ));
    service.process.signal("CONT");
    browser.wait(&format!("{connection} === 'live'"));
    await_streams(&service, 1);
}
