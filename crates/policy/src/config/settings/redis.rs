//! Redis: `[store.redis]`, the store of the counters that several processes share.
//!
//! The store is contacted at run time only, because a policy is valid or invalid regardless of
//! it.

use std::num::NonZeroU32;

use ratekeeper_core::Nanos;

use crate::config::fields::MAX_SEEDS;
use crate::config::limit::scope;
use crate::config::{Table, Text, codes, error, first_reason, refuse, shown, warning};
use crate::{RedisSettings, Secret, SentinelSettings, StoreTls};

/// Default deadline: ten times the slowest answer of a server beside this process, and less than
/// a caller notices.
const DEFAULT_DEADLINE: Nanos = Nanos::from_millis(50);
/// Default prefix of the name of every key.
const DEFAULT_PREFIX: &str = "rk";
/// Scheme of servers that are reached by TLS.
const ENCRYPTED: &str = "rediss://";

/// Reads `[store.redis]`; `None` if it has an error, which is reported.
pub(super) fn redis(table: Table<'_>) -> Option<RedisSettings> {
    let sentinel = table.table("sentinel");
    let kind = kind(table, sentinel.is_some())?;
    let urls = urls(table, kind);
    let sentinel = sentinel.map(watched);
    let tls = match table.table("tls") {
        Some(tls) => tls_files(tls, urls.as_deref()),
        None => Some(StoreTls::default()),
    };
    let login = login(table, "REDIS");
    let database = database(table, kind);
    let nodes = table.number("nodes").and_then(NonZeroU32::new);
    let node = scope::node(table);
    let (username, password) = login?;
    Some(RedisSettings {
        urls: urls?,
        cluster: kind == UrlKind::Node,
        sentinel: match sentinel {
            Some(sentinel) => Some(sentinel?),
            None => None,
        },
        tls: tls?,
        username,
        password,
        database: database?,
        prefix: table
            .owned("prefix")
            .unwrap_or_else(|| DEFAULT_PREFIX.into()),
        deadline: table.span("deadline").unwrap_or(DEFAULT_DEADLINE),
        nodes: nodes.unwrap_or(NonZeroU32::MIN),
        node: node.ok()?,
    })
}

/// Returns the kind of URLs in `url`.
fn kind(table: Table<'_>, sentinel: bool) -> Option<UrlKind> {
    let url = table.get("url")?; // reported: it must be there
    let clustered = table.flag("cluster") == Some(true);
    if sentinel && clustered {
        let message = "`cluster` cannot be combined with `sentinel`";
        let label = "sentinels watch one primary, not a cluster";
        error(codes::REDIS, table.place("cluster"), message, label).help("leave one of them out");
        return None;
    }
    let list = url.value.is_array();
    Some(match (sentinel, list || clustered) {
        (true, _) => UrlKind::Sentinel,
        (false, true) => UrlKind::Node,
        (false, false) => UrlKind::Server,
    })
}

/// `[store.redis.sentinel]`
fn watched(table: Table<'_>) -> Option<SentinelSettings> {
    let login = login(table, "SENTINEL");
    let master = table.text("master")?; // reported: it must be there
    if master.value.is_empty() {
        let message = "`master` is empty";
        let label = "expected the name of the primary";
        error(codes::REDIS, master.at, message, label)
            .help("write for example master = \"mymaster\"");
        return None;
    }
    let (username, password) = login?;
    Some(SentinelSettings {
        master: master.value.into(),
        username,
        password,
    })
}

/// Kind of a URL.
#[derive(Clone, Copy, PartialEq, Eq)]
enum UrlKind {
    Server,
    Node,
    Sentinel,
}

/// Reads URLs of one kind: either all use TLS, or none does.
fn urls(table: Table<'_>, kind: UrlKind) -> Option<Vec<String>> {
    let texts = table.texts("url");
    let read: Vec<_> = texts.iter().map(|text| url(text, kind)).collect();
    let urls = read.into_iter().collect::<Option<Vec<_>>>()?;
    let encrypted = |url: &&String| url.starts_with(ENCRYPTED);
    let count = urls.iter().filter(encrypted).count();
    if count > 0 && count < urls.len() {
        let message = "some URLs use TLS, and others do not";
        let label = "rediss:// and redis://";
        error(codes::REDIS, table.place("url"), message, label).help(
            "write rediss:// for all of them, because servers pass on the data that they receive",
        );
        return None;
    }
    (!urls.is_empty()).then_some(urls) // reported: of another type, or empty
}

/// Reads `redis://HOST:PORT`, `rediss://HOST:PORT` or `unix://PATH`, and nothing else: neither a
/// secret nor a database. The port may be left out.
fn url(text: &Text<'_>, kind: UrlKind) -> Option<String> {
    let parts = text.value.split_once("://");
    let (scheme, rest) = parts.unwrap_or_default();
    let is_socket = scheme == "unix" && rest.starts_with('/') && !rest.contains('?');
    if is_socket && kind == UrlKind::Server {
        return Some(text.value.into());
    }
    let (address, path) = rest.split_once('/').unwrap_or((rest, ""));
    let is_sentinel = kind == UrlKind::Sentinel;
    let usual = if is_sentinel { "26379" } else { "6379" };
    let (host, port) = match address.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ => (address, usual),
    };
    let is_host = !host.is_empty() && !host.contains(char::is_whitespace);
    let nodes = || {
        let nodes = address.split(',').take(MAX_SEEDS);
        let nodes = nodes.map(|node| format!("\"{scheme}://{}\"", shown(node.trim())));
        nodes.collect::<Vec<_>>().join(", ")
    };
    let message = match scheme {
        "unix" if kind == UrlKind::Node => "a cluster cannot be reached by a socket",
        "unix" if kind == UrlKind::Sentinel => "a sentinel cannot be reached by a socket",
        "redis" | "rediss" if rest.contains('@') => "the URL of the store holds a secret",
        "redis" | "rediss" if !path.is_empty() || rest.contains(['?', '#']) => {
            "the URL of the store has more than a host and a port"
        }
        "redis" | "rediss" if address.contains(',') => "one URL names several servers",
        _ => "this is not the URL of a store",
    };
    let reason = first_reason! {
        parts.is_none() && (text.value.starts_with("env:") || text.value.starts_with("file:")) =>
            "no scheme",
            "write the address itself: user name and password come from env:NAME or file:PATH";
        parts.is_none() => "no scheme", "write for example \"redis://127.0.0.1:6379\"";
        scheme == "unix" && kind == UrlKind::Node =>
            "nodes of a cluster name each other by host and port",
            "write for example \"redis://10.0.0.1:6379\"";
        scheme == "unix" && kind == UrlKind::Sentinel =>
            "sentinels name the primary by host and port",
            "write for example \"redis://10.0.0.1:26379\"";
        matches!(scheme, "valkey" | "valkeys") => "unknown scheme",
            "write \"redis://\" or \"rediss://\" and the same address: the protocol is the same";
        matches!(scheme, "redis+sentinel" | "rediss+sentinel" | "sentinel") => "unknown scheme",
            "write url = [\"redis://10.0.0.1:26379\"], and beside it sentinel = { master = \
             \"mymaster\" }";
        !matches!(scheme, "redis" | "rediss") => "unknown scheme",
            "write for example \"redis://127.0.0.1:6379\" or \"unix:///run/redis.sock\"";
        rest.contains('@') => "every reader of the policy could log in",
            "write the address alone, and beside it password = \"env:REDIS_PASSWORD\"";
        !path.is_empty() || rest.contains(['?', '#']) => "expected HOST:PORT",
            "write the address alone, and beside it for example database = 2";
        address.contains(',') => "expected HOST:PORT",
            format!("write a list: url = [{}]", nodes());
        !is_host || port.parse::<u16>().is_err() => "expected HOST:PORT",
            "write for example \"redis://127.0.0.1:6379\"";
    };
    let Some(reason) = reason else {
        return Some(format!("{scheme}://{host}:{port}"));
    };
    refuse(codes::REDIS, text.at, message, reason);
    None
}

/// Reads `[store.redis.tls]`, with paths as written, and warns if no connection uses it.
fn tls_files(tls: Table<'_>, urls: Option<&[String]>) -> Option<StoreTls> {
    const OWN: [&str; 2] = ["client_certificate", "client_key"];
    let identity = match OWN.map(|name| tls.owned(name)) {
        [Some(certificate), Some(key)] => Some((certificate, key)),
        [None, None] => None,
        [certificate, _] => {
            let [there, missing] = match certificate {
                Some(_) => OWN,
                None => [OWN[1], OWN[0]],
            };
            let message = format!("`{there}` needs a `{missing}`");
            let label = "one has no effect without the other";
            error(codes::REDIS, tls.place(there), message, label)
                .help(format!("add {missing}, a PEM file"));
            return None;
        }
    };
    let files = StoreTls {
        ca: tls.owned("ca"),
        identity,
        server_name: tls.owned("server_name"),
    };
    let is_plain = urls.is_some_and(|urls| !urls.iter().any(|url| url.starts_with(ENCRYPTED)));
    if is_plain && files != StoreTls::default() {
        let message = "no connection uses [store.redis.tls]";
        let label = "no URL begins with rediss";
        warning(codes::REDIS, tls.at(), message, label)
            .help("write for example url = \"rediss://10.0.0.7:6379\"");
    }
    Some(files)
}

/// Returns the places of a name and a password; `None` if one of them is wrong, which is
/// reported. The prefix `owner` begins the names of variables that could hold them.
fn login(table: Table<'_>, owner: &str) -> Option<(Option<Secret>, Option<Secret>)> {
    let [username, password] = ["username", "password"].map(|name| table.secret(name));
    if username.is_some() && !table.has("password") {
        let at = table.place("username");
        let label = "a login needs a name and a password";
        error(codes::REDIS, at, "`username` needs a `password`", label)
            .help(format!("add password = \"env:{owner}_PASSWORD\""));
        return None;
    }
    Some((username, password))
}

fn database(table: Table<'_>, kind: UrlKind) -> Option<u16> {
    let database = table.number_or("database", 0)?;
    if database == 0 || kind != UrlKind::Node {
        return Some(database);
    }
    let message = format!("a cluster has no database {database}");
    let at = table.place("database");
    error(codes::REDIS, at, message, "only database 0 exists").help("leave it out");
    None
}
