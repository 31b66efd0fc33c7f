//! Part-like: the key part that was probably meant by a text that is none.
//!
//! ```text
//!   user          a word: its source is missing        header.x-k     a dot for a colon
//!   ip,path       two parts in one string              $http_x_k      a variable of nginx
//! ```

use super::diagnostic::shown;
use super::fields::{MAX_KEY_PARTS, MAX_NAME};
use super::near::nearest;
use super::shape::NameHint;
use crate::KeyPart;
use crate::import::nginx_part;
use crate::key_part::WORDS;

/// Key parts that people try, by the word before `:`, and what to write instead.
const PART_HINTS: &[NameHint] = &[
    (
        "body",
        "name a value of it: \"form:username\" or \"json:/user/id\"",
    ),
    (
        "plan",
        "let the application send it as an attribute: key = [\"attr:plan\"]",
    ),
    (
        "user",
        "write its source: \"attr:user_id\" or \"header:x-user-id\"",
    ),
    (
        "user_id",
        "write its source: \"attr:user_id\" or \"header:x-user-id\"",
    ),
    ("session", "write its source, as in \"cookie:session\""),
    (
        "token",
        "write \"bearer\", or its source, as in \"header:x-token\"",
    ),
    (
        "domain",
        "match the domain instead: match = { domain = \"edge\" }",
    ),
    (
        "generic_key",
        "write it as an entry: \"descriptor:generic_key\"",
    ),
    (
        "remote_address",
        "write \"ip\"; for an entry of Envoy, \"descriptor:remote_address\"",
    ),
    ("client_ip", "write \"ip\""),
    ("remote_addr", "write \"ip\""),
    ("address", "write \"ip\""),
    ("global", "write \"all\""),
    ("server", "write \"all\""),
    ("everybody", "write \"all\""),
    ("*", "write \"all\""),
    (
        "url",
        "write \"path\", or \"route\" for the pattern that matched",
    ),
    (
        "uri",
        "write \"path\", or \"route\" for the pattern that matched",
    ),
    (
        "consumer",
        "write its source: \"api_key\", \"jwt:sub\" or \"header:x-consumer-id\"",
    ),
    (
        "credential",
        "write \"api_key\", or \"bearer\" for the token alone",
    ),
    ("request_headers", "name the header: \"header:x-tenant\""),
    ("claim", "name the claim: \"jwt:sub\""),
    ("jwt", "name the claim: \"jwt:sub\""),
];

/// Returns the help for a text that is no key part; `None` if the error of the parser is more specific.
pub(super) fn part_like(text: &str) -> Option<String> {
    let word = text.split([':', '/']).next().unwrap_or_default();
    if let Some((_, instead)) = PART_HINTS.iter().find(|(tried, _)| *tried == word) {
        return Some((*instead).to_owned());
    }
    let reads = |part: &str| KeyPart::parse(part).is_ok();
    if let Some(variable) = text.strip_prefix('$') {
        let part = nginx_part(variable.trim_matches(['{', '}']))?;
        // An address of nginx is a whole one; here a block of IPv6 addresses is one client.
        let part = part.strip_suffix("/128").unwrap_or(&part);
        return Some(format!("write \"{}\"", shown(part)));
    }
    let spaced = text.split(':').map(str::trim).collect::<Vec<_>>().join(":");
    let dotted = text.replacen('.', ":", 1);
    if let Some(part) = [&spaced, &dotted].into_iter().find(|part| reads(part)) {
        return Some(format!("write \"{}\"", shown(part)));
    }
    let parts: Vec<_> = text.split([',', '+', '|', '&']).map(str::trim).collect();
    if (2..=MAX_KEY_PARTS).contains(&parts.len()) && parts.iter().all(|part| reads(part)) {
        let quoted: Vec<_> = parts.iter().map(|part| format!("\"{part}\"")).collect();
        return Some(format!("write each part by itself: {}", quoted.join(", ")));
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let is_word = (1..=MAX_NAME).contains(&text.len()) && text.chars().all(is_name);
    // A near spelling of a word without a name is not proposed as the name of something else.
    let words = WORDS.into_iter().filter(|word| !word.ends_with(':'));
    (is_word && nearest(text, words).is_none())
        .then(|| format!("write its source, as in \"attr:{text}\" or \"header:{text}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_other_programs_are_understood() {
        for (text, expected) in [
            ("$binary_remote_addr", Some("write \"ip\"")),
            ("$http_x_api_key", Some("write \"header:x-api-key\"")),
            ("$jwt_claim_sub", None),
            ("header.x-k", Some("write \"header:x-k\"")),
            ("header: x-k", Some("write \"header:x-k\"")),
            (
                "ip+path",
                Some("write each part by itself: \"ip\", \"path\""),
            ),
            (
                "username",
                Some("write its source, as in \"attr:username\" or \"header:username\""),
            ),
            ("api-key", None),
            ("ip/129", None),
        ] {
            assert_eq!(part_like(text).as_deref(), expected, "{text}");
        }
    }
}
