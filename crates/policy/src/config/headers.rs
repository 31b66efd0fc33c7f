//! Headers: warns of limits by headers with other values than expected.
//!
//! ```text
//!   key = ["header:x-forwarded-for"]    each client writes another value, and has a limit of its own
//! ```

use super::codes;
use super::diagnostic::Findings;
use super::limit::Draft;
use crate::KeyPart;

/// Headers to which each proxy appends the address of its peer: they begin with the client's own
/// text. Others, such as `x-real-ip`, are set anew by the proxies that know them.
const OF_ADDRESSES: [&str; 2] = ["x-forwarded-for", "forwarded"];

/// Warns of a limit that counts by a list of addresses that clients begin.
pub(super) fn unreliable(draft: &Draft<'_>, out: &mut Findings<'_>) {
    let header = draft.rule.key.iter().find_map(|part| match part {
        KeyPart::Header(header) => OF_ADDRESSES.into_iter().find(|name| name == header),
        _ => None,
    });
    let Some(header) = header else {
        return;
    };
    let name = &draft.rule.limit.name;
    let message = format!("limit `{name}` counts by `{header}`, which begins as clients write it");
    let label = "with another value in each request, no request of a client is refused";
    out.warning(codes::HEADER, draft.places.key.clone(), message, label)
        .help(format!(
            "write key = [\"ip\"], and where addresses come from: [client_ip] with header = \
             \"{header}\" and trusted_proxies = [\"10.0.0.0/8\"]"
        ));
}
