//! Gateway: reads the listener that forwards requests.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use ratekeeper_core::Gcra;

use super::routes::{adaptive_concurrency, routes, upstream};
use super::tls;
use crate::config::fields::ERRORS;
use crate::config::{
    PolicyFiles, Table, Text, codes, error, first_reason, rate, refuse, shown, warning,
};
use crate::model::settings::upstream_url::is_server_name;
use crate::{
    AccessLogSettings, HealthCheck, ProxySettings, Route, UpstreamScheme, UpstreamTls, UpstreamUrl,
    is_token,
};

/// Address of the listener if it has none.
const DEFAULT_ADDRESS: &str = "127.0.0.1:8080";
/// Maximum length of `path` of `health`, in bytes.
const MAX_CHECK_PATH: usize = 1_000;
/// Reads `[listen.proxy]`, if it is written and right.
pub(super) fn proxy(listen: Table<'_>, files: &PolicyFiles) -> Option<ProxySettings> {
    let table = listen.table("proxy")?;
    let address: Option<String> = table.owned("address");
    let cors = table.texts("cors");
    let cors = cors.iter().filter_map(origin).collect();
    let preflights = preflight_limit(table);
    let usual = Route {
        max_body: table.size("max_body"),
        adaptive_concurrency: adaptive_concurrency(table, files),
        ..Route::default()
    };
    let routes = routes(table, &usual, files);
    let error_pages = error_pages(table, files);
    let upstream = upstream(table)?;
    let own = address.as_deref().unwrap_or(DEFAULT_ADDRESS);
    if upstream.iter().any(|url| is_at(url, own)) {
        let message = "[listen.proxy] forwards requests to itself";
        let label = format!("the listener has the address {own}");
        error(codes::GATEWAY, table.place("upstream"), message, label).help(
            "write the address of your application, as in upstream = \"http://127.0.0.1:3000\"",
        );
    }
    let others = routes.iter().flat_map(|route| &route.upstream);
    let upstream_tls = upstream_tls(table, upstream.iter().chain(others), files);
    Some(ProxySettings {
        address,
        tls: table.tables("tls").filter_map(tls).collect(),
        upstream,
        upstream_tls,
        routes,
        cors,
        preflight_limit: preflights,
        error_pages,
        connect_timeout: table.span("connect_timeout"),
        response_timeout: table.span("response_timeout"),
        body_timeout: table.span("body_timeout"),
        upgrades: upgrades(table),
        upgrade_timeout: table.span("upgrade_timeout"),
        proxy_protocol: table.flag("proxy_protocol").unwrap_or(false),
        max_head: table.size("max_head"),
        max_head_fields: table.number("max_head_fields"),
        max_body: usual.max_body,
        max_inspected_body: table.size("max_inspected_body"),
        adaptive_concurrency: usual.adaptive_concurrency,
        health: health(table),
        access_log: access_log(table),
    })
}

/// Refuses `proxy_protocol` without a peer that may send it.
pub(super) fn announced(root: Table<'_>) {
    let listen = root.table("listen");
    let proxy = listen.and_then(|listen| listen.table("proxy"));
    let announced = proxy.filter(|proxy| proxy.flag("proxy_protocol") == Some(true));
    let trusts = |client: Table<'_>| client.has("trusted_proxies");
    if let Some(proxy) = announced.filter(|_| !root.table("client_ip").is_some_and(trusts)) {
        let message = "`proxy_protocol` without `trusted_proxies` closes every connection";
        let label = "no peer may state the address of a client";
        let at = proxy.place("proxy_protocol");
        error(codes::GATEWAY, at, message, label).help(
            "add [client_ip] with the addresses of the balancer: trusted_proxies = [\"10.0.0.7\"]",
        );
    }
}

/// Reads `access_log`.
fn access_log(table: Table<'_>) -> Option<AccessLogSettings> {
    let table = table.table("access_log")?;
    let to = table.text("to")?.value;
    let mut fields = Vec::new(); // each once, because a line is an object of JSON
    for field in table.texts("fields") {
        let field = field.value.to_owned();
        if !fields.contains(&field) {
            fields.push(field);
        }
    }
    Some(AccessLogSettings {
        file: (to != "stdout").then(|| to.into()),
        only: table.word("only").unwrap_or_default(),
        sample_percent: table.percent("sample").unwrap_or(100),
        fields,
    })
}

/// Reads `error_pages`.
fn error_pages(table: Table<'_>, files: &PolicyFiles) -> BTreeMap<u16, Arc<str>> {
    let mut pages = BTreeMap::new();
    for (status, page) in table.names("error_pages").into_iter().flatten() {
        let (name, at) = (page.value.as_str().unwrap_or_default(), page.at);
        let number = status.value.parse().ok();
        let Some(number) = number.filter(|number| ERRORS.contains(number)) else {
            let message = format!("the gateway reports no error {status}");
            let label = format!("expected one of {ERRORS:?}");
            error(codes::GATEWAY, status.at, message, label)
                .help("refusals by a limit have the `response` of the limit");
            continue;
        };
        match files.text(name) {
            Ok(text) => drop(pages.insert(number, text.into())),
            Err(reason) => {
                let message = format!("cannot read the error page `{}`: {reason}", shown(name));
                let label = "a path relative to the policy file";
                error(codes::GATEWAY, at, message, label)
                    .help("write for example error_pages = { 502 = \"502.html\" }");
            }
        }
    }
    pages
}

/// Reads `preflight_limit`, which only counts preflights of the origins in `cors`.
fn preflight_limit(table: Table<'_>) -> Option<Gcra> {
    let text = table.text("preflight_limit")?;
    if !table.has("cors") {
        let message = "`preflight_limit` has no effect without `cors`";
        let label = "the limits count preflights like any request";
        error(codes::GATEWAY, text.at, message, label)
            .help("remove it, or list the origins of your web pages in `cors`");
        return None;
    }
    let limit = rate(text.value).and_then(Gcra::token_bucket);
    if limit.is_err() {
        let message = format!("\"{text}\" is not a valid `preflight_limit`");
        error(codes::QUOTA, text.at, message, "expected NUMBER/DURATION")
            .help("write preflight_limit = \"600/1m\"");
    }
    limit.ok()
}

/// Returns true if a URL leads to a listener of this machine.
fn is_at(url: &UpstreamUrl, listener: &str) -> bool {
    let Ok(listener) = listener.parse::<SocketAddr>() else {
        return url.address() == listener;
    };
    let host = url.host.trim_matches(['[', ']']);
    let ip = match host {
        "localhost" => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        _ => host.parse::<IpAddr>().ok(),
    };
    let same =
        |ip: IpAddr| ip == listener.ip() || ip.is_loopback() && listener.ip().is_unspecified();
    url.port == listener.port() && ip.is_some_and(same)
}

/// Reads `upgrades`.
fn upgrades(table: Table<'_>) -> Option<Vec<String>> {
    let written = table.texts("upgrades");
    let protocols = written.iter().filter_map(protocol);
    let protocols = protocols.collect();
    table.has("upgrades").then_some(protocols)
}

/// Reads a protocol: a name, and a version after a `/` (RFC 9110, section 7.8).
fn protocol(text: &Text<'_>) -> Option<String> {
    const LONGEST: usize = 40;
    let is_word = |word: &str| !word.is_empty() && word.bytes().all(is_token);
    let name = text.value.split('/').next().unwrap_or_default();
    let is_short = text.value.len() <= LONGEST && text.value.matches('/').count() <= 1;
    let reason = first_reason! {
        ["h2c", "http", "tls"].iter().any(|it| name.eq_ignore_ascii_case(it)) =>
            "requests inside it would pass without being limited",
            "leave it out: clients may speak HTTP/2 and TLS to the listener itself";
        !is_short || !text.value.split('/').all(is_word) =>
            "expected NAME or NAME/VERSION, up to 40 characters",
            "write for example \"websocket\"";
    };
    let Some(reason) = reason else {
        return Some(text.value.to_owned());
    };
    let message = format!("\"{text}\" is not a protocol to switch to");
    refuse(codes::GATEWAY, text.at, message, reason);
    None
}

/// Reads `health`.
fn health(table: Table<'_>) -> Option<HealthCheck> {
    let table = table.table("health")?;
    let path = table.text("path")?;
    // The characters of RFC 3986, sections 3.3 and 3.4.
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/?%-._~!$&'()*+,;=:@".contains(&byte);
    let is_short = path.value.len() <= MAX_CHECK_PATH;
    if !path.value.starts_with('/') || !path.value.bytes().all(plain) || !is_short {
        let message = format!("`{path}` is not the path of a request");
        let label = "expected up to 1,000 characters of a URL, of which the first is `/`";
        error(codes::GATEWAY, path.at, message, label)
            .help("write for example health = { path = \"/healthz\" }");
        return None;
    }
    Some(HealthCheck {
        path: path.value.into(),
        interval: table.span("interval"),
    })
}

/// Reads `upstream_tls`, and warns if no connection uses it.
fn upstream_tls<'a>(
    table: Table<'_>,
    mut upstream: impl Iterator<Item = &'a UpstreamUrl>,
    files: &PolicyFiles,
) -> UpstreamTls {
    let Some(tls) = table.table("upstream_tls") else {
        return UpstreamTls::default();
    };
    let ca = tls.text("ca").map(|ca| ca.value);
    let read = UpstreamTls {
        ca: ca.map(Into::into),
        authorities: ca.and_then(|ca| files.text(ca).ok()).map(Into::into),
        server_name: tls.text("server_name").and_then(|name| server_name(&name)),
    };
    let uses = |url: &UpstreamUrl| url.scheme == UpstreamScheme::Https;
    if read != UpstreamTls::default() && !upstream.any(uses) {
        let message = "no connection uses `upstream_tls`";
        let label = "no upstream begins with https";
        warning(codes::GATEWAY, tls.at(), message, label)
            .help("write for example upstream = \"https://app.internal\"");
    }
    read
}

fn server_name(text: &Text<'_>) -> Option<String> {
    if is_server_name(text.value) {
        return Some(text.value.into());
    }
    let message = format!("`{text}` is not the name of a server");
    let label = "expected a name or an address, as in the certificate";
    error(codes::GATEWAY, text.at, message, label)
        .help("write for example server_name = \"app.internal\"");
    None
}

/// Reads an origin of web pages: a scheme, a host, and a port. The usual port is left out, as
/// browsers do.
fn origin(text: &Text<'_>) -> Option<String> {
    let origin = text.value.to_ascii_lowercase();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-.:[]".contains(&byte);
    let usual = [("https://", ":443"), ("http://", ":80")];
    let read = usual.iter().find_map(|(scheme, port)| {
        let rest = origin.strip_prefix(scheme)?;
        let host = rest.strip_suffix(port).unwrap_or(rest);
        (!host.is_empty() && host.bytes().all(plain)).then(|| format!("{scheme}{host}"))
    });
    if read.is_some() {
        return read;
    }
    let message = format!("\"{text}\" is not the origin of web pages");
    let help = match text.value {
        "*" => "list the origins: a browser sends no login to a service that allows all of them",
        _ => "write scheme and host alone, as in cors = [\"https://app.example.com\"]",
    };
    let label = "expected http://HOST or https://HOST, without a path";
    error(codes::GATEWAY, text.at, message, label).help(help);
    None
}
