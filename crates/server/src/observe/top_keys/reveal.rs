//! Reveal: a key as an operator may see it, by `reveal_keys` of the policy.
//!
//! ```text
//!   raw      ip=192.0.2.17
//!   prefix   ip=192.~5f1c2a9be04d7731       the first third, 8 characters at most
//!   hash     ip=~5f1c2a9be04d7731           HMAC-SHA256, the first 8 bytes
//! ```
//!
//! The hash is keyed, because an address could otherwise be found by trying all of them. A value
//! has the same hash under all limits. Processes with the same webhook secret show the same hash;
//! without one it is that of this process, until it ends.

use ratekeeper_core::Key;
use ratekeeper_policy::{RevealKeys, Rule};

use crate::observe::alerts::{HASH_BYTES, Identity};

/// Maximum number of characters that `prefix` shows.
const MAX_PREFIX: usize = 8;
/// Length of a hash: two digits a byte.
const HASH_DIGITS: usize = 2 * HASH_BYTES;
/// Part of a value that `prefix` shows.
const PREFIX_PART: usize = 3;

/// Shows keys as the policy allows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyReveal<'a> {
    pub(crate) how: RevealKeys,
    pub(crate) identity: &'a Identity,
}

impl KeyReveal<'_> {
    /// Returns the parts of a key with their names.
    pub(crate) fn key(&self, rule: &Rule, key: Key<'_>) -> Vec<String> {
        let mut names = rule.key_parts();
        let part = |value: std::borrow::Cow<'_, str>| {
            let value = self.value(value.into_owned());
            match names.next() {
                Some(name) => format!("{name}={value}"),
                None => value,
            }
        };
        key.display_parts().map(part).collect()
    }

    /// Returns the parts of a key as one text; `None` if it has no parts.
    pub(crate) fn text(&self, rule: &Rule, key: Key<'_>) -> Option<String> {
        let parts = self.key(rule, key);
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    fn value(&self, value: String) -> String {
        let shown = match self.how {
            RevealKeys::Raw => return value,
            RevealKeys::Hash => 0,
            RevealKeys::Prefix => MAX_PREFIX.min(value.chars().count() / PREFIX_PART),
        };
        let prefix: String = value.chars().take(shown).collect();
        format!("{prefix}~{}", self.identity.key_hash(&value))
    }
}

/// Returns true if a text may be a value as [`KeyReveal`] shows it, of which only the hash is known.
pub(crate) fn is_hashed(how: RevealKeys, text: &str) -> bool {
    let most = match how {
        RevealKeys::Raw => return false,
        RevealKeys::Hash => 0,
        RevealKeys::Prefix => MAX_PREFIX,
    };
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.rsplit_once('~').is_some_and(|(prefix, hash)| {
        prefix.chars().count() <= most && hash.len() == HASH_DIGITS && hash.bytes().all(is_digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_as_far_as_the_policy_allows() {
        let identity = Identity::new(None).unwrap();
        let other = Identity::new(None).unwrap();
        let shown = |how, identity, value: &str| KeyReveal { how, identity }.value(value.into());
        for (how, value, starts) in [
            (RevealKeys::Hash, "192.0.2.17", "~"),
            (RevealKeys::Prefix, "192.0.2.17", "192~"),
            (RevealKeys::Prefix, "ab", "~"),
            (RevealKeys::Prefix, "\u{e9}\u{e9}\u{e9}", "\u{e9}~"),
            (RevealKeys::Prefix, &"x".repeat(128), "xxxxxxxx~"),
        ] {
            let text = shown(how, &identity, value);
            let hash = text.strip_prefix(starts).unwrap();
            assert_eq!(hash.len(), 16, "{text}");
            assert_eq!(text, shown(how, &identity, value));
            assert_ne!(text, shown(how, &other, value));
            assert_ne!(text, shown(how, &identity, "192.0.2.18"));
        }
        assert_eq!(shown(RevealKeys::Raw, &identity, "ada"), "ada");
    }
}
