//! HTTP URL: the address of a receiver of messages.

use crate::config::diagnostic::Findings;
use crate::config::document::read::At;
use crate::config::reason::first_reason;

/// Maximum length of a URL.
const MAX_URL_BYTES: usize = 2_048;

/// The field that holds a URL.
#[derive(Clone, Copy, Debug)]
pub(in crate::config) struct UrlField {
    /// Code of its errors.
    pub(in crate::config) code: &'static str,
    /// `this is not the URL of ..`
    pub(in crate::config) what: &'static str,
    /// What to write.
    pub(in crate::config) example: &'static str,
    /// What to write in place of a login.
    pub(in crate::config) login: &'static str,
}

/// Reads `http://HOST[:PORT][/PATH][?QUERY]`, or the same with `https`.
pub(in crate::config) fn http_url(
    text: &At<&str>,
    field: UrlField,
    out: &mut Findings<'_>,
) -> Option<String> {
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
    out.refuse(field.code, text.at.clone(), message, reason);
    None
}
