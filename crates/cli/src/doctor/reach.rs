//! Reach: whether the servers answer and accept the store, and why not.

use ratekeeper_store::{RedisServer, RedisStore, StoreError};

use super::{DoctorNode, Finding, Judgement, PATIENCE};
use crate::words;

/// Returns the servers of the store that answer, and a finding about all of them.
pub(super) async fn reach(store: &RedisStore) -> (Finding, Vec<DoctorNode>) {
    let servers = match store.servers().await {
        Ok(servers) => servers,
        Err(error) => {
            let why = why(error);
            let judged = Judgement::failure(
                format!("no primary was found: {why}"),
                advice_of_sentinels(&why),
            );
            return (Finding::new("reachable", judged), Vec::new());
        }
    };
    let asked = servers.len();
    let (mut nodes, mut absent) = (Vec::<DoctorNode>::new(), Vec::new());
    for server in servers {
        match ask(&server).await {
            Ok(info) => {
                // One server may have been named in two ways.
                let run_id = info.text("run_id");
                let known =
                    |node: &DoctorNode| run_id.is_some() && node.info.text("run_id") == run_id;
                if !nodes.iter().any(known) {
                    nodes.push(DoctorNode { server, info });
                }
            }
            Err(error) => {
                let (address, why) = (server.address(), why(error));
                // Some reasons begin with the address.
                let why = why
                    .strip_prefix(&format!("{address}: "))
                    .unwrap_or(&why)
                    .to_owned();
                absent.push((address, why));
            }
        }
    }
    let judged = match absent.first() {
        None => Judgement::ok(match nodes.as_slice() {
            [one] => format!("{} answers", one.server.address()),
            several => format!("{} servers answer", several.len()),
        }),
        Some((address, why)) => {
            let missing = words::counted(absent.len(), "server");
            let message = match asked {
                1 => format!("{address}: {why}"),
                _ => format!("{missing} of {asked} cannot be queried; {address}: {why}"),
            };
            Judgement::failure(message, advice(why, asked > 1))
        }
    };
    let reached = nodes.len();
    let finding = Finding::new("reachable", judged);
    (
        finding.with("servers", asked).with("reached", reached),
        nodes,
    )
}

async fn ask(server: &RedisServer) -> Result<ratekeeper_store::ServerInfo, StoreError> {
    server.ping().await?;
    match server.info().await {
        // A user may be allowed to decide but not to read the server's information.
        Err(StoreError::Misconfigured(_)) => Ok(ratekeeper_store::ServerInfo::default()),
        info => info,
    }
}

/// Returns the reason alone.
pub(super) fn why(error: StoreError) -> String {
    match error {
        StoreError::Unavailable(why) | StoreError::Misconfigured(why) => why,
        other => other.to_string(),
    }
}

/// Returns advice about a reason.
pub(super) fn advice(why: &str, several: bool) -> String {
    let why = why.to_ascii_lowercase();
    let says = |words: &str| why.contains(words);
    if let Some(advice) = advice_of_tls(&why) {
        advice.into()
    } else if says("noauth") || says("authentication required") {
        "the server requires a password: set password = \"env:NAME\" in [store.redis], or \
         RATEKEEPER_STORE=redis://:PASSWORD@HOST:PORT"
            .into()
    } else if says("authentication failed") || says("wrongpass") {
        "the server rejects the password: check that it belongs to this server and user; add \
         `username` beside `password` for a user other than the default; leave both out for a \
         server without passwords"
            .into()
    } else if says("noperm") {
        "let the user run EVALSHA, EVAL, GET, SET, DEL and TIME on the keys of the prefix: \
         ACL SETUSER NAME on +@read +@write +@scripting +@connection +time +role +info ~PREFIX:* \
         ~ratekeeper-doctor-*"
            .into()
    } else if says("refused") {
        "check that the server is running and listens at this address: see `bind` and `port` in \
         its configuration file"
            .into()
    } else if says("lookup") || says("not known") || says("resolve") {
        "check the spelling of the host name, which this machine cannot resolve".into()
    } else if says("no answer") || says("timed out") || says("no connection") {
        format!(
            "check for a firewall that drops packets, and for a server that is stopped or \
             overloaded: it did not answer within {} s",
            PATIENCE.as_secs()
        )
    } else if says("loading") {
        "try again when the server has loaded its data from disk".into()
    } else if says("misconf") || says("oom") {
        "see `persistence` and `eviction`, because the server refuses to write".into()
    } else if says("max number of clients") {
        "raise maxclients, because the server has its maximum number of connections".into()
    } else if several {
        "check that this machine can reach the address, which the cluster announces; set \
         cluster-announce-ip on the node to announce another"
            .into()
    } else {
        "check that Redis or Valkey listens there; write rediss:// for a server that uses TLS"
            .into()
    }
}

/// Returns advice where TLS is the reason, given in lower case.
fn advice_of_tls(why: &str) -> Option<&'static str> {
    let says = |words: &str| why.contains(words);
    Some(if says("tls refused") {
        "the server requires a client certificate: set client_certificate and client_key in tls of \
         [store.redis]"
    } else if says("not valid for name") {
        "the certificate is for another name than the host of the URL: set server_name in tls of \
         [store.redis]"
    } else if says("unknownissuer") || says("badsignature") {
        "name the file of the authorities that sign for the servers: tls = { ca = \"ca.pem\" } in \
         [store.redis]"
    } else if says("corrupt message") || says("no tls connection") {
        "check that the server uses TLS at this port: if not, write redis://, or the server's \
         tls-port; if so, the server is stopped or overloaded, or a firewall drops packets"
    } else if says("certificate") {
        "check that the server's certificate is the right one, and valid today"
    } else {
        return None;
    })
}

/// Returns advice about sentinels that name no primary.
fn advice_of_sentinels(why: &str) -> String {
    let small = why.to_ascii_lowercase();
    if small.contains("no such master") || small.contains("names no primary") {
        "run SENTINEL MASTERS on a sentinel to list the names that it knows".into()
    } else if small.contains("noauth") {
        "the sentinels require a password: set sentinel = { master = \"NAME\", password = \
         \"env:NAME\" } in [store.redis]"
            .into()
    } else {
        advice(why, false)
    }
}
