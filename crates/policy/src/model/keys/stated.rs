//! Stated: all values that a request states for a query parameter, a cookie or a header, because
//! applications differ in which of them they read, and in the spellings that they accept.
//!
//! ```text
//!   sent                            values               read so by
//!   ?user=a&user=b                  a, b                 Flask: a; Django, PHP, Rack: b
//!   ?user=&user=b                   none, b              as above
//!   ?us%65r=b                       b                    all
//!   ?USER=b                         b, none              ASP.NET: b
//!   ?user[]=b  ?[user]=b            b, none              PHP; Express, Rack
//!   ?user.id=b  for `user_id`       b, none              PHP
//!   ?user=a;user=b                  "a;user=b", a, b     Rack 2
//!   ?user=b%FF  ?user=b%25FF        b                    with or without the end
//!   ?user=b+  ?user=%01b            b                    Tornado, Laravel
//!   sid=a; sid=b                    a, b                 PHP: a; Django: b
//!   sid=%62  sid="b"  sid="\142"    b                    Express, PHP; Express; Django, Flask
//!   sid=j:"b"                       j:"b", b             Express: b
//!   sid="bx  sid="b"x               "bx, b; "b"x, b      Koa: b; Pyramid: b
//!   sid=a sid=b  \xa0sid=b           a, b; b, none        Bottle; Starlette: b
//!   X_User: b                       b, none              PHP
//!   X-User: a  X-User: b            a, b, "a, b", "a,b"  Express, PHP: the third; Flask: the last
//!   bASIC  Yjp4  Basic Y!jp4        Basic b:x            all
//!   Basic -_-_Yjp4                  with -_ as +/, b:x   Express; Django, PHP, Rack: b:x
//!   Bearer b x  x Bearer b,x        each word            Express: b; Laravel: b
//! ```
//!
//! In doubt every value counts against the client: a key is charged under each, `match` holds if
//! one matches, an exemption only if all do. Equal values are one.

mod spelling;

use std::iter::once;

use crate::http::octets::{split_once, trim, values_of};
use crate::http::path::Normal;
use crate::model::matching::body::{is_same_form_name, json_leaves};
use crate::{BodyField, Facts};

pub(crate) use spelling::{cookie, credentials, parameter, tokens, without_escapes};
use spelling::{decoded, is_basic, stripped, unquoted, up_to_padding};

/// Prefix of a cookie whose value is JSON, for the cookie-parser of Express.
const JSON_COOKIE: &[u8] = b"j:";

/// Scheme of RFC 6750.
pub(crate) const BEARER: &[u8] = b"Bearer";
/// Other schemes of `authorization` with a token, the first word behind them.
const TOKEN_SCHEMES: [&[u8]; 2] = [b"Token", b"JWT"];

/// A place where a request states values under a name.
#[derive(Clone, Copy)]
pub(crate) enum StatedPlace<'n> {
    Query(&'n str),
    Cookie(&'n str),
    Header(&'n str),
}

/// A value that a request states; empty if it is missing.
#[derive(Clone, Copy)]
pub(crate) struct Stated<'v> {
    /// As a strict application reads it.
    pub(crate) strict: &'v [u8],
    /// In its one spelling.
    pub(crate) normal: &'v [u8],
}

/// How a name that a request states compares with the wanted one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum NameMatch {
    Different,
    /// Some applications take it for the wanted one.
    Lenient,
    Exact,
}

impl<'v> Stated<'v> {
    fn new(strict: &'v [u8], normal: &'v Normal<'_>) -> Self {
        let normal = normal.as_bytes();
        Self { strict, normal }
    }

    fn plain(value: &'v [u8]) -> Self {
        Self {
            strict: value,
            normal: value,
        }
    }
}

impl StatedPlace<'_> {
    /// Calls `take` with each value that the request states, and with an empty one if some
    /// application finds none.
    pub(crate) fn each(self, facts: &Facts<'_>, mut take: impl FnMut(Stated<'_>)) {
        let best = match self {
            Self::Query(name) => each_parameter(facts.query, name, &mut take),
            Self::Cookie(name) => {
                let lines = facts.headers.iter();
                let lines = lines.filter(|(found, _)| found.eq_ignore_ascii_case("cookie"));
                let best = lines.map(|(_, line)| each_cookie(line, name, &mut take));
                best.max().unwrap_or(NameMatch::Different)
            }
            // HTTP/2 has the host in its target, and may send cookies in several fields.
            Self::Header("host") if !facts.host.is_empty() => {
                take(Stated::plain(facts.host.as_bytes()));
                NameMatch::Exact
            }
            Self::Header(name @ "cookie") => {
                let lines: Vec<&[u8]> = values_of(facts.headers, name).collect();
                take(Stated::plain(&lines.join(&b"; "[..])));
                NameMatch::Exact
            }
            Self::Header(name) => each_field(facts.headers, name, &mut take),
        };
        if best == NameMatch::Lenient {
            take(Stated::plain(b""));
        }
    }
}

/// Takes the values of query parameters. One without `=` is empty.
fn each_parameter(query: &str, name: &str, take: &mut impl FnMut(Stated<'_>)) -> NameMatch {
    let ends = |byte: &u8| matches!(byte, b';' | b'#');
    let mut best = NameMatch::Different;
    for whole in query.as_bytes().split(|byte| *byte == b'&') {
        let parts = whole.iter().any(ends).then(|| whole.split(ends));
        let parts = parts.into_iter().flatten();
        let parts = parts.map(|part| (part, NameMatch::Lenient));
        for (pair, at_best) in once((whole, NameMatch::Exact)).chain(parts) {
            let (found, value) = split_once(pair, b'=').unwrap_or((pair, b""));
            let name_match = compare(found, name).min(at_best);
            if name_match > NameMatch::Different {
                best = best.max(name_match);
                let strict = decoded(value);
                take(Stated::new(
                    strict.as_bytes(),
                    &parameter(strict.as_bytes()),
                ));
            }
        }
    }
    best
}

/// Takes the values of cookies.
fn each_cookie(line: &[u8], name: &str, take: &mut impl FnMut(Stated<'_>)) -> NameMatch {
    let mut best = NameMatch::Different;
    let mut rest = Some(line);
    while let Some(tail) = rest {
        let (pair, next) = match split_once(tail, b';') {
            Some((pair, next)) => (pair, Some(next)),
            None => (tail, None),
        };
        rest = next;
        let (found, value) = split_once(pair, b'=').unwrap_or((pair, b""));
        let name_match = if found.trim_ascii_start() == name.as_bytes() {
            NameMatch::Exact
        } else {
            compare_cookies(found, name)
        };
        best = best.max(name_match);
        if name_match > NameMatch::Different {
            // It may end behind `;`, or before other text.
            let other = quoted(&tail[pair.len() - value.len()..]);
            let other = other.filter(|other| other.len() != value.trim_ascii().len());
            for strict in once(value).chain(other) {
                take_cookie(strict, take);
            }
        }
        let has_space = |text: &[u8]| text.trim_ascii().contains(&b' ') || text.contains(&b'\t');
        let is_quoted = quoted(value).is_some_and(|it| it.len() == value.trim_ascii().len());
        if has_space(pair) && (!is_quoted || has_space(found)) {
            best = best.max(each_word(pair, name, take));
        }
    }
    best
}

/// Takes the values of cookies that spaces separate, as `SimpleCookie` of Python reads them.
fn each_word(pair: &[u8], name: &str, take: &mut impl FnMut(Stated<'_>)) -> NameMatch {
    let mut best = NameMatch::Different;
    let words = pair.split(u8::is_ascii_whitespace);
    let mut words = words.filter(|word| !word.is_empty()).peekable();
    let mut before = &b""[..];
    while let Some(word) = words.next() {
        if let Some((found, value)) = split_once(word, b'=') {
            let found = if found.is_empty() { before } else { found };
            let name_match = compare_cookies(found, name);
            best = best.max(name_match);
            if name_match > NameMatch::Different {
                let next = words.peek().filter(|_| value.is_empty());
                take_cookie(next.unwrap_or(&value), take);
            }
        }
        before = word;
    }
    best
}

/// Compares a name as an application may read it: without white space around it, also of other bytes
/// than ASCII.
fn compare_cookies(found: &[u8], name: &str) -> NameMatch {
    let found = without_escapes(found);
    compare(stripped(found.as_bytes()), name).min(NameMatch::Lenient)
}

/// Takes the spellings of a cookie's value.
fn take_cookie(strict: &[u8], take: &mut impl FnMut(Stated<'_>)) {
    let mut take_normal = |value: &[u8]| take(Stated::new(strict, &cookie(value)));
    take_normal(strict);
    if let [b'"', inner @ .., last] = strict.trim_ascii()
        && *last != b'"'
        && !inner.is_empty()
    {
        take_normal(inner);
    }
    let decoded = decoded(unquoted(strict));
    if let Some(json) = decoded.as_bytes().strip_prefix(JSON_COOKIE) {
        json_leaves(json, |leaf| take_normal(leaf.as_bytes()));
    }
}

/// Takes the values of a header.
fn each_field(
    headers: &[(&str, &[u8])],
    name: &str,
    take: &mut impl FnMut(Stated<'_>),
) -> NameMatch {
    if !is_credential_header(name) {
        return each_line(headers, name, |line| take(Stated::plain(line)));
    }
    let best = each_line(headers, name, |strict| {
        let mut take_normal = |line: &[u8]| take(Stated::new(strict, &credentials(line)));
        for line in once(strict).chain(up_to_padding(strict)) {
            take_normal(line);
            let is_of_urls = |byte: &u8| matches!(byte, b'-' | b'_');
            if is_basic(line) && line.iter().any(is_of_urls) {
                let rest = line.iter().filter(|byte| !is_of_urls(byte));
                take_normal(&rest.copied().collect::<Vec<_>>());
            }
        }
    });
    for strict in values_of(headers, name) {
        let of_bearer = tokens(strict, BEARER).map(|token| (BEARER, token));
        let others = TOKEN_SCHEMES.into_iter().filter_map(|scheme| {
            let word = strict.get(..scheme.len())?;
            let token = tokens(strict, scheme).next()?;
            word.eq_ignore_ascii_case(scheme).then_some((scheme, token))
        });
        for (scheme, token) in of_bearer.chain(others) {
            // `Bearer b` was taken as it is.
            let is_plain =
                strict.len() == scheme.len() + 1 + token.len() && strict[scheme.len()] == b' ';
            if token.len() < strict.len() && !is_plain {
                let line = [scheme, token].join(&b' ');
                take(Stated::new(strict, &credentials(&line)));
            }
        }
    }
    best
}

/// Takes the lines of a header, trimmed; of different ones also the one line that servers make of
/// them, with or without those that have the name for some servers only.
fn each_line(headers: &[(&str, &[u8])], name: &str, mut take: impl FnMut(&[u8])) -> NameMatch {
    let lines = headers.iter().filter_map(|(found, value)| {
        let name_match = compare_fields(found, name);
        (name_match > NameMatch::Different).then(|| (name_match, trim(value)))
    });
    let (mut best, mut first, mut differ) = (NameMatch::Different, None, false);
    for (name_match, line) in lines.clone() {
        best = best.max(name_match);
        differ |= *first.get_or_insert(line) != line;
        take(line);
    }
    if differ {
        let joined = |at_least| {
            let lines = lines.clone().filter(|(found, _)| *found >= at_least);
            lines.map(|(_, line)| line).collect::<Vec<&[u8]>>()
        };
        let [exact, all] = [NameMatch::Exact, NameMatch::Lenient].map(joined);
        let is_more = exact.len() < all.len();
        for lines in once(all).chain((is_more && exact.len() > 1).then_some(exact)) {
            take(&lines.join(&b", "[..]));
            take(&lines.join(&b","[..]));
        }
    }
    best
}

/// Takes each token of `Authorization: Bearer`, and an empty one for another scheme.
pub(crate) fn each_bearer(facts: &Facts<'_>, mut take: impl FnMut(&[u8])) {
    each_line(facts.headers, "authorization", |line| take(bearer(line)));
    let lines = values_of(facts.headers, "authorization");
    lines.flat_map(|line| tokens(line, BEARER)).for_each(take);
}

/// Returns the quoted string at the start of a text, with its quotes; `;` may be in it.
fn quoted(text: &[u8]) -> Option<&[u8]> {
    let text = text.trim_ascii_start();
    let inner = text.strip_prefix(b"\"")?;
    let mut is_escaped = false;
    let end = inner.iter().position(|byte| {
        let ends = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        ends
    })?;
    Some(&text[..end + 2])
}

/// Returns the token of `Authorization: Bearer`; empty for another scheme.
fn bearer(value: &[u8]) -> &[u8] {
    let (scheme, token) = value.split_at_checked("Bearer ".len()).unwrap_or_default();
    let is_bearer = scheme.eq_ignore_ascii_case(b"Bearer ");
    if is_bearer { trim(token) } else { b"" }
}

/// Compares a name of a query or a cookie with the wanted one.
fn compare(found: &[u8], wanted: &str) -> NameMatch {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if found == wanted.as_bytes() {
        return NameMatch::Exact;
    }
    if found.iter().chain(wanted.as_bytes()).all(is_plain) {
        return if found.eq_ignore_ascii_case(wanted.as_bytes()) {
            NameMatch::Lenient
        } else {
            NameMatch::Different
        };
    }
    let found = decoded(found);
    let found = String::from_utf8_lossy(found.as_bytes());
    match &*found {
        found if found == wanted => NameMatch::Exact,
        found if is_same_form_name(wanted, found) => NameMatch::Lenient,
        _ => NameMatch::Different,
    }
}

/// Compares the name of a header field with the wanted one: variables of CGI have `_` for each `-`,
/// and those of some servers for each other sign.
fn compare_fields(found: &str, wanted: &str) -> NameMatch {
    if found.len() != wanted.len() {
        return NameMatch::Different;
    }
    let mut name_match = NameMatch::Exact;
    for (a, b) in found.bytes().zip(wanted.bytes()) {
        if a.eq_ignore_ascii_case(&b) {
            continue;
        }
        if a.is_ascii_alphanumeric() || b.is_ascii_alphanumeric() {
            return NameMatch::Different;
        }
        name_match = NameMatch::Lenient;
    }
    name_match
}

/// Returns true for a header, in lower case, with a scheme before its value.
pub(crate) fn is_credential_header(name: &str) -> bool {
    matches!(name, "authorization" | "proxy-authorization")
}

impl BodyField {
    /// Calls `take` with each value in the query, if it is a field of a form.
    pub(crate) fn each_in_query(&self, facts: &Facts<'_>, take: impl FnMut(Stated<'_>)) {
        if let Some(name) = self.form_name() {
            StatedPlace::Query(name).each(facts, take);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(place: StatedPlace<'_>, facts: &Facts<'_>, expected: &[&str]) {
        let mut values = Vec::new();
        place.each(facts, |value| {
            values.push(String::from_utf8_lossy(value.normal).into_owned());
        });
        assert_eq!(values, expected, "{} {:?}", facts.query, facts.headers);
    }

    #[test]
    fn parameters_of_one_name_are_found_in_every_spelling() {
        for (query, name, expected) in [
            ("user=a&user=b", "user", &["a", "b"][..]),
            ("user=&x=1&user", "user", &["", ""]),
            ("us%65r=a&USER=b&x=c", "user", &["a", "b"]),
            // By some applications, none is found.
            ("USER=b", "user", &["b", ""]),
            (
                "+user=a&%20user=b&user%00x=c&?user=d",
                "user",
                &["a", "b", "c", "d", ""],
            ),
            (
                "user[]=a&user%5B%5D=b&user[0]=c&user[7]=d",
                "user",
                &["a", "b", "c", "d", ""],
            ),
            (
                "[user]=a&user]=b&[]user=c&[user][]=d",
                "user",
                &["a", "b", "c", "d", ""],
            ),
            ("user=a&user[x]=b&user[a]b=c", "user", &["a"]),
            ("user[]=a&user=b", "user[]", &["a", "b"]),
            (
                "user.id=a&user_id=b&user+id=c&user[id=d",
                "user_id",
                &["a", "b", "c", "d"],
            ),
            ("user=a;user=b", "user", &["a;user=b", "a", "b"]),
            ("user=a#user=b", "user", &["a#user=b", "a", "b"]),
            ("x=1;user=b", "user", &["b", ""]),
            ("users=a&use=b&user-=c", "user", &[]),
            ("%C5%BFid=a", "sid", &["a", ""]),
            // Left as it is, dropped, replaced, or decoded twice.
            (
                "q=a%FF&q=a%25FF&q=a%EF%BF%BD&q=%2561%25FF",
                "q",
                &["a", "a", "a", "a"],
            ),
            ("q=100%25&q=a%2Bb", "q", &["100%", "a+b"]),
            ("q=+a&q=a%20%0A&q=%C2%A0a%01&q=+", "q", &["a", "a", "a", ""]),
        ] {
            let facts = Facts {
                query,
                ..Facts::default()
            };
            check(StatedPlace::Query(name), &facts, expected);
        }
    }

    #[test]
    fn headers_and_cookies_are_found_in_every_spelling() {
        for (lines, place, expected) in [
            (
                &[("cookie", &b"sid=a; sid = b ;SID=c;x=1; s%69d=d; sid"[..])][..],
                StatedPlace::Cookie("sid"),
                &["a", "b", "b", "c", "d", ""][..],
            ),
            (
                &[("cookie", b"sid=\"a b\"; x sid=\"c d\"")],
                StatedPlace::Cookie("sid"),
                &["a b", "\"c"],
            ),
            (
                &[("cookie", b"sid=a sid=b; x=1 sid = c")],
                StatedPlace::Cookie("sid"),
                &["a sid=b", "a", "b", "c"],
            ),
            (
                &[(
                    "cookie",
                    b"\xa0sid=a; \x85sid\xa0=b\xc2\xa0; sid\xe3\x80\x80=c\xa0",
                )],
                StatedPlace::Cookie("sid"),
                &["a", "b", "c", ""],
            ),
            (
                &[("cookie", b"sid=\"a;sid=b\\\"\"; x")],
                StatedPlace::Cookie("sid"),
                &["\"a", "a;sid=b\"", "b\"\""],
            ),
            (
                &[(
                    "cookie",
                    b"sid=j:[\"a\",7.0,[true]]; sid=j%3A%22re%5Cu0061l%22",
                )],
                StatedPlace::Cookie("sid"),
                &[
                    "j:[\"a\",7.0,[true]]",
                    "a",
                    "7",
                    "true",
                    "j:\"reu0061l\"",
                    "real",
                ],
            ),
            (
                &[
                    ("cookie", b"sid=\"ax"),
                    ("cookie", b"sid=\"b\"x; sid=\"c\" "),
                ],
                StatedPlace::Cookie("sid"),
                &["\"ax", "a", "\"b\"x", "b\"", "b", "c"],
            ),
            (
                &[("cookie", b"x=1"), ("cookie", b"sid=a")],
                StatedPlace::Header("cookie"),
                &["x=1; sid=a"],
            ),
            (&[("host", b"a")], StatedPlace::Header("host"), &["a"]),
            (
                &[("x_user", b"a"), ("X.User", b"a")],
                StatedPlace::Header("x-user"),
                &["a", "a", ""],
            ),
            (
                &[("x-user", b"a"), ("X-User", b"a"), ("X_User", b"b")],
                StatedPlace::Header("x-user"),
                &["a", "a", "b", "a, a, b", "a,a,b", "a, a", "a,a"],
            ),
            (
                &[("authorization", b"basic -_-_YTpi")],
                StatedPlace::Header("authorization"),
                &["Basic a:b", "Basic a:b"],
            ),
            (
                &[("x-user", b"a"), ("X-User", b"b")],
                StatedPlace::Header("x-user"),
                &["a", "b", "a, b", "a,b"],
            ),
            (&[("x-users", b"a")], StatedPlace::Header("x-user"), &[]),
        ] {
            let facts = Facts {
                headers: lines,
                ..Facts::default()
            };
            check(place, &facts, expected);
        }
    }
}
