//! Permit: a loan to a request, as a text that the client can give back.
//!
//! ```text
//!   base64url:  | 1 | lease 16 | length 1, limit | key |
//! ```
//!
//! The text contains all that is needed to find the lease: no other record is kept, and any node
//! that shares the store can take it back. It cannot be guessed, because the name of a lease is a
//! random number. It holds the key it was lent for, readable by its holder: no more than the holder
//! has sent.
//!
//! * Source of the encoding: S. Josefsson, RFC 4648, "The Base16, Base32, and Base64 Data
//!   Encodings" (2006), section 5, without padding.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ratekeeper_core::{Charge, Key, LeaseId};

/// Version of the layout.
const VERSION: u8 = 1;
/// The longest name of a limit, or of its variant: two names of a policy, with a `=` between.
const MAX_NAME: usize = 81;
/// The longest text that is read, with room for a limit's name and a key of 8 parts of 128 bytes.
const MAX_CHARS: usize = 1_536;

/// Permits on loan: their limit, key and lease.
///
/// ```
/// use ratekeeper::Permit;
/// use ratekeeper::core::{Key, LeaseId};
///
/// let permit = Permit::new("in-flight", Key::ALL, LeaseId::from_bytes([7; 16]));
/// let id = permit.to_string();
/// assert_eq!(id.parse(), Ok(permit));
/// assert!("in-flight".parse::<Permit>().is_err());
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Permit {
    limit: Box<str>,
    key: Box<[u8]>,
    lease: LeaseId,
}

/// The error for a text that is not a permit.
///
/// ```
/// use ratekeeper::{NoPermit, Permit};
/// assert_eq!("4711".parse::<Permit>(), Err(NoPermit));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoPermit;

impl fmt::Display for NoPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a permit id that /v1/acquire returned")
    }
}

// By hand: the layer has this type without a policy, and no crate that derives errors.
impl std::error::Error for NoPermit {}

impl Permit {
    /// A permit of the limit `limit`, for `key`, under the name `lease`.
    pub fn new(limit: &str, key: Key<'_>, lease: LeaseId) -> Self {
        Self {
            limit: limit.into(),
            key: key.as_bytes().into(),
            lease,
        }
    }

    /// Returns the name of the limit.
    pub fn limit(&self) -> &str {
        &self.limit
    }

    /// Returns the key that holds the permits.
    pub fn key(&self) -> Key<'_> {
        Key::from_bytes(&self.key)
    }

    /// Returns the name they were lent to.
    pub const fn lease(&self) -> LeaseId {
        self.lease
    }
}

impl fmt::Display for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.limit.as_bytes();
        let mut bytes = Vec::with_capacity(18 + name.len() + self.key.len());
        bytes.push(VERSION);
        bytes.extend_from_slice(self.lease.as_bytes());
        bytes.push(u8::try_from(name.len()).unwrap_or(u8::MAX)); // a policy's name has 81 at most
        bytes.extend_from_slice(name);
        bytes.extend_from_slice(&self.key);
        f.write_str(&encoded(&bytes))
    }
}

impl FromStr for Permit {
    type Err = NoPermit;

    /// # Errors
    /// If the text is not exactly the output of [`Display`](fmt::Display).
    fn from_str(text: &str) -> Result<Self, NoPermit> {
        let bytes = decoded(text, MAX_CHARS).ok_or(NoPermit)?;
        let (&[VERSION], rest) = bytes.split_first_chunk().ok_or(NoPermit)? else {
            return Err(NoPermit);
        };
        let (lease, rest) = rest.split_first_chunk::<16>().ok_or(NoPermit)?;
        let (&length, rest) = rest.split_first().ok_or(NoPermit)?;
        let (name, key) = rest.split_at_checked(length.into()).ok_or(NoPermit)?;
        let plain = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'=');
        let is_name = (1..=MAX_NAME).contains(&name.len()) && name.iter().all(plain);
        if !is_name || !Key::from_bytes(key).is_whole() {
            return Err(NoPermit);
        }
        Ok(Self {
            limit: String::from_utf8_lossy(name).into(),
            key: key.into(),
            lease: LeaseId::from_bytes(*lease),
        })
    }
}

/// Returns true if the limit lends permits.
pub(crate) fn lends(charge: &Charge<'_>) -> bool {
    charge.limit.algorithm.concurrency().is_some()
}

/// Encodes bytes in base64 for URLs.
pub(crate) fn encoded(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Returns the bytes of a base64url text of at most `most` characters, exactly as it is written.
pub(crate) fn decoded(text: &str, most: usize) -> Option<Vec<u8>> {
    let text = Some(text).filter(|text| text.len() <= most)?;
    URL_SAFE_NO_PAD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use ratekeeper_core::KeyBuilder;

    use super::*;

    fn permit(limit: &str, parts: &[&[u8]]) -> Permit {
        let mut key = Vec::new();
        let mut builder = KeyBuilder::new(&mut key);
        for part in parts {
            builder.part(part);
        }
        let lease = LeaseId::from_bytes([0xfb; 16]);
        Permit::new(limit, Key::from_bytes(&key), lease)
    }

    #[test]
    fn permits_are_parsed_back_from_their_text() {
        let long = [b'x'; 128];
        for permit in [
            permit("a", &[]),
            permit("in-flight", &[b"192.0.2.1"]),
            permit("in-flight-2", &[b"", b"\xff\0", &[7; 300]]),
            permit(&"n".repeat(40), &[&long[..]; 8]), // the longest a policy makes
        ] {
            let text = permit.to_string();
            assert!(text.len() <= MAX_CHARS, "{}", text.len());
            let safe = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
            assert!(text.chars().all(safe), "{text}");
            assert_eq!(text.parse(), Ok(permit));
        }
    }

    #[test]
    fn the_encoding_follows_the_standard() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg"),
            ("fo", "Zm8"),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg"),
            ("fooba", "Zm9vYmE"),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encoded(bytes.as_bytes()), text);
            assert_eq!(decoded(text, MAX_CHARS).as_deref(), Some(bytes.as_bytes()));
        }
        assert_eq!(encoded(&[0xfb, 0xff]), "-_8");
    }

    #[test]
    fn texts_that_are_not_permit_ids_are_refused() {
        let good = permit("in-flight", &[b"192.0.2.1"]).to_string();
        let layout = |bytes: &[u8]| encoded(bytes);
        let lease = [1; 16];
        let with = |version: u8, tail: &[u8]| layout(&[&[version], &lease[..], tail].concat());
        for text in [
            String::new(),
            "A".into(),
            format!("{good}~"),
            format!("{good}="),
            format!(" {good}"),
            good[..good.len() - 1].to_owned(),
            good.replace(|c: char| c.is_ascii_digit(), "+"),
            "x".repeat(MAX_CHARS + 1),
            with(2, b"\x01a"),
            with(1, b""),
            with(1, b"\0"),
            with(1, b"\x02a"),
            with(1, b"\x01A"),
            with(1, &[&[82], &[b'a'; 82][..]].concat()),
            with(1, b"\x01a\x05four"),    // a key cut short
            with(1, b"\x01a\xff\x01\0x"), // a length written otherwise than it would be
            "Zh".into(),                  // bits left over
            "\u{e9}".into(),
        ] {
            assert_eq!(text.parse::<Permit>(), Err(NoPermit), "{text}");
        }
        assert!(with(1, b"\x01a").parse::<Permit>().is_ok());
    }
}
