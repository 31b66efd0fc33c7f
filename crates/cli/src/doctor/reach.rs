//! Reach: whether the servers answer and accept the store, and why not.

use ratekeeper_store::{RedisServer, RedisStore, ServerInfo, StoreError};

use super::{DoctorNode, Finding, Judgement};
use crate::words;

/// Returns the servers of the store that answer, and a finding about all of them.
pub(super) async fn reach(store: &RedisStore) -> (Finding, Vec<DoctorNode>) {
    let servers = match store.servers().await {
        Ok(servers) => servers,
        Err(error) => {
            let judged = failed("no primary was found", error);
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
            Err(error) => absent.push((server.address(), why(error))),
        }
    }
    let judged = match absent.first() {
        None => Judgement::ok(match nodes.as_slice() {
            [one] => format!("{} answers", one.server.address()),
            several => format!("{} servers answer", several.len()),
        }),
        Some((address, why)) => {
            // Some reasons begin with the address.
            let why = why.strip_prefix(&format!("{address}: ")).unwrap_or(why);
            let missing = words::counted(absent.len(), "server");
            let message = match asked {
                1 => format!("{address}: {why}"),
                _ => format!("{missing} of {asked} cannot be queried; {address}: {why}"),
            };
            Judgement::failure(message, advice(why))
        }
    };
    (Finding::new("reachable", judged), nodes)
}

async fn ask(server: &RedisServer) -> Result<ServerInfo, StoreError> {
    server.ping().await?;
    match server.info().await {
        // A user may be allowed to decide but not to read the server's information.
        Err(StoreError::Misconfigured(_)) => Ok(ServerInfo::default()),
        info => info,
    }
}

/// Returns what a failed call means; `place` names the call.
pub(super) fn failed(place: &str, error: StoreError) -> Judgement {
    let why = why(error);
    Judgement::failure(format!("{place}: {why}"), advice(&why))
}

/// Returns the reason alone.
pub(super) fn why(error: StoreError) -> String {
    match error {
        StoreError::Unavailable(why) | StoreError::Misconfigured(why) => why,
        other => other.to_string(),
    }
}

/// Words of a reason in lower case, and the advice; the first row that has one of them counts.
const ADVICE: [(&[&str], &str); 12] = [
    (
        &["tls refused"],
        "the server requires a client certificate: set client_certificate and client_key in tls of \
         [store.redis]",
    ),
    (
        &["not valid for name"],
        "the certificate is for another name than the host of the URL: set server_name in tls of \
         [store.redis]",
    ),
    (
        &["unknownissuer", "badsignature"],
        "name the file of the authorities that sign for the servers: tls = { ca = \"ca.pem\" } in \
         [store.redis]",
    ),
    (
        &["corrupt message", "no tls connection"],
        "check that the server uses TLS at this port: if not, write redis://, or the server's \
         tls-port; if so, the server is stopped or overloaded, or a firewall drops packets",
    ),
    (
        &["certificate"],
        "check that the server's certificate is the right one, and valid today",
    ),
    (
        &["no such master", "names no primary"],
        "run SENTINEL MASTERS on a sentinel to list the names that it knows",
    ),
    (
        &["noauth", "authentication required"],
        "the server requires a password: set password = \"env:NAME\" in [store.redis], or \
         RATEKEEPER_STORE=redis://:PASSWORD@HOST:PORT; for sentinels \
         sentinel = { master = \"NAME\", password = \"env:NAME\" }",
    ),
    (
        &["authentication failed", "wrongpass"],
        "the server rejects the password: check that it belongs to this server and user; add \
         `username` beside `password` for a user other than the default; leave both out for a \
         server without passwords",
    ),
    (
        &["noperm", "no permissions", "executing the script can't"],
        "let the user run EVALSHA, EVAL, GET, SET, DEL and TIME on the keys of the prefix: \
         ACL SETUSER NAME on +@read +@write +@scripting +@connection +time +role +info ~PREFIX:* \
         ~ratekeeper-doctor-*",
    ),
    (
        &["refused"],
        "check that the server is running and listens at this address: see `bind` and `port` in \
         its configuration file",
    ),
    (
        &["no answer", "timed out", "no connection"],
        "check for a firewall that drops packets, and for a server that is stopped or overloaded",
    ),
    (
        &["misconf", "oom"],
        "see `persistence` and `eviction`, because the server refuses to write",
    ),
];

/// Returns advice about a reason.
fn advice(why: &str) -> &'static str {
    let why = why.to_ascii_lowercase();
    let mut rows = ADVICE.iter();
    let row = rows.find(|(words, _)| words.iter().any(|words| why.contains(words)));
    row.map_or(
        "check that Redis or Valkey listens there and that this machine can reach the address; \
         write rediss:// for a server that uses TLS; a node of a cluster announces \
         cluster-announce-ip",
        |(_, advice)| advice,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Errors of Redis 6.2 and 7.0, of Valkey, and of a login to a database.
    #[test]
    fn missing_rights_are_named() {
        for why in [
            "NoPerm: this user has no permissions to run the 'evalsha' command",
            "ResponseError: The user executing the script can't run this command or subcommand",
            "ResponseError: ACL failure in script: User ann has no permissions to run the 'set' command",
            "Redis server refused to switch database - Server(ResponseError): this user has no \
             permissions to run the 'select' command",
        ] {
            assert!(advice(why).starts_with("let the user run"), "{why}");
        }
    }
}
