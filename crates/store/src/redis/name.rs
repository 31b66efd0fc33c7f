//! Names of keys: one subject's limits share a slot, and no two keys share a name.
//!
//! ```text
//!   rk:{203.0.113.7}:per-address            one part: the subject, in the hash tag
//!   rk:{ada}:per-user-and-path:/login     further parts follow
//!   rk:{everybody}                          no parts: the limit stands alone
//!   rk:{#92dd..}:per-user~3f9a71c2          long values are hashed; `~`: what gives a
//!                                           state its meaning, see `StoredForm::shape`
//!   rk:{#final}:warm~p:ada                  a limit that takes nothing back
//! ```
//!
//! All limits that take nothing back share one slot, so that a request with keys in several
//! slots charges them in one call, the last of all, and never has to refund such a charge.
//!
//! In a cluster the bytes between the first `{` and the first `}` after it choose the slot. So
//! braces in values are escaped, as are `%`, `:`, `#` and bytes that are not printable ASCII.

use std::fmt::Write as _;

use ratekeeper_core::{Key, KeyBuilder};
use sha2::{Digest, Sha256};

use super::limits::Label;

/// Maximum length of an escaped value. Longer ones are hashed to keep names short.
const MAX_VALUE: usize = 64;
/// Digits of a hash: at 128 bits, no client can make two values share a name.
const HASH_DIGITS: usize = 32;

/// The subject of all limits that take nothing back. No escaped value begins with `#`, and a
/// hash has digits only.
const FINAL: &str = "#final";

/// Returns the name of `key` under a limit.
pub(super) fn name(prefix: &str, label: &Label, key: Key<'_>) -> Box<[u8]> {
    let (limit, shape) = (&*label.limit, &*label.shape);
    let mut name = String::with_capacity(prefix.len() + limit.len() + key.as_bytes().len() + 16);
    name.extend([prefix, ":{"]);
    let mut parts = key.is_whole().then(|| key.parts());
    match &mut parts {
        _ if label.is_final => name.extend([FINAL, "}:"]),
        Some(parts) => {
            let Some(subject) = parts.next() else {
                name.extend([limit, "}", shape]);
                return name.into_bytes().into();
            };
            push_value(&mut name, subject);
            name.push_str("}:");
        }
        None => {
            push_value(&mut name, key.as_bytes());
            name.push_str("}!");
        }
    }
    name.extend([limit, shape]);
    if parts.is_none() && label.is_final {
        name.push('!');
        push_value(&mut name, key.as_bytes());
    }
    for part in parts.into_iter().flatten() {
        name.push(':');
        push_value(&mut name, part);
    }
    name.into_bytes().into()
}

/// Returns a name in the slot of this one that no key has: no escaped value ends with `#`.
pub(super) fn beside(name: &[u8]) -> Vec<u8> {
    [name, b"#"].concat()
}

/// Returns the name of the table of the keys set by hand. No limit has it: no name of one has a `#`.
pub(super) fn by_hand(prefix: &str) -> Vec<u8> {
    format!("{prefix}:{{#by-hand}}").into_bytes()
}

/// A key as its name shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct NamedKey {
    /// The key's bytes; a value that the name holds as a hash is `#` and the hash.
    pub(super) key: Vec<u8>,
    /// True if the name holds a hash of a value.
    pub(super) is_hashed: bool,
}

/// Returns a pattern of `SCAN` for the names of keys with parts, of limits whose names begin with
/// `limit` and whose states have this tag.
pub(super) fn pattern(prefix: &str, limit: &str, tag: u8) -> String {
    let mut pattern = String::new();
    push_literally(&mut pattern, prefix);
    pattern.push_str(":{*}:");
    push_literally(&mut pattern, limit);
    pattern.push_str("*~");
    pattern.push(char::from(tag));
    pattern.push('*');
    pattern
}

/// Reads the name of a key with parts; `limit_of` returns the limit with this name and shape.
pub(super) fn read<T>(
    prefix: &str,
    name: &[u8],
    limit_of: impl Fn(&str) -> Option<T>,
) -> Option<(T, NamedKey)> {
    let name = str::from_utf8(name).ok()?;
    let name = name.strip_prefix(prefix)?.strip_prefix(":{")?;
    let (subject, name) = name.split_once("}:")?;
    // A name of a limit may hold a colon too.
    let ends = name.match_indices(':').map(|(at, _)| at);
    let mut splits = ends.chain([name.len()]).map(|at| name.split_at(at));
    let (limit, rest) = splits.find_map(|(label, rest)| Some((limit_of(label)?, rest)))?;
    let mut named = NamedKey {
        key: Vec::new(),
        is_hashed: false,
    };
    let subject = (subject != FINAL).then_some(subject);
    // Each further part follows a colon.
    for value in subject.into_iter().chain(rest.split(':').skip(1)) {
        named.is_hashed |= value.starts_with('#');
        KeyBuilder::new(&mut named.key).part(&plain(value)?);
    }
    Some((limit, named))
}

/// Returns an escaped value as it was.
fn plain(value: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut pieces = value.split('%');
    bytes.extend(pieces.next()?.as_bytes());
    for piece in pieces {
        let (digits, rest) = piece.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend(rest.as_bytes());
    }
    Some(bytes)
}

/// Appends a text to a pattern.
fn push_literally(pattern: &mut String, text: &str) {
    for character in text.chars() {
        if matches!(character, '*' | '?' | '[' | ']' | '^' | '-' | '\\') {
            pattern.push('\\');
        }
        pattern.push(character);
    }
}

/// Returns a text in the form that names of keys have.
pub(super) fn escaped(text: &str) -> String {
    let mut name = String::new();
    push_value(&mut name, text.as_bytes());
    name
}

/// Appends a value, escaped, or hashed if that is too long. No escaped value begins with `#`.
fn push_value(name: &mut String, value: &[u8]) {
    let start = name.len();
    for &byte in value {
        match byte {
            b'!'..=b'~' if !b"%:{}#".contains(&byte) => name.push(char::from(byte)),
            _ => {
                let _ = write!(name, "%{byte:02X}"); // cannot fail
            }
        }
        if name.len() - start > MAX_VALUE {
            name.truncate(start);
            name.push('#');
            for byte in &Sha256::digest(value)[..HASH_DIGITS / 2] {
                let _ = write!(name, "{byte:02x}");
            }
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn label() -> Label {
        Label {
            limit: "limit".into(),
            shape: String::new(),
            is_final: false,
        }
    }

    fn last() -> Label {
        Label {
            shape: "~p".into(),
            is_final: true,
            ..label()
        }
    }

    fn named(parts: &[&[u8]]) -> String {
        named_by(&label(), parts)
    }

    fn named_by(label: &Label, parts: &[&[u8]]) -> String {
        let mut bytes = Vec::new();
        let mut builder = KeyBuilder::new(&mut bytes);
        for part in parts {
            builder.part(part);
        }
        String::from_utf8(name("rk", label, Key::from_bytes(&bytes)).into_vec()).unwrap()
    }

    #[test]
    fn what_takes_nothing_back_shares_a_slot() {
        let slot = crate::redis::slot::slot_of(b"rk:{#final}");
        for (parts, text) in [
            (&[][..], "rk:{#final}:limit~p"),
            (&[&b""[..]], "rk:{#final}:limit~p:"),
            (&[b"ada", b"}{"], "rk:{#final}:limit~p:ada:%7D%7B"),
        ] {
            let name = named_by(&last(), parts);
            assert_eq!(name, text);
            assert_eq!(crate::redis::slot::slot_of(name.as_bytes()), slot);
        }
    }

    #[test]
    fn names_can_be_read() {
        for (parts, text) in [
            (&[][..], "rk:{limit}"),
            (&[&b""[..]], "rk:{}:limit"),
            (&[b"203.0.113.7"], "rk:{203.0.113.7}:limit"),
            (&[b"2001:db8::1"], "rk:{2001%3Adb8%3A%3A1}:limit"),
            (&[b"ada", b"/login", b""], "rk:{ada}:limit:/login:"),
            (&[b"a}b{c%d\n"], "rk:{a%7Db%7Bc%25d%0A}:limit"),
        ] {
            assert_eq!(named(parts), text);
        }
        let long = named(&[&[b'x'; 65]]);
        assert!(long.starts_with("rk:{#") && long.len() == "rk:{#}:limit".len() + HASH_DIGITS);
    }

    #[test]
    fn names_are_read_back() {
        for label in [label(), last()] {
            let text = format!("{}{}", label.limit, label.shape);
            let known = |name: &str| (name == text).then_some(());
            let long = [b'x'; 65];
            for parts in [
                &[&b"ada"[..]][..],
                &[b"2001:db8::1"],
                &[b"", b"", b""],
                &[b"a}b{c%d\n", b"limit", b"#final"],
                &[b"ada", &long],
            ] {
                let name = named_by(&label, parts);
                let ((), read) = read("rk", name.as_bytes(), known).unwrap();
                assert_eq!(read.is_hashed, parts.contains(&&long[..]), "{name}");
                let shown: Vec<_> = Key::from_bytes(&read.key).parts().collect();
                assert_eq!(shown.len(), parts.len(), "{name}");
                for (shown, part) in shown.into_iter().zip(parts) {
                    assert_eq!(shown == *part, part.len() < 65, "{name}");
                }
            }
            for other in [
                "rk:{limit}",
                "rk:{ada}:limit-two",
                "rk:{ada}!limit",
                "other",
            ] {
                assert_eq!(read("rk", other.as_bytes(), known), None, "{other}");
            }
        }
        assert_eq!(read("rk", b"rk:{a%zz}:limit", |_| Some(())), None);
        assert_eq!(pattern("r*k", "log-in", b'b'), r"r\*k:{*}:log\-in*~b*");
    }

    /// Covers prefixes, limits' names and all bytes that could be mistaken for a separator.
    #[test]
    fn no_two_keys_share_a_name() {
        let pieces: [&[u8]; 8] = [b"", b"a", b"a?", b"limit", b"}:limit", b":", b"#", b"%3A"];
        let mut names = HashSet::new();
        let mut count = 0;
        let mut add = |name: String| {
            let probe = String::from_utf8(beside(name.as_bytes())).unwrap();
            assert!(names.insert(name.clone()) && names.insert(probe), "{name}");
            count += 1;
        };
        add(String::from_utf8(by_hand("rk")).unwrap());
        let by_hand = Label {
            limit: "by-hand".into(),
            ..label()
        };
        add(named_by(&by_hand, &[]));
        for label in [label(), last()] {
            add(named_by(&label, &[]));
            for a in pieces {
                add(named_by(&label, &[a]));
                for b in pieces {
                    add(named_by(&label, &[a, b]));
                    for c in pieces {
                        add(named_by(&label, &[a, b, c]));
                    }
                }
            }
            for raw in [&b"ada"[..], b"limit", b"zz"] {
                let name = name("rk", &label, Key::from_bytes(raw)).into_vec();
                add(String::from_utf8(name).unwrap());
            }
        }
        assert_eq!(count, 2 + 2 * (1 + 8 + 64 + 512 + 3));
    }
}
