//! Fields of the process: listeners, and Envoy's rate limit service.

use ratekeeper_core::Nanos;

use super::gateway::PROXY;
use super::{DAY, MAX_CONNECTIONS, MAX_VALUES, TEN_MINUTES};
use crate::config::document::shape::{Flag, List, TEXT, Table, Whole, Word, address, fields, span};

/// Maximum number of answers held back at a time: as many as there are connections.
const MAX_HELD: u64 = 10_000;

fields! {
    pub(super) LISTEN = "`[listen]`" {
        optional http: address(8080), "\"127.0.0.1:8080\"",
            "Listener of the check API and forward-auth: address and port, \"unix:/PATH\", or \
             \"off\".";
        optional admin: address(9090), "\"127.0.0.1:9090\"",
            "Listener of metrics, health, keys and reload, as `http`.";
        optional grpc: address(8081), "\"127.0.0.1:8081\"",
            "Listener of Envoy's rate limit service, over gRPC: as `http`, or \"off\" (default).";
        optional proxy: Table(&PROXY), "{ upstream = \"http://127.0.0.1:3000\" }",
            "Listener that limits requests and forwards them to an upstream.";
        optional admin_writes: Word(&["token", "open"]), "\"open\"",
            "Calls that may reset, refund and reload: \"token\", with the admin token; \"open\", \
             also directly from this machine.";
        optional admin_hosts: List(MAX_VALUES), "[\"metrics.internal\"]",
            "Names that an admin call without a token may have in `Host`, besides loopback \
             names; compared one by one.";
        optional reuse_port: Flag, "true",
            "Another process with the same setting may listen at the same ports, for the time of \
             an upgrade (default false).";
        optional max_held: Whole(1, MAX_HELD), "1000",
            "Maximum number of answers that the HTTP listener holds back at a time, until the \
             moment that a `queue` grants; further requests are refused.";
        optional max_connections: Whole(1, MAX_CONNECTIONS), "10_000",
            "Maximum number of connections of the http, proxy and grpc listeners together; when \
             all are taken, the client with the most connections loses one to a new connection.";
        optional idle_timeout: span(Nanos::from_secs(5), DAY), "\"75s\"",
            "Maximum time of a connection without a request (default 75 s at the http and proxy \
             listeners, 5 min at the grpc listener).";
        optional head_timeout: span(Nanos::from_secs(5), TEN_MINUTES), "\"10s\"",
            "Maximum time of the head of a request, and of a new connection without one (default \
             10 s; connections are looked at every 5 s).";
        optional drain: span(Nanos::ZERO, TEN_MINUTES), "\"500ms\"",
            "Time for which listeners still accept and answer requests after the stop, so that \
             callers notice it.";
        optional grace: span(Nanos::ZERO, TEN_MINUTES), "\"10s\"",
            "Time that requests in flight have after `drain` before they are aborted (default 10 \
             s, with the proxy listener 30 s).";
    }

    pub(super) ENVOY = "`[envoy]`" {
        optional config: TEXT, "\"ratelimit\"",
            "Configuration of Envoy's rate limit service: a file, or a directory of *.yaml.";
        optional merge_domains: Flag, "true",
            "Allows several files of `config` to describe one domain.";
        optional stop_increment: Flag, "true",
            "Counts only the descriptors of a call that exceed their limits, if there are any.";
        optional shadow_mode: Flag, "true",
            "Applies the rules of `config` without refusing any call.";
        optional quota_mode: Flag, "true",
            "Refuses a call only if all its descriptors exceed their limits.";
        optional dynamic_metadata: Flag, "true", "Adds dynamic metadata to answers under `config`.";
        optional on_store_error: Word(&["local", "allow", "deny", "error"]), "\"error\"",
            "Decision for calls under `config` while Redis fails (default \"local\").";
        optional headers: Word(&["ietf", "draft-03", "off"]), "\"ietf\"",
            "RateLimit fields that Envoy is asked to add for the client (default \"off\").";
        optional header_names: Table(&ENVOY_HEADER_NAMES), "{ limit = \"x-limit\" }",
            "Names of the fields of headers = \"draft-03\".";
        optional body: Word(&["limit", "off"]), "\"limit\"",
            "Body for a refused client: \"limit\" for the limit's response (default \"off\").";
        optional metadata: Flag, "true", "Reports the limit that refused to Envoy's other filters.";
        optional tls: Table(&ENVOY_TLS), "{ certificate = \"server.pem\", key = \"server.key\" }",
            "Certificates of the gRPC listener, which uses plain text without them.";
    }

    ENVOY_HEADER_NAMES = "`[envoy.header_names]`" {
        optional limit: TEXT, "\"RateLimit-Limit\"", "Requests in a window.";
        optional remaining: TEXT, "\"RateLimit-Remaining\"", "Remaining requests.";
        optional reset: TEXT, "\"RateLimit-Reset\"", "Seconds until the window ends.";
    }

    ENVOY_TLS = "`[envoy.tls]`" {
        required certificate: TEXT, "\"server.pem\"",
            "PEM file of the server's chain, its own certificate first.";
        required key: TEXT, "\"server.key\"", "PEM file of its private key.";
        optional client_ca: TEXT, "\"clients.pem\"",
            "PEM file of the authorities for client certificates, which are then required.";
    }
}
