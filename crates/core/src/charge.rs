//! A charge: the limit, the key, the cost, and the effect of a denial.
//!
//! ```text
//!   request --> policy --> [ (limit, key, cost, mode), ... ] --> store: all or none
//! ```

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::{Limit, Permits};

/// The values of a limit's key parts, joined so that no two lists of values give the same bytes
/// (each part is preceded by its length).
///
/// ```
/// use ratekeeper_core::{Key, KeyBuilder};
/// let (mut a, mut b) = (Vec::new(), Vec::new());
/// KeyBuilder::new(&mut a).part(b"a_b").part(b"c");
/// KeyBuilder::new(&mut b).part(b"a").part(b"b_c");
/// assert_ne!(Key::from_bytes(&a), Key::from_bytes(&b));
/// assert_eq!(Key::from_bytes(&a).parts().collect::<Vec<_>>(), [&b"a_b"[..], b"c"]);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Key<'a>(&'a [u8]);

impl<'a> Key<'a> {
    /// The key without parts, of a limit that counts all requests together.
    pub const ALL: Key<'static> = Key(&[]);

    /// A key from the bytes that a [`KeyBuilder`] wrote.
    pub const fn from_bytes(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The joined bytes.
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// The values of the parts, in order.
    pub fn parts(self) -> impl Iterator<Item = &'a [u8]> {
        let mut rest = self.0;
        core::iter::from_fn(move || {
            let (&head, tail) = rest.split_first()?;
            let (length, tail) = match head {
                LONG => {
                    let (bytes, tail) = tail.split_first_chunk::<2>()?;
                    (usize::from(u16::from_le_bytes(*bytes)), tail)
                }
                short => (usize::from(short), tail),
            };
            let (part, tail) = tail.split_at_checked(length)?;
            rest = tail;
            Some(part)
        })
    }

    /// True if the bytes are exactly the parts, as a [`KeyBuilder`] writes them.
    pub fn is_whole(self) -> bool {
        let written = |part: &[u8]| part.len() + if part.len() < LONG.into() { 1 } else { 3 };
        self.parts().map(written).sum::<usize>() == self.0.len()
    }

    /// The values as text, for people; bytes that are not UTF-8 are replaced.
    pub fn display_parts(self) -> impl Iterator<Item = Cow<'a, str>> {
        self.parts().map(String::from_utf8_lossy)
    }
}

/// First byte of a part longer than 254 bytes; two bytes of length follow.
const LONG: u8 = 255;

/// Receives the bytes of a key while it is built.
pub trait KeySink {
    /// Appends `bytes`.
    fn extend(&mut self, bytes: &[u8]);
}

impl KeySink for Vec<u8> {
    fn extend(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Writes the parts of a key, one after the other, into a buffer of the caller.
#[derive(Debug)]
pub struct KeyBuilder<'a, S = Vec<u8>>(&'a mut S);

impl<'a, S: KeySink> KeyBuilder<'a, S> {
    /// A key written at the end of `sink`.
    pub fn new(sink: &'a mut S) -> Self {
        Self(sink)
    }

    /// Appends one part. A value longer than 65,535 bytes is cut there; the policy bounds
    /// values far below that.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "both lengths are bounded just above"
    )]
    pub fn part(&mut self, value: &[u8]) -> &mut Self {
        let value = &value[..value.len().min(usize::from(u16::MAX))];
        if value.len() < usize::from(LONG) {
            self.0.extend(&[value.len() as u8]);
        } else {
            self.0.extend(&[LONG]);
            self.0.extend(&(value.len() as u16).to_le_bytes());
        }
        self.0.extend(value);
        self
    }
}

/// The effect of a limit's verdict on the request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Mode {
    /// A denial refuses the request.
    #[default]
    Enforce,
    /// The limit decides and counts, but never refuses.
    Shadow,
    /// An alternative to the charge before it: asked, and charged, only if that one is denied. The
    /// charge and its alternatives are a chain, which has the effect of its first charge.
    Otherwise,
    /// A condition of the next charge, made together with it or not at all. If it denies, the next
    /// charge is not asked, not made, and refuses nothing. It refuses no request itself.
    Once,
    /// Room that the next charge, of the same limit and key, must leave free: it is allowed only if
    /// the sum of both costs is. The headroom itself is never charged.
    Headroom,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Enforce => "enforce",
            Self::Shadow => "shadow",
            Self::Otherwise => "otherwise",
            Self::Once => "once",
            Self::Headroom => "headroom",
        })
    }
}

/// One limit that a request must pass: charged together with its companions, or not at all.
#[derive(Clone, Copy, Debug)]
pub struct Charge<'a> {
    /// The limit.
    pub limit: &'a Limit,
    /// The key that is charged.
    pub key: Key<'a>,
    /// The cost.
    pub cost: Permits,
    /// The effect of a denial.
    pub mode: Mode,
}

impl<'a> Charge<'a> {
    /// A charge that must be allowed for the request to pass.
    #[inline]
    pub const fn enforced(limit: &'a Limit, key: Key<'a>, cost: Permits) -> Self {
        Self {
            limit,
            key,
            cost,
            mode: Mode::Enforce,
        }
    }

    /// The same charge of another cost.
    #[inline]
    #[must_use]
    pub const fn at_cost(self, cost: Permits) -> Self {
        Self { cost, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_parts_are_read_back_as_they_were_written() {
        let long = [b'x'; 300];
        for parts in [
            &[][..],
            &[&b""[..]],
            &[b"", b""],
            &[b"a", &long, b""],
            &[&long[..254], &long[..255]],
        ] {
            let mut bytes = Vec::new();
            let mut builder = KeyBuilder::new(&mut bytes);
            for part in parts {
                builder.part(part);
            }
            let key = Key::from_bytes(&bytes);
            assert_eq!(key.parts().collect::<Vec<_>>(), parts);
            assert!(key.is_whole());
        }
    }

    #[test]
    fn damaged_bytes_end_the_list() {
        assert_eq!(Key::from_bytes(&[5, b'a']).parts().count(), 0);
        assert_eq!(Key::from_bytes(&[255, 1]).parts().count(), 0);
        for damaged in [&[5, b'a'][..], &[255, 1], &[1, b'a', 2], &[255, 1, 0, b'a']] {
            assert!(!Key::from_bytes(damaged).is_whole(), "{damaged:?}");
        }
    }
}
