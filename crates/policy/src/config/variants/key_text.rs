//! Key text: the key of an override as a text, in the policy, in its file and in calls.
//!
//! ```text
//!   acme                            one value
//!   acme-*                          a pattern: `*` is any run of bytes
//!   acme-\*                         the value `acme-*`
//!   attr:user=a\;b;attr:model=large two parts, the first with the value `a;b`
//! ```
//!
//! `\` before `*`, `;`, `\` or a blank makes it an ordinary one; before others it is one itself.

use std::net::IpAddr;

use ipnet::IpNet;
use ratekeeper_core::Key;

use crate::config::{At, Findings, codes, shown};
use crate::{Facts, KeyBytes, KeyPart, PathCase};

/// Characters that are ordinary ones behind `\`, as blanks are.
const SPECIAL: [char; 3] = ['\\', '*', ';'];

/// Returns the text of the one key with these values of the parts of a limit's key.
///
/// ```
/// use ratekeeper_policy::KeyPart;
/// use ratekeeper_policy::config::exact_key_text;
///
/// let [user, model] = ["attr:user", "attr:model"].map(|part| KeyPart::parse(part).unwrap());
/// assert_eq!(exact_key_text([(&user, "*")]), r"\*");
/// assert_eq!(exact_key_text([(&user, "a;b"), (&model, "x")]), r"attr:user=a\;b;attr:model=x");
/// ```
pub fn exact_key_text<'a>(values: impl IntoIterator<Item = (&'a KeyPart, &'a str)>) -> String {
    let values: Vec<_> = values.into_iter().collect();
    if let [(_, value)] = *values {
        return escaped(value, |character| "\\*".contains(character));
    }
    let is_special = |character: char| SPECIAL.contains(&character) || character.is_whitespace();
    let pairs = values
        .iter()
        .map(|(part, value)| format!("{part}={}", escaped(value, is_special)));
    pairs.collect::<Vec<_>>().join(";")
}

fn escaped(value: &str, is_special: impl Fn(char) -> bool) -> String {
    let mut text = String::with_capacity(value.len());
    for character in value.chars() {
        if is_special(character) {
            text.push('\\');
        }
        text.push(character);
    }
    text
}

/// Returns the parts of a key that names several, and their values as written: split at each `;` that is none of
/// a value.
pub fn key_pairs(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut is_escaped = false;
    let pairs = text.split(move |character| {
        let ends = character == ';' && !is_escaped;
        is_escaped = character == '\\' && !is_escaped;
        ends
    });
    pairs.map(|pair| {
        let (part, value) = pair.split_once('=').unwrap_or((pair, ""));
        (part.trim(), trimmed(value))
    })
}

/// Returns a value without the blanks around it that have no `\`.
fn trimmed(value: &str) -> &str {
    let value = value.trim_start();
    let kept = value.trim_end();
    let slashes = kept.len() - kept.trim_end_matches('\\').len();
    let blank = value[kept.len()..].chars().next();
    match blank.filter(|_| slashes % 2 == 1) {
        Some(blank) => &value[..kept.len() + blank.len_utf8()],
        None => kept,
    }
}

/// Returns the texts before, between and after the stars of a value, without escapes: one text if
/// it is no pattern.
pub(super) fn pieces(text: &str) -> Vec<String> {
    let mut pieces = vec![String::new()];
    let mut rest = text.chars().peekable();
    while let Some(mut character) = rest.next() {
        if character == '*' {
            pieces.push(String::new());
            continue;
        }
        let is_special = |next: &char| SPECIAL.contains(next) || next.is_whitespace();
        if character == '\\'
            && let Some(next) = rest.next_if(is_special)
        {
            character = next;
        }
        if let Some(last) = pieces.last_mut() {
            last.push(character);
        }
    }
    pieces
}

/// Returns true if a text names all keys that a pattern matches.
///
/// ```
/// use ratekeeper_policy::config::is_key_pattern;
///
/// assert!(is_key_pattern("acme-*"));
/// assert!(!is_key_pattern(r"acme-\*"));
/// ```
pub fn is_key_pattern(text: &str) -> bool {
    pieces(text).len() > 1
}

/// Returns a value of a key part, written as in a request or as shown, as it stands in keys;
/// `None` if it is reported as wrong.
pub(super) fn exact_value(
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parts(count: usize) -> Vec<KeyPart> {
        let names = (0..count).map(|index| format!("attr:p{index}"));
        names.map(|name| KeyPart::parse(&name).unwrap()).collect()
    }

    #[test]
    fn stars_are_patterns_unless_escaped() {
        for (text, expected) in [
            ("acme", &["acme"][..]),
            ("*", &["", ""]),
            (r"\*", &["*"]),
            (r"\\*", &[r"\", ""]),
            (r"\\\*", &[r"\*"]),
            (r"a\b", &[r"a\b"]),
            (r"a\", &[r"a\"]),
            ("a*b*", &["a", "b", ""]),
            (r"a\;b", &["a;b"]),
            (r"a\ b ", &["a b "]),
        ] {
            assert_eq!(pieces(text), expected, "{text}");
        }
        let read: Vec<_> = key_pairs(r"a = x\;y\\ ; b = z\  ;c").collect();
        assert_eq!(read, [("a", r"x\;y\\"), ("b", r"z\ "), ("c", "")]);
    }

    proptest! {
        #[test]
        fn any_values_come_back_and_name_one_key(
            values in proptest::collection::vec(r"[ab*;=\\ \t\u{a0}]{0,8}", 1..4),
        ) {
            let parts = parts(values.len());
            let text = exact_key_text(parts.iter().zip(values.iter().map(String::as_str)));
            let read: Vec<Vec<String>> = if values.len() == 1 {
                vec![pieces(&text)]
            } else {
                key_pairs(&text).map(|(_, value)| pieces(value)).collect()
            };
            let expected: Vec<Vec<String>> = values.into_iter().map(|value| vec![value]).collect();
            prop_assert_eq!(read, expected, "{}", text);
        }
    }
}
