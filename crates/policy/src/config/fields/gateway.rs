//! Fields of the proxy listener.

use ratekeeper_core::Nanos;

use super::requests::MATCH;
use super::{DAY, HOUR, MAX_MATCH_VALUES, MAX_VALUES, NAME, ROLLING, TEN_MINUTES};
use crate::config::document::shape::{
    Either, Flag, List, Map, Shape, TEXT, Table, Texts, Values, Whole, Word, address, fields,
    pattern, percent, size, span, tables,
};

/// Maximum number of addresses of an upstream.
const MAX_UPSTREAMS: usize = 32;

/// Maximum number of certificates of the listener.
const MAX_CERTIFICATES: usize = 16;

/// Maximum number of routes: each may be compared with a request.
const MAX_ROUTES: usize = 64;

/// Maximum number of protocols that a connection may switch to.
const MAX_UPGRADES: usize = 8;

/// Highest bound of `adaptive_concurrency`.
const MAX_ADAPTIVE: u64 = 1_000_000;

/// A field of the access log.
const ACCESS_FIELD: Shape = Word(&[
    "time",
    "client",
    "method",
    "host",
    "path",
    "query",
    "request_id",
    "limit",
    "key",
    "upstream",
    "upstream_ms",
    "status",
    "bytes",
    "duration_ms",
]);

/// Statuses of errors that the listener itself reports.
pub(crate) const ERRORS: [u16; 7] = [400, 405, 408, 413, 502, 503, 504];

/// `response_timeout`, `body_timeout`
const RESPONSE: Shape = span(Nanos::from_millis(100), HOUR);

/// `max_body`
const BODY: Shape = size(1 << 10, 1 << 40);

fields! {
    pub(super) PROXY = "`[listen.proxy]`" {
        optional address: address(8080), "\"127.0.0.1:8080\"",
            "Address and port of the listener, \"unix:/PATH\", or \"off\" (default 127.0.0.1:8080; \
             the http listener is then off unless its address is set).";
        required upstream: Texts(MAX_UPSTREAMS), "\"http://127.0.0.1:3000\"",
            "Receiver of the requests: http://HOST:PORT, https:// for TLS, h2c:// for HTTP/2 \
             without TLS, unix:/PATH for HTTP/1.1 over a Unix socket; or a list of such, used in turn.";
        optional tls: Values(&Table(&PROXY_TLS), MAX_CERTIFICATES),
            "{ certificate = \"site.pem\", key = \"site.key\" }",
            "Certificates of the listener, which uses plain HTTP without them; a list is chosen \
             from by the name that a client asks for.";
        optional upstream_tls: Table(&UPSTREAM_TLS), "{ ca = \"internal-ca.pem\" }",
            "How the certificates of https upstreams are verified.";
        optional route: tables(&ROUTE, 0..=MAX_ROUTES, "listen.proxy.route"),
            "[{ name = \"images\", match = { path = \"/img/**\" }, upstream = \
             \"http://127.0.0.1:4000\" }]",
            "Other receivers of some requests: the first whose `match` fits; without `match`, one \
             for `on_limit` of limits.";
        optional cors: List(MAX_VALUES), "[\"https://app.example.com\"]",
            "Origins of web pages that may read refusals; compared one by one.";
        optional preflight_limit: pattern(ROLLING), "\"600/1m\"",
            "Preflights of these origins that an address may send (default 600/1m); the limits do \
             not count them.";
        optional error_pages: Map(&TEXT, ERRORS.len()), "{ 502 = \"502.html\" }",
            "HTML files of up to 64 KiB for errors of the gateway itself, by status, in place of \
             its own page.";
        optional connect_timeout: span(Nanos::from_millis(10), Nanos::from_secs(60)), "\"1s\"",
            "Maximum time until a connection to the upstream is open (default 1 s).";
        optional response_timeout: RESPONSE, "\"60s\"",
            "Maximum time until the head of a response comes (default 60 s).";
        optional body_timeout: RESPONSE, "\"60s\"",
            "Maximum time between two parts of the body of a response (default 60 s).";
        optional upgrades: List(MAX_UPGRADES), "[\"websocket\"]",
            "Protocols that a connection may switch to, as `Upgrade` names them (default: \
             WebSocket alone).";
        optional upgrade_timeout: span(Nanos::SECOND, DAY), "\"10m\"",
            "Maximum time without a byte in a connection that has switched to another protocol \
             (default 10 min).";
        optional proxy_protocol: Flag, "true",
            "Every connection begins with a header of the PROXY protocol, version 1 or 2, and comes \
             from one of `trusted_proxies` of [client_ip] (default false).";
        optional max_head: size(8 << 10, 1 << 20), "\"16KiB\"",
            "Size up to which the head of a request is read, from 8KiB to 1MiB (default 16KiB).";
        optional max_head_fields: Whole(10, 1_000), "100",
            "Maximum number of header fields of a request over HTTP/1.1 (default 100).";
        optional max_body: BODY, "\"100MiB\"",
            "Maximum size of the body of a request, from 1KiB to 1024GiB (default 100MiB); a larger \
             one is refused with 413.";
        optional max_inspected_body: size(1 << 10, 1 << 20), "\"64KiB\"",
            "Maximum size of a body, of a request or a response, in which limits find their \
             values, from 1KiB to 1MiB (default 64KiB); a longer one has none.";
        optional access_log: Table(&ACCESS_LOG), "{ to = \"stdout\" }",
            "A line of JSON for each request (default: none).";
        optional health: Table(&HEALTH), "{ path = \"/healthz\", interval = \"5s\" }",
            "A request that asks each address whether it serves; one that does not is left out \
             (default: none).";
        optional adaptive_concurrency: Table(&ADAPTIVE), "{ min = 10, max = 500 }",
            "Bounds of the number of requests that wait for each upstream at a time, which follows \
             the times of its responses (default: no such number).";
    }

    ACCESS_LOG = "`access_log`" {
        required to: TEXT, "\"stdout\"",
            "\"stdout\", or the path of a file, which is created anew once it was moved or removed.";
        optional only: Word(&["refused", "failed"]), "\"failed\"",
            "Responses that have a line: refused by a limit; or failed, from status 500 or broken \
             off (default: all).";
        optional sample: percent(100), "\"10%\"", "Part of these lines that is written (default 100%).";
        optional fields: Values(&ACCESS_FIELD, 15), "[\"time\", \"client\", \"path\", \"status\"]",
            "Fields of a line (default: all but `query`).";
    }

    HEALTH = "`health`" {
        required path: TEXT, "\"/healthz\"",
            "Target of a GET, whose response is below 400 from an address that serves.";
        optional interval: span(Nanos::from_millis(100), TEN_MINUTES), "\"5s\"",
            "Time from one check to the next, and maximum time of one (default 5 s).";
    }

    ADAPTIVE = "`adaptive_concurrency`" {
        required min: Whole(1, MAX_ADAPTIVE), "10", "Lower bound, from which the number begins.";
        required max: Whole(1, MAX_ADAPTIVE), "500", "Upper bound.";
        optional priority: Table(&ADAPTIVE_PRIORITY),
            "{ last = \"20%\", match = { path = \"/health\" } }",
            "Keeps the last part of the number for some requests; others are refused sooner.";
    }

    ADAPTIVE_PRIORITY = "`priority` of `adaptive_concurrency`" {
        required last: percent(50), "\"20%\"",
            "Part of the number, rounded down, that other requests leave free: 1% to 50%.";
        required r#match: Table(&PRIORITY_MATCH), "{ path = \"/health\" }",
            "Requests with priority, which may use the whole number.";
    }

    PRIORITY_MATCH = "`match` of this `priority`" {
        shared MATCH { method host path query header cookie ip jwt };
    }

    ROUTE = "a route" {
        required name: pattern(NAME), "\"images\"", "Name, unique among the routes.";
        optional r#match: Table(&ROUTE_MATCH), "{ path = \"/img/**\" }",
            "Requests that it is for; without it, those that a limit sends there by `on_limit`.";
        required upstream: Texts(MAX_UPSTREAMS), "\"http://127.0.0.1:4000\"",
            "Receiver of the requests, written like `upstream` of [listen.proxy].";
        optional max_body: BODY, "\"1GiB\"",
            "In place of that of [listen.proxy].";
        optional adaptive_concurrency: Either(&[Word(&["off"]), Table(&ADAPTIVE)]), "{ min = 10, max = 500 }",
            "In place of that of [listen.proxy], which has a number for each route; \"off\" for none.";
    }

    ROUTE_MATCH = "`match` of a route" {
        optional method: Texts(MAX_MATCH_VALUES), "\"GET\"", "Request method.";
        optional host: Texts(MAX_MATCH_VALUES), "\"img.example.com\"", "Host, without port.";
        optional path: Texts(MAX_MATCH_VALUES), "\"/img/**\"",
            "Path, written as in `match` of a limit.";
    }

    PROXY_TLS = "`tls` of `[listen.proxy]`" {
        required certificate: TEXT, "\"site.pem\"",
            "PEM file of the chain, the site's own certificate first; its names are those that it \
             is chosen by.";
        required key: TEXT, "\"site.key\"", "PEM file of its private key.";
    }

    UPSTREAM_TLS = "`upstream_tls`" {
        optional ca: TEXT, "\"internal-ca.pem\"",
            "PEM file of the authorities; the default is those that the system trusts.";
        optional server_name: TEXT, "\"app.internal\"",
            "Name in the certificates of the upstream; the default is the host of each URL.";
    }
}
