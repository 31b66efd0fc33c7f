//! Place: servers and locations, with the directives in force there.
//!
//! ```text
//!   http { limit_req A; server { location / {}  location /b { limit_req B; } } }
//!                                A              B
//! ```

use std::collections::HashMap;

use super::directive::{Directive, flat, named};
use super::in_force::InForce;
use super::server::{default_ports, fallback, http_level, is_default, names, ports};
use crate::import::areas::{Area, AreaShape, PathRange};
use crate::import::limits::Writer;

/// Rank of one character of a path, so that a whole path is above a prefix as long as it.
const PATH_RANK: usize = 2;

/// Directives that nginx has within `http` only, beside those of `OF_LIMITS`.
const STRAYS: &str = "\
    location if return rewrite proxy_pass set_real_ip_from real_ip_header real_ip_recursive";

/// A server or a location.
pub(super) struct NginxPlace {
    /// Without its limits.
    pub(super) area: Area,
    pub(super) in_force: InForce,
    /// Line and target of its `proxy_pass`.
    pub(super) pass: Option<(usize, String)>,
}

/// Returns the places of these servers of a file.
pub(super) fn places(
    directives: &[Directive],
    servers: &[&Directive],
    writer: &mut Writer,
) -> Vec<NginxPlace> {
    if named(directives, "http").next().is_some() {
        report_strays(directives, writer);
    }
    let around = InForce::default().within(http_level(directives), writer);
    let fallback = fallback(servers);
    let mut places = Vec::new();
    // The ports of each name.
    let mut seen: HashMap<String, Vec<String>> = HashMap::new();
    // Ports with a default server, and those of the servers before.
    let mut ports_seen = default_ports(servers);
    for (index, server) in servers.iter().enumerate() {
        let block = server.inner();
        let in_force = around.within(block, writer);
        let limits = !in_force.uses.is_empty() || block.iter().any(super::has_limits);
        let is_lost = limits || forwards(block);
        let ports = ports(block);
        let is_first = ports.iter().any(|port| !ports_seen.contains(port));
        ports_seen.extend(ports.iter().cloned());
        let mut names = names(block);
        let is_new = |name: &String, port: &String| {
            !seen.get(name).is_some_and(|ports| ports.contains(port))
        };
        let has_names = !names.is_empty();
        let is_nameless = names.first().is_none_or(String::is_empty);
        names.retain(|name| {
            let spelled = spellings(name);
            let mut ports = ports.iter();
            ports.any(|port| spelled.iter().all(|name| is_new(name, port)))
        });
        if has_names && names.is_empty() {
            if is_lost {
                let why = "not imported: servers before it have its names and ports";
                server.unsupported(why, writer);
            }
            continue;
        }
        let mut host_names = hosts(&names);
        let hosts = if index == fallback {
            host_names.push("*".to_owned());
            Vec::new()
        } else {
            report_names(&names, server, writer);
            host_names.clone()
        };
        if index != fallback && hosts.is_empty() {
            if is_lost {
                let why = "not imported: it has no name, and is not the default server";
                server.unsupported(why, writer);
            }
            continue;
        }
        let is_seen = |name: &&String| spellings(name).iter().any(|name| seen.contains_key(name));
        let mut seen_before = names.iter().filter(is_seen);
        if let Some(name) = seen_before.next().filter(|_| is_lost) {
            writer.unsupported(&format!(
                "line {}: server {name}: another server has this name at another port or address, \
                 and the limits and routes of both apply: a policy does not tell them apart",
                server.line
            ));
        }
        if limits && !hosts.is_empty() && (is_first || is_default(server)) {
            let why = "its limits are for its names only, although it has all other names of its \
                       port too";
            server.unsupported(why, writer);
        }
        for name in names.iter().flat_map(|name| spellings(name)) {
            let known = seen.entry(name).or_default();
            known.extend(ports.iter().cloned());
        }
        let called = names.first().map_or_else(
            || format!("server of line {}", server.line),
            |name| format!("server {name}"),
        );
        let mut walk = Walk {
            whole: Area {
                called,
                shape: AreaShape {
                    hosts,
                    paths: Vec::new(),
                    ports,
                },
                server: index,
                names: host_names,
                is_nameless,
                rank: 0,
                limits: Vec::new(),
            },
            untranslated: Vec::new(),
            places: Vec::new(),
            writer: &mut *writer,
        };
        walk.server(server, &in_force);
        places.extend(walk.places);
    }
    places
}

/// Reports directives beside `http` that are not read.
fn report_strays(directives: &[Directive], writer: &mut Writer) {
    for directive in directives {
        if directive.is_one_of(super::form::OF_LIMITS) || directive.is_one_of(STRAYS) {
            let why = "not imported: it is beside `http`; put it in place of the `include` of its \
                       file, or import the output of `nginx -T`";
            directive.unsupported(why, writer);
        }
    }
}

/// Returns true for a name without a counterpart.
fn is_odd(name: &str) -> bool {
    name.starts_with('~') || name.ends_with('*') || name.contains('$')
}

/// Returns the hosts of a server by its names.
fn hosts(names: &[String]) -> Vec<String> {
    let spelled = names.iter().flat_map(|name| spellings(name));
    let is_host = |name: &String| !is_odd(name) && !name.is_empty() && name != "_";
    spelled.filter(is_host).collect()
}

/// Returns the names that a name stands for: `.example.com` is `example.com` and `*.example.com`.
fn spellings(name: &str) -> Vec<String> {
    match name.strip_prefix('.') {
        Some(domain) => vec![domain.to_owned(), format!("*.{domain}")],
        None => vec![name.to_owned()],
    }
}

fn report_names(names: &[String], server: &Directive, writer: &mut Writer) {
    for name in names.iter().filter(|name| is_odd(name)) {
        let line = server.line;
        writer.unsupported(&format!(
            "line {line}: server_name {name}: its limits are not imported for this name"
        ));
    }
}

/// A line that matters if another place of its server has other limits.
struct Untranslated {
    line: String,
    in_force: InForce,
    /// Ends of the paths to which nginx sends a request that was counted; empty for others.
    ends: Vec<String>,
}

impl Untranslated {
    fn matters(&self, place: &NginxPlace) -> bool {
        if self.ends.is_empty() {
            return place.in_force != self.in_force;
        }
        let is_there = |path: &PathRange| {
            let mut ends = self.ends.iter();
            ends.any(|end| path.text().ends_with(end) || end.starts_with(path.text()))
        };
        place.in_force.counts_after(&self.in_force) && place.area.shape.paths.iter().any(is_there)
    }
}

/// The locations of one server.
struct Walk<'w> {
    /// The server without its locations.
    whole: Area,
    untranslated: Vec<Untranslated>,
    places: Vec<NginxPlace>,
    writer: &'w mut Writer,
}

impl Walk<'_> {
    fn server(&mut self, server: &Directive, in_force: &InForce) {
        let (block, called) = (server.inner(), self.whole.called.clone());
        self.place(called, PathRange::Prefix("/".to_owned()), in_force, server);
        self.diversions(server, in_force);
        self.locations(block, in_force, &[]);
        for untranslated in std::mem::take(&mut self.untranslated) {
            if self.places.iter().any(|place| untranslated.matters(place)) {
                self.writer.unsupported(&untranslated.line);
            }
        }
    }

    /// Reports directives by which nginx counts requests by another path, or not at all.
    fn diversions(&mut self, of: &Directive, in_force: &InForce) {
        let block = of.inner();
        let is_counted = !in_force.uses.is_empty() || block.iter().any(super::has_limits);
        let steps = block.iter().flat_map(|step| match step.name.as_str() {
            "if" => step.inner(),
            _ => std::slice::from_ref(step),
        });
        for step in steps {
            let last = step.words.last().map_or("", String::as_str);
            let is_url = last.contains("://") || ["permanent", "redirect"].contains(&last);
            let why = "nginx counts such requests by another path, or not at all; here they count \
                       by their own";
            let mut in_force = in_force.clone();
            let mut ends = Vec::new();
            match step.name.as_str() {
                "return" if is_counted => in_force.uses.clear(),
                "rewrite" if is_url && is_counted => in_force.uses.clear(),
                // After `break` a location stays the same, and a server looks for one.
                "rewrite" if !is_url && (last != "break" || of.name == "server") => {}
                "try_files" if last.starts_with('/') => {}
                "error_page" | "auth_request" | "mirror" if last.starts_with('/') => {
                    ends.extend(last.split('?').next().map(str::to_owned));
                }
                "index" => ends.extend(step.words.iter().map(|file| format!("/{file}"))),
                _ => continue,
            }
            self.untranslated.push(Untranslated {
                line: format!("line {}: {}: {why}", step.line, step.name),
                in_force,
                ends,
            });
        }
    }

    fn place(&mut self, called: String, path: PathRange, in_force: &InForce, of: &Directive) {
        let mut area = Area {
            called,
            rank: rank(&path),
            ..self.whole.clone()
        };
        area.shape
            .paths
            .extend(Some(path).filter(|path| !path.is_any()));
        let mut in_force = in_force.clone();
        if of.answers() {
            in_force.uses.clear();
        }
        let place = NginxPlace {
            area,
            in_force,
            pass: pass(of.inner()),
        };
        // `location /` serves all requests of its server.
        let same = |known: &&mut NginxPlace| known.area.shape == place.area.shape;
        match self.places.iter_mut().find(same) {
            Some(known) => *known = place,
            None => self.places.push(place),
        }
    }

    /// `above` has the locations that nginx prefers to the one around these.
    fn locations(&mut self, block: &[Directive], around: &InForce, above: &[PathRange]) {
        let beside: Vec<_> = named(block, "location").filter_map(path_of).collect();
        for location in named(block, "location") {
            let path = path_of(location);
            let is_hidden = |path: &PathRange| above.iter().any(|other| hides(other, path));
            if path.as_ref().is_some_and(is_hidden) {
                continue; // nginx looks into the other location
            }
            let block = location.inner();
            let in_force = around.within(block, self.writer);
            let words = location.words.join(" ");
            let called = format!("location {words} of {}", self.whole.called);
            if let (None, Some((line, _))) = (&path, pass(block)) {
                self.writer.unsupported(&format!(
                    "line {line}: {called}: its proxy_pass is not imported: only prefixes and \
                     whole paths are translated"
                ));
            }
            if path.is_none() || !location.answers() {
                self.diversions(location, &in_force);
            }
            match path {
                Some(path) => {
                    let is_above =
                        |other: &&PathRange| rank(other) > rank(&path) && hides(&path, other);
                    let above = beside.iter().filter(is_above).chain(above);
                    let above: Vec<_> = above.cloned().collect();
                    self.place(called, path, &in_force, location);
                    if !is_internal(block) {
                        self.locations(block, &in_force, &above);
                    }
                }
                None if in_force != *around || block.iter().any(super::has_limits) => {
                    self.writer.unsupported(&format!(
                        "line {}: {called}: its limits are not imported, and those around it apply: \
                         only prefixes and whole paths are translated",
                        location.line
                    ));
                }
                None => {
                    let line = format!(
                        "line {}: {called}: where other locations have its paths too, their limits \
                         apply: only prefixes and whole paths are translated",
                        location.line
                    );
                    self.untranslated.push(Untranslated {
                        line,
                        in_force: around.clone(),
                        ends: Vec::new(),
                    });
                }
            }
        }
    }
}

/// Returns the paths of a location; `None` if they have no counterpart.
pub(super) fn path_of(location: &Directive) -> Option<PathRange> {
    let words: Vec<_> = location.words.iter().map(String::as_str).collect();
    let path = match words[..] {
        ["=", path] => PathRange::Exact(path.to_owned()),
        [path] | ["^~", path] => PathRange::Prefix(path.to_owned()),
        _ => return None,
    };
    Some(path).filter(|path| PathRange::is_plain(path.text()))
}

/// Returns the rank of a location: nginx prefers a whole path, and then the longest prefix.
fn rank(path: &PathRange) -> usize {
    match path {
        PathRange::Exact(text) => text.len() * PATH_RANK + 1,
        PathRange::Prefix(text) => text.len() * PATH_RANK,
    }
}

/// Returns true if a location has all paths of another.
fn hides(outer: &PathRange, inner: &PathRange) -> bool {
    match outer {
        PathRange::Exact(_) => outer == inner,
        PathRange::Prefix(text) => inner.text().starts_with(text),
    }
}

/// Returns true if nginx answers requests of clients for a block by 404.
fn is_internal(block: &[Directive]) -> bool {
    named(block, "internal").next().is_some()
}

/// Returns true if a block, or one within it, forwards requests.
pub(super) fn forwards(block: &[Directive]) -> bool {
    flat(block).iter().any(|it| it.name == "proxy_pass")
}

/// Returns the line and the target of the `proxy_pass` of a block; `None` if nginx alone sends
/// requests there.
pub(super) fn pass(block: &[Directive]) -> Option<(usize, String)> {
    if is_internal(block) {
        return None;
    }
    let found = named(block, "proxy_pass").next()?;
    Some((found.line, found.words.first()?.clone()))
}
