//! A headless Chromium, driven by its debugging protocol over two named pipes.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::clock;
use super::process::{Process, carried, find};

/// Enough for a browser on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A browser with one page.
pub(crate) struct Chromium {
    _process: Process,
    to: File,
    from: Receiver<Value>,
    session: String,
    calls: u64,
    errors: Vec<Value>,
}

/// The size of a window and its colours.
#[derive(Clone, Copy)]
pub(crate) struct Screen {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) scheme: &'static str,
}

impl Chromium {
    /// Opens a page; `None` if the browser is not installed.
    pub(crate) fn open(dir: &Path, url: &str) -> Option<Self> {
        let program = find("chromium")?;
        let [to, from] = ["browser.to", "browser.from"].map(|name| dir.join(name));
        let made = Command::new("mkfifo").args([&to, &from]).status();
        assert!(made.is_ok_and(|status| status.success()), "mkfifo");
        let process = Process::start(
            "chromium",
            Command::new("sh")
                .args(["-c", "exec 3<\"$1\" 4>\"$2\"; shift 2; exec \"$@\"", "sh"])
                .args([&to, &from])
                .arg(program)
                .args([
                    "--headless",
                    "--no-sandbox",
                    "--disable-gpu",
                    "--hide-scrollbars",
                ])
                .args(["--no-first-run", "--disable-background-networking"])
                .args(["--disable-component-update", "--disable-sync"])
                .args(["--disable-dev-shm-usage", "--remote-debugging-pipe"])
                .arg(format!("--user-data-dir={}", dir.join("profile").display()))
                .env("TMPDIR", dir),
            dir.join("browser.out"),
            dir.join("browser.log"),
        );
        // In the order in which the shell opens them: each waits for the other side.
        let to = OpenOptions::new().write(true).open(to).expect("a pipe");
        let from = File::open(from).expect("a pipe");
        let mut browser = Self {
            _process: process,
            to,
            from: messages(from),
            session: String::new(),
            calls: 0,
            errors: Vec::new(),
        };
        let target = browser.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let target = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", &target);
        let session = attached["sessionId"].as_str().expect("a session");
        session.clone_into(&mut browser.session);
        for domain in ["Log.enable", "Runtime.enable"] {
            browser.call(domain, &json!({}));
        }
        // A link into a directory for temporary files, which a browser that is killed leaves behind.
        let socket = fs::read_link(dir.join("profile/SingletonSocket"));
        assert!(socket.is_ok_and(|socket| socket.starts_with(dir)));
        browser.call("Page.navigate", &json!({ "url": url }));
        Some(browser)
    }

    /// Opens another page, and waits until it is there.
    pub(crate) fn visit(&mut self, url: &str) {
        self.call("Page.navigate", &json!({ "url": url }));
        self.wait(&format!(
            "location.href === '{url}' && document.readyState === 'complete'"
        ));
    }

    /// Returns the result of a call.
    fn call(&mut self, method: &str, parameters: &Value) -> Value {
        let answer = self.answer(method, parameters);
        assert!(answer["error"].is_null(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// Returns the answer to a call: its result, or its error.
    fn answer(&mut self, method: &str, parameters: &Value) -> Value {
        self.calls += 1;
        let mut call = json!({ "id": self.calls, "method": method, "params": parameters });
        if !self.session.is_empty() {
            call["sessionId"] = json!(self.session);
        }
        let text = format!("{call}\0");
        self.to.write_all(text.as_bytes()).expect("it runs");
        loop {
            let message = self.from.recv_timeout(PATIENCE);
            let message = message.unwrap_or_else(|error| panic!("{method}: {error}"));
            if message["id"] == self.calls {
                return message;
            }
            let told = ["Log.entryAdded", "Runtime.exceptionThrown"];
            if told.iter().any(|method| message["method"] == *method) {
                self.errors.push(message);
            }
        }
    }

    /// Returns the value of a script in the page.
    pub(crate) fn run(&mut self, script: &str) -> Value {
        let parameters = json!({
            "expression": script, "awaitPromise": true, "returnByValue": true,
        });
        let answer = self.call("Runtime.evaluate", &parameters);
        let thrown = &answer["exceptionDetails"];
        assert!(thrown.is_null(), "{script}: {thrown}");
        answer["result"]["value"].clone()
    }

    /// Returns what axe finds to hinder a reader of the page; an empty list also without axe.
    pub(crate) fn violations(&mut self) -> Value {
        let axe = carried("target/axe-core-4.14.1/node_modules/axe-core/axe.min.js");
        let Some(axe) = axe else { return json!([]) };
        let axe = fs::read_to_string(axe).expect("axe is text");
        self.run(&format!("{axe}; 0"));
        self.run(
            "axe.run().then(result => result.violations
               .map(it => `${it.impact} ${it.id}: ${it.nodes.map(node => node.html).join(' ')}`))",
        )
    }

    /// Returns the entries of the browser's console so far.
    pub(crate) fn errors(&mut self) -> Vec<Value> {
        self.run("0"); // all events before its answer are read
        std::mem::take(&mut self.errors)
    }

    /// Waits until a script of the page returns true.
    pub(crate) fn wait(&mut self, script: &str) {
        // A page that is being loaded has no elements yet, and its calls fail.
        let parameters = json!({ "expression": script, "returnByValue": true });
        let ready = clock::poll(script, PATIENCE, || {
            let answer = self.answer("Runtime.evaluate", &parameters);
            (answer["result"]["result"]["value"] == true).then_some(())
        });
        if let Err(error) = ready {
            panic!("{error}; the page: {}", self.run("document.body.innerText"));
        }
    }

    /// Presses a key of the keyboard, by its name.
    pub(crate) fn press(&mut self, key: &str) {
        let (code, text) = match key {
            "Tab" => (9, ""),
            "Enter" => (13, "\r"),
            "Escape" => (27, ""),
            "ArrowLeft" => (37, ""),
            "ArrowRight" => (39, ""),
            other => panic!("{other} is not a key of this keyboard"),
        };
        for kind in ["keyDown", "keyUp"] {
            let mut event = json!({
                "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code,
            });
            if kind == "keyDown" && !text.is_empty() {
                event["text"] = json!(text);
            }
            self.call("Input.dispatchKeyEvent", &event);
        }
    }

    /// Types a text where the focus is.
    pub(crate) fn type_text(&mut self, text: &str) {
        self.call("Input.insertText", &json!({ "text": text }));
    }

    /// Changes the size of the window and its colours.
    pub(crate) fn show_on(&mut self, screen: Screen) {
        let Screen { width, height, .. } = screen;
        let size = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500,
        });
        self.call("Emulation.setDeviceMetricsOverride", &size);
        let feature = json!({ "name": "prefers-color-scheme", "value": screen.scheme });
        self.call(
            "Emulation.setEmulatedMedia",
            &json!({ "features": [feature] }),
        );
    }

    /// Returns a picture of the window, as PNG.
    pub(crate) fn picture(&mut self) -> Vec<u8> {
        let answer = self.call("Page.captureScreenshot", &json!({ "format": "png" }));
        let data = answer["data"].as_str().expect("a picture");
        STANDARD.decode(data).expect("base64")
    }
}

/// Reads messages, each of which ends with a zero byte.
fn messages(from: File) -> Receiver<Value> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for message in BufReader::new(from).split(0) {
            let Ok(message) = message else { return };
            let Ok(message) = serde_json::from_slice(&message) else {
                return;
            };
            if sender.send(message).is_err() {
                return;
            }
        }
    });
    receiver
}
