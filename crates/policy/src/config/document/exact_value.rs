//! Exact value: a value of a key part in the policy, as it stands in keys.

use std::net::IpAddr;

use ipnet::IpNet;
use ratekeeper_core::Key;

use crate::config::{At, Findings, codes, shown};
use crate::{Facts, KeyBytes, KeyPart, PathCase};

/// Returns a value of a key part, written as in a request or as shown, as it stands in keys;
/// `None` if it is reported as wrong.
pub(in crate::config) fn exact_value(
    part: &KeyPart,
    text: &At<&str>,
    ipv6_prefix: u8,
    case: PathCase,
    out: &mut Findings<'_>,
) -> Option<Box<[u8]>> {
    let mut bytes = KeyBytes::default();
    match part {
        KeyPart::Ip { .. } => {
            let network = text.value.parse::<IpNet>().ok();
            let address = network.map(|network| network.addr().to_string());
            let address = address.as_deref().unwrap_or(text.value);
            if address.parse::<IpAddr>().is_ok() {
                part.write_plain(address, ipv6_prefix, &mut bytes);
            }
            let value = Key::from_bytes(&bytes).parts().next();
            if value.is_none() || network.is_some() && value != Some(text.value.as_bytes()) {
                let message = format!("\"{}\" is not one key of `{part}`", shown(text.value));
                let label = "expected an address, or the network that a key shows";
                let is_address = matches!(part, KeyPart::Ip { bits: None });
                let is_block = is_address && network.is_some_and(|it| it.addr() == it.network());
                let help = match value {
                    Some(_) if is_block => format!(
                        "write one address; for the block, write a [[limit]] with match = {{ ip = \
                         \"{}\" }} and `replaces`",
                        shown(text.value)
                    ),
                    Some(key) => format!("write \"{}\"", String::from_utf8_lossy(key)),
                    None => "write for example \"192.0.2.7\"".to_owned(),
                };
                out.error(codes::OVERRIDE, text.at.clone(), message, label)
                    .help(help);
                return None;
            }
        }
        KeyPart::Country | KeyPart::Continent | KeyPart::Asn => {
            if let Some(Err(error)) = part.normal_place(text.value) {
                let label = format!("not a value of `{part}`");
                out.invalid(codes::PLACE, text.at.clone(), error, label);
                return None;
            }
            part.write_plain(text.value, ipv6_prefix, &mut bytes);
        }
        // The other parts have one spelling in a key, as a request brings them.
        KeyPart::Host | KeyPart::Method | KeyPart::Path => {
            let facts = Facts {
                host: text.value,
                method: text.value,
                path: text.value,
                ..Facts::default()
            };
            part.write_fact(&facts, case, &mut bytes);
        }
        _ => part.write_plain(text.value, ipv6_prefix, &mut bytes),
    }
    let value = Key::from_bytes(&bytes).parts().next();
    if text.value.is_empty() || value.is_none() {
        let message = format!("an override needs a value of `{part}`");
        out.error(codes::OVERRIDE, text.at.clone(), message, "is empty")
            .help("write the value that the override is for");
        return None;
    }
    value.map(Into::into)
}
