//! nginx: `limit_req` and `limit_conn` as native limits.
//!
//! ```text
//!   limit_req_zone $binary_remote_addr zone=api:10m rate=5r/s;     [[limit]] api
//!   server { location /api { limit_req zone=api burst=10; } }      key, bucket, queue
//! ```
//!
//! Each server and location is an area. A location without `limit_req` has those of the block
//! around it, and one with `limit_req` has its own only, as in nginx.

mod directive;
mod form;
mod in_force;
mod include;
mod place;
mod proxy;
mod server;
mod variable;
mod zone;

use std::collections::{BTreeMap, HashSet};

use super::Imported;
use super::areas::{self, Area, MAX_AREAS};
use super::limits::{ImportedLimit, Writer, list, quoted};
use crate::config::{Diagnostic, Findings};
use directive::{Directive, flat};
use in_force::{InForce, Refusals};
use proxy::UpstreamBlocks;
use variable::Variables;
use zone::{SERVER_NAME, SharedZone, Use};

const HEADING: &str = "\
Made by `ratekeeper import --from nginx`. Lines that begin with UNSUPPORTED name features
that a native policy does not support.

The buckets admit the requests that nginx admits, at the same times. `queue` holds requests back as
`limit_req` without `nodelay` does: at the proxy listener, and at the http listener behind a proxy.
`concurrency` counts at the proxy listener only: behind nginx, keep `limit_conn` in nginx.
The status 503 is nginx's own; 429 is what clients understand. `ip/128` counts each IPv6
address by itself, as nginx does; `ip` counts networks of 64 bits, of which one client has many
addresses.

[listen.proxy] makes ratekeeper a gateway in place of nginx, with the receivers of `proxy_pass` and
without its further settings; leave it out to stay behind nginx.

Paths are compared in any spelling and in any case (docs/guide/matching.md), and limits of one
request are charged all together or none at all. Counters begin afresh.";

/// Why the PROXY protocol is not imported.
const PROXY_PROTOCOL: &str = "not imported: write `proxy_protocol = true` in [listen.proxy], and \
                              the balancers in `trusted_proxies` of [client_ip]";

/// Converts the limits of a configuration of nginx to native limits.
///
/// ```
/// let text = "
/// limit_req_zone $binary_remote_addr zone=api:10m rate=5r/s;
/// server { limit_req zone=api burst=10 nodelay; }
/// ";
/// let imported = ratekeeper_policy::import::nginx(text).unwrap();
/// assert!(imported.text.contains("bucket = { size = 11, refill = \"5/1s\" }"));
/// assert!(imported.unsupported.is_empty());
/// ```
///
/// # Errors
/// Returns findings if the text is not a configuration of nginx.
pub fn nginx(text: &str) -> Result<Imported, Vec<Diagnostic>> {
    let out = Findings::new(text);
    let read = directive::parse(text, &out);
    let Some(directives) = read.filter(|it| form::check(text, it, &out)) else {
        return Err(out.finish());
    };
    let mut writer = Writer::new(HEADING);
    let directives = include::joined(text, directives, &mut writer);
    let mut zones = Zones::default();
    zones.read(&directives, &mut writer);
    let servers = server::servers(&directives);
    client_ip(server::http_level(&directives), &servers, &mut writer);
    let mut limits = Limits::default();
    let mut areas = Vec::new();
    let mut named: HashSet<String> = HashSet::new();
    let places = place::places(&directives, &servers, &mut writer);
    if places.is_empty() && directives.iter().any(has_limits) {
        writer.unsupported(
            "limits outside of any `server`: import the output of `nginx -T`, which has all files",
        );
    }
    proxy::write(&places, &zones.upstreams, &mut writer);
    for mut place in places {
        if areas.len() > MAX_AREAS {
            break; // refused when they are written
        }
        // nginx does not count an empty key.
        let is_empty = |used: &Use| place.area.is_nameless && zones.is_by_server_name(used.zone());
        place.in_force.uses.retain(|(_, used)| !is_empty(used));
        let uses = place.in_force.uses.iter();
        named.extend(uses.map(|(_, used)| used.zone().to_owned()));
        place.area.limits = limits.of(&place.in_force, &zones, &mut writer);
        areas.push(place.area);
    }
    for name in zones.known.keys().filter(|name| !named.contains(*name)) {
        writer.unsupported(&format!("zone {name}: not imported: it counts no request"));
    }
    for (index, draft) in limits.drafts.iter_mut().enumerate() {
        let of_limit = areas.iter().filter(|area| area.limits.contains(&index));
        name_servers(draft, &of_limit.collect::<Vec<_>>());
    }
    areas::write(&areas, &limits.drafts, &mut writer);
    Ok(writer.finish())
}

/// Writes `$server_name` to the key of a limit of these areas. It is the same for all requests of a
/// server, whatever host they name.
fn name_servers(limit: &mut ImportedLimit, areas: &[&Area]) {
    let parts = limit.key.len();
    limit.key.retain(|part| part != SERVER_NAME);
    let is_of_one = areas.windows(2).all(|two| two[0].server == two[1].server);
    if limit.key.len() == parts || is_of_one || limit.key.iter().any(|part| part == "host") {
        return;
    }
    limit.key.push("host".to_owned());
    let mut names = areas.iter().flat_map(|area| &area.names);
    if names.any(|name| name.contains('*')) {
        let why = "$server_name is the host here, of which a client of a server with any name can \
                   choose another for each request: write a limit for each server";
        limit.lost.push(why.to_owned());
    }
}

#[derive(Default)]
struct Zones {
    known: BTreeMap<String, SharedZone>,
    variables: Variables,
    upstreams: UpstreamBlocks,
}

impl Zones {
    /// Returns true if a zone counts by nothing but `$server_name`.
    fn is_by_server_name(&self, zone: &str) -> bool {
        let key = self.known.get(zone).map(|zone| zone.key.as_str());
        matches!(key, Some("$server_name" | "${server_name}"))
    }

    /// Collects the zones, and reports directives about limits that have no counterpart.
    fn read(&mut self, directives: &[Directive], writer: &mut Writer) {
        let forwards = place::forwards(directives);
        let limits = directives.iter().any(has_limits);
        let mut seen = HashSet::new();
        for directive in directives {
            let name = directive.name.as_str();
            let pass = place::pass(directive.inner()).map(|(_, target)| target);
            let mut words = directive.words.iter();
            match name {
                "limit_req_zone" | "limit_conn_zone" => match SharedZone::read(directive) {
                    Ok(zone) => {
                        for word in directive.others(&["zone", "rate"]).iter().skip(1) {
                            let why = match word.as_str() {
                                "sync" => "is skipped: machines share counters by [store.redis]",
                                word if word.starts_with('$') => {
                                    "is part of one key, and counted if empty, too"
                                }
                                _ => "is skipped: nginx itself has no such word",
                            };
                            directive.unsupported(&format!("`{word}` {why}"), writer);
                        }
                        self.known.insert(zone.name.clone(), zone);
                    }
                    Err(why) => directive.unsupported(&why, writer),
                },
                "include" if directive.words.iter().any(|file| may_limit(file)) => {
                    let file = directive.words.join(" ");
                    let why = format!(
                        "{file} is not read: import the output of `nginx -T`, which has all files"
                    );
                    directive.unsupported(&why, writer);
                }
                "map" | "geo" => {
                    self.variables.read(directive);
                    continue;
                }
                "upstream" => self.upstreams.read(directive),
                "if" | "limit_except" if pass.is_some() => {
                    let target = pass.unwrap_or_default();
                    let why = format!(
                        "its proxy_pass {target} is not imported: write a `[[listen.proxy.route]]`"
                    );
                    directive.unsupported(&why, writer);
                }
                // Reported as places.
                "location" if pass.is_some() || place::path_of(directive).is_some() => {}
                "error_page" if limits && words.any(|it| it == "503" || it == "429") => {
                    let why = "answers to refused requests are those of `status` and `response`";
                    directive.unsupported(why, writer);
                }
                "stream" | "mail" => {
                    if has_limits(directive) {
                        let why = "limits of TCP connections are not supported";
                        directive.unsupported(why, writer);
                    }
                    continue;
                }
                "listen" if directive.words.iter().any(|word| word == "proxy_protocol") => {
                    directive.unsupported(PROXY_PROTOCOL, writer);
                }
                "server" if directive.value("max_conns").is_some() => {
                    let why = "max_conns: connections to an upstream are not limited";
                    directive.unsupported(why, writer);
                }
                _ => {
                    if let Some(why) = form::lost(directive) {
                        directive.unsupported(why, writer);
                    } else if forwards
                        && !form::is_setting(directive)
                        && (seen.insert(name) || directive.block.is_some())
                    {
                        directive.unsupported("the gateway does without it", writer);
                    }
                }
            }
            self.read(directive.inner(), writer);
        }
    }
}

/// Returns false for files of parameters and types, which have no limits.
fn may_limit(file: &str) -> bool {
    let (folders, end) = file.rsplit_once('/').unwrap_or(("", file));
    let is_of_types = matches!(end.rsplit_once('.'), Some((_, "types")));
    let is_module = folders
        .split('/')
        .any(|folder| folder.starts_with("modules"));
    !(is_of_types || is_module || end.ends_with("_params"))
}

fn has_limits(directive: &Directive) -> bool {
    matches!(directive.name.as_str(), "limit_req" | "limit_conn")
        || directive.inner().iter().any(has_limits)
}

/// Writes `[client_ip]` from `set_real_ip_from` and `real_ip_header`, which must be the same for
/// all requests.
fn client_ip(http: &[Directive], servers: &[&Directive], writer: &mut Writer) {
    let names = ["set_real_ip_from", "real_ip_header", "real_ip_recursive"];
    let is_known = |directive: &&Directive| names.contains(&directive.name.as_str());
    let http: Vec<_> = http.iter().filter(is_known).collect();
    let words = |block: Vec<&Directive>| -> Vec<_> {
        let known = block.into_iter().filter(is_known);
        known
            .map(|line| (line.name.clone(), line.words.clone()))
            .collect()
    };
    let of_first = servers.first().map(|server| server.inner());
    let of_first: Vec<_> = of_first.into_iter().flatten().filter(is_known).collect();
    let common = words(of_first.clone());
    let is_other = |server: &&Directive| words(flat(server.inner())) != common;
    let is_inner = !http.is_empty() && !of_first.is_empty();
    if is_inner || servers.iter().any(is_other) {
        writer.unsupported(
            "set_real_ip_from, real_ip_header, real_ip_recursive: not imported: write them into \
             `http` alone: [client_ip] is the same for all requests",
        );
        return;
    }
    let mut proxies: Vec<String> = Vec::new();
    let (mut header, mut is_recursive) = ("x-real-ip".to_owned(), false);
    for directive in http.into_iter().chain(of_first) {
        match (directive.name.as_str(), directive.words.first()) {
            ("set_real_ip_from", Some(address)) => {
                if address != "unix:" && crate::network(address).is_err() {
                    let why = format!("`{address}` is not an address or a network");
                    directive.unsupported(&why, writer);
                } else if !proxies.contains(address) {
                    proxies.push(address.clone());
                }
            }
            ("real_ip_header", Some(name)) => header = name.to_ascii_lowercase(),
            ("real_ip_recursive", _) => is_recursive = directive.is_on(),
            _ => {}
        }
    }
    if proxies.is_empty() {
        return;
    }
    if header == "proxy_protocol" {
        writer.unsupported(&format!("real_ip_header proxy_protocol: {PROXY_PROTOCOL}"));
        return;
    }
    if header == "x-forwarded-for" && !is_recursive {
        writer.unsupported(
            "real_ip_recursive off: addresses of trusted proxies are skipped here, as with `on`",
        );
    }
    let proxies = list(&proxies);
    let header = quoted(&header);
    let body = format!("[client_ip]\ntrusted_proxies = {proxies}\nheader = {header}\n");
    writer.table("set_real_ip_from", &mut String::new(), &body);
}

/// The limits of all places; places with the same use of a zone share one.
#[derive(Default)]
struct Limits {
    drafts: Vec<ImportedLimit>,
    /// The use of a zone by each draft.
    used: Vec<(Use, Refusals)>,
    /// Uses of zones that were reported.
    reported: HashSet<String>,
}

impl Limits {
    /// Returns the indexes of the limits in force at a place.
    fn of(&mut self, place: &InForce, zones: &Zones, writer: &mut Writer) -> Vec<usize> {
        let mut indexes = Vec::new();
        for (line, used) in &place.uses {
            let refusals = match used {
                Use::Requests { .. } => place.requests,
                Use::Connections { .. } => place.connections,
            };
            let wanted = (used.clone(), refusals);
            if let Some(index) = self.used.iter().position(|known| *known == wanted) {
                indexes.push(index);
                continue;
            }
            match draft(used, zones, refusals) {
                Ok(mut draft) => {
                    let mut used_before = self.used.iter();
                    if used_before.any(|(known, _)| known.zone() == used.zone()) {
                        draft.lost.push(
                            "the zone is used in several ways, which have counters of their own now"
                                .to_owned(),
                        );
                    }
                    indexes.push(self.drafts.len());
                    self.drafts.push(draft);
                    self.used.push(wanted);
                }
                Err(why) => {
                    let why = format!("line {line}: not imported: {why}");
                    if self.reported.insert(why.clone()) {
                        writer.unsupported(&why);
                    }
                }
            }
        }
        indexes
    }
}

fn draft(used: &Use, zones: &Zones, refusals: Refusals) -> Result<ImportedLimit, String> {
    let name = used.zone();
    let zone = zones.known.get(name);
    let zone = zone.ok_or_else(|| format!("there is no zone `{name}`"))?;
    let is_requests = matches!(used, Use::Requests { .. });
    if zone.rate.is_some() != is_requests {
        return Err(format!("the zone `{name}` is of the other kind"));
    }
    let mut limit = ImportedLimit {
        called: name.to_owned(),
        lines: used.lines(zone),
        ..ImportedLimit::default()
    };
    let key = zones.variables.counted(&zone.key, &mut limit);
    key.and_then(|key| zone::key(&key, &mut limit))
        .map_err(|why| format!("zone {name}: {why}"))?;
    limit.lines.push(format!("status = {}", refusals.status));
    if refusals.is_dry_run {
        limit.lines.push("mode = \"shadow\"".to_owned());
    }
    Ok(limit)
}

#[cfg(test)]
mod tests;
