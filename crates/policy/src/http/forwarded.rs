//! Forwarded: reads a forwarding header from its right end, hop by hop.
//!
//! ```text
//!   x-forwarded-for: spoofed, 203.0.113.9, 10.0.0.2      <- read this way
//!   forwarded: for=spoofed, for=203.0.113.9;proto=https, for="[fd00::2]:80"
//! ```
//!
//! The left end comes from the first client in the chain, and may hold anything: an odd quote, a
//! megabyte of commas. Reading from the right never reaches it, because the walk ends at the
//! first address that is not a trusted proxy.
//!
//! * Source: A. Petersson, M. Nilsson, "Forwarded HTTP Extension", RFC 7239 (2014).

use std::net::IpAddr;

use crate::http::octets::trim;

/// Maximum number of hops that are read.
pub(crate) const MAX_HOPS: usize = 64;

/// Maximum number of bytes that are read, over all lines of the header.
pub(crate) const MAX_BYTES: usize = 8 * 1024;

/// Format of the hops in a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Syntax {
    /// Addresses: `x-forwarded-for`, `x-real-ip` and their like.
    Addresses,
    /// RFC 7239.
    Elements,
}

impl Syntax {
    pub(crate) fn of(header: &str) -> Self {
        if header.eq_ignore_ascii_case("forwarded") {
            Self::Elements
        } else {
            Self::Addresses
        }
    }

    /// Returns the address of one hop; `None` if it is malformed or holds no address.
    pub(crate) fn address(self, hop: &[u8]) -> Option<IpAddr> {
        let node = match self {
            Self::Addresses => trim(hop),
            Self::Elements => node(hop)?,
        };
        address(std::str::from_utf8(node).ok()?)
    }

    /// Cuts the last hop off a line: returns the text before it, if any, and the hop.
    pub(crate) fn last_hop(self, line: &[u8]) -> (Option<&[u8]>, &[u8]) {
        let comma = match self {
            Self::Addresses => line.iter().rposition(|byte| *byte == b','),
            Self::Elements => last_unquoted(line, b','),
        };
        cut(line, comma)
    }
}

/// Returns the text before a position, if there is one, and the text behind it.
fn cut(text: &[u8], at: Option<usize>) -> (Option<&[u8]>, &[u8]) {
    at.map_or((None, text), |at| (Some(&text[..at]), &text[at + 1..]))
}

/// Reads `192.0.2.1`, `192.0.2.1:80`, `::1`, `[::1]`, `[::1]:80`. Zone ids are refused, because
/// they have a meaning on one machine only.
fn address(text: &str) -> Option<IpAddr> {
    if let Some(inner) = text.strip_prefix('[') {
        let (inner, rest) = inner.split_once(']')?;
        let is_closed = rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port);
        return inner.parse().ok().map(IpAddr::V6).filter(|_| is_closed);
    }
    let bare = text.parse().ok();
    bare.or_else(|| {
        let (host, port) = text.split_once(':')?;
        host.parse().ok().map(IpAddr::V4).filter(|_| is_port(port))
    })
}

/// Returns true for digits, or an obfuscated name that begins with `_` (RFC 7239, section 6).
fn is_port(text: &str) -> bool {
    let is_name = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    match text.strip_prefix('_') {
        Some(name) => !name.is_empty() && name.bytes().all(is_name),
        None => text.bytes().all(|b| b.is_ascii_digit()) && text.parse::<u16>().is_ok(),
    }
}

/// Returns the value of `for` in one element; `None` if it is missing, repeated, or malformed.
fn node(element: &[u8]) -> Option<&[u8]> {
    let mut rest = Some(element);
    let mut found = None;
    while let Some(pairs) = rest {
        let (before, pair) = cut(pairs, last_unquoted(pairs, b';'));
        rest = before;
        let pair = trim(pair);
        let Some((name, value)) = pair.split_at_checked(4) else {
            continue;
        };
        if !name.eq_ignore_ascii_case(b"for=") {
            continue;
        }
        if found.replace(value).is_some() {
            return None;
        }
    }
    match found? {
        [b'"', inner @ .., b'"'] => Some(inner),
        token => Some(token),
    }
}

/// Returns the last position of `separator` outside quotes. Read backwards, each quote that is
/// not escaped toggles the state.
fn last_unquoted(text: &[u8], separator: u8) -> Option<usize> {
    let mut quoted = false;
    for at in (0..text.len()).rev() {
        match text[at] {
            b'"' if !is_escaped(&text[..at]) => quoted = !quoted,
            byte if byte == separator && !quoted => return Some(at),
            _ => {}
        }
    }
    None
}

/// Returns true if the byte after `text` is escaped: by an odd number of backslashes.
fn is_escaped(text: &[u8]) -> bool {
    let slashes = text.iter().rev().take_while(|byte| **byte == b'\\').count();
    slashes % 2 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_read_with_ports_and_brackets() {
        for (text, expected) in [
            ("192.0.2.1", Some("192.0.2.1")),
            ("192.0.2.1:80", Some("192.0.2.1")),
            ("192.0.2.1:65535", Some("192.0.2.1")),
            ("192.0.2.1:_p", Some("192.0.2.1")),
            ("::1", Some("::1")),
            ("[::1]", Some("::1")),
            ("[::1]:80", Some("::1")),
            ("[2001:db8::1]:_a.b-c", Some("2001:db8::1")),
            ("::ffff:192.0.2.1", Some("::ffff:192.0.2.1")),
            ("[::ffff:192.0.2.1]:1", Some("::ffff:192.0.2.1")),
            ("2001:db8::1:80", Some("2001:db8::1:80")),
            ("", None),
            ("unknown", None),
            ("_hidden", None),
            ("localhost", None),
            ("192.0.2", None),
            ("192.0.2.256", None),
            ("192.0.2.01", None),
            ("192.0.2.1:", None),
            ("192.0.2.1:65536", None),
            ("192.0.2.1:+80", None),
            ("192.0.2.1:_", None),
            ("192.0.2.1:80:80", None),
            ("192.0.2.1/24", None),
            ("192.0.2.1 ", None),
            ("[192.0.2.1]", None),
            ("[::1", None),
            ("[::1]80", None),
            ("[::1]:", None),
            ("[::1]x]", None),
            ("::1]", None),
            ("[[::1]]", None),
            ("fe80::1%eth0", None),
            ("[fe80::1%25eth0]", None),
            ("2130706433", None),
            ("0x7f000001", None),
        ] {
            let expected = expected.map(|ip| ip.parse().unwrap());
            assert_eq!(address(text), expected, "{text}");
        }
    }

    #[test]
    fn separators_in_quotes_do_not_separate() {
        for (text, expected) in [
            ("a,b", Some(1)),
            ("a,b,c", Some(3)),
            ("ab", None),
            ("", None),
            (r#"a="x,y""#, None),
            (r#"a,b="x,y""#, Some(1)),
            (r#"a="x\",y""#, None),
            (r#"z,a="x\",y""#, Some(1)),
            (r#"a="x\\",y"#, Some(7)),
            // A quote that was never closed on the left does no harm on the right.
            (r#"for=",for=b"#, Some(5)),
            (r#"for=",for="b""#, Some(5)),
        ] {
            assert_eq!(last_unquoted(text.as_bytes(), b','), expected, "{text}");
        }
    }
}
