//! Headers: reads their names, and warns of limits by headers with other values than expected.
//!
//! ```text
//!   key = ["header:x-forwarded-for"]    each client writes another value, and has a limit of its own
//! ```

use crate::config::{At, Draft, Findings, codes, shown};
use crate::{KeyPart, MissingKey};

/// Maximum number of characters of a header name.
const MAX_HEADER: usize = 100;

/// Headers to which each proxy appends the address of its peer: they begin with the client's own
/// text. Others, such as `x-real-ip`, are set anew by the proxies that know them.
const OF_ADDRESSES: [&str; 3] = ["x-forwarded-for", "forwarded", "x-original-forwarded-for"];

/// Headers by which a proxy states the one address of a client, as a text.
const OF_ONE_ADDRESS: [&str; 18] = [
    "cf-connecting-ip",
    "true-client-ip",
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "fastly-client-ip",
    "fly-client-ip",
    "x-azure-clientip",
    "cf-connecting-ipv6",
    "x-envoy-external-address",
    "do-connecting-ip",
    "x-nf-client-connection-ip",
    "x-vercel-forwarded-for",
    "x-appengine-user-ip",
    "ali-cdn-real-ip",
    "wl-proxy-client-ip",
    "x-real-client-ip",
    "client-ip",
];

/// Warns of a limit that counts by the text of addresses.
pub(in crate::config) fn unreliable(draft: &Draft<'_>, out: &mut Findings<'_>) {
    let key = draft.rule.key.iter();
    let key = key.map(|part| (part, "key", "key = [\"ip\"]"));
    let stand_in = match &draft.rule.missing_key {
        MissingKey::Use(part) => Some((part, "missing_key", "missing_key = \"use:ip\"")),
        _ => None,
    };
    for (part, field, edit) in key.chain(stand_in) {
        let KeyPart::Header(header) = part else {
            continue;
        };
        let header = header.as_str();
        let (what, label) = if OF_ADDRESSES.contains(&header) {
            (
                format!("`{header}`, which begins as clients write it"),
                "with another value in each request, no request of a client is refused",
            )
        } else if OF_ONE_ADDRESS.contains(&header) {
            (
                format!("the text of `{header}`, an address"),
                "each address of an IPv6 network is counted by itself, and visitors can send it",
            )
        } else {
            continue;
        };
        let message = format!("limit `{}` counts by {what}", draft.rule.limit.name);
        out.warning(codes::HEADER, draft.table.place(field), message, label)
            .help(format!(
                "write {edit}, and where addresses come from: [client_ip] with header = \
                 \"{header}\" and trusted_proxies = [\"10.0.0.0/8\"]"
            ));
    }
}

/// Returns a header's name in lower case; reports an invalid one (RFC 9110, section 5.1).
pub(in crate::config) fn header_name(text: &At<&str>, out: &mut Findings<'_>) -> Option<String> {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    let name = text.value;
    if !name.is_empty() && name.len() <= MAX_HEADER && name.bytes().all(token) {
        return Some(name.to_ascii_lowercase());
    }
    let message = format!("\"{}\" cannot be the name of a header", shown(name));
    let label = format!("expected 1 to {MAX_HEADER} letters, digits or hyphens");
    out.error(codes::HEADER_NAME, text.at.clone(), message, label)
        .help("write the name alone, as in \"x-forwarded-for\"");
    None
}
