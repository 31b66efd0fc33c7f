//! Path: one spelling for every path that means the same.
//!
//! A limit on `/login` that `//login` slips past is no limit. So a path is brought to one
//! form before it is matched and before it becomes a key:
//!
//! ```text
//!   as received           normal form     rule
//!   ""                    /               empty is the root
//!   http://host/login     /login          absolute form loses scheme and authority
//!   /%6cogin              /login          printable ASCII is decoded ...
//!   /a%2fb                /a%2Fb          ... but for `/`, `;` and `%`
//!   /caf\u{e9}            /caf%C3%A9      the rest is encoded, in upper case
//!   /50%                  /50%25          so is a `%` that begins no escape
//!   /login;v=1            /login          parameters of a segment are removed
//!   //login               /login          empty segments are removed
//!   /./login  /x/../login /login          dots are resolved, never above the root
//!   /login/               /login/         the slash at the end stays: another path
//! ```
//!
//! An encoded slash stays distinct, because servers differ on whether it separates. The
//! normal form is a fixed point: normalising it again changes nothing. A path that is
//! already normal is borrowed.
//!
//! * Source: T. Berners-Lee et al., "Uniform Resource Identifier", RFC 3986 (2005),
//!   sections 3.3, 5.2.4 and 6.2.2.

use smallvec::SmallVec;

/// Text in its one spelling: borrowed if it came that way. Changed text of up to 128 bytes
/// needs no allocation.
#[derive(Clone, Debug)]
pub(crate) enum Normal<'a> {
    Borrowed(&'a [u8]),
    Changed(SmallVec<[u8; 128]>),
}

impl Normal<'_> {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Changed(bytes) => bytes,
        }
    }
}

/// The normal form of a path without its query.
pub(crate) fn normalise(path: &str) -> Normal<'_> {
    if is_plain(path.as_bytes()) {
        return Normal::Borrowed(path.as_bytes());
    }
    let path = without_authority(path);
    let path = path.strip_prefix('/').unwrap_or(path).as_bytes();
    let mut out = SmallVec::new();
    let mut segments = path.split(|byte| *byte == b'/').peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        let start = out.len();
        out.push(b'/');
        canonical(without_parameters(segment), &mut out);
        match &out[start + 1..] {
            b"" | b"." => out.truncate(start),
            b".." => {
                out.truncate(start);
                let parent = out.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                out.truncate(parent);
            }
            _ => continue,
        }
        if is_last {
            out.push(b'/');
        }
    }
    Normal::Changed(out)
}

/// Whether a path is certainly normal: the common case, without copying. A path with
/// escapes goes the long way even if they are canonical.
fn is_plain(path: &[u8]) -> bool {
    let mut previous = 0;
    for &byte in path {
        let starts_odd_segment = previous == b'/' && (byte == b'/' || byte == b'.');
        if starts_odd_segment || !byte.is_ascii_graphic() || byte == b'%' || byte == b';' {
            return false;
        }
        previous = byte;
    }
    path.first() == Some(&b'/')
}

/// `scheme://authority/path` as clients send it to proxies.
fn without_authority(path: &str) -> &str {
    let Some((scheme, rest)) = path.split_once("://") else {
        return path;
    };
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    if !is_scheme {
        return path;
    }
    rest.find('/').map_or("", |slash| &rest[slash..])
}

/// Servers that know parameters route without them, and remove them before they resolve
/// dots: `/x/..;/login` reaches `/login` there.
fn without_parameters(segment: &[u8]) -> &[u8] {
    let end = segment.iter().position(|byte| *byte == b';');
    &segment[..end.unwrap_or(segment.len())]
}

/// Appends the bytes of one segment in their one spelling.
pub(crate) fn canonical(segment: &[u8], out: &mut SmallVec<[u8; 128]>) {
    let mut rest = segment;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        match (byte, unescape(rest)) {
            (b'%', Some((decoded, tail))) => {
                rest = tail;
                if decoded.is_ascii_graphic() && !b"/;%".contains(&decoded) {
                    out.push(decoded);
                } else {
                    escape(decoded, out);
                }
            }
            (b'%', None) => escape(b'%', out),
            (byte, _) if byte.is_ascii_graphic() => out.push(byte),
            (byte, _) => escape(byte, out),
        }
    }
}

/// The byte that two hexadecimal digits after a `%` stand for, and what follows them.
pub(crate) fn unescape(after_percent: &[u8]) -> Option<(u8, &[u8])> {
    let (digits, rest) = after_percent.split_first_chunk::<2>()?;
    let [high, low] = digits.map(|digit| char::from(digit).to_digit(16));
    let byte = u8::try_from(high? << 4 | low?).ok()?;
    Some((byte, rest))
}

fn escape(byte: u8, out: &mut SmallVec<[u8; 128]>) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    out.push(b'%');
    out.push(HEX[usize::from(byte >> 4)]);
    out.push(HEX[usize::from(byte & 15)]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn normal(path: &str) -> String {
        String::from_utf8(normalise(path).as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn paths_that_mean_the_same_are_one() {
        for (path, expected) in [
            ("", "/"),
            ("/", "/"),
            ("//", "/"),
            ("///", "/"),
            ("/login", "/login"),
            ("login", "/login"),
            ("//login", "/login"),
            ("/%6cogin", "/login"),
            ("/%6Cogin", "/login"),
            ("/./login", "/login"),
            ("/x/../login", "/login"),
            ("/x/y/../../login", "/login"),
            ("/../../login", "/login"),
            ("/%2e/login", "/login"),
            ("/x/%2E%2e/login", "/login"),
            ("/x/.%2e/login", "/login"),
            ("/x//../login", "/login"),
            ("/login;jsessionid=1", "/login"),
            ("/login;a;b=c", "/login"),
            ("/x/..;/login", "/login"),
            ("/x;a=1/../login", "/login"),
            ("/;/login", "/login"),
            ("http://host/login", "/login"),
            ("https://host:8443//login", "/login"),
            ("http://host", "/"),
            // The slash at the end is part of the path.
            ("/login/", "/login/"),
            ("/login//", "/login/"),
            ("/login/.", "/login/"),
            ("/login/x/..", "/login/"),
            ("/login/;v=1", "/login/"),
            ("/x/..", "/"),
            ("/..", "/"),
            ("/.", "/"),
            // What stays distinct.
            ("/a%2fb", "/a%2Fb"),
            ("/a%2Fb", "/a%2Fb"),
            ("/a%3bb", "/a%3Bb"),
            ("/a%253bb", "/a%253bb"),
            ("/%252e%252e/x", "/%252e%252e/x"),
            ("/..%2flogin", "/..%2Flogin"),
            ("/...", "/..."),
            ("/.a", "/.a"),
            ("/a.", "/a."),
            ("/..a", "/..a"),
            ("/Login", "/Login"),
            ("/a\\b", "/a\\b"),
            ("/a%5cb", "/a\\b"),
            ("/a?b", "/a?b"),
            ("/a%3Fb", "/a?b"),
            ("*", "/*"),
            // Escapes.
            ("/50%", "/50%25"),
            ("/50%2", "/50%252"),
            ("/50%zz", "/50%25zz"),
            ("/%%34%31", "/%2541"),
            ("/a b", "/a%20b"),
            ("/a%20b", "/a%20b"),
            ("/a+b", "/a+b"),
            ("/caf\u{e9}", "/caf%C3%A9"),
            ("/caf%c3%a9", "/caf%C3%A9"),
            ("/a\0b", "/a%00b"),
            ("/a%00b", "/a%00b"),
            ("/~a", "/~a"),
            ("/%7ea", "/~a"),
            // Not a scheme.
            ("/http://host/login", "/http:/host/login"),
            ("1a://host/login", "/1a:/host/login"),
        ] {
            assert_eq!(normal(path), expected, "{path:?}");
        }
    }

    #[test]
    fn a_normal_path_is_borrowed() {
        for path in ["/", "/login", "/a/b.c/", "/a-b_c~d!$&'()*+,=:@"] {
            assert!(matches!(normalise(path), Normal::Borrowed(_)), "{path}");
        }
    }

    proptest! {
        #[test]
        fn normalising_twice_changes_nothing(path in "(/|\\.|%|%2[eEfF5]|;|[a-f0-9]|\\PC|.){0,24}") {
            let once = normal(&path);
            prop_assert_eq!(normal(&once), once.clone());
            prop_assert!(once.starts_with('/'));
            prop_assert!(once.bytes().all(|b| b.is_ascii_graphic()));
            prop_assert!(!once.contains("//"));
            prop_assert!(once.split('/').all(|segment| segment != "." && segment != ".."));
        }

        #[test]
        fn plain_paths_and_the_long_way_agree(path in "/[a-z./]{0,12}") {
            // An escape of an ordinary letter forces the long way.
            prop_assert_eq!(normal(&format!("{path}a")), normal(&format!("{path}%61")));
        }
    }
}
