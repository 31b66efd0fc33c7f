//! Spelling: the one spelling of a value that applications read in several, for keys.

use smallvec::SmallVec;

use super::trim;
use crate::http::octets::is_blank;
use crate::http::path::{self, Normal};

/// Returns the value of a cookie in one spelling: without spaces, quotes and escapes, and with
/// spaces in place of `+`, because some decoders make one of the other.
pub(crate) fn cookie(value: &[u8]) -> Normal<'_> {
    let inner = unquoted(value);
    let is_plain = |byte: &u8| byte.is_ascii() && !matches!(byte, b'%' | b'+' | b'\\');
    if inner.iter().all(is_plain) {
        return Normal::Borrowed(inner);
    }
    let text = unescaped(decoded(inner).as_bytes());
    let text = without_escapes(&text);
    let one = |byte: &u8| if *byte == b'+' { b' ' } else { *byte };
    Normal::Changed(unquoted(text.as_bytes()).iter().map(one).collect())
}

/// Returns the decoded value of a query parameter in one spelling: without escapes, and without
/// blanks around it.
pub(crate) fn parameter(value: &[u8]) -> Normal<'_> {
    match without_escapes(value) {
        Normal::Borrowed(plain) => Normal::Borrowed(stripped(plain)),
        Normal::Changed(text) => Normal::Changed(stripped(&text).into()),
    }
}

/// Returns the value of a cookie without spaces and quotes around it.
pub(super) fn unquoted(value: &[u8]) -> &[u8] {
    let mut value = stripped(value);
    while let [b'"', inner @ .., b'"'] = value {
        value = stripped(inner);
    }
    value
}

/// Removes blanks at both ends.
pub(super) fn stripped(value: &[u8]) -> &[u8] {
    let text = str::from_utf8(value);
    text.map_or(trim(value), |text| text.trim_matches(is_blank).as_bytes())
}

/// Returns the value of `authorization` in one spelling: the scheme with one capital, one space,
/// and of `Basic` the decoded credentials.
pub(crate) fn credentials(value: &[u8]) -> Normal<'_> {
    let at = value.iter().position(|byte| matches!(byte, b' ' | b'\t'));
    let (scheme, token) = value.split_at(at.unwrap_or(value.len()));
    let is_normal = |(at, byte): (usize, &u8)| *byte == capital(at, *byte);
    let is_basic = is_basic(value);
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
        let mut decoded = SmallVec::new();
        decode_base64(token, &mut decoded);
        out.extend_from_slice(without_escapes(&decoded).as_bytes());
    } else {
        out.extend_from_slice(trim(token));
    }
    Normal::Changed(out)
}

/// Returns the tokens that applications find behind a scheme, or in a line of one word: the rest up
/// to a space, a comma or a quote, which is one token of RFC 6750 unless a client made it otherwise.
pub(crate) fn tokens<'v>(line: &'v [u8], scheme: &'v [u8]) -> impl Iterator<Item = &'v [u8]> {
    let ends = |byte: &u8| !byte.is_ascii_graphic() || b",;\"'".contains(byte);
    let words = line.split(ends).filter(|word| !word.is_empty());
    let is_scheme = |word: &[u8]| {
        let end = word.len().checked_sub(scheme.len());
        end.is_some_and(|at| word[at..].eq_ignore_ascii_case(scheme))
    };
    let is_one = words.clone().nth(1).is_none();
    let behind = words.skip_while(move |word| !is_one && !is_scheme(word));
    let tokens = behind.filter(move |word| !is_scheme(word));
    let tokens = tokens.map(|word| word.strip_prefix(b"token=").unwrap_or(word)); // Rails
    tokens.filter(|word| !word.is_empty())
}

pub(super) fn is_basic(value: &[u8]) -> bool {
    let scheme = value.split(|byte| matches!(byte, b' ' | b'\t')).next();
    scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"Basic"))
}

fn capital(at: usize, byte: u8) -> u8 {
    match at {
        0 => byte.to_ascii_uppercase(),
        _ => byte.to_ascii_lowercase(),
    }
}

/// Returns `Basic` credentials up to `=` in their middle, where some decoders end.
pub(super) fn up_to_padding(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked("Basic ".len())?;
    let at = token.iter().position(|byte| *byte == b'=')?;
    let goes_on = token[at..].iter().any(u8::is_ascii_alphanumeric);
    (scheme.eq_ignore_ascii_case(b"Basic ") && goes_on).then(|| &value[..scheme.len() + at])
}

/// Returns a query name or value, decoded.
pub(super) fn decoded(encoded: &[u8]) -> Normal<'_> {
    if !encoded.iter().any(|byte| matches!(byte, b'%' | b'+')) {
        return Normal::Borrowed(encoded);
    }
    let mut out = SmallVec::new();
    let mut rest = encoded;
    while let Some(at) = rest.iter().position(|byte| *byte == b'%' || *byte == b'+') {
        out.extend_from_slice(&rest[..at]);
        let tail = &rest[at + 1..];
        let (byte, tail) = match (rest[at], path::unescape(tail)) {
            (b'%', Some(decoded)) => decoded,
            (b'%', None) => (b'%', tail),
            _ => (b' ', tail),
        };
        out.push(byte);
        rest = tail;
    }
    out.extend_from_slice(rest);
    Normal::Changed(out)
}

/// Returns a decoded value without the escapes that it still has, because some applications leave
/// an escape as it is or decode twice, and without bytes that are not UTF-8 or stand for such,
/// because some drop them.
pub(crate) fn without_escapes(value: &[u8]) -> Normal<'_> {
    if value.iter().all(|byte| byte.is_ascii() && *byte != b'%') {
        return Normal::Borrowed(value);
    }
    let mut out: SmallVec<[u8; 128]> = SmallVec::new();
    for byte in value {
        out.push(*byte);
        while let [.., b'%', high, low] = out[..]
            && let Some((byte, _)) = path::unescape(&[high, low])
        {
            out.truncate(out.len() - 3);
            out.push(byte);
        }
    }
    let text = String::from_utf8_lossy(&out);
    let valid = text.replace(char::REPLACEMENT_CHARACTER, "");
    Normal::Changed(valid.as_bytes().into())
}

/// Returns the content of a quoted string of a cookie: `\"` is `"`, and `\142` is `b`. Without
/// quotes the same, because some applications remove the quotes alone.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_have_one_spelling() {
        for value in [
            "real",
            "r%65al",
            "\"real\"",
            "\"r\\145al\"",
            "\"r\\eal\"",
            "real%FF",
            "r\\145al",
            "%22real%22",
            "\"\"real\"\"",
            "\u{a0}real\u{85}",
            "\u{3000}\"real\u{a0}\"",
            "real\u{a0}%FF",
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
        for (line, expected) in [
            (&b"Bearer abc.d-e_f~+/=="[..], &[&b"abc.d-e_f~+/=="[..]][..]),
            (b"bearer\tabc", &[b"abc"]),
            (b"Bearer abc\xa0\xa0", &[b"abc"]),
            (b"Bearer abc\xe3\x80\x80", &[b"abc"]),
            (b"Bearer abc,x y", &[b"abc", b"x", b"y"]),
            (b"Bearer x Bearer abc", &[b"x", b"abc"]),
            (b"x yBearer abc", &[b"abc"]),
            (b"Bearer token=\"abc\"; n=1", &[b"abc", b"n=1"]),
            (b"abc", &[b"abc"]),
            (b"Bearer", &[]),
            (b"Basic YTpi", &[]),
            (b"AWS4-HMAC-SHA256 Credential=a, SignedHeaders=b", &[]),
        ] {
            assert_eq!(tokens(line, b"Bearer").collect::<Vec<_>>(), expected);
        }
        assert_eq!(up_to_padding(b"Basic YTpi=Yw"), Some(&b"Basic YTpi"[..]));
        assert_eq!(up_to_padding(b"Basic YTpi=="), None);
        assert_eq!(up_to_padding(b"Digest a=b"), None);
    }
}
