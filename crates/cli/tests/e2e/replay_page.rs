//! The page of `ratekeeper replay --html` in a real browser: nothing in its console, nothing from
//! the network, and nothing that hinders a reader.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::chromium::{Chromium, Screen};

/// Set to `write`, it renews the picture of the README.
const PICTURES: &str = "RATEKEEPER_PICTURES";

const POLICY: &str = r#"
version = 1

[[limit]]
name  = "per-ip"
key   = ["ip"]
limit = "60/1h"

[[limit]]
name   = "login"
match  = { path = "/login<b>" }
key    = ["ip", "path"]
limit  = "5/1h"
"#;

/// Returns a day of 200 clients: most at noon, and three that never stop.
fn log() -> String {
    let mut requests = Vec::new();
    for client in 0..200_u32 {
        let hours = if client < 3 {
            0..24
        } else {
            12 - client % 12..13 + client % 11
        };
        for hour in hours {
            let count = match client {
                0..3 => 90 + 20 * client,
                _ => 2 + (client * 7 + hour * 5) % (4 + client % 23),
            };
            for number in 0..count {
                let path = if client % 9 == 0 && number % 8 == 0 {
                    "/login<b>"
                } else {
                    "/"
                };
                requests.push((hour * 3600 + number * 3599 / count, client, path));
            }
        }
    }
    requests.sort_unstable();
    let mut text = String::new();
    for (second, client, path) in requests {
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        let _ = writeln!(
            text,
            "198.51.100.{client} - - [12/May/2026:{hour:02}:{minute:02}:{second:02} +0000] \
             \"GET {path} HTTP/1.1\" 200 512 \"-\" \"-\""
        );
    }
    text
}

fn write_page(dir: &Path) {
    std::fs::write(dir.join("ratekeeper.toml"), POLICY).expect("the directory is writable");
    std::fs::write(dir.join("access.log"), log()).expect("the directory is writable");
    let run = Command::new(env!("CARGO_BIN_EXE_ratekeeper"))
        .current_dir(dir)
        .args(["replay", "ratekeeper.toml", "access.log"])
        .args(["--choose", "per-ip", "--html", "report.html"])
        .output()
        .expect("the command runs");
    assert!(run.status.success(), "{run:?}");
}

#[test]
fn nothing_is_wrong_with_it() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    write_page(dir.path());
    let url = format!("file://{}", dir.path().join("report.html").display());
    let Some(mut browser) = Chromium::open(dir.path(), &url) else {
        return;
    };
    browser.wait("document.readyState === 'complete' && document.title.startsWith('Replay of')");
    assert_eq!(browser.errors(), Vec::<Value>::new());
    // Texts of the log stay texts, and nothing was loaded.
    browser.wait("document.querySelector('b') === null");
    browser.wait("document.body.innerText.includes('/login<b>')");
    browser.wait("performance.getEntriesByType('resource').length === 0");
    for (width, scheme) in [(920, "light"), (920, "dark"), (375, "light"), (375, "dark")] {
        browser.show_on(Screen {
            width,
            height: 800,
            scheme,
        });
        browser.wait("document.documentElement.scrollWidth <= innerWidth");
        assert_eq!(browser.violations(), json!([]), "{width} {scheme}");
    }
    assert_eq!(browser.errors(), Vec::<Value>::new());
    if std::env::var(PICTURES).is_ok_and(|mode| mode == "write") {
        browser.show_on(Screen {
            width: 920,
            height: 670,
            scheme: "light",
        });
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/replay");
        let picture = std::fs::write(folder.join("report.png"), browser.picture());
        picture.expect("the picture is writable");
    }
}
