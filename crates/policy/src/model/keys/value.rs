//! Value: the form of a key part's value in a key.
//!
//! ```text
//!   value                          in the key
//!   u1                             u1
//!   longer than 128 bytes          sha256:<32 hexadecimal digits>
//!   a secret                       sha256:<32 hexadecimal digits>
//!   192.0.2.7 under ip/24          192.0.2.0/24
//!   missing, the address instead   ~ip=192.0.2.7
//!   missing, shared                ~
//! ```
//!
//! No value that a request brings can be mistaken for one of the last kinds, or for the hash of
//! another: a value that begins with `~` or `sha256:` is itself hashed.

use std::io::Write as _;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use ratekeeper_core::KeyBuilder;
use sha2::{Digest, Sha256};
use smallvec::SmallVec;

use crate::{KeyBytes, KeyPart};

/// Longest value, in bytes, that a key holds as it is.
pub(crate) const MAX_VALUE: usize = 128;

/// Prefix of a hashed value.
const HASHED: &[u8] = b"sha256:";

/// Number of bytes of the hash that are kept: no two values collide by accident, and finding a
/// collision takes 2^64 tries.
const HASH_BYTES: usize = 16;

/// Marker of a missing value.
const MISSING: u8 = b'~';

/// Writes a value of a request, unchanged if a key can hold it.
pub(crate) fn write_text(value: &[u8], out: &mut KeyBytes) {
    if value.len() > MAX_VALUE || value.starts_with(HASHED) || value.starts_with(&[MISSING]) {
        write_hashed(value, out);
    } else {
        KeyBuilder::new(out).part(value);
    }
}

/// Writes a value that must not be readable in the key.
pub(crate) fn write_hashed(value: &[u8], out: &mut KeyBytes) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text: SmallVec<[u8; 64]> = SmallVec::from_slice(HASHED);
    for byte in Sha256::digest(value).iter().take(HASH_BYTES) {
        text.extend([byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]));
    }
    KeyBuilder::new(out).part(&text);
}

/// Returns true if a value has the form of one that a key shows but no request can bring: a hash,
/// or the stand-in of a missing value.
pub(crate) fn is_as_shown(value: &[u8]) -> bool {
    let is_hash = value.strip_prefix(HASHED).is_some_and(|digits| {
        digits.len() == 2 * HASH_BYTES && digits.iter().all(u8::is_ascii_hexdigit)
    });
    is_hash || is_stand_in(value)
}

/// Returns true for `~` and `~PART=VALUE`. Another value that begins so is one that a request
/// brings.
fn is_stand_in(value: &[u8]) -> bool {
    let stand_in = value.strip_prefix(&[MISSING]);
    let Some(Ok(text)) = stand_in.map(str::from_utf8) else {
        return false;
    };
    let is_part = |at: usize| KeyPart::parse(&text[..at]).is_ok();
    text.is_empty() || text.match_indices('=').any(|(at, _)| is_part(at))
}

/// Returns true if the value of a part is a hash; no value that a key holds as it is looks so.
pub(crate) fn is_hash(value: &[u8]) -> bool {
    value.starts_with(HASHED)
}

/// Returns true if a part, with its length before it, is a hash.
pub(crate) fn is_hashed(part: &[u8]) -> bool {
    part.get(1..).is_some_and(is_hash)
}

/// Number of bits of an address that identify one client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Prefix {
    pub(crate) v4: u8,
    pub(crate) v6: u8,
}

/// Writes an address, cut to the prefix, in its usual notation.
pub(crate) fn write_ip(ip: IpAddr, prefix: Prefix, out: &mut KeyBytes) {
    let network = match ip {
        IpAddr::V4(v4) => Ipv4Net::new(v4, prefix.v4).map(IpNet::from),
        IpAddr::V6(v6) => Ipv6Net::new(v6, prefix.v6).map(IpNet::from),
    };
    let mut text = StackText::new();
    // Writing to memory cannot fail.
    let _ = match (network, ip) {
        (Ok(network), _) if network.prefix_len() < network.max_prefix_len() => {
            write!(text, "{}", network.trunc())
        }
        (_, IpAddr::V4(v4)) => return write_v4(v4.octets(), out),
        (_, IpAddr::V6(v6)) => write!(text, "{v6}"),
    };
    KeyBuilder::new(out).part(&text);
}

/// Writes `192.0.2.1`; several times faster than the formatting of the standard library.
fn write_v4(octets: [u8; 4], out: &mut KeyBytes) {
    let (mut text, mut length) = ([b'.'; 16], 0);
    for octet in octets {
        for unit in [100, 10, 1] {
            if octet >= unit || unit == 1 {
                text[length] = b'0' + octet / unit % 10;
                length += 1;
            }
        }
        length += 1; // the dot behind it
    }
    KeyBuilder::new(out).part(&text[..length - 1]);
}

/// Writes the stand-in of a missing value: another part with its value, or nothing.
pub(crate) fn write_missing(stand_in: Option<(&KeyPart, &[u8])>, out: &mut KeyBytes) {
    let mut value = StackText::new();
    value.push(MISSING);
    if let Some((part, text)) = stand_in {
        // Writing to memory cannot fail.
        let _ = write!(value, "{part}=");
        value.extend_from_slice(text);
    }
    KeyBuilder::new(out).part(&value);
}

/// Text that is formatted on the stack.
type StackText = SmallVec<[u8; 256]>;

#[cfg(test)]
mod tests {
    use ratekeeper_core::Key;

    use super::*;

    /// Returns the one part that `write` wrote.
    fn part(write: impl FnOnce(&mut KeyBytes)) -> String {
        let mut out = KeyBytes::default();
        write(&mut out);
        let key = Key::from_bytes(&out);
        let parts: Vec<_> = key.display_parts().collect();
        assert_eq!(parts.len(), 1);
        parts[0].clone().into_owned()
    }

    fn is_hash(text: &str) -> bool {
        let digits = text.strip_prefix("sha256:");
        digits.is_some_and(|digits| {
            digits.len() == 32 && digits.bytes().all(|b| b.is_ascii_hexdigit())
        })
    }

    #[test]
    fn long_and_ambiguous_values_are_hashed() {
        let fits = "x".repeat(MAX_VALUE);
        for text in ["u1", "", "a~", "sha256", &fits] {
            assert_eq!(part(|out| write_text(text.as_bytes(), out)), text);
        }
        let long = "x".repeat(MAX_VALUE + 1);
        let forged = format!("sha256:{}", "0".repeat(32));
        for text in ["~", "~ip=192.0.2.1", &forged, &long] {
            let hash = part(|out| write_text(text.as_bytes(), out));
            assert!(is_hash(&hash), "{text} {hash}");
            assert_eq!(part(|out| write_hashed(text.as_bytes(), out)), hash);
        }
        for shown in ["~", "~ip=192.0.2.1", "~json:/a=b=1", &forged] {
            assert!(is_as_shown(shown.as_bytes()), "{shown}");
        }
        for brought in ["~x", "~/.profile", "~a=b", "sha256:1", "u1"] {
            assert!(!is_as_shown(brought.as_bytes()), "{brought}");
        }
        // FIPS 180-4, the hash of `abc`, cut.
        let abc = part(|out| write_hashed(b"abc", out));
        assert_eq!(abc, "sha256:ba7816bf8f01cfea414140de5dae2223");
    }

    #[test]
    fn addresses_read_as_people_write_them() {
        for (ip, v4, v6, expected) in [
            ("192.0.2.1", 32, 64, "192.0.2.1"),
            ("0.0.0.0", 32, 64, "0.0.0.0"),
            ("255.255.255.255", 32, 64, "255.255.255.255"),
            ("10.99.100.9", 32, 64, "10.99.100.9"),
            ("192.0.2.77", 24, 64, "192.0.2.0/24"),
            ("192.0.2.77", 0, 64, "0.0.0.0/0"),
            ("2001:db8::1", 32, 64, "2001:db8::/64"),
            ("2001:db8::1", 32, 128, "2001:db8::1"),
            ("2001:db8::1", 32, 200, "2001:db8::1"),
            (
                "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff",
                32,
                127,
                "2001:db8:ffff:ffff:ffff:ffff:ffff:fffe/127",
            ),
            ("::", 32, 64, "::/64"),
        ] {
            let prefix = Prefix { v4, v6 };
            let written = part(|out| write_ip(ip.parse().unwrap(), prefix, out));
            assert_eq!(written, expected);
        }
    }

    #[test]
    fn addresses_take_the_bytes_of_the_guide() {
        let guide = include_str!("../../../../../docs/guide/deploy.md");
        let guide: Vec<&str> = guide.split_whitespace().collect();
        let bytes = |ip: &str| {
            let mut out = KeyBytes::default();
            write_ip(ip.parse().unwrap(), Prefix { v4: 32, v6: 64 }, &mut out);
            out.len()
        };
        let (least, most) = (bytes("1.1.1.1"), bytes("255.255.255.255"));
        let longest = bytes("2001:ffff:ffff:ffff:ffff:ffff:ffff:ffff");
        let shown = format!(
            "An IPv4 address takes {least} to {most} bytes, an IPv6 prefix of 64 bits at most {longest}."
        );
        assert!(guide.join(" ").contains(&shown), "{shown}");
    }

    #[test]
    fn a_stand_in_for_a_missing_value_is_marked() {
        assert_eq!(part(|out| write_missing(None, out)), "~");
        let ip = KeyPart::Ip { bits: None };
        let written = part(|out| write_missing(Some((&ip, b"192.0.2.1")), out));
        assert_eq!(written, "~ip=192.0.2.1");
    }
}
