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
    let distance = |known: &&str| {
        let known = known.trim_end_matches(':');
        // A long word costs nothing but its length.
        let is_close = lower.len().abs_diff(known.len()) <= NEAR;
        is_close.then(|| strsim::damerau_levenshtein(&lower, known))
    };
    let near = WORDS
        .into_iter()
        .filter_map(|known| Some((distance(&known)?, known)))
        .min_by_key(|(far, _)| *far)
        .filter(|(far, known)| *far <= NEAR.min(known.len() - 1))
        .map(|(_, known)| known);
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
