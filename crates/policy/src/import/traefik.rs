//! Traefik: the middlewares `rateLimit` and `inFlightReq` of a dynamic configuration as native
//! limits.
//!
//! ```text
//!   average: 100, period: 1m, burst: 20       bucket = { size = 20, refill = "100/1m" }
//!   inFlightReq: { amount: 10 }               concurrency = { max = 10 }
//! ```
//!
//! Each router has counters of its own, as in Traefik.

mod rule;

use super::Imported;
use super::areas::{self, Area, Listeners, Shape};
use super::document::{below, field, fields, named, parse_toml, text, texts};
use super::limits::{ImportedLimit, LEASE, Writer, list, quoted};
use crate::config::{Diagnostic, Findings};
use crate::envoy::yaml::{self, YamlNode};

const HEADING: &str = "\
Made by `ratekeeper import --from traefik`. Lines that begin with UNSUPPORTED name features that
a native policy does not support.

The buckets are those of Traefik, with one difference: Traefik holds a request back for up to half
of the time between two permits before it refuses it, and here it is refused at once. `ip/128`
counts each IPv6 address by itself, as Traefik does; `ip` counts networks of 64 bits. Paths are
compared in any spelling and in any case. `concurrency` counts at the proxy listener only: behind
Traefik, keep `inFlightReq` in Traefik. Counters begin afresh.";

/// Maximum number of middlewares within a chain, and of chains within one another.
const MAX_CHAINED: usize = 100;
/// Middlewares about limits that have no counterpart.
const UNSUPPORTED: [&str; 2] = ["buffering", "circuitBreaker"];

/// Format of a dynamic configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TraefikFormat {
    /// YAML, or JSON, which is YAML too.
    Yaml,
    /// TOML
    Toml,
}

/// Converts the limits of a dynamic configuration of Traefik to native limits.
///
/// # Errors
/// Returns findings if the text is not of that format.
pub fn traefik(text: &str, format: TraefikFormat) -> Result<Imported, Vec<Diagnostic>> {
    let mut out = Findings::new(text);
    let root = match format {
        TraefikFormat::Yaml => yaml::parse(text, &mut out),
        TraefikFormat::Toml => parse_toml(text, &mut out),
    };
    if out.has_errors() {
        return Err(out.finish());
    }
    let mut writer = Writer::new(HEADING);
    if let Some(root) = root {
        import(&root, &mut writer);
    }
    Ok(writer.finish())
}

fn import(root: &YamlNode, writer: &mut Writer) {
    let middlewares = below(root, &["http", "middlewares"])
        .map(fields)
        .unwrap_or_default();
    client_ip(middlewares, writer);
    if below(root, &["tcp", "middlewares"])
        .is_some_and(|node| named(node).any(|(_, node)| field(node, "inFlightConn").is_some()))
    {
        writer.unsupported("tcp: inFlightConn: limits of TCP connections are not supported");
    }
    let (mut drafts, mut areas) = (Vec::new(), Vec::new());
    let mut used: Vec<String> = Vec::new();
    let routers = below(root, &["http", "routers"]);
    for (name, router) in routers.into_iter().flat_map(named) {
        let mut names = Vec::new();
        for wanted in texts(router, "middlewares") {
            unfold(&wanted, middlewares, &mut names);
        }
        used.extend(names.iter().cloned());
        let mut limits = Vec::new();
        for wanted in &names {
            let Some(middleware) = find(middlewares, wanted) else {
                writer.unsupported(&format!(
                    "router {name}: the middleware {wanted} is not in this file"
                ));
                continue;
            };
            let called = format!("{name} {wanted}");
            for draft in of_middleware(&called, middleware, writer) {
                limits.push(drafts.len());
                drafts.push(draft);
            }
        }
        let written = text(router, "rule").unwrap_or_default();
        let called = format!("router {name}");
        match rule::shape(written) {
            Ok(mut shape) => {
                shape.listeners = listeners(router);
                let priority = text(router, "priority").and_then(|text| text.parse().ok());
                let rank = priority.filter(|rank| *rank > 0).unwrap_or(written.len());
                areas.push(Area {
                    called,
                    shape,
                    rank,
                    limits,
                });
            }
            Err(why) if limits.is_empty() => writer.unsupported(&format!(
                "{called}: limits of other routers may count its requests: {why}"
            )),
            Err(why) => writer.unsupported(&format!("{called}: not imported: {why}")),
        }
    }
    for (name, middleware) in below(root, &["http", "middlewares"])
        .into_iter()
        .flat_map(named)
    {
        if used.iter().any(|known| known.eq_ignore_ascii_case(name)) {
            continue;
        }
        for mut draft in of_middleware(name, middleware, writer) {
            draft.lost.push(
                "no router of this file uses it, so it is for all requests; write `match`"
                    .to_owned(),
            );
            areas.push(Area {
                called: name.to_owned(),
                shape: Shape::default(),
                rank: 0,
                limits: vec![drafts.len()],
            });
            drafts.push(draft);
        }
    }
    areas::write(&areas, &drafts, writer);
}

/// Returns where the requests of a router arrive: a router with `tls` serves encrypted requests
/// only, and one without it the others.
fn listeners(router: &YamlNode) -> Listeners {
    let tls = fields(router)
        .iter()
        .find(|(key, _)| super::document::scalar(key).is_some_and(|key| key == "tls"));
    let is_false = |node: &YamlNode| super::document::scalar(node) == Some("false");
    Listeners {
        names: texts(router, "entryPoints"),
        tls: Some(tls.is_some_and(|(_, node)| !is_false(node))),
    }
}

fn find<'n>(middlewares: &'n [(YamlNode, YamlNode)], name: &str) -> Option<&'n YamlNode> {
    let own = name.strip_suffix("@file").unwrap_or(name);
    let mut known = middlewares.iter();
    known.find_map(|(key, node)| {
        super::document::scalar(key).filter(|key| key.eq_ignore_ascii_case(own))?;
        Some(node)
    })
}

/// Adds the names of a middleware, or of those in its chain.
fn unfold(name: &str, middlewares: &[(YamlNode, YamlNode)], names: &mut Vec<String>) {
    let mut open = vec![name.to_owned()];
    for _ in 0..MAX_CHAINED {
        let Some(name) = open.pop() else {
            return;
        };
        let own = name.strip_suffix("@file").unwrap_or(&name);
        let chain = find(middlewares, own).and_then(|node| field(node, "chain"));
        match chain {
            Some(chain) => open.extend(texts(chain, "middlewares").into_iter().rev()),
            None => names.push(own.to_owned()),
        }
    }
}

/// Returns the limits of a middleware.
fn of_middleware(called: &str, node: &YamlNode, writer: &mut Writer) -> Vec<ImportedLimit> {
    let mut drafts = Vec::new();
    for (kind, config) in named(node) {
        let draft = if kind.eq_ignore_ascii_case("rateLimit") {
            bucket(config)
        } else if kind.eq_ignore_ascii_case("inFlightReq") {
            in_flight(config)
        } else {
            let known = UNSUPPORTED
                .iter()
                .find(|known| known.eq_ignore_ascii_case(kind));
            if let Some(known) = known {
                writer.unsupported(&format!("{called}: {known} is not translated"));
            }
            continue;
        };
        match draft {
            Ok(mut draft) => {
                called.clone_into(&mut draft.called);
                drafts.push(draft);
            }
            Err(why) => writer.unsupported(&format!("{called}: not imported: {why}")),
        }
    }
    drafts
}

fn bucket(config: &YamlNode) -> Result<ImportedLimit, String> {
    let number = |name: &str| match text(config, name) {
        None => Ok(0),
        Some(text) => text
            .parse::<u64>()
            .map_err(|_| format!("{name}: {text} is not a number")),
    };
    let average = number("average")?;
    if average == 0 {
        return Err("average: 0 limits nothing".to_owned());
    }
    // Traefik takes a burst of 0 for 1.
    let burst = number("burst")?.max(1);
    let period = match text(config, "period") {
        // A number alone is seconds.
        Some(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => format!("{text}s"),
        Some(text) => text.to_owned(),
        None => "1s".to_owned(),
    };
    let refill = quoted(&format!("{average}/{period}"));
    let mut draft = ImportedLimit {
        lines: vec![format!("bucket = {{ size = {burst}, refill = {refill} }}")],
        ..ImportedLimit::default()
    };
    if field(config, "redis").is_some() {
        draft
            .lost
            .push("redis: start with --store redis://HOST:PORT to share counters".to_owned());
    }
    source(config, "ip/128", &mut draft)?;
    Ok(draft)
}

fn in_flight(config: &YamlNode) -> Result<ImportedLimit, String> {
    let amount = text(config, "amount").and_then(|text| text.parse::<u32>().ok());
    let amount = amount
        .filter(|amount| *amount > 0)
        .ok_or("amount must be at least 1")?;
    let mut draft = ImportedLimit {
        lines: vec![format!(
            "concurrency = {{ max = {amount}, lease = \"{LEASE}\" }}"
        )],
        ..ImportedLimit::default()
    };
    source(config, "host", &mut draft)?;
    Ok(draft)
}

/// Reads `sourceCriterion` into the key.
fn source(config: &YamlNode, default: &str, draft: &mut ImportedLimit) -> Result<(), String> {
    let Some(source) = field(config, "sourceCriterion") else {
        draft.key.push(default.to_owned());
        return Ok(());
    };
    if let Some(name) = text(source, "requestHeaderName") {
        draft.key.push(format!("header:{name}"));
        // Requests without the header have one counter together, as in Traefik.
        draft.lines.push("missing_key = \"shared\"".to_owned());
    } else if super::document::is_true(source, "requestHost") {
        draft.key.push("host".to_owned());
    } else if let Some(strategy) = field(source, "ipStrategy") {
        if let Some(depth) = text(strategy, "depth").filter(|depth| *depth != "0") {
            return Err(format!(
                "ipStrategy: depth: {depth}: proxies are named here, not counted; list them in \
                 [client_ip] as trusted_proxies"
            ));
        }
        let bits = text(strategy, "ipv6Subnet").unwrap_or("128");
        draft.key.push(format!("ip/{bits}"));
    } else {
        draft.key.push(default.to_owned());
    }
    Ok(())
}

/// Writes `[client_ip]` from the addresses that `ipStrategy` excludes.
fn client_ip(middlewares: &[(YamlNode, YamlNode)], writer: &mut Writer) {
    let mut found: Vec<Vec<String>> = Vec::new();
    for (_, middleware) in middlewares {
        for (_, config) in named(middleware) {
            let strategy = below(config, &["sourceCriterion", "ipStrategy"]);
            let excluded = strategy.map(|strategy| texts(strategy, "excludedIPs"));
            if let Some(excluded) = excluded.filter(|excluded| !excluded.is_empty())
                && !found.contains(&excluded)
            {
                found.push(excluded);
            }
        }
    }
    let Some(first) = found.first() else {
        return;
    };
    if found.len() > 1 {
        writer.unsupported("excludedIPs: middlewares have different lists; the first is taken");
    }
    writer.unsupported(
        "excludedIPs: X-Forwarded-For is read from these addresses only; list the proxy in front too",
    );
    let proxies = list(first);
    let body = format!("[client_ip]\ntrusted_proxies = {proxies}\nheader = \"x-forwarded-for\"\n");
    writer.table("excludedIPs", &body);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routers_have_limits_of_their_own() {
        let yaml = "
http:
  routers:
    api:
      rule: Host(`shop.example`) && PathPrefix(`/api`)
      middlewares: [api-chain]
      service: shop
    pages:
      rule: Host(`shop.example`)
      middlewares: [pages@file]
      service: shop
    health:
      rule: Host(`shop.example`) && Path(`/health`)
      service: shop
  middlewares:
    api-chain: { chain: { middlewares: [per-key, slots] } }
    per-key:
      rateLimit:
        average: 100
        period: 1m
        burst: 20
        sourceCriterion: { requestHeaderName: X-Api-Key }
    slots: { inFlightReq: { amount: 10 } }
    pages: { rateLimit: { average: 50 } }
";
        insta::assert_snapshot!(traefik(yaml, TraefikFormat::Yaml).unwrap().text);
    }

    #[test]
    fn toml_is_read_as_yaml_is() {
        let toml = "
[http.routers.all]
rule = \"PathPrefix(`/`)\"
middlewares = [\"limit\"]
[http.middlewares.limit.rateLimit]
average = 10
period = \"1s\"
burst = 30
[http.middlewares.limit.rateLimit.sourceCriterion.ipStrategy]
excludedIPs = [\"10.0.0.0/8\"]
ipv6Subnet = 64
";
        insta::assert_snapshot!(traefik(toml, TraefikFormat::Toml).unwrap().text);
    }

    #[test]
    fn unsupported_features_are_listed() {
        let yaml = "
http:
  routers:
    odd: { rule: HostRegexp(`.+`), middlewares: [depth, none, off] }
    regex: { rule: PathRegexp(`/a`), middlewares: [limit] }
  middlewares:
    depth: { rateLimit: { average: 1, sourceCriterion: { ipStrategy: { depth: 2 } } } }
    off: { rateLimit: { burst: 1 } }
    limit: { rateLimit: { average: 1, burst: x } }
    lonely: { rateLimit: { average: 1, redis: { endpoints: [r] } } }
    breaker: { circuitBreaker: { expression: NetworkErrorRatio() > 0.5 } }
tcp: { middlewares: { few: { inFlightConn: { amount: 1 } } } }
";
        insta::assert_snapshot!(traefik(yaml, TraefikFormat::Yaml).unwrap().text);
    }

    #[test]
    fn routers_of_other_entry_points_take_no_limits_away() {
        for (secure, redirect) in [
            ("entryPoints: [websecure]", "entryPoints: [web]"),
            ("tls: {}", "middlewares: []"),
        ] {
            let yaml = format!(
                "
http:
  routers:
    shop: {{ rule: Host(`shop.example`), middlewares: [limit], {secure} }}
    redirect: {{ rule: Host(`shop.example`), priority: 100, {redirect} }}
  middlewares:
    limit: {{ rateLimit: {{ average: 5 }} }}
"
            );
            let imported = traefik(&yaml, TraefikFormat::Yaml).unwrap();
            assert_eq!(imported.limits, 1);
            assert!(!imported.text.contains("[[exempt]]"), "{}", imported.text);
        }
    }

    #[test]
    fn a_router_above_all_of_a_limit_does_not_end_it() {
        let yaml = "
http:
  routers:
    shop: { rule: Host(`shop.example`), middlewares: [limit] }
    all: { rule: PathPrefix(`/`), priority: 100 }
  middlewares:
    limit: { rateLimit: { average: 5 } }
";
        let imported = traefik(yaml, TraefikFormat::Yaml).unwrap();
        assert!(!imported.text.contains("[[exempt]]"), "{}", imported.text);
        assert_eq!(
            imported.unsupported,
            ["shop limit: also counts requests of router all: without them it would never apply"]
        );
    }

    #[test]
    fn chains_that_contain_themselves_end() {
        let yaml = "http: { routers: { r: { rule: Path(`/`), middlewares: [a] } },
                    middlewares: { a: { chain: { middlewares: [a, a] } } } }";
        assert_eq!(traefik(yaml, TraefikFormat::Yaml).unwrap().limits, 0);
    }
}
