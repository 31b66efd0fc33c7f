//! Proxy: `proxy_pass` as the upstreams of the gateway.
//!
//! ```text
//!   location /     { proxy_pass http://app; }           [listen.proxy] upstream
//!   location /img/ { proxy_pass http://10.0.0.2:81; }   [[listen.proxy.route]] match, upstream
//! ```

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use super::directive::Directive;
use super::place::NginxPlace;
use crate::UpstreamUrl;
use crate::import::areas::{Area, MAX_AREAS, PathRange};
use crate::import::limits::{Writer, list, match_table, quoted, slug};

/// Parameters of a `server`: how failures are found, and one that is reported elsewhere.
const KNOWN: [&str; 3] = ["max_fails=", "fail_timeout=", "max_conns="];
/// Directives of an `upstream` that change nothing here: connections are kept by themselves.
const OF_CONNECTIONS: &str = "server keepalive keepalive_timeout keepalive_requests zone";

/// Beginning of the address of a Unix socket.
const SOCKET: &str = "unix:";

/// Each `upstream` of a file.
#[derive(Default)]
pub(super) struct UpstreamBlocks(HashMap<String, Upstream>);

#[derive(Default)]
struct Upstream {
    addresses: Vec<String>,
    /// Words that change something else, each with its line.
    skipped: Vec<(usize, String)>,
}

impl UpstreamBlocks {
    /// Reads `upstream NAME { server ADDRESS; }`.
    pub(super) fn read(&mut self, directive: &Directive) {
        let name = directive.words.first().cloned().unwrap_or_default();
        let upstream = self.0.entry(name).or_default();
        for line in directive.block.iter().flatten() {
            let mut skip = |word: &String| upstream.skipped.push((line.line, word.clone()));
            if !line.is_one_of(OF_CONNECTIONS) {
                skip(&line.name);
            }
            let [address, words @ ..] = &line.words[..] else {
                continue;
            };
            if line.name != "server" {
                continue;
            }
            let is_known = |word: &str| KNOWN.iter().any(|start| word.starts_with(start));
            words.iter().filter(|word| !is_known(word)).for_each(skip);
            if !words.iter().any(|word| word == "backup" || word == "down") {
                upstream.addresses.push(address.clone());
            }
        }
    }

    /// Returns the URLs of a `proxy_pass` at a location that is `path`.
    fn urls(
        &self,
        target: &str,
        path: Option<&str>,
        writer: &mut Writer,
    ) -> Result<Vec<String>, String> {
        let (scheme, rest) = target.split_once("://").ok_or("no http:// or https://")?;
        // The path of a socket ends at a colon.
        let uri_at = match rest.strip_prefix(SOCKET) {
            Some(path) => path.find(':').map(|at| SOCKET.len() + at),
            None => rest.find('/'),
        };
        let (host, uri) = uri_at.map_or((rest, ""), |at| rest.split_at(at));
        let uri = uri.trim_start_matches(':');
        if !uri.is_empty() && uri != path.unwrap_or("/") {
            return Err("the upstream receives the path of the request".to_owned());
        }
        let one = [host.to_owned()];
        let upstream = self.0.get(host);
        let hosts = upstream.map_or(&one[..], |upstream| &upstream.addresses);
        for (line, word) in upstream.iter().flat_map(|upstream| &upstream.skipped) {
            writer.unsupported(&format!(
                "line {line}: upstream {host}: `{word}` is skipped: addresses are used in turn"
            ));
        }
        let url = |host: &String| match (host.starts_with(SOCKET), scheme) {
            (true, "https") => Err("a socket is reached without TLS"),
            (true, _) => Ok(host.clone()),
            (false, _) => Ok(format!("{scheme}://{host}")),
        };
        let urls = hosts.iter().map(url).collect::<Result<Vec<_>, _>>()?;
        for url in &urls {
            let read = url.parse::<UpstreamUrl>();
            read.map_err(|why| why.reason)?;
        }
        Ok(urls)
    }
}

/// Writes the upstreams of all places; nothing if no place has a `proxy_pass`.
pub(super) fn write(places: &[NginxPlace], upstreams: &UpstreamBlocks, writer: &mut Writer) {
    let mut passed: Vec<(&NginxPlace, Vec<String>)> = Vec::new();
    for place in places {
        let Some((line, target)) = &place.pass else {
            continue;
        };
        let path = place.area.shape.paths.first().map(PathRange::text);
        match upstreams.urls(target, path, writer) {
            Ok(urls) => passed.push((place, urls)),
            Err(why) => writer.unsupported(&format!("line {line}: proxy_pass {target}: {why}")),
        }
    }
    passed.sort_by_key(|(place, _)| {
        let wide = |name: &&String| name.starts_with('*');
        let widest = place.area.names.iter().filter(wide).map(String::len).min();
        Reverse((widest.unwrap_or(usize::MAX), place.area.rank))
    });
    let Some((_, default)) = passed.last() else {
        return;
    };
    for place in places.iter().filter(|place| place.pass.is_none()) {
        let called = &place.area.called;
        writer.unsupported(&format!(
            "{called}: it has no `proxy_pass` for requests of clients; the gateway forwards them"
        ));
    }
    let mut tables = String::new();
    let table = format!("[listen.proxy]\nupstream = {}\n", list(default));
    writer.table("proxy_pass", &mut tables, &table);
    let several: BTreeSet<_> = passed.iter().map(|(_, urls)| urls).collect();
    let routes = usize::from(several.len() > 1) * (passed.len() - 1);
    for (index, (place, urls)) in passed.iter().enumerate().take(MAX_AREAS) {
        // Neither of two servers with one name at two ports is above the other.
        let meets = |first: &Area| {
            let is_below = first.takes_from(&place.area) && !place.area.takes_from(first);
            place.area.shape.looks_as(&first.shape) && !is_below
        };
        let mut before = passed[..index].iter();
        let first = before.find(|(first, others)| others != urls && meets(&first.area));
        if let Some((first, _)) = first {
            let (called, first) = (&place.area.called, &first.area.called);
            writer.unsupported(&format!(
                "{called}: some of its requests meet the route of {first}, which is before its own"
            ));
        }
    }
    for (number, (place, urls)) in passed[..routes].iter().enumerate() {
        if place.area.shape.matches().is_empty() {
            let called = &place.area.called;
            writer.unsupported(&format!("{called}: a policy does not tell its port apart"));
            continue;
        }
        let name = slug(&place.area.called, &format!("-{}", number + 1));
        let (name, matches) = (quoted(&name), match_table(&place.area.shape.matches()));
        let urls = list(urls);
        let table = format!(
            "[[listen.proxy.route]]\nname = {name}\nmatch = {matches}\nupstream = {urls}\n"
        );
        writer.table(&place.area.called, &mut tables, &table);
    }
}
