//! Telemetry: reads where metrics, events and alerts go beside the admin listener and the log.
//!
//! ```text
//!   [otlp]     endpoint = "http://127.0.0.1:4318"    headers = { authorization = "env:.." }
//!   [alerts]   webhook = { url = "https://..", secret = "env:..", ca = "ca.pem" }
//!              reveal_keys = true
//! ```

use ratekeeper_core::Nanos;

use crate::config::document::scalar::secret;
use crate::config::{Table, Text, codes, error, first_reason, header_name, refuse, shown};
use crate::{AlertSettings, OtlpSettings, Secret, WebhookSettings};

/// Maximum length of a URL.
const MAX_URL_BYTES: usize = 2_048;

/// The field that holds a URL.
#[derive(Clone, Copy, Debug)]
struct UrlField {
    /// Code of its errors.
    code: &'static str,
    /// `this is not the URL of ..`
    what: &'static str,
    /// What to write.
    example: &'static str,
    /// What to write in place of a login.
    login: &'static str,
}

/// Default `interval` of `[otlp]`.
const OTLP_INTERVAL: Nanos = Nanos::from_secs(15);
/// Fields that the exporter sets itself.
const OWN_FIELDS: [&str; 6] = [
    "host",
    "connection",
    "content-type",
    "content-encoding",
    "content-length",
    "transfer-encoding",
];
const WEBHOOK: UrlField = UrlField {
    code: codes::ALERTS,
    what: "a webhook",
    example: "write for example url = \"https://hooks.example.com/ratekeeper\"",
    login: "leave the login out: the receiver checks the signature of each message",
};
const ENDPOINT: UrlField = UrlField {
    code: codes::TELEMETRY,
    what: "a receiver of OTLP",
    example: "write for example endpoint = \"http://127.0.0.1:4318\"",
    login: "write headers = { authorization = \"env:OTLP_AUTHORIZATION\" }",
};

/// Reads `[otlp]`.
pub(super) fn otlp(root: Table<'_>) -> Option<OtlpSettings> {
    let table = root.table("otlp")?;
    let endpoint = table.text("endpoint").and_then(|text| endpoint(&text));
    let ca = table.text("ca");
    if let (Some(url), Some(ca)) = (&endpoint, &ca)
        && url.starts_with("http:")
    {
        let message = "`ca` has no effect on an endpoint without TLS";
        let label = "the endpoint begins with http://";
        error(codes::TELEMETRY, ca.at, message, label)
            .help("write endpoint = \"https://..\", or leave `ca` out");
    }
    let headers = headers(table);
    let (metrics, events) = (table.flag("metrics"), table.flag("events"));
    if (metrics, events) == (Some(false), Some(false)) {
        let message = "[otlp] sends nothing";
        let label = "`metrics` and `events` are false";
        error(codes::TELEMETRY, table.at(), message, label)
            .help("leave one of them out, or leave out [otlp]");
    }
    Some(OtlpSettings {
        endpoint: endpoint?,
        headers,
        ca: table.owned("ca"),
        interval: table.span("interval").unwrap_or(OTLP_INTERVAL),
        service_name: table.owned("service_name").unwrap_or("ratekeeper").into(),
        metrics: metrics != Some(false),
        events: events != Some(false),
    })
}

/// Reads the URL that paths of signals are appended to.
fn endpoint(text: &Text<'_>) -> Option<String> {
    let url = http_url(text, ENDPOINT)?;
    let url = url.trim_end_matches('/');
    let signal = ["/v1/metrics", "/v1/logs"]
        .into_iter()
        .find_map(|path| url.strip_suffix(path));
    if signal.is_some() || url.contains('?') {
        let message = "the endpoint holds the path of a signal, or a query";
        let label = "`/v1/metrics` and `/v1/logs` are appended to it";
        let base = signal.unwrap_or("http://127.0.0.1:4318");
        error(codes::TELEMETRY, text.at, message, label)
            .help(format!("write endpoint = \"{}\"", shown(base)));
        return None;
    }
    Some(url.to_owned())
}

fn headers(table: Table<'_>) -> Vec<(String, Secret)> {
    let mut read = Vec::new();
    for (name, value) in table.names("headers").into_iter().flatten() {
        let Some(lower) = header_name(&name) else {
            continue;
        };
        if OWN_FIELDS.contains(&&*lower) {
            let message = format!("`{lower}` cannot be a header of [otlp]");
            let label = "the exporter sets it";
            error(codes::TELEMETRY, value.at, message, label).help("leave it out");
            continue;
        }
        let Some(text) = value.value.as_str() else {
            continue; // reported: not a string
        };
        read.extend(secret(text).map(|place| (lower, place)));
    }
    read
}

/// Reads `[alerts]`.
pub(super) fn alerts(root: Table<'_>) -> AlertSettings {
    let Some(table) = root.table("alerts") else {
        return AlertSettings::default();
    };
    AlertSettings {
        webhook: table.table("webhook").and_then(webhook),
        reveal_keys: table.flag("reveal_keys") == Some(true),
    }
}

fn webhook(table: Table<'_>) -> Option<WebhookSettings> {
    let url = table.text("url").and_then(|text| http_url(&text, WEBHOOK));
    if let (Some(url), Some(ca)) = (&url, table.text("ca"))
        && url.starts_with("http:")
    {
        let message = "`ca` has no effect on a webhook without TLS";
        let label = "the URL begins with http://";
        error(codes::ALERTS, ca.at, message, label)
            .help("write url = \"https://..\", or leave `ca` out");
        return None;
    }
    Some(WebhookSettings {
        url: url?,
        secret: table.secret("secret")?,
        ca: table.owned("ca"),
    })
}

/// Reads `http://HOST[:PORT][/PATH][?QUERY]`, or the same with `https`.
fn http_url(text: &Text<'_>, field: UrlField) -> Option<String> {
    let rest = text.value.strip_prefix("https://");
    let rest = rest.or_else(|| text.value.strip_prefix("http://"));
    let after = rest.unwrap_or_default();
    let end = after.find(['/', '?', '#']).unwrap_or(after.len());
    let (authority, path) = after.split_at(end);
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ => (authority, "443"),
    };
    let reason = first_reason! {
        rest.is_none() => "expected https:// or http://", field.example;
        text.value.len() > MAX_URL_BYTES => format!("longer than {MAX_URL_BYTES} bytes"),
            field.example;
        !after.bytes().all(|byte| byte.is_ascii_graphic()) => "expected ASCII without spaces",
            "percent-encode other characters";
        authority.contains('@') => "the URL holds a login", field.login;
        path.contains('#') => "a fragment is not sent", "leave out `#` and what follows";
        host.is_empty() || !matches!(port.parse::<u16>(), Ok(1..)) =>
            "expected a host, and a port from 1 to 65535 if there is one", field.example;
    };
    let Some(reason) = reason else {
        return Some(text.value.to_owned());
    };
    let message = format!("this is not the URL of {}", field.what);
    refuse(field.code, text.at, message, reason);
    None
}
