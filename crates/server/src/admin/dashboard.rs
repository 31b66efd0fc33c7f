//! Dashboard: a page for operators, and the state that it shows.
//!
//! ```text
//!   GET /                      leads to the page
//!   GET /dashboard             the page: three files of this binary, without secrets
//!   GET /v1/dashboard/stream   the state each second, made once for all viewers, and one limit
//!   GET /v1/dashboard          one state
//!   GET /v1/history            a day of one limit, by minute
//! ```
//!
//! The page reads the stream with the token in a header, if there is one. It needs no access of its
//! own, because it holds nothing; every number comes from a call that needs it
//! ([ADR 0068](../../../../docs/adr/0068-the-dashboard-reads-an-event-stream.md)).

mod state;
mod stream;
mod viewers;

pub(super) use self::state::store;
pub(super) use self::stream::open;
pub(crate) use self::stream::{StateStream, publish};
pub(crate) use self::viewers::Streams;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, Response, StatusCode, header};
use http_body_util::Full;
use serde_json::json;

use super::query::Query;
use super::reply;
use crate::context::ServiceContext;
use crate::doors::{self, CallResult, text};
use crate::serve::listener::Reply;

/// Headers of the files of the page. A browser runs no script but ours, sends nothing elsewhere,
/// and shows the page in no frame.
const HEADERS: [(&str, &str); 6] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
         require-trusted-types-for 'script'",
    ),
    ("x-frame-options", "DENY"),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cache-control", "no-cache"),
];

/// A file of the page.
pub(super) struct PageFile {
    kind: &'static str,
    text: &'static str,
}

pub(super) const PAGE: PageFile = PageFile {
    kind: "text/html; charset=utf-8",
    text: include_str!("dashboard/page.html"),
};
pub(super) const STYLE: PageFile = PageFile {
    kind: "text/css; charset=utf-8",
    text: include_str!("dashboard/style.css"),
};
pub(super) const SCRIPT: PageFile = PageFile {
    kind: "text/javascript; charset=utf-8",
    text: include_str!("dashboard/script.js"),
};

impl PageFile {
    pub(super) fn response(&self) -> Response<Reply> {
        let mut response = Response::new(Full::from(self.text));
        doors::put_field(&mut response, header::CONTENT_TYPE, self.kind);
        for (name, value) in HEADERS {
            doors::put_field(&mut response, HeaderName::from_static(name), value);
        }
        response
    }
}

/// `GET /`: leads to the page.
pub(super) fn lead_there() -> Response<Reply> {
    let mut response = doors::empty(StatusCode::FOUND);
    doors::put_field(&mut response, header::LOCATION, "/dashboard");
    response
}

/// `GET /v1/dashboard`: the state of the service.
pub(super) async fn snapshot(shared: &Arc<ServiceContext>) -> Response<Reply> {
    let Some(body) = shared.apart(|shared| last_state(shared)).await else {
        let words = "making the state of the dashboard failed\n";
        return text(StatusCode::INTERNAL_SERVER_ERROR, words);
    };
    let mut response = doors::json(StatusCode::OK, body);
    doors::put_field(&mut response, header::CACHE_CONTROL, "no-store");
    response
}

/// Returns the state of this second, which the first viewer of the second makes.
fn last_state(shared: &ServiceContext) -> Bytes {
    let second = shared.now().as_nanos() / 1_000_000_000;
    let mut last = shared.streams.last.lock();
    match &*last {
        Some((made, body)) if *made == second => body.clone(),
        _ => {
            let body = Bytes::from(state::state(shared).to_string());
            *last = Some((second, body.clone()));
            body
        }
    }
}

/// `GET /v1/history?limit=NAME`: the minutes of a day, the newest last.
pub(super) fn day(shared: &ServiceContext, query: &str) -> CallResult {
    let policy = shared.keeper.policy();
    let rule = Query::read(query, &["limit"])?.rule(&policy)?;
    let recent = shared.observers.history.recent(rule.limit.id);
    let minutes = recent.map(|recent| recent.minutes);
    Ok(reply(
        &json!({ "limit": &*rule.limit.name, "minutes": minutes }),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_runs_no_script_of_others_and_writes_no_markup() {
        let page = PAGE.response();
        let policy = page.headers()["content-security-policy"].to_str().unwrap();
        assert!(!policy.contains("unsafe") && policy.contains("default-src 'none'"));
        let script = SCRIPT.text;
        for word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "eval("] {
            assert!(!script.contains(word), "{word}");
        }
        let html = PAGE.text;
        assert!(!html.contains("style=") && !html.contains("//"));
    }
}
