//! HTTP URL: the address of a receiver of messages.

use crate::config::diagnostic::Findings;
use crate::config::document::read::At;

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
    let refuse = |out: &mut Findings<'_>, label: &str, help: &str| {
        let message = format!("this is not the URL of {}", field.what);
        out.error(field.code, text.at.clone(), message, label)
            .help(help);
        None
    };
    let rest = text.value.strip_prefix("https://");
    let Some(rest) = rest.or_else(|| text.value.strip_prefix("http://")) else {
        return refuse(out, "expected https:// or http://", field.example);
    };
    if text.value.len() > MAX_URL_BYTES {
        let label = format!("longer than {MAX_URL_BYTES} bytes");
        return refuse(out, &label, field.example);
    }
    if !rest.bytes().all(|byte| byte.is_ascii_graphic()) {
        let help = "percent-encode other characters";
        return refuse(out, "expected ASCII without spaces", help);
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if authority.contains('@') {
        return refuse(out, "the URL holds a login", field.login);
    }
    if path.contains('#') {
        let help = "leave out `#` and what follows";
        return refuse(out, "a fragment is not sent", help);
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ => (authority, "443"),
    };
    if host.is_empty() || !matches!(port.parse::<u16>(), Ok(1..)) {
        let label = "expected a host, and a port from 1 to 65535 if there is one";
        return refuse(out, label, field.example);
    }
    Some(text.value.to_owned())
}
