//! Meant: the quota, duration, path or key part that was probably meant by a text that is none.
//!
//! ```text
//!   5 per minute   5/min   5r/s         a quota         10 seconds   minute     a duration
//!   /users/:id   /users/<int:id>        a path          $http_x_k   header.x-k  a key part
//! ```

use ratekeeper_core::Gcra;

use super::other_words;
use super::scalar::rate;
use super::scalar::{duration_like, rolling};
use crate::KeyPart;
use crate::config::fields::{MAX_KEY_PARTS, MAX_NAME};
use crate::config::reason::{is_word, nearest};
use crate::config::shown;
use crate::model::keys::key_part::PLAIN;
use crate::nginx_part::nginx_part;

/// Signs of a regular expression, which are text in a path.
const SIGNS: [&str; 8] = [".*", ".+", "\\", "|", "(?", "([", "[0-9", "[^/"];

/// Returns the quota that was meant, if the default algorithm can count it.
pub(crate) fn quota(text: &str) -> Option<String> {
    let text = text.trim().to_lowercase();
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, '_' | ','));
    let number = text[..text.len() - rest.len()].replace(['_', ','], "");
    let rest = rest.trim_start();
    let unit = ["requests", "r"]
        .into_iter()
        .find_map(|unit| rest.strip_prefix(unit));
    let rest = unit.unwrap_or(rest).trim_start();
    let period = rest
        .strip_prefix('/')
        .or_else(|| rest.strip_prefix("per "))?;
    let period = duration_like(period)?;
    let counts = rate(&format!("{number}/{}", rolling(&period).unwrap_or(&period)));
    counts.and_then(Gcra::token_bucket).ok()?;
    Some(format!("{number}/{period}"))
}

/// Returns the help for a path in the syntax of a router or of regular expressions; `None` if it
/// is neither.
pub(crate) fn path(path: &str) -> Option<String> {
    let is_regex = path.starts_with(['^', '~']) || path.ends_with('$');
    if is_regex || SIGNS.iter().any(|sign| path.contains(sign)) {
        let help = "write `*` for one segment, and `**` for any number, as in \"/api/**\"";
        return Some(help.to_owned());
    }
    let segment = |text: &str| {
        let inner = text
            .strip_prefix('<')
            .and_then(|text| text.strip_suffix('>'));
        let inner = inner.map(|inner| inner.rsplit(':').next().unwrap_or(inner));
        let bracketed = text.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        match inner.or_else(|| text.strip_prefix(':')).or(bracketed) {
            Some(name) if !name.is_empty() => format!("{{{name}}}"),
            _ => text.to_owned(),
        }
    };
    let meant: Vec<_> = path.split('/').map(segment).collect();
    let meant = meant.join("/");
    (meant != path).then(|| format!("write \"{}\"", shown(&meant)))
}

/// Returns the help for a value of a header, parameter or attribute that is written as a regular
/// expression, or as a comparison of numbers; `None` if it is neither.
pub(crate) fn value(value: &str) -> Option<String> {
    let number = value.trim_start_matches(['<', '>', '=']).trim();
    if number != value && !number.is_empty() && number.bytes().all(|it| it.is_ascii_digit()) {
        let help = "write each value, as in [\"1\", \"2\"]: numbers are not compared";
        return Some(help.to_owned());
    }
    let flagged = value
        .strip_suffix("/i")
        .or_else(|| value.strip_suffix('/'))
        .and_then(|it| it.strip_prefix('/'))
        .filter(|inner| !inner.is_empty() && !inner.contains('/'));
    let is_regex = flagged.is_some() || value.starts_with(['^', '~']) || value.ends_with(".*");
    // A file of Windows has the one, a list the other.
    let mut signs = SIGNS.iter().filter(|sign| !["\\", "|"].contains(sign));
    if !is_regex && !signs.any(|sign| value.contains(sign)) {
        return None;
    }
    let inner = flagged.unwrap_or(value);
    let (start, end) = (inner.strip_prefix('^'), inner.strip_suffix('$'));
    let text = inner.trim_matches(['^', '$', '~', ' ', '*', '.']);
    if text.contains(['\\', '(', ')', '[', ']', '|', '+', '?', '*', '^', '$']) || text.is_empty() {
        return Some("write `*` for any text, as in \"*bot*\", and a list for several".into());
    }
    let [before, after] = [start, end].map(|anchored| if anchored.is_some() { "" } else { "*" });
    Some(format!("write \"{before}{}{after}\"", shown(text)))
}

/// Returns the help for a text that is no key part; `None` if the error of the parser is more specific.
pub(crate) fn part(text: &str) -> Option<String> {
    if let Some(instead) = other_words::part(text) {
        return Some(instead.to_owned());
    }
    if let Some(variable) = text.strip_prefix('$') {
        let part = nginx_part(variable.trim_matches(['{', '}']))?;
        // An address of nginx is a whole one; here a block of IPv6 addresses is one client.
        let part = part.strip_suffix("/128").unwrap_or(&part);
        return Some(format!("write \"{}\"", shown(part)));
    }
    let reads = |part: &str| KeyPart::parse(part).is_ok();
    let dotted = text.replacen('.', ":", 1);
    if reads(&dotted) {
        return Some(format!("write \"{}\"", shown(&dotted)));
    }
    let parts: Vec<_> = text.split([',', '+', '|']).map(str::trim).collect();
    if (2..=MAX_KEY_PARTS).contains(&parts.len()) && parts.iter().all(|part| reads(part)) {
        return Some(format!(
            "write each part by itself: \"{}\"",
            parts.join("\", \"")
        ));
    }
    // A source without a name is known to the parser.
    let is_source = ["NAME", "/NAME"]
        .iter()
        .any(|name| reads(&format!("{text}:{name}")));
    let is_name = text.len() <= MAX_NAME && is_word(text) && !is_source;
    // A near spelling of a word without a name is not proposed as the name of something else.
    let words = PLAIN.iter().map(|(word, _)| *word);
    (is_name && nearest(text, words).is_none())
        .then(|| format!("write its source, as in \"attr:{text}\" or \"header:{text}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_of_other_programs_are_understood() {
        for (text, expected) in [
            ("5 per minute", Some("5/1m")),
            ("5/min", Some("5/1m")),
            ("5r/s", Some("5/1s")),
            ("10,000/1h", Some("10000/1h")),
            ("10 requests / 2 hours", Some("10/2h")),
            ("100 / day", Some("100/day")),
            ("0/1m", None),
            ("five/1m", None),
            ("unlimited", None),
            ("5/1\u{430}", None),
        ] {
            assert_eq!(quota(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn paths_of_other_programs_are_known() {
        for (text, expected) in [
            ("/users/:id", "write \"/users/{id}\""),
            ("/users/<int:id>/posts", "write \"/users/{id}/posts\""),
            ("^/api/.*$", "write `*` for one segment"),
            ("~* \\.php$", "write `*` for one segment"),
        ] {
            let help = path(text).unwrap_or_default();
            assert!(help.starts_with(expected), "{text}: {help}");
        }
        for text in [
            "/users/{id}",
            "/v*/users",
            "/a:b",
            "/:",
            "/Users(1)",
            "/$metadata",
            "/a+b",
        ] {
            assert_eq!(path(text), None, "{text}");
        }
    }

    #[test]
    fn parts_of_other_programs_are_understood() {
        for (text, expected) in [
            ("$binary_remote_addr", Some("write \"ip\"")),
            ("$http_x_api_key", Some("write \"header:x-api-key\"")),
            ("$jwt_claim_sub", None),
            ("header.x-k", Some("write \"header:x-k\"")),
            (
                "ip+path",
                Some("write each part by itself: \"ip\", \"path\""),
            ),
            (
                "username",
                Some("write its source, as in \"attr:username\" or \"header:username\""),
            ),
            ("api-key", None),
            ("cookie", None),
            ("json", None),
            ("ip/129", None),
        ] {
            assert_eq!(part(text).as_deref(), expected, "{text}");
        }
    }
}
