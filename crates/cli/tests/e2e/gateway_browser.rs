//! A real browser behind the gateway, with nginx as the application: a page of another origin sends
//! requests with a key, and reads why one is refused.
//!
//! ```text
//!   page of the application's own address --OPTIONS, GET x-key--> gateway --> application
//!                                          <--429, readable------'
//! ```

use std::fs;

use serde_json::json;

use crate::gateway::{application, gateway};
use crate::harness::chromium::Chromium;
use crate::harness::process;

/// A page, and calls that pages of other origins may send.
const APPLICATION: &str = "
location / { default_type text/html; return 200 '<title>application</title>'; }
location /api {
    add_header Access-Control-Allow-Origin * always;
    add_header Access-Control-Allow-Headers x-key always;
    if ($request_method = OPTIONS) { return 204; }
    return 200 '{}';
}";

#[test]
fn a_page_of_another_origin_reads_why_it_is_refused() {
    let Some(nginx) = process::find("nginx") else {
        return;
    };
    let home = tempfile::tempdir().expect("the system has a temporary directory");
    let dir = home.path();
    let (_application, upstream) = application(dir, &nginx, APPLICATION);
    let policy = format!(
        "version = 1\n\
         [listen.proxy]\nupstream = \"http://{upstream}\"\ncors = [\"http://{upstream}\"]\n\
         [[limit]]\nname = \"calls\"\nmatch = {{ path = \"/api/**\" }}\nkey = [\"header:x-key\"]\n\
         limit = \"3/1h\"\n\
         [[limit]]\nname = \"pages\"\nmatch = {{ path = \"/\" }}\nkey = [\"ip\"]\nlimit = \"2/1h\"\n"
    );
    fs::write(dir.join("ratekeeper.toml"), policy).expect("the test's directory is writable");
    let (_gateway, proxy) = gateway(dir, &["run"]);
    let Some(mut browser) = Chromium::open(dir, &format!("http://{upstream}/")) else {
        return;
    };
    browser.wait("document.title == 'application'");
    let calls = browser.run(&format!(
        "(async () => {{
           const seen = [];
           for (let call = 0; call < 4; call++) {{
             const answer = await fetch('http://{proxy}/api/x', {{ headers: {{ 'x-key': 'k' }} }});
             const problem = answer.ok ? {{}} : await answer.json();
             const waits = answer.headers.get('retry-after') > 0;
             seen.push([answer.status, waits, problem['violated-policies'] ?? null]);
           }}
           return seen;
         }})()"
    ));
    let passed = json!([200, false, null]);
    let refused = json!([429, true, ["calls"]]);
    assert_eq!(calls, json!([passed, passed, passed, refused]));
    // Preflights were not counted. Now a page of the gateway's own address.
    browser.run(&format!("void (location.href = 'http://{proxy}/')"));
    browser.wait(&format!(
        "location.host == '{proxy}' && document.title == 'application'"
    ));
    let page = "(async () => {
        const answer = await fetch('/', { headers: { accept: 'text/html' }, cache: 'no-store' });
        return [answer.status, answer.headers.get('content-type')];
    })()";
    assert_eq!(browser.run(page), json!([200, "text/html"]));
    assert_eq!(
        browser.run(page),
        json!([429, "text/html; charset=utf-8"]),
        "a refusal is a page"
    );
}
