//! Headers: warns of limits by headers with other values than expected.
//!
//! ```text
//!   key = ["header:x-forwarded-for"]    each client writes another value, and has a limit of its own
//!   match = { header.te = "trailers" }  a proxy removes it: the limit sees no such request
//! ```

use super::codes;
use super::diagnostic::Findings;
use super::limit::Draft;
use crate::{Field, KeyPart, Settings};

/// Headers to which each proxy appends the address of its peer: they begin with the client's own
/// text. Others, such as `x-real-ip`, are set anew by the proxies that know them.
const OF_ADDRESSES: [&str; 2] = ["x-forwarded-for", "forwarded"];

/// Headers of one connection, which proxies do not forward (RFC 9110, section 7.6.1).
const OF_A_CONNECTION: [&str; 8] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
];

/// Warns of a limit that counts by a list of addresses that clients begin, and of one that
/// depends on a header which no proxy forwards.
pub(super) fn unreliable(draft: &Draft<'_>, settings: &Settings, out: &mut Findings<'_>) {
    let rule = &draft.rule;
    let name = &rule.limit.name;
    let in_key = |names: &[&'static str]| {
        rule.key.iter().find_map(|part| match part {
            KeyPart::Header(header) => names.iter().copied().find(|name| name == header),
            _ => None,
        })
    };
    if let Some(header) = in_key(&OF_ADDRESSES) {
        let message =
            format!("limit `{name}` counts by `{header}`, which begins as clients write it");
        let label = "with another value in each request, no request of a client is refused";
        out.warning(codes::HEADER, draft.places.key.clone(), message, label)
            .help(format!(
                "write key = [\"ip\"], and where addresses come from: [client_ip] with header = \
                 \"{header}\" and trusted_proxies = [\"10.0.0.0/8\"]"
            ));
    }
    if settings.listen.proxy.is_some() {
        return; // the gateway is the other end of the connection
    }
    let matched = rule
        .matcher
        .fields
        .iter()
        .find_map(|(field, _)| match field {
            Field::Header(header) => OF_A_CONNECTION.into_iter().find(|name| name == header),
            _ => None,
        });
    let (header, at) = match (in_key(&OF_A_CONNECTION), matched) {
        (Some(header), _) => (header, draft.places.key.clone()),
        (None, Some(header)) => (header, draft.places.matched.clone()),
        (None, None) => return,
    };
    let message = format!("limit `{name}` depends on `{header}`, which proxies remove");
    let label = "a header of one connection, which is not forwarded (RFC 9110, section 7.6.1)";
    out.warning(codes::HEADER, at, message, label).help(
        "match another header, or the paths of these requests: match = { path = \"/api/**\" }",
    );
}
