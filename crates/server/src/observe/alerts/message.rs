//! Message: the body of a message to a webhook, and its signature.
//!
//! ```text
//!   webhook-id: alert_6f1c..._started          the same at each attempt
//!   webhook-timestamp: 1767225600              of the attempt
//!   webhook-signature: v1,base64(HMAC-SHA256(secret, "ID.TIMESTAMP.BODY"))
//!
//!   {"type":"alert.started","timestamp":"2026-01-01T00:00:00Z","version":1,"data":{..}}
//! ```

use aws_lc_rs::hmac::{Context, HMAC_SHA256, Key};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use jiff::Timestamp;
use ratekeeper_core::Time;
use serde_json::{Value, json};

use super::{AlertChange, AlertNotice};

/// Version of the body: fields are added under the same version, and change under another.
const VERSION: u32 = 1;
/// Lengths of secrets by the Standard Webhooks specification, in bytes.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// One message; the same bytes at each attempt.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) id: String,
    pub(super) body: Bytes,
}

impl Message {
    /// Creates the message of a notice; `unix_millis` converts the times of the service.
    pub(super) fn new(notice: &AlertNotice, unix_millis: &dyn Fn(Time) -> u64, now: Time) -> Self {
        let at = |time| rfc3339(unix_millis(time));
        let mut data = described(notice, unix_millis(notice.since));
        if let AlertChange::Ended(why) = notice.change {
            data["reason"] = json!(why.to_string());
        }
        let change: &str = notice.change.into();
        let body = json!({
            "type": format!("alert.{change}"),
            "timestamp": at(now),
            "version": VERSION,
            "data": data,
        });
        Self {
            id: format!("alert_{}_{change}", notice.id),
            body: body.to_string().into(),
        }
    }
}

/// Returns what messages and the list of active alerts say of an alert, with its key if it is
/// known.
pub(crate) fn described(notice: &AlertNotice, since_unix_millis: u64) -> Value {
    let mut described = json!({
        "id": &*notice.id,
        "limit": &*notice.limit,
        "mode": notice.mode.as_ref(),
        "above_percent": notice.alert.above_percent,
        "for_ms": notice.alert.hold.as_millis_ceil(),
        "usage_percent": notice.usage_percent,
        "since": rfc3339(since_unix_millis),
    });
    if let Some(key) = &notice.key {
        described["key"] = json!(key);
    }
    described
}

/// Returns a time as text, in UTC.
pub(crate) fn rfc3339(unix_millis: u64) -> String {
    let millis = i64::try_from(unix_millis).unwrap_or(i64::MAX);
    let time = Timestamp::from_millisecond(millis).unwrap_or(Timestamp::MAX);
    time.to_string()
}

/// Returns the key of a secret in base64, after `whsec_` or alone; `None` for another form or length.
pub(super) fn signing_key(secret: &str) -> Option<Key> {
    let secret = secret.strip_prefix("whsec_").unwrap_or(secret);
    let bytes = STANDARD.decode(secret).ok()?;
    let is_sized = SECRET_BYTES.contains(&bytes.len());
    is_sized.then(|| Key::new(HMAC_SHA256, &bytes))
}

/// Returns the value of `webhook-signature`.
pub(super) fn signature(key: &Key, message: &Message, seconds: u64) -> String {
    let mut context = Context::with_key(key);
    context.update(format!("{}.{seconds}.", message.id).as_bytes());
    context.update(&message.body);
    format!("v1,{}", STANDARD.encode(context.sign()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed with the `hmac` module of Python from the same secret, id, time and body.
    #[test]
    fn the_signature_is_that_of_standard_webhooks() {
        let key = signing_key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let message = Message {
            id: "msg_p5jXN8AQM9LWM0D4loKWxJek".into(),
            body: Bytes::from_static(br#"{"test": 2432232314}"#),
        };
        let signed = signature(&key, &message, 1_614_265_330);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn secrets_have_24_to_64_bytes() {
        let of = |bytes: usize| STANDARD.encode(vec![7; bytes]);
        for (text, is_right) in [
            (of(24), true),
            (of(64), true),
            (format!("whsec_{}", of(32)), true),
            (of(23), false),
            (of(65), false),
            (String::new(), false),
            ("whsec_".into(), false),
            ("not base64 at all, but long enough".into(), false),
        ] {
            assert_eq!(signing_key(&text).is_some(), is_right, "{text}");
        }
    }

    #[test]
    fn times_are_in_utc() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(1_767_225_600_250), "2026-01-01T00:00:00.25Z");
        assert_eq!(rfc3339(u64::MAX), Timestamp::MAX.to_string());
    }
}
