//! Hop: fields that concern one connection only, and are never forwarded (RFC 9110, section 7.6.1).
//!
//! ```text
//!   Connection: close, X-Debug     removed, with the field X-Debug
//!   Connection: Host               refused: a client could remove what an upstream relies on
//!   TE: gzip, trailers             TE: trailers, for the next connection
//!   Upgrade: websocket             passed on; protocols that are not allowed are not offered
//! ```

use http::{HeaderMap, HeaderName, HeaderValue, header};

/// Fields that `Connection` may not name, because the upstream relies on them.
static KEPT: [HeaderName; 9] = [
    header::HOST,
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::AUTHORIZATION,
    header::COOKIE,
    header::FORWARDED,
    header::VIA,
    HeaderName::from_static("x-request-id"),
    HeaderName::from_static("x-real-ip"),
];
/// Beginnings of such names.
const KEPT_PREFIXES: [&str; 2] = ["x-forwarded-", "x-ratekeeper-"];

/// Properties of a connection that concern the next one too.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Hop {
    /// `TE: trailers`: the sender reads trailers.
    pub(crate) trailers: bool,
    /// `Upgrade`: the first of its protocols that is allowed.
    pub(crate) upgrade: Option<HeaderValue>,
}

/// Returns true for a field of a connection, whatever `Connection` names.
fn is_of_a_connection(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "connection"
            | "proxy-connection"
            | "keep-alive"
            | "te"
            | "transfer-encoding"
            | "upgrade"
            | "proxy-authenticate"
            | "proxy-authorization"
    )
}

/// Returns the names of the fields of every connection that are there.
pub(crate) fn found(headers: &HeaderMap) -> Vec<HeaderName> {
    let found = headers.keys().filter(|name| is_of_a_connection(name));
    found.cloned().collect()
}

/// Returns the first name of `Connection` that it may not have.
pub(crate) fn wrong_connection(headers: &HeaderMap) -> Option<String> {
    let mut names = tokens(headers, &header::CONNECTION);
    let wrong = names.find(|name| {
        let kept = KEPT
            .iter()
            .any(|kept| name.eq_ignore_ascii_case(kept.as_str()));
        kept || KEPT_PREFIXES.iter().any(|prefix| {
            let start = name.get(..prefix.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(prefix))
        })
    });
    wrong.map(str::to_owned)
}

/// Removes the fields that `Connection` names, except for those that concern every connection.
pub(crate) fn remove_named(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = tokens(headers, &header::CONNECTION)
        .filter_map(|name| name.parse().ok())
        .filter(|name| !KEPT.contains(name) && !is_of_a_connection(name))
        .collect();
    for name in named {
        headers.remove(name);
    }
}

/// Removes the fields of every connection; those that the next one needs too are returned, if an
/// upgrade is to one of these protocols.
pub(crate) fn remove(headers: &mut HeaderMap, upgrades: &[HeaderValue]) -> Hop {
    remove_found(found(headers), headers, upgrades)
}

/// Like [`remove`], for the fields that [`found`] returned.
pub(crate) fn remove_found(
    found: Vec<HeaderName>,
    headers: &mut HeaderMap,
    upgrades: &[HeaderValue],
) -> Hop {
    let mut hop = Hop::default();
    if found.contains(&header::TE) {
        hop.trailers = tokens(headers, &header::TE).any(|token| is(token, "trailers"));
    }
    if found.contains(&header::CONNECTION)
        && tokens(headers, &header::CONNECTION).any(|token| is(token, "upgrade"))
    {
        let allowed = |offer: &str| {
            let is_offered =
                |it: &&HeaderValue| it.as_bytes().eq_ignore_ascii_case(offer.as_bytes());
            upgrades.iter().find(is_offered).cloned()
        };
        hop.upgrade = tokens(headers, &header::UPGRADE).find_map(allowed);
    }
    for name in found {
        headers.remove(name);
    }
    hop
}

/// Adds the fields of the next connection, if it is one of HTTP/1.1.
pub(crate) fn put(hop: &Hop, headers: &mut HeaderMap) {
    if let Some(protocol) = &hop.upgrade {
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, protocol.clone());
    } else if hop.trailers {
        headers.insert(header::CONNECTION, HeaderValue::from_static("te"));
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
}

/// Replaces the fields of a connection by HTTP/2's, which has a field for trailers alone.
pub(crate) fn put_http2(hop: &Hop, headers: &mut HeaderMap) {
    for name in found(headers) {
        headers.remove(name);
    }
    if hop.trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
}

/// Leaves one `Content-Length` if there are several with one number, which a recipient might read
/// in another way (RFC 9110, section 8.6). Returns false if there are several numbers, or none.
pub(crate) fn join_lengths(headers: &mut HeaderMap) -> bool {
    let mut values = headers.get_all(header::CONTENT_LENGTH).iter();
    let Some(first) = values.next() else {
        return true;
    };
    let is_alone = values.next().is_none();
    if is_alone && is_number(first.as_bytes()) {
        return true; // nearly always
    }
    let Some(length) = only_length(headers) else {
        return false;
    };
    headers.insert(header::CONTENT_LENGTH, length);
    true
}

/// Returns the number that all elements of `Content-Length` are.
fn only_length(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut lengths = tokens(headers, &header::CONTENT_LENGTH);
    let length = lengths.next().filter(|it| is_number(it.as_bytes()))?;
    let is_only = lengths.all(|other| other == length);
    is_only.then(|| HeaderValue::from_str(length).ok())?
}

fn is_number(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(u8::is_ascii_digit)
}

pub(crate) fn is(token: &str, word: &str) -> bool {
    token.eq_ignore_ascii_case(word)
}

/// Returns the elements of a field that is a list, without those that are not text.
pub(crate) fn tokens<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).into_iter();
    let elements = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    let tokens = elements.filter_map(|element| std::str::from_utf8(element).ok());
    tokens.map(str::trim).filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    type Fields = [(&'static str, &'static str)];

    fn map(fields: &Fields) -> HeaderMap {
        let pairs = fields.iter().map(|(name, value)| {
            let name: HeaderName = name.parse().unwrap();
            (name, HeaderValue::from_str(value).unwrap())
        });
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(name, value);
        }
        map
    }

    #[test]
    fn several_lengths_are_one_number_or_refused() {
        for (values, expected) in [
            (&[][..], Some(None)),
            (&["2"], Some(Some("2"))),
            (&["02"], Some(Some("02"))),
            (&["2, 2"], Some(Some("2"))),
            (&["2,2", "2"], Some(Some("2"))),
            (&["2", "2"], Some(Some("2"))),
            (&["2", "02"], None),
            (&["2", "3"], None),
            (&["2, 3"], None),
            (&["+2"], None),
            (&["2 2"], None),
            (&["2;"], None),
            (&[""], None),
            (&[","], None),
        ] {
            let fields: Vec<_> = values.iter().map(|it| ("content-length", *it)).collect();
            let mut headers = map(&fields);
            let joined = join_lengths(&mut headers).then(|| {
                let mut left = headers.get_all("content-length").iter();
                let first = left.next().map(|it| it.to_str().unwrap());
                assert_eq!(left.next(), None);
                first
            });
            assert_eq!(joined, expected, "{values:?}");
        }
    }

    #[test]
    fn fields_of_a_connection_are_removed() {
        let rows: &[(&Fields, &Fields)] = &[
            (&[("a", "1")], &[("a", "1")]),
            (&[("connection", "close"), ("a", "1")], &[("a", "1")]),
            (
                &[
                    ("connection", "keep-alive, X-Debug"),
                    ("keep-alive", "timeout=5"),
                    ("x-debug", "1"),
                    ("b", "2"),
                ],
                &[("b", "2")],
            ),
            (
                &[
                    ("connection", "x-one"),
                    ("connection", "x-two,"),
                    ("x-one", "1"),
                    ("x-two", "2"),
                    ("x-three", "3"),
                ],
                &[("x-three", "3")],
            ),
            (
                &[
                    ("proxy-connection", "keep-alive"),
                    ("proxy-authorization", "x"),
                    ("te", "gzip"),
                ],
                &[],
            ),
            (
                &[("te", "gzip, Trailers")],
                &[("te", "trailers"), ("connection", "te")],
            ),
            (
                &[("transfer-encoding", "chunked"), ("trailer", "x")],
                &[("trailer", "x")],
            ),
            (
                &[("connection", "Upgrade"), ("upgrade", "WebSocket")],
                &[("connection", "upgrade"), ("upgrade", "websocket")],
            ),
            (
                &[
                    ("connection", "upgrade"),
                    ("upgrade", "h2c, echo/1, websocket"),
                ],
                &[("connection", "upgrade"), ("upgrade", "Echo/1")],
            ),
            // Not named by `Connection`, so not for this connection; and another protocol.
            (&[("upgrade", "websocket")], &[]),
            (
                &[
                    ("connection", "upgrade, http2-settings"),
                    ("upgrade", "h2c"),
                    ("http2-settings", "x"),
                ],
                &[],
            ),
            // A response that names such a field keeps it.
            (
                &[("connection", "content-type"), ("content-type", "a/b")],
                &[("content-type", "a/b")],
            ),
        ];
        for (before, after) in rows {
            let mut headers = map(before);
            let allowed = ["websocket", "Echo/1"].map(HeaderValue::from_static);
            remove_named(&mut headers);
            let hop = remove(&mut headers, &allowed);
            put(&hop, &mut headers);
            assert_eq!(headers, map(after), "{before:?}");
        }
    }

    #[test]
    fn bytes_beside_a_name_do_not_hide_it() {
        let mut headers = map(&[("x-a", "1")]);
        let value = HeaderValue::from_bytes(b"\xe9, X-A, \xe9, host").unwrap();
        headers.insert(header::CONNECTION, value);
        assert_eq!(wrong_connection(&headers).as_deref(), Some("host"));
        remove_named(&mut headers);
        remove(&mut headers, &[]);
        assert!(headers.is_empty(), "{headers:?}");
    }

    #[test]
    fn connection_names_no_field_that_the_upstream_relies_on() {
        for (value, wrong) in [
            ("close", None),
            ("keep-alive, x-debug", None),
            ("x-forwarded", None),
            ("close, Host", Some("Host")),
            ("Content-Length", Some("Content-Length")),
            ("authorization", Some("authorization")),
            ("X-Forwarded-For", Some("X-Forwarded-For")),
            ("x-ratekeeper-decision", Some("x-ratekeeper-decision")),
            ("x-request-id", Some("x-request-id")),
        ] {
            let found = wrong_connection(&map(&[("connection", value)]));
            assert_eq!(found.as_deref(), wrong, "{value}");
        }
    }
}
