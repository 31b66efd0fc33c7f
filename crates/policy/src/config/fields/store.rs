//! Fields of the store: where the counters are.

use super::{BYTES, MAX_SEEDS, PREFIX, SECRET, SPAN, optional, pattern, required};
use crate::config::shape::{Shape, TableSpec};

pub(super) static STORE: TableSpec = TableSpec {
    what: "`[store]`",
    fields: &[
        optional(
            "memory",
            Shape::Table(&MEMORY),
            "{ budget = \"256MiB\" }",
            "Counters in the memory of this process.",
        ),
        optional(
            "redis",
            Shape::Table(&REDIS),
            "{ url = \"redis://127.0.0.1:6379\" }",
            "Counters in Redis or Valkey, shared with other processes.",
        ),
    ],
    mistaken: hints! {
        "budget" => "it belongs under [store.memory]: budget = \"256MiB\"",
        "url" => "it belongs under [store.redis]: url = \"redis://127.0.0.1:6379\"",
        "valkey" => "Valkey is reached like Redis: [store.redis] with url = \
            \"redis://127.0.0.1:6379\"",
    },
    ..TableSpec::EMPTY
};

static REDIS: TableSpec = TableSpec {
    what: "`[store.redis]`",
    fields: &[
        required(
            "url",
            Shape::Texts { most: MAX_SEEDS },
            "\"redis://127.0.0.1:6379\"",
            "The server, as in \"redis://10.0.0.7:6379\", \"rediss://10.0.0.7:6379\" for TLS, or \
             \"unix:///run/redis.sock\"; or a list: nodes of a cluster, or sentinels.",
        ),
        optional(
            "sentinel",
            Shape::Table(&STORE_SENTINEL),
            "{ master = \"mymaster\" }",
            "That `url` lists sentinels, and whom they name. That server is reached as they are, \
             by TLS or not.",
        ),
        optional(
            "tls",
            Shape::Table(&STORE_TLS),
            "{ ca = \"ca.pem\" }",
            "Whom to trust, and what to show, where a URL begins with rediss.",
        ),
        optional(
            "cluster",
            Shape::Flag,
            "true",
            "Whether `url` is a node of a cluster, which a list always is.",
        ),
        optional(
            "username",
            pattern(SECRET),
            "\"env:REDIS_USERNAME\"",
            "Where the name to log in with is: env:NAME or file:PATH.",
        ),
        optional(
            "password",
            pattern(SECRET),
            "\"env:REDIS_PASSWORD\"",
            "Where the password is: env:NAME or file:PATH.",
        ),
        optional(
            "database",
            Shape::Whole {
                least: 0,
                most: 65_535,
            },
            "2",
            "Number of the database (default 0).",
        ),
        optional(
            "prefix",
            pattern(PREFIX),
            "\"edge\"",
            "Begins the name of every key (default rk).",
        ),
        optional(
            "deadline",
            pattern(SPAN),
            "\"20ms\"",
            "How long a call may take, connecting included, from 1ms to 10s (default 50ms). Then \
             on_store_error decides, and what the store charges all the same stays charged: give \
             a busy machine more.",
        ),
        optional(
            "nodes",
            Shape::Whole {
                least: 1,
                most: 10_000,
            },
            "3",
            "Processes that share the store: while it fails, each holds that part of a limit \
             (default 1).",
        ),
    ],
    mistaken: hints! {
        "sentinels" => "write url = [\"redis://10.0.0.1:26379\"] and sentinel = { master = \
            \"mymaster\" }",
        "master" => "it belongs under [store.redis.sentinel]: sentinel = { master = \
            \"mymaster\" }",
        "ca" => "it belongs under [store.redis.tls]: ca = \"ca.pem\"",
        "ssl" => "write url = \"rediss://10.0.0.7:6379\", and [store.redis.tls] for what it needs",
        "urls" => "write url = [\"redis://10.0.0.1:6379\", \"redis://10.0.0.2:6379\"]",
        "address" => "write url = \"redis://127.0.0.1:6379\"",
        "host" => "write url = \"redis://127.0.0.1:6379\"",
        "pool" => "leave it out: one connection to each server carries all calls",
        "pool_size" => "leave it out: one connection to each server carries all calls",
        "timeout" => "write deadline = \"50ms\"",
        "db" => "write database = 2",
        "user" => "write username = \"env:REDIS_USERNAME\"",
    },
    ..TableSpec::EMPTY
};

static STORE_SENTINEL: TableSpec = TableSpec {
    what: "`[store.redis.sentinel]`",
    fields: &[
        required(
            "master",
            Shape::TEXT,
            "\"mymaster\"",
            "What the sentinels call the server.",
        ),
        optional(
            "username",
            pattern(SECRET),
            "\"env:SENTINEL_USERNAME\"",
            "Where the name to log in to the sentinels with is: env:NAME or file:PATH.",
        ),
        optional(
            "password",
            pattern(SECRET),
            "\"env:SENTINEL_PASSWORD\"",
            "Where the password for the sentinels is: env:NAME or file:PATH.",
        ),
    ],
    mistaken: hints! {
        "name" => "write master = \"mymaster\"",
        "url" => "sentinels are listed in [store.redis]: url = [\"redis://10.0.0.1:26379\"]",
    },
    ..TableSpec::EMPTY
};

static STORE_TLS: TableSpec = TableSpec {
    what: "`[store.redis.tls]`",
    fields: &[
        optional(
            "ca",
            Shape::TEXT,
            "\"ca.pem\"",
            "PEM file of those who sign the certificates of servers (default: those that the \
             system trusts).",
        ),
        optional(
            "client_certificate",
            Shape::TEXT,
            "\"client.pem\"",
            "PEM file of our own chain, our certificate first, for servers that ask for one.",
        ),
        optional(
            "client_key",
            Shape::TEXT,
            "\"client.key\"",
            "PEM file of its private key.",
        ),
        optional(
            "server_name",
            Shape::TEXT,
            "\"redis.internal\"",
            "The name in the certificates of servers (default: the host of the URL).",
        ),
    ],
    mistaken: hints! {
        "cert" => "write client_certificate = \"client.pem\"",
        "certificate" => "write client_certificate = \"client.pem\"",
        "key" => "write client_key = \"client.key\"",
        "client_ca" => "write ca = \"ca.pem\": who signs for the servers",
        "private_key" => "write client_key = \"client.key\"",
        "sni" => "write server_name = \"redis.internal\"",
        "insecure" => "leave it out: name who signs by ca = \"ca.pem\"",
    },
    ..TableSpec::EMPTY
};

static MEMORY: TableSpec = TableSpec {
    what: "`[store.memory]`",
    fields: &[optional(
        "budget",
        pattern(BYTES),
        "\"256MiB\"",
        "Bytes that counters may use, as in \"256MiB\".",
    )],
    mistaken: hints! {
        "max_keys" => "memory is bounded in bytes: budget = \"256MiB\"",
        "size" => "write budget = \"256MiB\"",
        "limit" => "write budget = \"256MiB\"",
    },
    ..TableSpec::EMPTY
};
