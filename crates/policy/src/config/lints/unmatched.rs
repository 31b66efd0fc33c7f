//! Unmatched: warns of overrides for values that `match` of their limit excludes.
//!
//! ```text
//!   match = { path = "/api/**" }    key = { path = "/web" }     no request with this key is counted
//!   key = ["attr:user"]             t,attr:user=ann,9/1m        the value is `ann`
//! ```

use std::net::{IpAddr, Ipv4Addr};

use crate::config::{Draft, Text, codes, shown, warning};
use crate::{Facts, Field, KeyPart, Matcher};

/// Warns of an override for a value that `match` of its limit excludes, or that names its part.
pub(crate) fn never_matches(draft: &Draft<'_>, part: &KeyPart, value: &Text<'_>) {
    let text = value.value;
    let named = text
        .split_once('=')
        .filter(|(name, _)| *name == part.to_string());
    if let Some((_, own)) = named {
        let message = format!("`{}` is read as a value of {part}", shown(text));
        let label = "no request has it, unless the name is a part of the value";
        warning(codes::OVERRIDE_HIDDEN, value.at, message, label)
            .help(format!("write the value alone: {}", shown(own)));
    }
    if text.contains('*') {
        return;
    }
    let ip = text.parse::<Ipv4Addr>();
    let (field, name) = match part {
        KeyPart::Path => (Field::Path, ""),
        KeyPart::Method => (Field::Method, ""),
        KeyPart::Host => (Field::Host, ""),
        KeyPart::Ip { bits: None } if ip.is_ok() => (Field::Ip, ""),
        KeyPart::Header(name) => (Field::Header(name.clone()), &**name),
        KeyPart::Attribute(name) => (Field::Attribute(name.clone()), &**name),
        _ => return,
    };
    // One of them is that of the field.
    let facts = Facts {
        path: text,
        method: text,
        host: text,
        ip: ip.ok().map(IpAddr::V4),
        headers: &[(name, text.as_bytes())],
        attributes: &[(name, text)],
        ..Facts::default()
    };
    let matcher = &draft.rule.matcher;
    let fields = matcher.fields.iter().filter(|(known, _)| *known == field);
    let of_part = Matcher {
        fields: fields.cloned().collect(),
        path_case: matcher.path_case,
    };
    if of_part.matches(&facts) {
        return;
    }
    let message = "this override never applies";
    let label = format!("`match` of {draft} leaves this {part} out");
    warning(codes::OVERRIDE_HIDDEN, value.at, message, label)
        .help("write a value that the limit is for, or remove the override");
}
