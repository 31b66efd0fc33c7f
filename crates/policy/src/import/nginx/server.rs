//! Server: which requests a server of nginx gets, and which it answers itself.
//!
//! ```text
//!   listen 443 ssl default_server;     port 443, of any host that no server names
//!   server_name a.example;             above `*.example`, which is above any other host
//! ```

use std::collections::HashSet;

use super::directive::{Directive, named};

/// Port of a server without `listen`, and of an address without one.
const DEFAULT_PORT: &str = "80";

/// Returns the directives of `http`, or of a file without it.
pub(super) fn http_level(directives: &[Directive]) -> &[Directive] {
    let http = named(directives, "http").next();
    http.map_or(directives, Directive::inner)
}

/// Returns the servers of a file of `conf.d`, or of `http` and the files beside it.
pub(super) fn servers(directives: &[Directive]) -> Vec<&Directive> {
    let http = named(directives, "http").next();
    let of_http = http
        .into_iter()
        .flat_map(|http| named(http.inner(), "server"));
    let servers = of_http.chain(named(directives, "server"));
    let mut servers: Vec<&Directive> = servers.filter(|server| server.block.is_some()).collect();
    // Servers that only redirect limit nothing, and often have the names of another.
    if servers.iter().any(|server| !only_returns(server)) {
        servers.retain(|server| !only_returns(server));
    }
    servers
}

/// Returns the index of the server of hosts that no server names: of several defaults, one that
/// has limits.
pub(super) fn fallback(servers: &[&Directive]) -> usize {
    let defaults = || (0..servers.len()).filter(|index| is_default(servers[*index]));
    let limiting = defaults().find(|index| super::has_limits(servers[*index]));
    limiting.or_else(|| defaults().next()).unwrap_or(0)
}

/// Returns the ports that have a default server.
pub(super) fn default_ports(servers: &[&Directive]) -> HashSet<String> {
    let defaults = servers.iter().filter(|server| is_default(server));
    defaults.flat_map(|server| ports(server.inner())).collect()
}

/// Returns true for a server that answers every request by `return`. It may do so within an `if`,
/// as the servers of certbot do.
fn only_returns(server: &Directive) -> bool {
    let known = ["listen", "server_name", "return", "if"];
    let is_known = |directive: &Directive| known.contains(&directive.name.as_str());
    server.answers() && server.inner().iter().all(is_known)
}

/// Returns the ports of a server, each with its address if it is one of several; a range of ports
/// and the path of a socket stand for one.
pub(super) fn ports(block: &[Directive]) -> Vec<String> {
    let mut ports = Vec::new();
    for listen in named(block, "listen") {
        let address = listen.words.first().map_or("", String::as_str);
        let ends = address.rsplit_once(':').unwrap_or(("", address));
        let is_port = |it: u8| it.is_ascii_digit() || it == b'-';
        let has_port = !ends.1.is_empty() && ends.1.bytes().all(is_port);
        let ends = Some(ends).filter(|_| has_port);
        let (host, end) = ends.unwrap_or((address, DEFAULT_PORT));
        let port = match host {
            "" | "*" | "0.0.0.0" | "[::]" => end.to_owned(),
            host => format!("{host}:{end}"),
        };
        if !ports.contains(&port) {
            ports.push(port);
        }
    }
    if ports.is_empty() {
        ports.push(DEFAULT_PORT.to_owned());
    }
    ports
}

pub(super) fn is_default(server: &Directive) -> bool {
    let mut listens = named(server.inner(), "listen");
    listens.any(|listen| listen.words.iter().any(|word| word == "default_server"))
}

pub(super) fn names(block: &[Directive]) -> Vec<String> {
    let names = named(block, "server_name");
    names.flat_map(|names| names.words.clone()).collect()
}
