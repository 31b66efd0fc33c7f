//! Signals: the levels that other programs set for elastic limits.

use bytes::Bytes;
use ratekeeper_core::Nanos;
use ratekeeper_policy::{LOAD, upstream_signal};
use serde::Deserialize;
use serde_json::json;

use super::reply;
use crate::context::ServiceContext;
use crate::doors::CallResult;
use crate::doors::problem::{NO_SUCH_SIGNAL, Problem, WRONG_VALUE, near_spelling, shown};
use crate::doors::request::read;

/// Maximum time that a level lasts: an hour, in milliseconds.
const MAX_MILLIS: u64 = 3_600_000;
/// Maximum level: as much as 32 bits of parts per million hold.
const MAX_VALUE: f64 = 4_000.0;

/// A level that is set.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Level {
    /// The level, as a share: 0.7 is 70 %.
    value: f64,
    expires_in_ms: u64,
}

/// `PUT /v1/signals/NAME`
pub(super) fn set(shared: &ServiceContext, name: &str, body: &Bytes) -> CallResult {
    let level: Level = read(body)?;
    if name == LOAD {
        let detail =
            format!("`{LOAD}` is the load of this machine, which the service reads itself");
        return Err(Problem::new(WRONG_VALUE, detail));
    }
    if upstream_signal(name).is_some() {
        let detail = format!("`{}` is measured by the proxy listener", shown(name));
        return Err(Problem::new(WRONG_VALUE, detail));
    }
    if !(0.0..=MAX_VALUE).contains(&level.value) {
        let detail = format!(
            "`value` is {}, and must be from 0 to {MAX_VALUE}",
            level.value
        );
        return Err(Problem::new(WRONG_VALUE, detail));
    }
    if !(1_000..=MAX_MILLIS).contains(&level.expires_in_ms) {
        let millis = level.expires_in_ms;
        let detail = format!("`expires_in_ms` is {millis}, and must be from 1000 to {MAX_MILLIS}");
        return Err(Problem::new(WRONG_VALUE, detail));
    }
    // Up, so that no level is taken for a lower one.
    let ppm = (level.value * 1_000_000.0).ceil();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the bounds are checked above"
    )]
    let ppm = ppm as u32;
    let lasts = Nanos::from_millis(level.expires_in_ms);
    if !shared.keeper.set_signal(name, ppm, lasts) {
        let policy = shared.keeper.policy();
        let near = near_spelling(name, policy.signals().map(|signal| signal.name()));
        let detail = format!(
            "no limit of the policy names the signal `{}`{near}",
            shown(name)
        );
        return Err(Problem::new(NO_SUCH_SIGNAL, detail));
    }
    Ok(reply(&json!({
        "done": "signal",
        "signal": name,
        "value": level.value,
        "expires_in_ms": level.expires_in_ms,
    })))
}
