//! Alerts: the active ones.

use http::Response;
use serde_json::{Value, json};

use super::reply;
use crate::context::ServiceContext;
use crate::observe::alerts::AlertNotice;
use crate::observe::alerts::message::described;
use crate::serve::listener::Reply;

/// Maximum number of alerts listed.
const MAX_LISTED: usize = 1_000;

/// `GET /v1/alerts`: the active alerts of this process, the oldest first, with their keys.
pub(super) fn alerts(shared: &ServiceContext) -> Response<Reply> {
    let active = shared.observers.alerts.active();
    let about = |notice: &AlertNotice| described(notice, shared.unix_millis(notice.since));
    let listed: Vec<Value> = active.iter().take(MAX_LISTED).map(about).collect();
    let more = active.len() - listed.len();
    reply(&json!({ "alerts": listed, "more": more }))
}
