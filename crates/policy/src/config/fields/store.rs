//! Fields of the store: where the counters are.

use ratekeeper_core::Nanos;

use super::{HOUR, MAX_SEEDS, MILLISECOND};
use crate::config::document::shape::{
    Flag, SECRET, TEXT, Table, Texts, Whole, fields, name, size, span,
};

/// Longest `deadline`: callers do not wait longer.
const MAX_DEADLINE: Nanos = Nanos::from_secs(10);

fields! {
    pub(super) STORE = "`[store]`" {
        optional memory: Table(&MEMORY), "{ budget = \"256MiB\" }",
            "Counters in the memory of this process.";
        optional redis: Table(&REDIS), "{ url = \"redis://127.0.0.1:6379\" }",
            "Counters in Redis or Valkey, shared with other processes.";
    }

    pub(super) REDIS = "`[store.redis]`" {
        required url: Texts(MAX_SEEDS), "\"redis://127.0.0.1:6379\"",
            "The server, as in \"redis://10.0.0.7:6379\", \"rediss://10.0.0.7:6379\" for TLS, or \
             \"unix:///run/redis.sock\"; or a list: nodes of a cluster, or sentinels.";
        optional sentinel: Table(&STORE_SENTINEL), "{ master = \"mymaster\" }",
            "Sentinels, if `url` lists them. The server that they name is reached as they are, \
             with TLS or without.";
        optional tls: Table(&STORE_TLS), "{ ca = \"ca.pem\" }",
            "Trusted authorities and client certificate for URLs that begin with rediss.";
        optional cluster: Flag, "true",
            "Treats `url` as a node of a cluster; a list that is not of sentinels is always of \
             such nodes.";
        optional username: SECRET, "\"env:REDIS_USERNAME\"",
            "Source of the user name: env:NAME or file:PATH, relative to the policy.";
        optional password: SECRET, "\"env:REDIS_PASSWORD\"",
            "Source of the password: env:NAME or file:PATH, relative to the policy.";
        optional database: Whole(0, 65_535), "2", "Number of the database (default 0).";
        optional prefix: name(40, ":._-"), "\"edge\"",
            "Prefix of the name of every key (default rk).";
        optional deadline: span(MILLISECOND, MAX_DEADLINE), "\"20ms\"",
            "Maximum time of a call, connecting included, from 1ms to 10s (default 50ms). After it \
             on_store_error decides, and a charge that the store makes nevertheless stays: give a \
             busy machine more time.";
        optional nodes: Whole(1, 10_000), "3",
            "Number of processes that share the store: while it fails, each applies its share of a \
             limit (default 1).";
        optional node: TEXT, "\"env:HOSTNAME\"",
            "Name of this process among them, for limits with scope = \"node\": text, or env:NAME \
             (default: random, so that they begin anew when the process restarts).";
    }

    STORE_SENTINEL = "`[store.redis.sentinel]`" {
        required master: TEXT, "\"mymaster\"",
            "Name of the server in the configuration of the sentinels.";
        optional username: SECRET, "\"env:SENTINEL_USERNAME\"",
            "Source of the user name for the sentinels: env:NAME or file:PATH, relative to the \
             policy.";
        optional password: SECRET, "\"env:SENTINEL_PASSWORD\"",
            "Source of the password for the sentinels: env:NAME or file:PATH, relative to the \
             policy.";
    }

    STORE_TLS = "`[store.redis.tls]`" {
        optional ca: TEXT, "\"ca.pem\"",
            "PEM file of the authorities for certificates of servers (default: those that the \
             system trusts).";
        optional client_certificate: TEXT, "\"client.pem\"",
            "PEM file of the client's chain, its own certificate first, for servers that ask for \
             one.";
        optional client_key: TEXT, "\"client.key\"", "PEM file of its private key.";
        optional server_name: TEXT, "\"redis.internal\"",
            "Name in the certificates of servers (default: the host of the URL).";
    }

    pub(super) MEMORY = "`[store.memory]`" {
        optional budget: size(1 << 20, u64::MAX), "\"256MiB\"",
            "Maximum memory of the counters, as in \"256MiB\".";
        optional state: TEXT, "\"state\"",
            "Folder, relative to the policy, in which the counters and the history of the \
             dashboard outlive the process; created if it is not there (default: no folder).";
        optional state_every: span(Nanos::SECOND, HOUR), "\"60s\"",
            "Time between two snapshots of the counters, from 1s to 1h (default 60s): a crash \
             forgives the charges since the last one.";
    }
}
