//! Place: servers and locations, with the directives in force there.
//!
//! ```text
//!   http { limit_req A; server { location / {}  location /b { limit_req B; } } }
//!                                A              B
//! ```

use std::collections::HashMap;

use super::directive::Directive;
use super::server::{default_ports, fallback, host_rank, is_default, names, only_returns, ports};
use super::zone::Use;
use crate::import::areas::{AreaShape, PathRange};
use crate::import::limits::Writer;

/// Status of a refusal without `limit_req_status`.
const DEFAULT_STATUS: u16 = 503;
/// Rank of one character of a path, so that a whole path is above a prefix as long as it.
const PATH_RANK: usize = 2;

/// A server or a location.
pub(super) struct NginxPlace {
    pub(super) called: String,
    pub(super) shape: AreaShape,
    pub(super) rank: usize,
    pub(super) in_force: InForce,
    /// Line and target of its `proxy_pass`.
    pub(super) pass: Option<(usize, String)>,
}

/// Directives in force at a place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct InForce {
    /// Each with its line.
    pub(super) uses: Vec<(usize, Use)>,
    pub(super) request_status: u16,
    pub(super) request_dry_run: bool,
    pub(super) connection_status: u16,
    pub(super) connection_dry_run: bool,
}

impl InForce {
    const NOTHING: Self = Self {
        uses: Vec::new(),
        request_status: DEFAULT_STATUS,
        request_dry_run: false,
        connection_status: DEFAULT_STATUS,
        connection_dry_run: false,
    };

    /// Returns the directives in force within a block.
    fn within(&self, block: &[Directive], writer: &mut Writer) -> Self {
        let mut inner = self.clone();
        for name in ["limit_req", "limit_conn"] {
            if block.iter().any(|directive| directive.name == name) {
                let is_other =
                    |used: &Use| matches!(used, Use::Requests { .. }) != (name == "limit_req");
                inner.uses.retain(|(_, used)| is_other(used));
            }
        }
        for directive in block {
            let status = directive.words.first().and_then(|word| word.parse().ok());
            match directive.name.as_str() {
                "limit_req" | "limit_conn" => match Use::read(directive) {
                    Ok(used) => {
                        inner.uses.push((directive.line, used));
                        let known = ["zone", "burst", "delay", "nodelay"];
                        let is_requests = directive.name == "limit_req";
                        for word in directive.others(&known).iter().filter(|_| is_requests) {
                            let line = directive.line;
                            writer.unsupported(&format!(
                                "line {line}: limit_req: `{word}` is skipped: nginx itself has no \
                                 such word"
                            ));
                        }
                    }
                    Err(why) => {
                        let line = directive.line;
                        let name = &directive.name;
                        writer.unsupported(&format!("line {line}: {name}: not imported: {why}"));
                    }
                },
                "limit_req_status" | "limit_conn_status" => match status {
                    Some(status) if directive.name == "limit_req_status" => {
                        inner.request_status = status;
                    }
                    Some(status) => inner.connection_status = status,
                    None => {
                        let (line, name) = (directive.line, &directive.name);
                        let word = directive.words.join(" ");
                        writer.unsupported(&format!("line {line}: {name}: `{word}` is no status"));
                    }
                },
                "limit_req_dry_run" => inner.request_dry_run = directive.is_on(),
                "limit_conn_dry_run" => inner.connection_dry_run = directive.is_on(),
                _ => {}
            }
        }
        inner
    }
}

/// Returns the places of all servers.
pub(super) fn servers(directives: &[Directive], writer: &mut Writer) -> Vec<NginxPlace> {
    let mut found = Vec::new();
    let http = directives.iter().find(|directive| directive.name == "http");
    // A file of `conf.d` has servers outside of `http`; the output of `nginx -T` has them too.
    let in_force = if let Some(http) = http {
        report_strays(directives, writer);
        let block = http.block.as_deref().unwrap_or_default();
        let in_force = InForce::NOTHING.within(block, writer);
        found.extend(servers_of(block, &in_force));
        in_force
    } else {
        InForce::NOTHING.within(directives, writer)
    };
    found.extend(servers_of(directives, &in_force));
    // Servers that only redirect limit nothing, and often have the names of another.
    if found.iter().any(|(server, _)| !only_returns(server)) {
        found.retain(|(server, _)| !only_returns(server));
    }
    let servers: Vec<_> = found.iter().map(|(server, _)| *server).collect();
    let fallback = fallback(&servers);
    let is_alone = found.len() == 1;
    let mut places = Vec::new();
    // The ports of each name.
    let mut seen: HashMap<String, Vec<String>> = HashMap::new();
    // Ports with a default server, and those of the servers before.
    let mut ports_seen = default_ports(&servers);
    for (index, (server, around)) in found.iter().enumerate() {
        let block = server.block.as_deref().unwrap_or_default();
        let in_force = around.within(block, writer);
        let limits = !in_force.uses.is_empty() || block.iter().any(super::has_limits);
        let ports = ports(block);
        let is_first = ports.iter().any(|port| !ports_seen.contains(port));
        ports_seen.extend(ports.iter().cloned());
        let mut names = names(block);
        let is_new = |name: &String, port: &String| {
            !seen.get(name).is_some_and(|ports| ports.contains(port))
        };
        let has_names = !names.is_empty();
        names.retain(|name| ports.iter().any(|port| is_new(name, port)));
        if has_names && names.is_empty() {
            if limits {
                writer.unsupported(&format!(
                    "line {}: server: not imported: servers before it have its names and ports",
                    server.line
                ));
            }
            continue;
        }
        let hosts = if index == fallback || is_alone {
            Vec::new()
        } else {
            hosts(&names, server, &in_force, writer)
        };
        if index != fallback && !is_alone && hosts.is_empty() {
            continue;
        }
        if let Some(name) = names
            .iter()
            .find(|name| seen.contains_key(*name))
            .filter(|_| limits)
        {
            writer.unsupported(&format!(
                "line {}: server {name}: another server has this name at another port, and the \
                 limits of both apply: a policy does not tell ports apart",
                server.line
            ));
        }
        if limits && !hosts.is_empty() && (is_first || is_default(server)) {
            writer.unsupported(&format!(
                "line {}: server: its limits are for its names only, although it has all other \
                 names of its port too",
                server.line
            ));
        }
        for name in &names {
            let known = seen.entry(name.clone()).or_default();
            known.extend(ports.iter().cloned());
        }
        let called = names.first().map_or_else(
            || format!("server of line {}", server.line),
            |name| format!("server {name}"),
        );
        let mut walk = Walk {
            base: host_rank(&hosts),
            hosts,
            ports,
            server: called,
            first: places.len(),
            untranslated: Vec::new(),
            places: &mut places,
            writer: &mut *writer,
        };
        walk.server(block, &in_force);
    }
    places
}

/// Reports limits beside `http`.
fn report_strays(directives: &[Directive], writer: &mut Writer) {
    for directive in directives {
        let name = directive.name.as_str();
        let stray = name == "location" && super::has_limits(directive);
        if stray || matches!(name, "limit_req" | "limit_conn") {
            writer.unsupported(&format!(
                "line {}: {name}: not imported: it stands in a file that is included \
                 elsewhere; put it in place of the `include`",
                directive.line
            ));
        }
    }
}

fn servers_of<'d>(block: &'d [Directive], in_force: &InForce) -> Vec<(&'d Directive, InForce)> {
    let servers = block.iter().filter(|directive| directive.name == "server");
    let servers = servers.filter(|directive| directive.block.is_some());
    servers.map(|server| (server, in_force.clone())).collect()
}

/// Returns the hosts of a server by its names, and reports names without a counterpart.
fn hosts(
    names: &[String],
    server: &Directive,
    in_force: &InForce,
    writer: &mut Writer,
) -> Vec<String> {
    let mut hosts = Vec::new();
    for name in names {
        if let Some(domain) = name.strip_prefix('.') {
            hosts.extend([domain.to_owned(), format!("*.{domain}")]);
        } else if name.starts_with('~') || name.ends_with('*') || name.contains('$') {
            writer.unsupported(&format!(
                "line {}: server_name {name}: its limits are not imported for this name",
                server.line
            ));
        } else if !name.is_empty() && name != "_" {
            hosts.push(name.clone());
        }
    }
    let limits = !in_force.uses.is_empty() || super::has_limits(server);
    if hosts.is_empty() && limits {
        writer.unsupported(&format!(
            "line {}: server: not imported: it has no name, and is not the default server",
            server.line
        ));
    }
    hosts
}

/// The locations of one server.
struct Walk<'w> {
    hosts: Vec<String>,
    ports: Vec<String>,
    /// Rank of the server.
    base: usize,
    server: String,
    /// Index of its first place.
    first: usize,
    /// Locations that have the limits around them, and cannot be told from others.
    untranslated: Vec<(usize, String, InForce)>,
    places: &'w mut Vec<NginxPlace>,
    writer: &'w mut Writer,
}

impl Walk<'_> {
    fn server(&mut self, block: &[Directive], in_force: &InForce) {
        let called = self.server.clone();
        self.place(called, PathRange::Prefix("/".to_owned()), in_force, block);
        self.locations(block, in_force);
        for (line, called, in_force) in std::mem::take(&mut self.untranslated) {
            let mut places = self.places[self.first..].iter();
            if places.any(|place| place.in_force != in_force) {
                self.writer.unsupported(&format!(
                    "line {line}: {called}: where other locations have its paths too, their limits \
                     apply: only prefixes and whole paths are translated"
                ));
            }
        }
    }

    fn place(&mut self, called: String, path: PathRange, in_force: &InForce, block: &[Directive]) {
        let rank = match &path {
            PathRange::Exact(text) => text.len() * PATH_RANK + 1,
            PathRange::Prefix(text) => text.len() * PATH_RANK,
        };
        let paths = if path.is_any() {
            Vec::new()
        } else {
            vec![path]
        };
        let shape = AreaShape {
            hosts: self.hosts.clone(),
            paths,
            ports: self.ports.clone(),
        };
        let place = NginxPlace {
            called,
            rank: self.base + rank,
            in_force: in_force.clone(),
            shape,
            pass: pass(block),
        };
        // `location /` serves all requests of its server.
        let same = |known: &&mut NginxPlace| known.shape == place.shape;
        match self.places[self.first..].iter_mut().find(same) {
            Some(known) => *known = place,
            None => self.places.push(place),
        }
    }

    fn locations(&mut self, block: &[Directive], around: &InForce) {
        for location in block
            .iter()
            .filter(|directive| directive.name == "location")
        {
            let block = location.block.as_deref().unwrap_or_default();
            let in_force = around.within(block, self.writer);
            let words: Vec<_> = location.words.iter().map(String::as_str).collect();
            let called = format!("location {} of {}", words.join(" "), self.server);
            let path = match words[..] {
                ["=", path] => Some(PathRange::Exact(path.to_owned())),
                [path] | ["^~", path] => Some(PathRange::Prefix(path.to_owned())),
                _ => None,
            };
            let path = path.filter(|path| PathRange::is_plain(path.text()));
            if let (None, Some((line, _))) = (&path, pass(block)) {
                self.writer.unsupported(&format!(
                    "line {line}: {called}: its proxy_pass is not imported: only prefixes and \
                     whole paths are translated"
                ));
            }
            match path {
                Some(path) => {
                    self.place(called, path, &in_force, block);
                    self.locations(block, &in_force);
                }
                None if in_force != *around || block.iter().any(super::has_limits) => {
                    self.writer.unsupported(&format!(
                        "line {}: {called}: its limits are not imported, and those around it apply: \
                         only prefixes and whole paths are translated",
                        location.line
                    ));
                }
                None => {
                    let around = around.clone();
                    self.untranslated.push((location.line, called, around));
                }
            }
        }
    }
}

/// Returns the line and the target of the `proxy_pass` of a block.
fn pass(block: &[Directive]) -> Option<(usize, String)> {
    let found = block
        .iter()
        .find(|directive| directive.name == "proxy_pass")?;
    Some((found.line, found.words.first()?.clone()))
}
