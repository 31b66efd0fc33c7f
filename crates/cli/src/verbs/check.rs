//! `check` and `peek`: one decision of a running service, charged or not.

use clap::Args;
use ratekeeper_core::Nanos;
use serde_json::Value;

use crate::client::{Client, ServerArgs};
use crate::output::{BAD, GOOD, NAME, WARN, paint};
use crate::request::{CliRequest, DescriptorArgs};
use crate::{Exit, Failure, Output, Result, words};

/// A question to a running service.
#[derive(Args)]
pub(crate) struct CheckQuestion {
    /// Name of the limit in the policy
    limit: String,
    /// Parts of the request: ip, method, path, host, query, header:X, query:X, cookie:X,
    /// attr:X, form:X, `json:/X`, `bearer`, `api_key`
    #[arg(value_name = "PART=VALUE", conflicts_with = "descriptor")]
    parts: Vec<String>,
    #[command(flatten)]
    descriptor: DescriptorArgs,
    /// Cost of the request [default: 1]
    #[arg(long, value_name = "PERMITS")]
    cost: Option<u64>,
    #[command(flatten)]
    server: ServerArgs,
    /// Print the service's JSON answer unchanged
    #[arg(long)]
    json: bool,
}

pub(crate) const CHECK_HELP: &str = "\
Examples:
  ratekeeper check per-ip ip=192.0.2.1
  ratekeeper check login method=POST path=/login attr:user_id=u1 --cost 3
  ratekeeper check per-user --descriptor user=ada --domain edge
  ratekeeper check per-ip ip=192.0.2.1 && curl http://127.0.0.1:3000/

Exit codes: 0 allowed; 1 denied; 2 usage, or no service.";

pub(crate) const PEEK_HELP: &str = "\
Examples:
  ratekeeper peek per-ip ip=192.0.2.1
  ratekeeper peek per-ip ip=192.0.2.1 --json

Exit codes: 0 it would be allowed; 1 it would be denied; 2 usage, or no service.";

impl CheckQuestion {
    /// Asks `verb`: `check` charges the request, `peek` does not.
    pub(crate) fn ask(self, verb: &str, output: &mut Output) -> Result<Exit> {
        let mut request = CliRequest::from_parts(&self.parts)?;
        request.cost = self.cost;
        request.descriptor = self.descriptor.read()?;
        let client = Client::new(&self.server.server)?;
        let path = format!("/v1/{verb}?status=200");
        let answer = client.post(&path, &request.body(&self.limit))?;
        let allowed = answer["allowed"].as_bool().ok_or_else(|| {
            Failure::new("the answer has no boolean field `allowed`")
                .hint("check that ratekeeper listens there, or name another with --server")
        })?;
        if self.json {
            output.json(&answer)?;
        } else {
            self.write_text(allowed, &answer, output)?;
        }
        Ok(Exit::done_if(allowed))
    }

    fn write_text(&self, allowed: bool, answer: &Value, output: &mut Output) -> Result<()> {
        let limits = answer["limits"].as_array().map_or(&[][..], Vec::as_slice);
        if limits.is_empty() {
            let name = paint(NAME, &self.limit);
            output.line(format!(
                "{}: {name} does not apply to this request",
                paint(GOOD, "allowed")
            ))?;
            output.talk(
                "  hint: run `ratekeeper explain POLICY --request ..` for the reason; use \
                 --descriptor KEY=VALUE for a limit on descriptors",
            );
            return Ok(());
        }
        output.line(if allowed {
            paint(GOOD, "allowed")
        } else {
            paint(BAD, "denied")
        })?;
        limits.iter().try_for_each(|limit| output.line(line(limit)))
    }
}

/// `  per-ip  0 of 20 left, try again in 50 ms  (ip=192.0.2.1)`
fn line(limit: &Value) -> String {
    let text = |field: &str| limit[field].as_str().unwrap_or("?").to_owned();
    let number = |field: &str| limit[field].as_u64().unwrap_or(0);
    let span = |field: &str| words::span(Nanos::from_millis(number(field)));
    let left = match limit["banned"].as_bool() {
        Some(true) => paint(BAD, "banned"),
        _ => format!(
            "{} of {} left",
            words::count(number("remaining")),
            words::count(number("quota"))
        ),
    };
    let is_balance = limit["reset_after_ms"].is_null();
    let then = match text("verdict").as_str() {
        "deny" => format!("try again in {}", span("retry_after_ms")),
        "deny_forever" if limit["key_missing"] == true => {
            "never: the request has no value for a part of its key, or several".into()
        }
        "deny_forever" if is_balance => "never by waiting: the rest is granted".into(),
        "deny_forever" => "never: the cost is above the capacity of the limit".into(),
        "allow_after" if text("mode") == "shadow" => {
            format!("would be delayed by {}", span("delay_ms"))
        }
        "allow_after" => format!("delay it by {}", span("delay_ms")),
        _ if is_balance => "does not refill".into(),
        _ => format!("full again in {}", span("reset_after_ms")),
    };
    let mode = match text("mode").as_str() {
        "shadow" => paint(WARN, "  (shadow: refuses no request)"),
        _ => String::new(),
    };
    let key = limit["key"].as_array().into_iter().flatten();
    let key: Vec<&str> = key.filter_map(Value::as_str).collect();
    let key = match key.as_slice() {
        [] => String::new(),
        parts => format!("  [{}]", parts.join(", ")),
    };
    format!(
        "  {}  {left}, {then}{mode}{key}",
        paint(NAME, &text("name"))
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_refusal_names_its_cause() {
        for (missing, resets, expected) in [
            (true, json!(0), "no value for a part of its key"),
            (false, json!(0), "the cost is above the capacity"),
            (false, json!(null), "the rest is granted"),
        ] {
            let limit = json!({"name": "api", "mode": "enforce", "verdict": "deny_forever",
                "quota": 2, "remaining": 2, "key_missing": missing, "reset_after_ms": resets});
            let line = line(&limit);
            assert!(line.contains(expected), "{line}");
        }
    }

    #[test]
    fn a_banned_key_is_named_so() {
        let limit = json!({"name": "api", "mode": "enforce", "verdict": "deny", "banned": true,
            "quota": 2, "remaining": 0, "retry_after_ms": 3_600_000, "reset_after_ms": 3_600_000});
        let line = line(&limit);
        let named = paint(BAD, "banned") + ", try again in 1 h";
        assert!(line.ends_with(&named), "{line}");
    }

    #[test]
    fn a_limit_in_shadow_mode_delays_no_request() {
        for (mode, expected) in [
            ("enforce", "delay it by 1 s"),
            ("shadow", "would be delayed by 1 s"),
        ] {
            let limit = json!({"name": "paced", "mode": mode, "verdict": "allow_after",
                "quota": 1, "remaining": 0, "delay_ms": 1_000});
            let line = line(&limit);
            assert!(line.contains(expected), "{line}");
        }
    }
}
