//! Kong: the plugin `rate-limiting` of a declarative configuration as native limits.
//!
//! ```text
//!   plugins on   route > service > everywhere       one of them applies to a request
//!   second: 5, hour: 100                            a limit for each period, fixed windows
//! ```
//!
//! As Kong does, a refused request counts under none of the periods.

mod credential;
mod route;

use super::Imported;
use super::areas::{self, Area, Shape};
use super::document::{field, is_true, items, named, scalar, text};
use super::limits::{ImportedLimit, Writer, quoted};
use crate::config::{Diagnostic, Findings};
use crate::envoy::yaml::{self, YamlNode};

const HEADING: &str = "\
Made by `ratekeeper import --from kong`. Lines that begin with UNSUPPORTED name features that a
native policy does not support.

The windows are those of Kong: fixed, by the clock of UTC. Up to twice a limit passes around an
edge; limit = \"100/1m\" without `algorithm` is a token bucket. Addresses are read by [client_ip]:
list there what kong.conf has as trusted_ips. Paths are compared in any spelling and in any case.
Counters begin afresh.";

/// Periods of the plugin, and the form of a limit.
const PERIODS: [(&str, &str); 6] = [
    ("second", "1s"),
    ("minute", "1m"),
    ("hour", "hour"),
    ("day", "day"),
    ("month", "month"),
    ("year", "year"),
];
/// Fields of the plugin that are read, or that only describe Kong's own store.
const KNOWN: [&str; 14] = [
    "second",
    "minute",
    "hour",
    "day",
    "month",
    "year",
    "limit_by",
    "header_name",
    "path",
    "policy",
    "error_code",
    "error_message",
    "hide_client_headers",
    "fault_tolerant",
];
/// Status of a refusal, there and here.
const DEFAULT_STATUS: u16 = 429;
/// Scopes of plugins that have no counterpart.
const CONSUMERS: [&str; 2] = ["consumer", "consumer_group"];
/// Name of the level of plugins that no service and no route has.
const EVERYWHERE: &str = "everywhere";

/// Converts the limits of a declarative configuration of Kong, in YAML or JSON, to native limits.
///
/// # Errors
/// Returns findings if the text is not YAML or JSON.
pub fn kong(text: &str) -> Result<Imported, Vec<Diagnostic>> {
    let mut out = Findings::new(text);
    let root = yaml::parse(text, &mut out);
    if out.has_errors() {
        return Err(out.finish());
    }
    let mut writer = Writer::new(HEADING);
    writer.timezone("UTC");
    if let Some(root) = root {
        let mut import = Import {
            everywhere: plugins(&root, &[]),
            drafts: Vec::new(),
            areas: Vec::new(),
            writer: &mut writer,
        };
        import.root(&root);
        let Import { areas, drafts, .. } = import;
        areas::write(&areas, &drafts, &mut writer);
    }
    Ok(writer.finish())
}

/// The plugins of one level, and the credential that the level asks for.
#[derive(Clone, Debug, Default)]
struct Level {
    /// Indexes of its limits, if it has the plugin.
    limits: Option<Vec<usize>>,
    credential: Option<String>,
}

struct Import<'n, 'w> {
    /// Plugins at the top of the file.
    everywhere: Vec<&'n YamlNode>,
    drafts: Vec<ImportedLimit>,
    areas: Vec<Area>,
    writer: &'w mut Writer,
}

/// Returns the plugins of an entity, and those at the top that name it.
fn plugins<'n>(node: &'n YamlNode, named: &[&'n YamlNode]) -> Vec<&'n YamlNode> {
    items(node, "plugins")
        .iter()
        .chain(named.iter().copied())
        .collect()
}

impl<'n> Import<'n, '_> {
    fn root(&mut self, root: &'n YamlNode) {
        let scoped = |plugin: &YamlNode| {
            let scopes = ["route", "service"].iter().chain(&CONSUMERS);
            scopes
                .into_iter()
                .any(|scope| field(plugin, scope).is_some())
        };
        for plugin in &self.everywhere.clone() {
            if let Some(scope) = CONSUMERS
                .iter()
                .find(|scope| field(plugin, scope).is_some())
            {
                self.refuse_consumer(plugin, scope);
            }
        }
        let global: Vec<_> = self
            .everywhere
            .iter()
            .copied()
            .filter(|plugin| !scoped(plugin))
            .collect();
        let global = self.level(&global, EVERYWHERE, &Level::default());
        self.areas.push(Area {
            called: EVERYWHERE.to_owned(),
            shape: Shape::default(),
            rank: 0,
            limits: global.limits.clone().unwrap_or_default(),
        });
        for consumer in ["consumers", "consumer_groups"] {
            for node in items(root, consumer) {
                for plugin in items(node, "plugins") {
                    self.refuse_consumer(plugin, consumer);
                }
            }
        }
        let services = items(root, "services");
        let all_routes = items(root, "routes");
        for service in services {
            let name = text(service, "name").unwrap_or("without a name");
            let own = plugins(service, &self.scoped("service", service));
            let level = self.level(&own, &format!("service {name}"), &global);
            let routes = items(service, "routes").iter();
            let others = all_routes.iter();
            let others = others.filter(|route| refers(route, "service", service));
            for route in routes.chain(others) {
                self.route(route, &level);
            }
        }
        let is_of_none = |route: &&YamlNode| {
            !services
                .iter()
                .any(|service| refers(route, "service", service))
        };
        for route in all_routes.iter().filter(is_of_none) {
            self.route(route, &global);
        }
        let nested = services.iter().flat_map(|service| items(service, "routes"));
        let routes: Vec<_> = all_routes.iter().chain(nested).collect();
        for plugin in self.everywhere.clone() {
            let name = text(plugin, "name").unwrap_or_default();
            let finds = |kind: &str, known: &[&YamlNode]| {
                field(plugin, kind).is_none()
                    || known.iter().any(|entity| refers(plugin, kind, entity))
            };
            let services: Vec<_> = services.iter().collect();
            if is_about_rates(name) && !(finds("service", &services) && finds("route", &routes)) {
                self.writer.unsupported(&format!(
                    "{name}: not imported: its service or route is not in this file"
                ));
            }
        }
    }

    /// Returns the plugins at the top that name an entity.
    fn scoped(&self, kind: &str, entity: &YamlNode) -> Vec<&'n YamlNode> {
        // A plugin of a route and a service is one of the route.
        let narrower = match kind {
            "service" => &["route", "consumer", "consumer_group"][..],
            _ => &CONSUMERS[..],
        };
        let all = self.everywhere.iter().copied();
        let all = all.filter(|plugin| refers(plugin, kind, entity));
        all.filter(|plugin| narrower.iter().all(|scope| field(plugin, scope).is_none()))
            .collect()
    }

    fn refuse_consumer(&mut self, plugin: &YamlNode, scope: &str) {
        let name = text(plugin, "name").unwrap_or("?");
        if is_about_rates(name) {
            self.writer.unsupported(&format!(
                "{scope}: {name}: not imported: Kong's consumers are not known here; write \
                 `plans`, or an [[override]] for the key of the consumer"
            ));
        }
    }

    /// Returns the limits of a level: its own, else those of the level above.
    fn level(&mut self, plugins: &[&YamlNode], called: &str, above: &Level) -> Level {
        let enabled = |plugin: &&&YamlNode| text(plugin, "enabled") != Some("false");
        let mut level = above.clone();
        for plugin in plugins.iter().filter(enabled) {
            let name = text(plugin, "name").unwrap_or_default();
            let credential = credential::CREDENTIALS
                .iter()
                .find(|(known, _)| *known == name);
            if let Some((_, part)) = credential {
                level.credential = Some(credential::part(name, part, plugin));
            }
        }
        let mut own: Option<Vec<usize>> = None;
        for plugin in plugins.iter().filter(enabled) {
            let consumer = CONSUMERS
                .iter()
                .find(|scope| field(plugin, scope).is_some());
            if let Some(scope) = consumer {
                self.refuse_consumer(plugin, scope);
                continue;
            }
            match text(plugin, "name").unwrap_or_default() {
                "rate-limiting" => {
                    let limits = self.plugin(plugin, called, level.credential.as_deref());
                    own.get_or_insert_default().extend(limits);
                }
                name if is_about_rates(name) => self.writer.unsupported(&format!(
                    "{called}: {name}: not imported: only the plugin rate-limiting is translated"
                )),
                _ => {}
            }
        }
        if own.is_some() {
            level.limits = own;
        }
        level
    }

    fn route(&mut self, route: &'n YamlNode, above: &Level) {
        let name = text(route, "name").unwrap_or("without a name");
        let called = format!("route {name}");
        let own = plugins(route, &self.scoped("route", route));
        let level = self.level(&own, &called, above);
        let limits = level.limits.unwrap_or_default();
        match route::shape(route) {
            Ok(shape) => self.areas.push(Area {
                called,
                rank: route::rank(route),
                shape,
                limits,
            }),
            Err(why) if limits.is_empty() => self.writer.unsupported(&format!(
                "{called}: limits of other routes may count its requests: {why}"
            )),
            Err(why) => self
                .writer
                .unsupported(&format!("{called}: not imported: {why}")),
        }
    }

    /// Returns the indexes of the limits of one plugin.
    fn plugin(&mut self, plugin: &YamlNode, called: &str, credential: Option<&str>) -> Vec<usize> {
        let empty = YamlNode {
            at: 0..0,
            content: yaml::Content::Table(Vec::new()),
        };
        let config = field(plugin, "config").unwrap_or(&empty);
        let mut lost = lost(config);
        if called == EVERYWHERE && text(config, "limit_by") == Some("service") {
            lost.push("limit_by: service: all services have one counter".to_owned());
        }
        let mut draft = ImportedLimit::default();
        match key(config, credential, &mut lost) {
            Ok(part) => draft.key.extend(part),
            Err(why) => {
                let line = format!("{called}: rate-limiting: not imported: {why}");
                self.writer.unsupported(&line);
                return Vec::new();
            }
        }
        let status = text(config, "error_code").and_then(|text| text.parse::<u16>().ok());
        let status = status.filter(|status| *status != DEFAULT_STATUS);
        let status = status.map(|status| format!("status = {status}"));
        let mut indexes = Vec::new();
        for (period, form) in PERIODS {
            let Some(number) = text(config, period) else {
                continue;
            };
            let mut limit = draft.clone();
            limit.called = format!("{called} {period}");
            limit.lines = vec![format!("limit = {}", quoted(&format!("{number}/{form}")))];
            if form.ends_with(['s', 'm']) {
                limit.lines.push("algorithm = \"fixed-window\"".to_owned());
            }
            limit.lines.extend(status.clone());
            limit.lost = std::mem::take(&mut lost);
            indexes.push(self.drafts.len());
            self.drafts.push(limit);
        }
        if indexes.is_empty() {
            let line = format!("{called}: rate-limiting: not imported: it has no period");
            self.writer.unsupported(&line);
        }
        indexes
    }
}

fn is_about_rates(plugin: &str) -> bool {
    let words = ["rate-limit", "ratelimit", "throttl", "service-protection"];
    words.iter().any(|word| plugin.contains(word))
}

/// Returns true if an entity refers to another, by its name or its id.
fn refers(node: &YamlNode, kind: &str, to: &YamlNode) -> bool {
    let written = field(node, kind);
    let written = written
        .and_then(|node| scalar(node).or_else(|| text(node, "name").or_else(|| text(node, "id"))));
    let names = ["name", "id"].map(|name| text(to, name));
    written.is_some_and(|written| names.contains(&Some(written)))
}

/// Returns the key part of the plugin; `None` for one counter.
fn key(
    config: &YamlNode,
    credential: Option<&str>,
    lost: &mut Vec<String>,
) -> Result<Option<String>, String> {
    match text(config, "limit_by").unwrap_or("consumer") {
        "ip" => Ok(Some("ip/128".to_owned())),
        "service" => Ok(None),
        "header" => match text(config, "header_name") {
            Some(name) => Ok(Some(format!("header:{name}"))),
            None => Err("limit_by: header without header_name".to_owned()),
        },
        by @ ("consumer" | "credential") => Ok(Some(match credential {
            // Without a plugin that identifies consumers Kong counts by address.
            None => "ip/128".to_owned(),
            Some(part) => {
                lost.push(format!(
                    "limit_by: {by}: counted by {part}, which is not verified here, and each \
                     credential of a consumer has counters of its own"
                ));
                if part.starts_with("header:") && part != "header:authorization" {
                    lost.push(format!(
                        "key-auth: the key is read from {part} only, not from the query or the body"
                    ));
                }
                part.to_owned()
            }
        })),
        by => Err(format!("limit_by: {by} has no counterpart")),
    }
}

/// Returns the settings of the plugin that are lost.
fn lost(config: &YamlNode) -> Vec<String> {
    let mut lost = Vec::new();
    let policy = text(config, "policy").unwrap_or("local");
    if policy != "local" {
        lost.push(format!(
            "policy: {policy}: start with --store redis://HOST:PORT to share counters, and choose \
             on_store_error"
        ));
    }
    if is_true(config, "hide_client_headers") {
        lost.push(
            "hide_client_headers: write headers = \"off\" at the top of the policy".to_owned(),
        );
    }
    if let Some(message) = text(config, "error_message") {
        lost.push(format!(
            "error_message: {message}: write a [response.NAME] with this text"
        ));
    }
    for (name, _) in named(config) {
        let store = name.starts_with("redis") || name == "sync_rate";
        if !KNOWN.contains(&name) && !store {
            lost.push(format!("unsupported field `{name}`"));
        }
    }
    lost
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_plugin_applies_to_a_request() {
        let text = r#"
_format_version: "3.0"
plugins:
  - name: rate-limiting
    config: { minute: 600, policy: local, limit_by: ip }
  - name: rate-limiting
    service: reports
    config: { second: 5, hour: 100, limit_by: header, header_name: x-tenant, error_code: 503 }
services:
  - name: shop
    url: http://127.0.0.1:3000
    routes:
      - name: pages
        hosts: [shop.example]
        paths: [/]
      - name: orders
        hosts: [shop.example]
        methods: [POST]
        paths: [/orders]
        plugins:
          - name: key-auth
          - name: rate-limiting
            config: { day: 20, policy: redis, fault_tolerant: false, redis: { host: r } }
  - name: reports
    url: http://127.0.0.1:3001
routes:
  - name: reports
    service: { name: reports }
    paths: [/reports, /charts]
"#;
        insta::assert_snapshot!(kong(text).unwrap().text);
    }

    #[test]
    fn unsupported_features_are_listed() {
        let text = r#"{
  "consumers": [{ "username": "ann", "plugins": [{ "name": "rate-limiting", "config": { "minute": 5 } }] }],
  "plugins": [
    { "name": "rate-limiting", "consumer": "bob", "config": { "minute": 5 } },
    { "name": "rate-limiting", "service": "missing", "config": { "minute": 5 } }],
  "services": [{
    "name": "shop",
    "plugins": [{ "name": "rate-limiting-advanced", "config": { "limit": [5], "window_size": [60] } }],
    "routes": [
      { "name": "regex", "paths": ["~/a/\\d+$"], "plugins": [{ "name": "rate-limiting", "config": { "minute": 5 } }] },
      { "name": "free", "expression": "true" },
      { "name": "path", "paths": ["/p"], "plugins": [{ "name": "rate-limiting", "config": { "minute": 5, "limit_by": "path", "path": "/p" } }] },
      { "name": "none", "paths": ["/n"], "plugins": [{ "name": "rate-limiting", "config": { "limit_by": "ip" } }] },
      { "name": "zero", "paths": ["/z"], "plugins": [{ "name": "rate-limiting", "config": { "second": 0, "limit_by": "ip", "hide_client_headers": true, "new": 1 } }] },
      { "name": "off", "paths": ["/o"], "plugins": [{ "name": "rate-limiting", "enabled": false, "config": { "second": 1 } }] }
    ] }]
}"#;
        insta::assert_snapshot!(kong(text).unwrap().text);
    }

    #[test]
    fn key_auth_names_its_header() {
        let text = "
plugins:
  - { name: key-auth, config: { key_names: [x-key, token] } }
  - { name: rate-limiting, config: { minute: 5 } }
";
        let imported = kong(text).unwrap();
        assert!(
            imported.text.contains("key = [\"header:x-key\"]"),
            "{}",
            imported.text
        );
    }

    #[test]
    fn a_text_that_is_not_yaml_is_refused() {
        assert_eq!(kong("services: [").unwrap_err()[0].code, "RK0401");
    }
}
