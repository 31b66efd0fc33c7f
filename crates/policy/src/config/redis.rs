//! Redis: `[store.redis]`, where the counters are that several processes share.
//!
//! Whether somebody answers there is found out at run time: a policy is right or wrong
//! whether or not its store runs.

use std::num::NonZeroU32;
use std::ops::Range;

use ratekeeper_core::Nanos;
use toml::de::DeTable;

use super::check::whole;
use super::codes;
use super::diagnostic::{Findings, shown};
use super::fields::MAX_SEEDS;
use super::numbers::Written;
use super::post_paid::span;
use super::read::{self, At};
use crate::{RedisSettings, Secret};

/// Ten times what a server beside this process needs at its slowest, and less than a caller
/// notices.
const DEFAULT_DEADLINE: Nanos = Nanos::from_millis(50);
/// Below it every call would be given up.
const LEAST_DEADLINE: Nanos = Nanos::from_millis(1);
/// Callers do not wait longer.
const MOST_DEADLINE: Nanos = Nanos::from_secs(10);
/// Begins the name of every key.
const DEFAULT_PREFIX: &str = "rk";
/// Characters of a prefix.
const MAX_PREFIX: usize = 40;

/// `[store.redis]`; none if it has an error, which is reported.
pub(super) fn redis(table: &DeTable<'_>, out: &mut Findings<'_>) -> Option<RedisSettings> {
    let node = table.get("url")?; // reported: it must be there
    let mut urls = read::texts(node);
    urls.truncate(MAX_SEEDS);
    let list = node.get_ref().as_array().is_some();
    let cluster = list || read::flag(table, "cluster") == Some(true);
    let read: Vec<_> = urls.iter().map(|text| url(text, cluster, out)).collect();
    let username = secret(table, "username", out);
    let password = secret(table, "password", out);
    let prefix = prefix(table, out);
    let deadline = deadline(table, out);
    let database = database(table, cluster, out);
    if let (Some(Ok(_)), None) = (&username, &password) {
        let at = table.get("username").map_or(0..0, toml::Spanned::span);
        let label = "nobody logs in by a name alone";
        out.error(codes::REDIS, at, "`username` without `password`", label)
            .help("add password = \"env:REDIS_PASSWORD\"");
        return None;
    }
    let nodes = read::number(table, "nodes", u64::from(u32::MAX));
    let nodes = nodes.and_then(|nodes| u32::try_from(nodes.value).ok());
    let urls = read.into_iter().collect::<Option<Vec<_>>>()?;
    if urls.is_empty() {
        return None; // reported: of another type, or empty
    }
    Some(RedisSettings {
        urls,
        cluster,
        username: username.transpose().ok()?,
        password: password.transpose().ok()?,
        database: database?,
        prefix: prefix?,
        deadline: deadline?,
        nodes: nodes.and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN),
    })
}

/// `redis://HOST:PORT` or `unix://PATH`, and nothing else: neither a secret nor a database.
fn url(text: &At<&str>, cluster: bool, out: &mut Findings<'_>) -> Option<String> {
    let refuse = |out: &mut Findings<'_>, message: &str, label: &str, help: &str| {
        let at: Range<usize> = text.at.clone();
        out.error(codes::REDIS, at, message, label).help(help);
        None
    };
    let Some((scheme, rest)) = text.value.split_once("://") else {
        let help = "write for example \"redis://127.0.0.1:6379\"";
        return refuse(out, "this is no URL of a store", "no scheme", help);
    };
    match scheme {
        "redis" => {}
        "unix" if cluster => {
            let help = "write for example \"redis://10.0.0.1:6379\"";
            let label = "nodes of a cluster name each other by host and port";
            return refuse(out, "a cluster is not reached by a socket", label, help);
        }
        "unix" if rest.starts_with('/') && !rest.contains('?') => return Some(text.value.into()),
        "rediss" | "valkeys" => {
            let help = "let a proxy beside this process speak TLS to the server, and name the \
                 proxy: \"redis://127.0.0.1:6379\"";
            let label = "not without encryption on the way";
            return refuse(out, "TLS to the store is not built yet", label, help);
        }
        "valkey" => {
            let help = "write \"redis://\" and the same address: the protocol is one";
            return refuse(out, "this is no URL of a store", "an unknown scheme", help);
        }
        _ => {
            let help = "write for example \"redis://127.0.0.1:6379\" or \"unix:///run/redis.sock\"";
            return refuse(out, "this is no URL of a store", "an unknown scheme", help);
        }
    }
    if rest.contains('@') {
        let help = "write the address alone, and beside it password = \"env:REDIS_PASSWORD\"";
        let label = "whoever reads the policy could log in";
        return refuse(out, "the URL of the store holds a secret", label, help);
    }
    let (address, path) = rest.split_once('/').unwrap_or((rest, ""));
    if !path.is_empty() || rest.contains(['?', '#']) {
        let help = "write the address alone, and beside it for example database = 2";
        let label = "not HOST:PORT";
        return refuse(out, "the URL of the store says too much", label, help);
    }
    let (host, port) = match address.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ => (address, "6379"),
    };
    if host.is_empty() || host.contains(char::is_whitespace) || port.parse::<u16>().is_err() {
        let help = "write for example \"redis://127.0.0.1:6379\"";
        return refuse(out, "this is no URL of a store", "not HOST:PORT", help);
    }
    Some(format!("redis://{host}:{port}"))
}

/// `env:NAME` or `file:PATH`; an error is reported.
fn secret(table: &DeTable<'_>, name: &str, out: &mut Findings<'_>) -> Option<Result<Secret, ()>> {
    let text = read::text(table, name)?;
    let place = text.value.split_once(':').filter(|(_, at)| !at.is_empty());
    match place {
        Some(("env", variable)) if !variable.contains(['=', '\0']) => {
            return Some(Ok(Secret::Env(variable.into())));
        }
        Some(("file", path)) => return Some(Ok(Secret::File(path.into()))),
        _ => {}
    }
    let message = format!("`{name}` does not say where it is");
    let label = "not env:NAME, and not file:PATH";
    let variable = name.to_ascii_uppercase();
    out.error(codes::REDIS, text.at, message, label)
        .help(format!(
            "write for example {name} = \"env:REDIS_{variable}\""
        ));
    Some(Err(()))
}

fn prefix(table: &DeTable<'_>, out: &mut Findings<'_>) -> Option<String> {
    let Some(text) = read::text(table, "prefix") else {
        return Some(DEFAULT_PREFIX.into());
    };
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b":._-".contains(&byte);
    if (1..=MAX_PREFIX).contains(&text.value.len()) && text.value.bytes().all(fits) {
        return Some(text.value.into());
    }
    let message = format!("\"{}\" cannot begin the names of keys", shown(text.value));
    let label = format!("not 1 to {MAX_PREFIX} letters, digits, or any of : . _ -");
    out.error(codes::REDIS, text.at, message, label)
        .help("write for example prefix = \"edge\"");
    None
}

fn deadline(table: &DeTable<'_>, out: &mut Findings<'_>) -> Option<Nanos> {
    let Some(text) = read::text(table, "deadline") else {
        return Some(DEFAULT_DEADLINE);
    };
    let deadline = span(&text, Written::Deadline, out)?;
    if (LEAST_DEADLINE..=MOST_DEADLINE).contains(&deadline) {
        return Some(deadline);
    }
    let message = format!("a deadline of {deadline} is out of range");
    let label = format!("not from {LEAST_DEADLINE} to {MOST_DEADLINE}");
    out.error(codes::REDIS, text.at, message, label)
        .help("write for example deadline = \"50ms\"");
    None
}

fn database(table: &DeTable<'_>, cluster: bool, out: &mut Findings<'_>) -> Option<u16> {
    let Some(node) = table.get("database") else {
        return Some(0);
    };
    let database = whole(node).and_then(|number| u16::try_from(number).ok())?;
    if database == 0 || !cluster {
        return Some(database);
    }
    let message = format!("a cluster has no database {database}");
    out.error(codes::REDIS, node.span(), message, "only 0")
        .help("leave it out");
    None
}
