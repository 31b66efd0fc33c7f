//! Stated: all values that a request states for a query parameter, a cookie or a header, because
//! applications differ in which of them they read, and in the spellings that they accept.
//!
//! ```text
//!   sent                            values               read so by
//!   ?user=a&user=b                  a, b                 Flask: a; Django, PHP, Rack: b
//!   ?user=&user=b                   none, b              as above
//!   ?us%65r=b  ?USER=b              b                    all; ASP.NET
//!   ?user[]=b  ?user[0]=b           b                    PHP, Express
//!   ?user.id=b  for `user_id`       b                    PHP
//!   ?user=a;user=b                  "a;user=b", a, b     Rack 2
//!   sid=a; sid=b                    a, b                 PHP: a; Django: b
//!   sid=%62  sid="b"  sid="\142"    b                    Express, PHP; Express; Django, Flask
//!   bASIC  Yjp4  Basic Y!jp4        Basic b:x            all
//! ```
//!
//! In doubt every value counts against the client: a key is charged under each, `match` holds if
//! one matches, an exemption only if all do. Equal values are one.

use std::iter::once;

use smallvec::SmallVec;

use crate::body::is_same_form_name;
use crate::path::{self, Normal};

/// Returns the values of all query parameters of that name, encoded. One without `=` is empty.
pub(crate) fn queries<'a>(query: &'a str, name: &str) -> impl Iterator<Item = &'a [u8]> {
    let pairs = query.as_bytes().split(|byte| *byte == b'&');
    let pairs = pairs.flat_map(|pair| {
        let parts = pair
            .contains(&b';')
            .then(|| pair.split(|byte| *byte == b';'));
        once(pair).chain(parts.into_iter().flatten())
    });
    pairs.filter_map(move |pair| value_of(pair, name))
}

/// Returns the values of all cookies of that name in a header, without spaces.
pub(crate) fn cookies<'a>(line: &'a [u8], name: &str) -> impl Iterator<Item = &'a [u8]> {
    let pairs = line.split(|byte| *byte == b';');
    pairs.filter_map(move |pair| value_of(pair, name).map(trim))
}

/// Returns the value of a cookie without quotes.
pub(crate) fn unquoted(value: &[u8]) -> &[u8] {
    match value {
        [b'"', inner @ .., b'"'] => inner,
        _ => value,
    }
}

/// Returns the value of a cookie in one spelling: without quotes and escapes, and with spaces in
/// place of `+`, because some decoders make one of the other.
pub(crate) fn cookie(value: &[u8]) -> Normal<'_> {
    let inner = unquoted(value);
    let is_quoted = inner.len() < value.len();
    let is_plain = |byte: &u8| byte.is_ascii() && !matches!(byte, b'%' | b'+' | b'\\');
    if inner.iter().all(is_plain) {
        return Normal::Borrowed(inner);
    }
    let unescaped = if is_quoted {
        unescaped(inner)
    } else {
        inner.into()
    };
    let decoded = decoded(&unescaped);
    let one = |byte: &u8| if *byte == b'+' { b' ' } else { *byte };
    Normal::Changed(decoded.as_bytes().iter().map(one).collect())
}

/// Returns the value of `authorization` in one spelling: the scheme with one capital, one space,
/// and of `Basic` the decoded credentials.
pub(crate) fn credentials(value: &[u8]) -> Normal<'_> {
    let at = value.iter().position(|byte| matches!(byte, b' ' | b'\t'));
    let (scheme, token) = value.split_at(at.unwrap_or(value.len()));
    let is_normal = |(at, byte): (usize, &u8)| *byte == capital(at, *byte);
    let is_basic = scheme.eq_ignore_ascii_case(b"basic");
    let has_one_space = token
        .get(1)
        .is_none_or(|byte| !matches!(byte, b' ' | b'\t'));
    if !is_basic && has_one_space && scheme.iter().enumerate().all(is_normal) {
        return Normal::Borrowed(value);
    }
    let mut out: SmallVec<[u8; 128]> = scheme
        .iter()
        .enumerate()
        .map(|(at, byte)| capital(at, *byte))
        .collect();
    out.push(b' ');
    if is_basic {
        decode_base64(token, &mut out);
    } else {
        out.extend_from_slice(trim(token));
    }
    Normal::Changed(out)
}

/// Returns the token of `Authorization: Bearer`; empty for another scheme.
pub(crate) fn bearer(value: &[u8]) -> &[u8] {
    let (scheme, token) = value.split_at_checked("Bearer ".len()).unwrap_or_default();
    let is_bearer = scheme.eq_ignore_ascii_case(b"Bearer ");
    if is_bearer { trim(token) } else { b"" }
}

fn capital(at: usize, byte: u8) -> u8 {
    match at {
        0 => byte.to_ascii_uppercase(),
        _ => byte.to_ascii_lowercase(),
    }
}

/// Returns `Basic` credentials up to `=` in their middle, where some decoders end.
pub(crate) fn up_to_padding(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked("Basic ".len())?;
    let at = token.iter().position(|byte| *byte == b'=')?;
    let goes_on = token[at..].iter().any(u8::is_ascii_alphanumeric);
    (scheme.eq_ignore_ascii_case(b"Basic ") && goes_on).then(|| &value[..scheme.len() + at])
}

/// Returns a query value, decoded. Bytes that are not UTF-8 are left out, because some
/// applications drop them.
pub(crate) fn decoded(encoded: &[u8]) -> Normal<'_> {
    let is_plain = |byte: &u8| byte.is_ascii() && !matches!(byte, b'%' | b'+');
    if encoded.iter().all(is_plain) {
        return Normal::Borrowed(encoded);
    }
    let mut out: SmallVec<[u8; 128]> = SmallVec::new();
    decode(encoded, |run| out.extend_from_slice(run));
    let chunks = out.utf8_chunks();
    Normal::Changed(chunks.flat_map(|chunk| chunk.valid().bytes()).collect())
}

/// Returns the value of a pair `NAME=VALUE` if it has that name.
fn value_of<'a>(pair: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let (found, value) = split_once(pair, b'=').unwrap_or((pair, b""));
    is_name(trim(found), name).then_some(value)
}

/// Returns true if some application takes a name of a query or a cookie for the wanted one.
fn is_name(found: &[u8], wanted: &str) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if found == wanted.as_bytes() {
        return true;
    }
    if found.iter().chain(wanted.as_bytes()).all(is_plain) {
        return found.eq_ignore_ascii_case(wanted.as_bytes());
    }
    let found = decoded(found);
    let found = String::from_utf8_lossy(found.as_bytes());
    is_same_form_name(wanted, &found)
}

/// Feeds a query name or value, decoded, to `take`, run by run.
fn decode(encoded: &[u8], mut take: impl FnMut(&[u8])) {
    let mut rest = encoded;
    while let Some(at) = rest.iter().position(|byte| *byte == b'%' || *byte == b'+') {
        take(&rest[..at]);
        let tail = &rest[at + 1..];
        rest = match (rest[at], path::unescape(tail)) {
            (b'%', Some((byte, tail))) => {
                take(&[byte]);
                tail
            }
            (b'%', None) => {
                take(b"%");
                tail
            }
            _ => {
                take(b" ");
                tail
            }
        };
    }
    take(rest);
}

/// Returns the content of a quoted string of a cookie: `\"` is `"`, and `\142` is `b`.
fn unescaped(mut rest: &[u8]) -> SmallVec<[u8; 128]> {
    let mut out = SmallVec::new();
    while let Some((byte, tail)) = rest.split_first() {
        let (byte, tail) = match (byte, tail) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..]) => {
                ((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'), tail)
            }
            (b'\\', [escaped, tail @ ..]) => (*escaped, tail),
            _ => (*byte, tail),
        };
        out.push(byte);
        rest = tail;
    }
    out
}

/// Appends the bytes of a text in base64 as lenient decoders read it: other characters are left
/// out, and so are bits that fill no byte.
fn decode_base64(text: &[u8], out: &mut SmallVec<[u8; 128]>) {
    let (mut bits, mut count) = (0_u32, 0);
    for byte in text {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => continue,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count).to_le_bytes()[0]);
        }
    }
}

/// Splits at the first separator.
pub(crate) fn split_once(bytes: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|byte| *byte == separator)?;
    Some((&bytes[..at], &bytes[at + 1..]))
}

/// Removes spaces and tabs at both ends.
pub(crate) fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<'a>(values: impl Iterator<Item = &'a [u8]>, expected: &[&str], sent: &str) {
        let values: Vec<_> = values.map(String::from_utf8_lossy).collect();
        assert_eq!(values, expected, "{sent}");
    }

    #[test]
    fn parameters_of_one_name_are_found_in_every_spelling() {
        for (query, name, expected) in [
            ("user=a&user=b", "user", &["a", "b"][..]),
            ("user=&x=1&user", "user", &["", ""]),
            ("us%65r=a&USER=b&x=c", "user", &["a", "b"]),
            ("+user=a&%20user=b&user%00x=c", "user", &["a", "b", "c"]),
            (
                "user[]=a&user%5B%5D=b&user[0]=c&user[7]=d",
                "user",
                &["a", "b", "c", "d"],
            ),
            ("user=a&user[x]=b&user[a]b=c", "user", &["a"]),
            ("user[]=a&user=b", "user[]", &["a", "b"]),
            (
                "user.id=a&user_id=b&user+id=c&user[id=d",
                "user_id",
                &["a", "b", "c", "d"],
            ),
            ("user=a;user=b", "user", &["a;user=b", "a", "b"]),
            ("x=1;user=b", "user", &["b"]),
            ("users=a&use=b&user-=c", "user", &[]),
            ("%C5%BFid=a", "sid", &["a"]),
        ] {
            check(queries(query, name), expected, query);
        }
    }

    #[test]
    fn cookies_have_one_spelling() {
        let line = b"sid=a; sid = b ;SID=c;x=1; s%69d=d; sid";
        check(cookies(line, "sid"), &["a", "b", "c", "d", ""], "names");
        for value in [
            "real",
            "r%65al",
            "\"real\"",
            "\"r\\145al\"",
            "\"r\\eal\"",
            "real%FF",
        ] {
            assert_eq!(cookie(value.as_bytes()).as_bytes(), b"real", "{value}");
        }
        for (a, b) in [("a+b", "a%20b"), ("a%2Bb", "a b"), ("s%3Aid", "s:id")] {
            let [a, b] = [a, b].map(|value| cookie(value.as_bytes()).as_bytes().to_vec());
            assert_eq!(a, b);
        }
    }

    #[test]
    fn credentials_have_one_spelling() {
        for value in ["Bearer abc", "bearer abc", "BEARER \t abc"] {
            assert_eq!(
                credentials(value.as_bytes()).as_bytes(),
                b"Bearer abc",
                "{value}"
            );
        }
        for value in [
            "Basic YTpi",
            "basic  YTpi",
            "Basic Y!Tpi",
            "Basic YTpi==",
            "Basic YTpiZ",
        ] {
            assert_eq!(
                credentials(value.as_bytes()).as_bytes(),
                b"Basic a:b",
                "{value}"
            );
        }
        assert_eq!(up_to_padding(b"Basic YTpi=Yw"), Some(&b"Basic YTpi"[..]));
        assert_eq!(up_to_padding(b"Basic YTpi=="), None);
        assert_eq!(up_to_padding(b"Digest a=b"), None);
    }
}
