//! Variable: a `map` or a `geo`, by which nginx counts some requests only: those with an empty
//! key are not counted.
//!
//! ```text
//!   geo $free { default 0; 10.0.0.0/8 1; }
//!   map $free $key { 0 $binary_remote_addr; 1 ""; }    key = ["ip/128"], match ip = "!10.0.0.0/8"
//! ```

use std::collections::HashMap;
use std::net::IpAddr;

use super::directive::Directive;
use crate::import::areas::PathRange;
use crate::import::limits::{ImportedLimit, quoted};
use crate::nginx_part::nginx_part;

/// Maximum number of variables that lead to one another.
const MAX_DEPTH: usize = 8;

/// The variables that a file defines, by name.
#[derive(Default)]
pub(super) struct Variables(HashMap<String, Variable>);

/// A `map` or a `geo`.
struct Variable {
    /// `None` for the networks of a `geo`, which holds the address of a client.
    source: Option<String>,
    cases: Cases,
    /// A line of the block that is not understood.
    odd: Option<String>,
}

/// Values of a source, and what stands for each of them, and for all others.
#[derive(Clone, Default)]
struct Cases {
    listed: Vec<(String, String)>,
    default: String,
}

impl Variables {
    /// Reads `map SOURCE $NAME { .. }`, `geo [SOURCE] $NAME { .. }`.
    pub(super) fn read(&mut self, directive: &Directive) {
        let (name, source) = match &directive.words[..] {
            [name] => (name, None),
            [source, name] => (name, Some(source.clone())),
            _ => return,
        };
        let mut variable = Variable {
            source: source.filter(|source| directive.name != "geo" || source != "$remote_addr"),
            cases: Cases::default(),
            odd: None,
        };
        if directive.name == "geo" {
            variable.odd = variable.source.take().map(|source| format!("geo {source}"));
        }
        let cases = &mut variable.cases;
        for case in directive.block.iter().flatten() {
            match (case.name.as_str(), &case.words[..]) {
                ("volatile", []) => {}
                (_, [value]) if directive.name == "geo" && value.contains('$') => {
                    // nginx takes it as a text, which is the same for all requests.
                    let value = format!("geo value {value}");
                    variable.odd.get_or_insert(value);
                }
                ("default", [value]) => cases.default.clone_from(value),
                (pattern, [value]) if !pattern.starts_with('~') && pattern != "include" => {
                    let pattern = pattern.strip_prefix('\\').unwrap_or(pattern);
                    cases.listed.push((pattern.to_owned(), value.clone()));
                }
                (name, words) => variable.odd = Some(format!("{name} {}", words.join(" "))),
            }
        }
        self.0
            .insert(name.trim_start_matches('$').to_owned(), variable);
    }

    /// Returns the key that a zone counts by; writes which requests it counts to the limit.
    pub(super) fn counted(&self, key: &str, limit: &mut ImportedLimit) -> Result<String, String> {
        let Some(name) = self.name(key) else {
            return Ok(key.to_owned());
        };
        let (field, cases) = self.cases(name, MAX_DEPTH)?;
        let values = cases.listed.iter().map(|(_, value)| value);
        let values = values.chain([&cases.default]);
        let mut keys = values.filter(|key| !key.is_empty());
        let Some(key) = keys.next() else {
            return Err(format!(
                "${name} is always empty, so that no request is counted"
            ));
        };
        if keys.any(|other| other != key) {
            return Err(format!("${name} has several keys: write a limit for each"));
        }
        let is_counted = !cases.default.is_empty();
        let others = cases.listed.iter();
        let others = others.filter(|(_, key)| key.is_empty() == is_counted);
        let sign = if is_counted { "!" } else { "" };
        let mut listed: Vec<_> = others.map(|(value, _)| format!("{sign}{value}")).collect();
        if listed.is_empty() {
            return Ok(key.clone());
        }
        if field == "ip" {
            distinct(name, &cases)?;
        }
        let has_case = |value: &String| value.contains(|c: char| c.is_ascii_alphabetic());
        if field.contains('.') && listed.iter().any(has_case) {
            let why = format!("the values of ${name} are compared exactly, by nginx in any case");
            limit.lost.push(why);
        }
        let lists = |method: &str| listed.iter().any(|it| it.eq_ignore_ascii_case(method));
        if field == "method" && lists("GET") && !lists("HEAD") {
            listed.push("!HEAD".to_owned()); // which GET counts here, and not in nginx
        }
        limit.matches.push((field, listed));
        Ok(key.clone())
    }

    /// Returns the name of a variable of the file: `key` of `$key` and `${key}`.
    fn name<'t>(&self, text: &'t str) -> Option<&'t str> {
        let name = text.strip_prefix('$')?;
        let name = name.trim_start_matches('{').trim_end_matches('}');
        self.0.contains_key(name).then_some(name)
    }

    /// Returns a field of requests, and the key of each of its values.
    fn cases(&self, name: &str, depth: usize) -> Result<(String, Cases), String> {
        let variable = &self.0[name];
        if let Some(odd) = &variable.odd {
            return Err(format!("${name}: `{odd}` has no counterpart"));
        }
        let own = &variable.cases;
        let Some(source) = &variable.source else {
            return Ok(("ip".to_owned(), own.clone()));
        };
        if let Some(inner) = self.name(source).filter(|_| depth > 0) {
            let (field, mut cases) = self.cases(inner, depth - 1)?;
            for (_, value) in &mut cases.listed {
                *value = own.value_of(value);
            }
            cases.default = own.value_of(&cases.default);
            return Ok((field, cases));
        }
        let field = field(source).ok_or_else(|| format!("${name}: {source} has no counterpart"))?;
        let odd = |value: &&(String, String)| {
            let value = &value.0;
            let plain = match field.as_str() {
                "path" => PathRange::is_plain(value),
                // A `map` compares texts: a network is none, nor is another spelling.
                "ip" => value
                    .parse::<IpAddr>()
                    .is_ok_and(|ip| ip.to_string() == *value),
                _ => true,
            };
            !plain || value.is_empty() || value.starts_with('!') || value.contains('*')
        };
        if let Some((value, _)) = own.listed.iter().find(odd) {
            return Err(format!("${name}: the value `{value}` has no counterpart"));
        }
        Ok((field, own.clone()))
    }
}

impl Cases {
    /// Returns what stands for a value of the source, which nginx compares in any case.
    fn value_of(&self, value: &str) -> String {
        let mut listed = self.listed.iter();
        let found = listed.find(|(case, _)| case.eq_ignore_ascii_case(value));
        found.map_or(&self.default, |(_, key)| key).clone()
    }
}

/// Returns the field of `match` for a variable; `None` for one that nginx may know by another text.
fn field(source: &str) -> Option<String> {
    let part = match source.strip_prefix('$')? {
        "binary_remote_addr" | "http_host" | "server_name" => return None,
        name => nginx_part(name)?,
    };
    Some(match part.split_once(':') {
        Some((kind, name)) => format!("{kind}.{}", quoted(name)),
        None if part == "ip/128" => "ip".to_owned(),
        None => part,
    })
}

/// Refuses networks within one another of which only some are counted: nginx takes the smallest.
fn distinct(name: &str, cases: &Cases) -> Result<(), String> {
    let mut networks = Vec::new();
    for (text, key) in &cases.listed {
        let network = crate::network(text).map_err(|why| format!("${name}: {}", why.reason))?;
        networks.push((network, key.is_empty()));
    }
    let meets = |a: &ipnet::IpNet, b: &ipnet::IpNet| a.contains(b) || b.contains(a);
    for (index, (network, is_empty)) in networks.iter().enumerate() {
        let mut before = networks[..index].iter();
        if before.any(|(other, counted)| counted != is_empty && meets(other, network)) {
            return Err(format!(
                "${name}: {network} is within another network, or holds one"
            ));
        }
    }
    Ok(())
}
