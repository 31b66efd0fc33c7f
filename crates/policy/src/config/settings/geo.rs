//! Geo: `[geo]`, and the fields and key parts that need it.

use std::sync::Arc;

use jiff::Timestamp;

use super::database_file::DatabaseFile;
use crate::config::fields::MAX_KEY_PARTS;
use crate::config::{
    At, Node, PolicyFiles, Table, Text, codes, error, header_name, invalid, shown, warning,
};
use crate::model::client::geo::{GeoValue, NamedDatabase};
use crate::{ClientIp, Country, Geo};

/// Reads `[geo]`, and reports limits and exemptions that need a source it does not have.
pub(crate) fn geo(
    root: Table<'_>,
    files: &PolicyFiles,
    client_ip: &ClientIp,
    unix_nanos: Option<u64>,
) -> Option<Geo> {
    let written = root.table("geo");
    let has = |field: &str| written.is_some_and(|table| table.has(field));
    if !has("country_db") && !has("header") {
        needed(root, &["country", "continent"], &COUNTRIES);
    }
    if !has("asn_db") {
        needed(root, &["asn"], &NETWORKS);
    }
    let written = written?;
    let mut geo = Geo {
        countries: named(written, "country_db", files.countries.as_ref()),
        networks: named(written, "asn_db", files.networks.as_ref()),
        ..Geo::default()
    };
    if let Some(name) = written.text("header") {
        geo.header = header(&name, client_ip);
        if let Some(database) = written.text("country_db") {
            let message = "`header` and `country_db` are two sources of the country";
            let label = "a request has one country";
            error(codes::GEO_HEADER, name.at, message, label)
                .related(database.at)
                .help("remove one of them");
        }
    }
    if let Some(code) = written.text("unknown") {
        geo.unknown = Country::parse(code.value)
            .map_err(|error| invalid(codes::PLACE, code.at, error, "not a country"))
            .ok();
    }
    if let Some(seconds) = unix_nanos.map(|nanos| nanos / 1_000_000_000) {
        for file in geo.files().filter(|file| file.is_old(seconds)) {
            let Some(text) = written.text(file.field) else {
                continue;
            };
            let days = file.days_old(seconds);
            let message = format!("`{}` is {days} days old", shown(file.name));
            let label = format!("built on {}", date(file.built_unix_seconds));
            warning(codes::DATABASE_OLD, text.at, message, label)
                .help("download the current one: networks have moved to other countries since");
        }
    }
    Some(geo)
}

/// A source that a policy may lack.
struct Source {
    name: &'static str,
    /// An edit that adds it.
    help: &'static str,
}

const COUNTRIES: Source = Source {
    name: "source of countries",
    help: "add [geo] with country_db = \"GeoLite2-Country.mmdb\", or with header = \"cf-ipcountry\" behind a \
     trusted proxy",
};
const NETWORKS: Source = Source {
    name: "source of networks",
    help: "add [geo] with asn_db = \"GeoLite2-ASN.mmdb\"",
};

/// Reports the first place that needs a source which the policy does not have.
fn needed(root: Table<'_>, words: &[&str], source: &Source) {
    let places = ["limit", "exempt", "defaults", "plan"].into_iter();
    let mut written = places.filter_map(|name| root.get(name));
    let Some(word) = written.find_map(|node| used(node, words)) else {
        return;
    };
    let message = format!("`{word}` is used, but the policy has no {}", source.name);
    error(codes::NO_GEO, word.at, message, "not known of any request").help(source.help);
}

/// Returns the first of `words` in a table or a list of tables: as a field of `match`, or as a part
/// of a key.
fn used<'a>(node: Node<'a>, words: &[&str]) -> Option<Text<'a>> {
    let is_word = |text: &Text<'_>| words.contains(&text.value);
    if node.value.is_array() {
        return node.each().find_map(|table| used(table, words));
    }
    let used = node.fields().filter_map(|(name, node)| match name.value {
        "match" | "from" => node.fields().map(|(name, _)| name).find(is_word),
        "key" | "distinct" => {
            let mut parts = node.each().take(MAX_KEY_PARTS).filter_map(Node::text);
            parts.find(is_word)
        }
        "missing_key" => {
            let part = node.text()?.value.strip_prefix("use:")?;
            Some(At::new(part, node.at)).filter(is_word)
        }
        _ => used(node, words),
    });
    used.min_by_key(|word| word.at.range().start)
}

/// Returns the database that a field names; reports why it cannot be read.
fn named<V: GeoValue>(
    written: Table<'_>,
    field: &'static str,
    file: Option<&DatabaseFile<V>>,
) -> Option<NamedDatabase<V>> {
    let name = written.text(field)?;
    let read = match file.filter(|file| file.name == name.value) {
        Some(file) => file.database.as_ref().map_err(String::as_str),
        None => Err("it is not read with this policy"),
    };
    match read {
        Ok(database) => Some(NamedDatabase {
            name: name.value.to_owned(),
            database: Arc::clone(database),
        }),
        Err(reason) => {
            let message = format!("cannot read the database `{name}`: {reason}");
            let label = "a path relative to the policy file";
            error(codes::DATABASE, name.at, message, label).help(format!(
                "write the path of a file in MaxMind's format: {field} = \"NAME.mmdb\""
            ));
            None
        }
    }
}

/// Returns the name of the header; reports one that any client could send.
fn header(name: &Text<'_>, client_ip: &ClientIp) -> Option<String> {
    if client_ip.trusted_proxies.is_empty() && !name.at.findings.has_errors() {
        let message = format!("every client could choose its country by `{name}`");
        let label = "read from trusted proxies only, and the policy names none";
        error(codes::GEO_HEADER, name.at, message, label)
            .help("add [client_ip] with trusted_proxies = [\"10.0.0.0/8\"], the addresses of your proxies");
    }
    header_name(name)
}

/// Returns a day as `2026-11-01`.
fn date(unix_seconds: u64) -> String {
    let second = i64::try_from(unix_seconds).unwrap_or(i64::MAX);
    let day = Timestamp::from_second(second).map(|at| at.strftime("%Y-%m-%d").to_string());
    day.unwrap_or_default()
}
