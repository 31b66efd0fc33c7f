//! Fields of the proxy listener.

use super::{
    BYTES, DURATION, MAX_MATCH_VALUES, MAX_VALUES, NAME, list, optional, pattern, required, texts,
    whole,
};
use crate::config::shape::{Shape, TableSpec};

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

const WAIT: Shape = pattern(DURATION);

pub(super) static PROXY: TableSpec = TableSpec {
    what: "`[listen.proxy]`",
    fields: &[
        optional(
            "address",
            Shape::TEXT,
            "\"127.0.0.1:8080\"",
            "Address and port of the listener (default 127.0.0.1:8080; the http listener is then \
             off unless its address is set), or \"off\".",
        ),
        required(
            "upstream",
            texts(MAX_UPSTREAMS),
            "\"http://127.0.0.1:3000\"",
            "Receiver of the requests: http://HOST:PORT, https:// for TLS, h2c:// for HTTP/2 \
             without TLS; or a list of such, used in turn.",
        ),
        optional(
            "tls",
            Shape::Values {
                of: &Shape::Table(&PROXY_TLS),
                most: MAX_CERTIFICATES,
            },
            "{ certificate = \"site.pem\", key = \"site.key\" }",
            "Certificates of the listener, which uses plain HTTP without them; a list is chosen \
             from by the name that a client asks for.",
        ),
        optional(
            "upstream_tls",
            Shape::Table(&UPSTREAM_TLS),
            "{ ca = \"internal-ca.pem\" }",
            "How the certificates of https upstreams are verified.",
        ),
        optional(
            "route",
            Shape::Tables {
                of: &ROUTE,
                most: MAX_ROUTES,
                heading: "listen.proxy.route",
            },
            "[{ name = \"images\", match = { path = \"/img/**\" }, upstream = \
             \"http://127.0.0.1:4000\" }]",
            "Other receivers of some requests: the first whose `match` holds; without `match`, one \
             for `on_limit` of limits.",
        ),
        optional(
            "cors",
            list(MAX_VALUES),
            "[\"https://app.example.com\"]",
            "Origins of web pages that may read refusals; compared one by one.",
        ),
        optional(
            "connect_timeout",
            WAIT,
            "\"1s\"",
            "Maximum time until a connection to the upstream is open (default 1 s).",
        ),
        optional(
            "response_timeout",
            WAIT,
            "\"60s\"",
            "Maximum time until the head of a response comes (default 60 s).",
        ),
        optional(
            "body_timeout",
            WAIT,
            "\"60s\"",
            "Maximum time between two parts of the body of a response (default 60 s).",
        ),
        optional(
            "upgrades",
            list(MAX_UPGRADES),
            "[\"websocket\"]",
            "Protocols that a connection may switch to, as `Upgrade` names them (default: WebSocket \
             alone).",
        ),
        optional(
            "upgrade_timeout",
            WAIT,
            "\"10m\"",
            "Maximum time without a byte in a connection that has switched to another protocol \
             (default 10 min).",
        ),
        optional(
            "max_inspected_body",
            pattern(BYTES),
            "\"64KiB\"",
            "Maximum size of a body, of a request or a response, in which limits find their values, \
             from 1KiB to 1MiB (default 64KiB); a longer one has none.",
        ),
        optional(
            "health",
            Shape::Table(&HEALTH),
            "{ path = \"/healthz\", interval = \"5s\" }",
            "A request that asks each address whether it serves; one that does not is left out \
             (default: none).",
        ),
        optional(
            "adaptive_concurrency",
            Shape::Table(&ADAPTIVE),
            "{ min = 10, max = 500 }",
            "Bounds of the number of requests that wait for each upstream at a time, which follows \
             the times of its responses (default: no such number).",
        ),
    ],
    hints: hints! {
        "upstreams" => "write upstream = [\"http://10.0.0.1:3000\", \"http://10.0.0.2:3000\"]",
        "target" => "write upstream = \"http://127.0.0.1:3000\"",
        "backend" => "write upstream = \"http://127.0.0.1:3000\"",
        "url" => "write upstream = \"http://127.0.0.1:3000\"",
        "proxy_pass" => "write upstream = \"http://127.0.0.1:3000\"",
        "listen" => "write address = \"127.0.0.1:8080\"",
        "port" => "write the port with its address: address = \"127.0.0.1:8080\"",
        "timeout" => "write response_timeout = \"60s\"",
        "websocket" => "leave it out: WebSocket connections pass",
        "read_timeout" => "write response_timeout = \"60s\", and body_timeout for the body",
        "idle_timeout" => "it belongs under [listen]: idle_timeout = \"75s\"",
        "certificate" => "it belongs under tls: tls = { certificate = \"site.pem\", key = \
            \"site.key\" }",
        "cert" => "write tls = { certificate = \"site.pem\", key = \"site.key\" }",
        "ssl" => "write tls = { certificate = \"site.pem\", key = \"site.key\" }",
        "key" => "it belongs under tls: tls = { certificate = \"site.pem\", key = \"site.key\" }",
        "ca" => "it belongs under upstream_tls: upstream_tls = { ca = \"internal-ca.pem\" }",
        "routes" => "write [[listen.proxy.route]]",
        "upstreams" => "write [[listen.proxy.route]] for each other receiver",
        "concurrency" => "write adaptive_concurrency = { min = 10, max = 500 }; a fixed number is \
            a limit: concurrency = { max = 100, lease = \"60s\" }",
        "max_requests" => "write adaptive_concurrency = { min = 10, max = 500 }",
        "retries" => "leave it out: requests that are safe to repeat are, up to 20% of them",
        "health_check" => "write health = { path = \"/healthz\" }",
        "http2" => "clients may speak HTTP/2; for the upstream write upstream = \"https://HOST\", \
            or \"h2c://HOST\" without TLS",
    },
    ..TableSpec::EMPTY
};

static HEALTH: TableSpec = TableSpec {
    what: "`health`",
    fields: &[
        required(
            "path",
            Shape::TEXT,
            "\"/healthz\"",
            "Target of a GET, whose response is below 400 from an address that serves.",
        ),
        optional(
            "interval",
            WAIT,
            "\"5s\"",
            "Time from one check to the next, and maximum time of one (default 5 s).",
        ),
    ],
    hints: hints! {
        "timeout" => "leave it out: a check takes `interval` at most",
        "status" => "leave it out: every status below 400 is right",
        "threshold" => "leave it out: one check decides",
    },
    ..TableSpec::EMPTY
};

static ADAPTIVE: TableSpec = TableSpec {
    what: "`adaptive_concurrency`",
    fields: &[
        required(
            "min",
            whole(1, MAX_ADAPTIVE),
            "10",
            "Lower bound, from which the number begins.",
        ),
        required("max", whole(1, MAX_ADAPTIVE), "500", "Upper bound."),
    ],
    hints: hints! {
        "least" => "write min = 10",
        "most" => "write max = 500",
        "initial" => "leave it out: the number begins at min",
    },
    ..TableSpec::EMPTY
};

static ROUTE: TableSpec = TableSpec {
    what: "a route",
    fields: &[
        required(
            "name",
            pattern(NAME),
            "\"images\"",
            "Name, unique among the routes.",
        ),
        optional(
            "match",
            Shape::Table(&ROUTE_MATCH),
            "{ path = \"/img/**\" }",
            "Requests that it is for; without it, those that a limit sends there by `on_limit`.",
        ),
        required(
            "upstream",
            texts(MAX_UPSTREAMS),
            "\"http://127.0.0.1:4000\"",
            "Receiver of the requests, written like `upstream` of [listen.proxy].",
        ),
    ],
    hints: hints! {
        "path" => "put it into `match`: match = { path = \"/img/**\" }",
        "host" => "put it into `match`: match = { host = \"img.example.com\" }",
        "to" => "write upstream = \"http://127.0.0.1:4000\"",
        "service" => "write upstream = \"http://127.0.0.1:4000\"",
        "strip_prefix" => "leave it out: the upstream receives the path of the request",
        "rewrite" => "leave it out: the upstream receives the path of the request",
        "weight" => "leave it out: addresses of an upstream are used in turn",
    },
    ..TableSpec::EMPTY
};

static ROUTE_MATCH: TableSpec = TableSpec {
    what: "`match` of a route",
    fields: &[
        optional(
            "method",
            texts(MAX_MATCH_VALUES),
            "\"GET\"",
            "Request method.",
        ),
        optional(
            "host",
            texts(MAX_MATCH_VALUES),
            "\"img.example.com\"",
            "Host, without port.",
        ),
        optional(
            "path",
            texts(MAX_MATCH_VALUES),
            "\"/img/**\"",
            "Path, written as in `match` of a limit.",
        ),
    ],
    hints: hints! {
        "header" => "leave it out: a route is chosen by method, host and path",
        "ip" => "leave it out: a route is chosen by method, host and path",
        "query" => "leave it out: a route is chosen by method, host and path",
        "prefix" => "write path = \"/img/**\"",
    },
    ..TableSpec::EMPTY
};

static PROXY_TLS: TableSpec = TableSpec {
    what: "`tls` of `[listen.proxy]`",
    fields: &[
        required(
            "certificate",
            Shape::TEXT,
            "\"site.pem\"",
            "PEM file of the chain, the site's own certificate first; its names are those that \
             it is chosen by.",
        ),
        required(
            "key",
            Shape::TEXT,
            "\"site.key\"",
            "PEM file of its private key.",
        ),
    ],
    hints: hints! {
        "cert" => "write certificate = \"site.pem\"",
        "private_key" => "write key = \"site.key\"",
        "client_ca" => "leave it out: this listener asks for no client certificates",
        "ca" => "leave it out: this listener asks for no client certificates",
        "names" => "leave it out: the certificate itself has its names",
        "server_name" => "leave it out: the certificate itself has its names",
        "alpn" => "leave it out: clients may use HTTP/2 and HTTP/1.1",
    },
    ..TableSpec::EMPTY
};

static UPSTREAM_TLS: TableSpec = TableSpec {
    what: "`upstream_tls`",
    fields: &[
        optional(
            "ca",
            Shape::TEXT,
            "\"internal-ca.pem\"",
            "PEM file of the authorities; the default is those that the system trusts.",
        ),
        optional(
            "server_name",
            Shape::TEXT,
            "\"app.internal\"",
            "Name in the certificates of the upstream; the default is the host of each URL.",
        ),
    ],
    hints: hints! {
        "insecure" => "certificates are always verified: write ca = \"internal-ca.pem\" for \
            those of your own authority",
        "verify" => "certificates are always verified: write ca = \"internal-ca.pem\" for \
            those of your own authority",
        "insecure_skip_verify" => "certificates are always verified: write ca = \
            \"internal-ca.pem\" for those of your own authority",
        "client_certificate" => "leave it out: the upstream is shown no client certificate",
        "certificate" => "leave it out: the upstream is shown no client certificate",
        "sni" => "write server_name = \"app.internal\"",
    },
    ..TableSpec::EMPTY
};
