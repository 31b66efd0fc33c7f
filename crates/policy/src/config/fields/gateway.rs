//! Fields of the proxy listener.

use super::{MAX_VALUES, SPAN, optional, required};
use crate::config::shape::{Shape, TableSpec};

/// Maximum number of addresses of an upstream.
pub(in crate::config) const MAX_UPSTREAMS: usize = 32;

const WAIT: Shape = Shape::Text {
    pattern: Some(SPAN),
};

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
            Shape::Texts {
                most: MAX_UPSTREAMS,
            },
            "\"http://127.0.0.1:3000\"",
            "Receiver of the requests: http://HOST:PORT; or a list of such, used in turn.",
        ),
        optional(
            "cors",
            Shape::List { most: MAX_VALUES },
            "[\"https://app.example.com\"]",
            "Origins of web pages that may read refusals.",
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
            "upgrade_timeout",
            WAIT,
            "\"10m\"",
            "Maximum time without a byte in a WebSocket connection (default 10 min).",
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
        "read_timeout" => "write response_timeout = \"60s\", and body_timeout for the body",
        "idle_timeout" => "it belongs under [listen]: idle_timeout = \"75s\"",
        "tls" => "leave it out, and put a proxy in front for TLS: the listener uses plain HTTP",
        "certificate" => "leave it out, and put a proxy in front for TLS: the listener uses plain \
            HTTP",
        "routes" => "leave it out: all requests go to one upstream; limits match by path and host",
        "route" => "leave it out: all requests go to one upstream; limits match by path and host",
        "retries" => "leave it out: requests that are safe to repeat are, up to 20% of them",
        "health_check" => "leave it out: an address that refuses connections is left out for 10 s",
        "http2" => "leave it out: clients may speak HTTP/2, and the upstream is sent HTTP/1.1",
    },
    ..TableSpec::EMPTY
};
