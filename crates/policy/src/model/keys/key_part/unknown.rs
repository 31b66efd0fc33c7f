//! Unknown: a word that is no key part, and the nearest one that is.

use crate::ValueError;

/// Words, and the kinds that are followed by a name.
pub(crate) const WORDS: [&str; 19] = [
    "all",
    "ip",
    "path",
    "route",
    "method",
    "host",
    "country",
    "continent",
    "asn",
    "bearer",
    "api_key",
    "header:",
    "cookie:",
    "query:",
    "attr:",
    "jwt:",
    "form:",
    "json:",
    "descriptor:",
];

pub(super) fn unknown(text: &str, kind: &str) -> ValueError {
    /// Maximum number of edits of a near spelling.
    const NEAR: usize = 2;
    let lower = kind.to_ascii_lowercase();
    let distance = |known: &str| strsim::damerau_levenshtein(&lower, known.trim_end_matches(':'));
    let near = WORDS.into_iter().min_by_key(|known| distance(known));
    let near = near.filter(|known| distance(known) <= NEAR.min(known.len() - 1));
    let name = text
        .strip_prefix(kind)
        .and_then(|rest| rest.strip_prefix(':'));
    let help = match (near, name) {
        (Some(near), Some(name)) if near.ends_with(':') => format!("did you mean `{near}{name}`?"),
        (Some(near), _) if near.ends_with(':') => format!("did you mean `{near}NAME`?"),
        (Some(near), _) => format!("did you mean `{near}`?"),
        (None, _) => "write one of: all, ip, ip/24, path, route, method, host, country, \
                      continent, asn, header:X, cookie:X, query:X, bearer, api_key, attr:X, jwt:X, \
                      form:X, json:/X, descriptor:X"
            .into(),
    };
    ValueError::new(format!("unknown key part `{text}`"), help)
}
