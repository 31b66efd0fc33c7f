//! Gateway: reads the listener that forwards requests.

use std::ops::{Range, RangeInclusive};

use ratekeeper_core::Nanos;
use toml::de::DeTable;

use super::codes;
use super::diagnostic::{Findings, shown};
use super::fields::MAX_UPSTREAMS;
use super::read::{self, At};
use super::settings::{door, wait};
use crate::{ProxySettings, upstream_address};

/// `connect_timeout`
const CONNECTS: RangeInclusive<Nanos> = Nanos::from_millis(10)..=Nanos::from_secs(60);
/// `response_timeout`, `body_timeout`
const RESPONSES: RangeInclusive<Nanos> = Nanos::from_millis(100)..=Nanos::from_secs(3_600);
/// `upgrade_timeout`
const UPGRADES: RangeInclusive<Nanos> = Nanos::SECOND..=Nanos::from_secs(86_400);

/// Reads `[listen.proxy]`, if it is written and right.
pub(super) fn proxy(listen: &DeTable<'_>, out: &mut Findings<'_>) -> Option<ProxySettings> {
    let table = read::table(listen, "proxy")?.value;
    let address = door(table, "address", 8080, out);
    let [connect, response, body, upgrade] = [
        ("connect_timeout", CONNECTS),
        ("response_timeout", RESPONSES),
        ("body_timeout", RESPONSES),
        ("upgrade_timeout", UPGRADES),
    ]
    .map(|(name, range)| wait(table, name, range, out));
    let cors = table.get("cors").map(read::texts).unwrap_or_default();
    let cors = cors.iter().filter_map(|text| origin(text, out)).collect();
    let upstream = read::texts_up_to(MAX_UPSTREAMS, table.get("upstream")?);
    let read = upstream.iter().map(|text| address_of(text, out));
    let upstream: Vec<Option<String>> = read.collect();
    let upstream: Option<Vec<String>> = upstream.into_iter().collect();
    Some(ProxySettings {
        address,
        upstream: upstream.filter(|upstream| !upstream.is_empty())?,
        cors,
        connect_timeout: connect,
        response_timeout: response,
        body_timeout: body,
        upgrade_timeout: upgrade,
    })
}

fn address_of(text: &At<&str>, out: &mut Findings<'_>) -> Option<String> {
    let refuse = |error: crate::ValueError| {
        let at: Range<usize> = text.at.clone();
        out.error(
            codes::GATEWAY,
            at,
            error.reason,
            "expected http://HOST:PORT",
        )
        .help(error.help);
    };
    upstream_address(text.value).map_err(refuse).ok()
}

/// Reads an origin of web pages: a scheme, a host, and a port if it is not the usual one.
fn origin(text: &At<&str>, out: &mut Findings<'_>) -> Option<String> {
    let rest = ["https://", "http://"]
        .iter()
        .find_map(|scheme| text.value.strip_prefix(scheme));
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-.:[]".contains(&byte);
    if rest.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(plain)) {
        return Some(text.value.to_ascii_lowercase());
    }
    let message = format!("\"{}\" is not the origin of web pages", shown(text.value));
    let help = match text.value {
        "*" => "list the origins: a browser sends no login to a service that allows all of them",
        _ => "write scheme and host alone, as in cors = [\"https://app.example.com\"]",
    };
    let label = "expected http://HOST or https://HOST, without a path";
    out.error(codes::GATEWAY, text.at.clone(), message, label)
        .help(help);
    None
}
