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

use ipnet::IpNet;
use ratekeeper_core::Key;

use crate::config::{Text, codes, error, invalid};
use crate::{KeyBytes, KeyPart, PathCase};

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

/// Returns a value of a key part, written as in a request or as as it stands in keys;
/// `None` if it is reported as wrong.
pub(super) fn exact_value(
    part: &KeyPart,
    text: &Text<'_>,
    ipv6_prefix: u8,
    case: PathCase,
) -> Option<Box<[u8]>> {
    let mut bytes = KeyBytes::default();
    if let Some(Err(error)) = part.normal_place(text.value) {
        let label = format!("not a value of `{part}`");
        invalid(codes::PLACE, text.at, error, label);
        return None;
    }
    if let Err(key) = part.write_exact(text.value, ipv6_prefix, case, &mut bytes) {
        let message = format!("\"{text}\" is not one key of `{part}`");
        let label = "expected an address, or the network that a key shows";
        let is_address = matches!(part, KeyPart::Ip { bits: None });
        let network = text.value.parse::<IpNet>();
        let is_block = is_address && network.is_ok_and(|it| it.addr() == it.network());
        let help = match key {
            Some(_) if is_block => format!(
                "write one address; for the block, write a [[limit]] with match = {{ ip = \
                 \"{text}\" }} and `replaces`"
            ),
            Some(key) => format!("write \"{key}\""),
            None => "write for example \"192.0.2.7\"".to_owned(),
        };
        error(codes::OVERRIDE, text.at, message, label).help(help);
        return None;
    }
    let value = Key::from_bytes(&bytes).parts().next();
    if text.value.is_empty() || value.is_none() {
        let message = format!("an override needs a value of `{part}`");
        error(codes::OVERRIDE, text.at, message, "is empty")
            .help("write the value that the override is for");
        return None;
    }
    value.map(Into::into)
}
