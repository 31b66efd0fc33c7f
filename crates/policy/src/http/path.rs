//! Path: one spelling for all equivalent paths, for each kind of server.
//!
//! A limit on `/login` that `//login` evades is no limit. So a path is brought to one form before
//! it is matched and before it becomes a key:
//!
//! ```text
//!   as received           normal form     rule
//!   ""                    /               empty is the root
//!   http://host/login     /login          absolute form loses scheme and authority
//!   /%6cogin              /login          printable ASCII is decoded ...
//!   /a%23b                /a%23b          ... but for `#`, `/`, `;` and `%`
//!   /caf\u{e9}            /caf%C3%A9      the rest is encoded, in upper case
//!   /50%                  /50%25          so is a `%` that begins no escape
//!   //login               /login          empty segments are removed
//!   /login/               /login          the last one too
//! ```
//!
//! Servers disagree on the following features. A path with any of them is read in the way of each
//! kind of server. A limit is for a request if it is for one of its readings; an exemption must
//! hold for all of them. A request has a key by the path for each reading that the limit is for.
//! So no spelling that some server routes to a handler escapes the limit on that handler.
//!
//! ```text
//!   server                            `;x`  `#x`  %2F   \  %5C  ..        //host/x  %0A at the end
//!   the normal form                    cut   cut   /    /    /  resolved  /host/x
//!   Tomcat, Jetty, Spring; Go          cut   -     -    -    -  resolved  /host/x
//!   nginx, and what it forwards        -     cut   /    -    -  resolved  /host/x
//!   Flask, Django, PHP (WSGI, CGI)     -     cut   /    -    -  -         /host/x   cut (Starlette)
//!   Express                            -     cut   -    -    -  -         /host/x
//!   Fastify                           ends   cut   -    -    -  -         /host/x
//!   `new URL(..)`: Hono, Deno, Next    -     cut   -    /    -  resolved  /x
//! ```
//!
//! The normal form is a fixed point: normalising it again changes nothing. A path that is
//! already normal has one reading, and is borrowed.
//!
//! * Source: T. Berners-Lee et al., "Uniform Resource Identifier", RFC 3986 (2005),
//!   sections 3.3, 5.2.4 and 6.2.2; WHATWG, "URL Standard", section 4.4.

use smallvec::SmallVec;

/// Text in its one spelling: borrowed if it was received so. Changed text of up to 128 bytes
/// needs no allocation.
#[derive(Clone, PartialEq, Eq, Debug)]
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

impl AsRef<[u8]> for Normal<'_> {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

/// Case sensitivity of paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "language",
    derive(strum::EnumString),
    strum(serialize_all = "lowercase")
)]
pub enum PathCase {
    /// `/Login` is `/login`, as Express, ASP.NET and IIS route. The default, because behind a
    /// case-sensitive server it counts too much at worst, and never too little.
    #[default]
    Insensitive,
    /// `/Login` is another path than `/login`, as Flask, Django, Spring and nginx route.
    Sensitive,
}

/// One way to read a path.
#[derive(Clone, Debug)]
pub(crate) struct Reading<'a> {
    written: Normal<'a>,
    /// The path in lower case, if it is written differently.
    folded: Option<Normal<'a>>,
}

impl<'a> Reading<'a> {
    fn new(written: Normal<'a>) -> Self {
        let bytes = written.as_bytes();
        let has_upper = bytes.iter().any(u8::is_ascii_uppercase);
        let fold = || Normal::Changed(bytes.iter().map(u8::to_ascii_lowercase).collect());
        let folded = has_upper.then(fold);
        Self { written, folded }
    }

    /// Returns the path as written, or in lower case where case makes no difference.
    pub(crate) fn path(&self, case: PathCase) -> &[u8] {
        match (case, &self.folded) {
            (PathCase::Insensitive, Some(folded)) => folded.as_bytes(),
            _ => self.written.as_bytes(),
        }
    }
}

/// The readings of a path, all different; the first is the normal form.
#[derive(Clone, Debug)]
pub(crate) struct Readings<'a> {
    normal: Reading<'a>,
    others: Vec<Reading<'a>>,
}

impl<'a> Readings<'a> {
    /// Reads a path without its query.
    pub(crate) fn of(path: &'a str) -> Self {
        let written = normalise(path);
        let mut others: Vec<Reading<'a>> = Vec::new();
        if matches!(written, Normal::Changed(_)) && is_ambiguous(path.as_bytes()) {
            for server in SERVERS {
                let read = Normal::Changed(read(path, server));
                let is = |other: &Normal<'_>| other.as_bytes() == read.as_bytes();
                if !is(&written) && !others.iter().any(|other| is(&other.written)) {
                    others.push(Reading::new(read));
                }
            }
        }
        Self {
            normal: Reading::new(written),
            others,
        }
    }

    pub(crate) fn are_several(&self) -> bool {
        !self.others.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Reading<'a>> {
        std::iter::once(&self.normal).chain(&self.others)
    }
}

/// Changes that a kind of server makes to a path before it routes: a set of the bits below.
#[derive(Clone, Copy)]
struct PathHandling(u16);

/// Parameters (`;x`) are removed, and before dots are resolved: `/x/..;/login` is `/login`.
const CUTS_PARAMETERS: u16 = 1;
/// `%2F` separates segments.
const SPLITS_AT_ESCAPES: u16 = 2;
/// `\` separates segments.
const SPLITS_AT_BACKSLASHES: u16 = 4;
/// `.` and `..` are resolved.
const RESOLVES_DOTS: u16 = 8;
/// Two slashes at the beginning are followed by a host.
const TAKES_A_HOST: u16 = 16;
/// `#` ends the path.
const CUTS_THE_FRAGMENT: u16 = 32;
/// `%5C` separates segments.
const SPLITS_AT_ESCAPED_BACKSLASHES: u16 = 64;
/// `;` ends the path.
const ENDS_AT_A_SEMICOLON: u16 = 128;
/// A line end at the end is cut, because `$` of a regular expression matches before it.
const CUTS_THE_LINE_END: u16 = 256;

const NORMAL: PathHandling = PathHandling(
    CUTS_PARAMETERS
        | CUTS_THE_FRAGMENT
        | SPLITS_AT_ESCAPES
        | SPLITS_AT_BACKSLASHES
        | SPLITS_AT_ESCAPED_BACKSLASHES
        | RESOLVES_DOTS,
);
const SERVLET: PathHandling = PathHandling(CUTS_PARAMETERS | RESOLVES_DOTS);
const NGINX: PathHandling = PathHandling(CUTS_THE_FRAGMENT | SPLITS_AT_ESCAPES | RESOLVES_DOTS);
const WSGI: PathHandling = PathHandling(CUTS_THE_FRAGMENT | SPLITS_AT_ESCAPES | CUTS_THE_LINE_END);
const EXPRESS: PathHandling = PathHandling(CUTS_THE_FRAGMENT);
const FASTIFY: PathHandling = PathHandling(CUTS_THE_FRAGMENT | ENDS_AT_A_SEMICOLON);
const WHATWG: PathHandling =
    PathHandling(CUTS_THE_FRAGMENT | SPLITS_AT_BACKSLASHES | RESOLVES_DOTS | TAKES_A_HOST);

/// Servers that may read a path differently from the normal form.
const SERVERS: [PathHandling; 6] = [SERVLET, NGINX, WSGI, EXPRESS, WHATWG, FASTIFY];

impl PathHandling {
    const fn does(self, what: u16) -> bool {
        self.0 & what != 0
    }

    /// Returns the number of bytes at the beginning of `rest` that separate two segments.
    fn separator(self, rest: &[u8]) -> Option<usize> {
        match rest {
            [b'/', ..] => Some(1),
            [b'\\', ..] if self.does(SPLITS_AT_BACKSLASHES) => Some(1),
            [b'%', b'2', b'f' | b'F', ..] if self.does(SPLITS_AT_ESCAPES) => Some(3),
            [b'%', b'5', b'c' | b'C', ..] if self.does(SPLITS_AT_ESCAPED_BACKSLASHES) => Some(3),
            _ => None,
        }
    }

    /// Returns the first segment, and the rest behind its separator.
    fn segment(self, path: &[u8]) -> (&[u8], Option<&[u8]>) {
        let mut ends = (0..path.len()).filter_map(|at| Some((at, self.separator(&path[at..])?)));
        match ends.next() {
            Some((at, length)) => (&path[..at], Some(&path[at + length..])),
            None => (path, None),
        }
    }
}

/// Returns the normal form of a path without its query, as the key part `path` counts it: one for
/// all spellings of a path. Case is kept.
///
/// ```
/// use ratekeeper_policy::normal_path;
/// assert_eq!(normal_path("//%6cogin/").as_ref(), b"/login");
/// ```
pub fn normal_path(path: &str) -> impl AsRef<[u8]> + Send + '_ {
    normalise(path)
}

/// Returns the normal form of a path without its query.
pub(crate) fn normalise(path: &str) -> Normal<'_> {
    let bytes = path.as_bytes();
    if is_plain(bytes) {
        return Normal::Borrowed(match bytes {
            [rest @ .., b'/'] if !rest.is_empty() => rest,
            _ => bytes,
        });
    }
    Normal::Changed(read(path, NORMAL))
}

/// Returns a path as a server reads it.
fn read(path: &str, server: PathHandling) -> SmallVec<[u8; 128]> {
    let path = match path.split_once('#') {
        Some((path, _)) if server.does(CUTS_THE_FRAGMENT) => path,
        _ => path,
    };
    let path = match path.split_once(';') {
        Some((path, _)) if server.does(ENDS_AT_A_SEMICOLON) => path,
        _ => path,
    };
    let mut rest = Some(match without_authority(path) {
        Some(path) => path.as_bytes(),
        None if server.does(TAKES_A_HOST) => without_host(path.as_bytes(), server),
        None => path.as_bytes(),
    });
    let mut out: SmallVec<[u8; 128]> = SmallVec::new();
    while let Some(path) = rest {
        // Several slashes separate as one does, and are cheaper together.
        let slashes = path.iter().take_while(|byte| **byte == b'/').count();
        let (segment, after) = server.segment(&path[slashes..]);
        rest = after;
        let start = out.len();
        out.push(b'/');
        let segment = if server.does(CUTS_PARAMETERS) {
            without_parameters(segment)
        } else {
            segment
        };
        canonical(segment, &mut out);
        match &out[start + 1..] {
            b"" => out.truncate(start),
            b"." if server.does(RESOLVES_DOTS) => out.truncate(start),
            b".." if server.does(RESOLVES_DOTS) => {
                out.truncate(start);
                let parent = out.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                out.truncate(parent);
            }
            _ => {}
        }
    }
    if server.does(CUTS_THE_LINE_END) && out.ends_with(b"%0A") {
        out.truncate(out.len() - b"%0A".len());
    }
    if out.is_empty() {
        out.push(b'/');
    }
    out
}

/// Returns true if a path is certainly normal but for a slash at its end, the common case, which
/// needs no copy. A path with escapes takes the long way even if they are canonical.
fn is_plain(path: &[u8]) -> bool {
    let mut previous = 0;
    for &byte in path {
        let starts_odd_segment = previous == b'/' && (byte == b'/' || byte == b'.');
        if starts_odd_segment || !byte.is_ascii_graphic() || b"%;\\#".contains(&byte) {
            return false;
        }
        previous = byte;
    }
    path.first() == Some(&b'/')
}

/// Returns true if servers may disagree about a path, and also in doubt.
fn is_ambiguous(path: &[u8]) -> bool {
    let has = |part: &[u8]| path.windows(part.len()).any(|found| found == part);
    let has_dots = || {
        // A dot at the beginning of a segment, or an encoded one.
        has(b"/.") || has(b"%2e") || has(b"%2E")
    };
    path.iter().any(|byte| b";#\\\n".contains(byte))
        || path.starts_with(b"//")
        || path.starts_with(b".")
        || has_dots()
        || [b"%2f", b"%2F", b"%5c", b"%5C", b"%0a", b"%0A"]
            .iter()
            .any(|escape| has(*escape))
}

/// Returns the path of `scheme://authority/path`, which proxies receive; `None` for others.
fn without_authority(path: &str) -> Option<&str> {
    let (scheme, rest) = path.split_once("://")?;
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    is_scheme.then(|| rest.find('/').map_or("", |slash| &rest[slash..]))
}

/// Returns the rest behind the host of `//host/path`.
fn without_host(path: &[u8], server: PathHandling) -> &[u8] {
    let slashes = path.iter().take_while(|byte| b"/\\".contains(byte)).count();
    if slashes < 2 {
        return path;
    }
    let (_, rest) = server.segment(&path[slashes..]);
    rest.unwrap_or_default()
}

/// Returns a segment up to its first `;`.
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
                if decoded.is_ascii_graphic() && !b"#/;%".contains(&decoded) {
                    out.push(decoded);
                } else {
                    escape(decoded, out);
                }
            }
            (b'%', None) => escape(b'%', out),
            (byte, _) if byte.is_ascii_graphic() && byte != b'#' => out.push(byte),
            (byte, _) => escape(byte, out),
        }
    }
}

/// Returns the byte encoded by two hexadecimal digits after a `%`, and the rest behind them.
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
            ("/login/", "/login"),
            ("/login//", "/login"),
            ("/login/.", "/login"),
            ("/login/x/..", "/login"),
            ("/login/;v=1", "/login"),
            ("/login#top", "/login"),
            ("/login#/../x", "/login"),
            ("/a%2fb", "/a/b"),
            ("/a%2Fb", "/a/b"),
            ("/a\\b", "/a/b"),
            ("/a%5cb", "/a/b"),
            ("\\login", "/login"),
            ("/login%2f", "/login"),
            ("/..%2flogin", "/login"),
            ("/x%5C..%5clogin", "/login"),
            ("/x/..", "/"),
            ("/..", "/"),
            ("/.", "/"),
            // Paths that stay distinct.
            ("/a%3bb", "/a%3Bb"),
            ("/a%253bb", "/a%253bb"),
            ("/%252e%252e/x", "/%252e%252e/x"),
            ("/a%23b", "/a%23b"),
            ("/login%00", "/login%00"),
            ("/login%20", "/login%20"),
            ("/login.", "/login."),
            ("/...", "/..."),
            ("/.a", "/.a"),
            ("/a.", "/a."),
            ("/..a", "/..a"),
            ("/Login", "/Login"),
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
            assert_eq!(all(path).len(), 1, "{path}");
        }
    }

    fn all(path: &str) -> Vec<String> {
        let readings = Readings::of(path);
        let text = |reading: &Reading<'_>| reading.path(PathCase::Sensitive).to_vec();
        let texts = readings.iter().map(text);
        texts.map(|text| String::from_utf8(text).unwrap()).collect()
    }

    #[test]
    fn a_path_that_servers_read_differently_has_each_reading() {
        for (path, expected) in [
            // All agree on these.
            ("/%6cogin", &["/login"][..]),
            ("/a//b/", &["/a/b"]),
            ("/login%20", &["/login%20"]),
            ("/a.b", &["/a.b"]),
            ("/.well-known/x", &["/.well-known/x"]),
            // Parameters.
            ("/login;v=1", &["/login", "/login;v=1"]),
            ("/a/..;/b", &["/b", "/a/..;/b", "/a/.."]),
            ("/a;x=/b", &["/a/b", "/a;x=/b", "/a"]),
            ("/login%0a", &["/login%0A", "/login"]),
            ("/login%0A%0A", &["/login%0A%0A", "/login%0A"]),
            // Dots.
            ("/a/../b", &["/b", "/a/../b"]),
            ("/a/%2E%2e/b", &["/b", "/a/../b"]),
            // Separators.
            ("/a%2fb", &["/a/b", "/a%2Fb"]),
            ("/a\\b", &["/a/b", "/a\\b"]),
            ("/a%2f..\\b", &["/b", "/a%2F..\\b", "/a/..\\b", "/a%2F../b"]),
            ("/a%5cb", &["/a/b", "/a\\b"]),
            ("/a%5cb\\../c", &["/a/c", "/a\\b\\../c", "/c"]),
            // A host, and a fragment.
            ("//host/login", &["/host/login", "/login"]),
            ("///host", &["/host", "/"]),
            ("/a#/../b", &["/a", "/b"]),
            ("http://host/a/..", &["/", "/a/.."]),
        ] {
            let found = all(path);
            assert_eq!(found, expected, "{path:?}");
        }
    }

    #[test]
    fn case_is_folded_on_demand() {
        let readings = Readings::of("/Users/A%2fB");
        let folded = |reading: &Reading<'_>| reading.path(PathCase::Insensitive).to_vec();
        let folded: Vec<_> = readings.iter().map(folded).collect();
        assert_eq!(folded, [&b"/users/a/b"[..], b"/users/a%2fb"]);
        let written = readings.normal.path(PathCase::Sensitive);
        assert_eq!(written, b"/Users/A/B");
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

        /// Dots, slashes and case aside, all servers read a path without oddities alike.
        #[test]
        fn paths_without_oddities_have_one_reading(path in "(/[a-zA-Z0-9%._~-]{1,6}){0,4}/?") {
            let dots = path.split('/').any(|s| s == "." || s == "..");
            let escaped = ["%2e", "%2E", "%2f", "%2F", "%5c", "%5C", "%0a", "%0A"];
            prop_assume!(!dots && !escaped.iter().any(|escape| path.contains(escape)));
            prop_assert_eq!(all(&path).len(), 1);
        }

        #[test]
        fn readings_are_different_and_bounded(path in "(/|\\\\|\\.|%|%2[eEfF5]|%5c|;|#|[a-f0-9]|\\PC|.){0,24}") {
            let mut found = all(&path);
            prop_assert!(found.len() <= 1 + SERVERS.len());
            prop_assert_eq!(&found[0], &normal(&path));
            let count = found.len();
            found.sort();
            found.dedup();
            prop_assert_eq!(found.len(), count);
        }

        #[test]
        fn short_and_long_normalisation_agree(path in "/[a-z./]{0,12}") {
            // An escape of an ordinary letter forces the long way.
            prop_assert_eq!(normal(&format!("{path}a")), normal(&format!("{path}%61")));
        }
    }
}
