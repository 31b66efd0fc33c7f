//! Descriptors: a limit, or an exemption, is for descriptors or for requests, never for both.

use crate::KeyPart;
use crate::config::fields::MATCH;
use crate::config::{Spot, Table, codes, error};

/// Fields of `match` that look at descriptors.
const FIELDS: [&str; 2] = ["domain", "descriptor"];
/// Prefix of key parts that name descriptors.
const PART: &str = "descriptor:";

/// Envoy's names of the entries that mean the same as a field or key part.
const ENTRIES: [(&str, &str); 3] = [("ip", "remote_address"), ("path", "path"), ("host", "host")];

/// Reports fields about requests in a limit or exemption on descriptors. Returns true if it is on
/// descriptors.
pub(super) fn separate(table: Table<'_>) -> bool {
    let matched = table.table("match").into_iter().flat_map(Table::fields);
    let matched: Vec<_> = matched.map(|(name, _)| name).collect();
    let limit = table.lists("key").then_some(table); // an exemption has `match` alone
    let parts = limit.map(|limit| limit.texts("key")).unwrap_or_default();

    let field = matched.iter().find(|name| FIELDS.contains(&name.value));
    let part = parts.iter().find(|part| part.value.starts_with(PART));
    let Some(because) = field.or(part).map(|text| text.at) else {
        return false;
    };
    let report = |what: String, at: Spot<'_>, help: &str| {
        let message = format!("{what} cannot be used in {table}, which is for descriptors");
        let label = "a descriptor has a domain and entries, and nothing else";
        error(codes::DESCRIPTOR, at, message, label)
            .related(because)
            .help(help);
    };
    // Unknown fields are reported elsewhere.
    let of_requests = |name: &str| MATCH.field(name).is_some() && !FIELDS.contains(&name);
    for name in matched.iter().filter(|name| of_requests(name.value)) {
        let entry = entry(name.value);
        let help = format!("let the caller send it as an entry: descriptor.{entry} = \"value\"");
        report(format!("`{name}`"), name.at, &help);
    }
    let Some(limit) = limit else {
        return true;
    };
    for part in &parts {
        let of_requests = |part: &KeyPart| *part != KeyPart::All && !part.is_of_descriptors();
        if KeyPart::parse(part.value).is_ok_and(|part| of_requests(&part)) {
            let entry = entry(part.value);
            let help = format!("count by an entry: key = [\"{PART}{entry}\"]");
            report(format!("key part \"{part}\""), part.at, &help);
        }
    }
    let stand_in = limit.text("missing_key").filter(|text| {
        text.value.starts_with("use:") && !text.value.starts_with("use:descriptor:")
    });
    if let Some(text) = stand_in {
        let help = "write missing_key = \"shared\", \"skip\" or \"deny\"";
        report(format!("missing_key = \"{text}\""), text.at, help);
    }
    let reserve = || limit.table("cost")?.text("reserve");
    if let Some(text) = limit.text("cost").or_else(reserve) {
        let help = "leave it out: the caller sends the cost of a descriptor";
        report(format!("cost = \"{text}\""), text.at, help);
    }
    let anchor = limit.text("anchor");
    if let Some(text) = anchor.filter(|text| text.value.starts_with("attr:")) {
        let help = "write a day for all keys, such as anchor = 15";
        report(format!("anchor = \"{text}\""), text.at, help);
    }
    if let Some(queue) = limit.table("queue") {
        let message = format!("`queue` cannot be used in {table}, which is for descriptors");
        let label = "Envoy waits 20 ms for an answer and cannot hold a request back";
        error(codes::DESCRIPTOR, queue.at(), message, label)
            .related(because)
            .help("leave `queue` out: excess requests are refused, with the time to retry");
    }
    true
}

/// Returns Envoy's name of the entry that means the same as a field or key part.
fn entry(name: &str) -> &str {
    let word = name.split([':', '/']).next().unwrap_or_default();
    let known = ENTRIES.iter().find(|(known, _)| *known == word);
    known.map_or("NAME", |(_, entry)| *entry)
}
