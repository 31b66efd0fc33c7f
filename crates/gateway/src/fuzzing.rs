//! Fuzzing: a head of a request or a response made of any bytes, and what must hold of it on the
//! other side. Compiled for the fuzzer and for tests alone.
//!
//! ```text
//!   bytes                 the first names the version and the trust in the peer
//!     0/p?q=1             the target
//!     Connection: x-a     a field in each line
//! ```

#![expect(clippy::unwrap_used, reason = "a failure of the fuzzer is a panic")]

use std::net::Ipv4Addr;

use http::header::{CONNECTION, CONTENT_LENGTH, COOKIE, FORWARDED, HOST, TE, UPGRADE, VIA};
use http::request::Parts;
use http::uri::{Authority, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Version};

use crate::outgoing::{Form, fit, prepare, prepare_response};
use crate::{ClientScheme, GatewayClient, Trust, X_REQUEST_ID, examine};

/// Fields that no client may spell with `_`.
const OF_A_BODY: [&str; 4] = [
    "content-length",
    "transfer-encoding",
    "content-type",
    "content-encoding",
];

/// Fields of a connection that are never passed on.
const OF_A_CONNECTION: [&str; 5] = [
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "transfer-encoding",
];
/// Fields that the gateway writes, whatever came.
const WRITTEN: [&str; 13] = [
    "connection",
    "content-length",
    "cookie",
    "expect",
    "forwarded",
    "host",
    "te",
    "upgrade",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-request-id",
];

/// Checks the request, and the response with the same fields.
///
/// # Panics
/// If the upstream would see a field that it must not see, or miss one; likewise the client.
pub fn check_head(bytes: &[u8]) {
    let Some((mut parts, trust)) = head(bytes) else {
        return; // no parser of HTTP returns such a head
    };
    check_response(&parts.headers);
    let came = parts.clone();
    if examine(&mut parts).is_err() {
        return;
    }
    let client = GatewayClient {
        peer: Ipv4Addr::new(192, 0, 2, 1).into(),
        trust,
        address_field: Some(HeaderName::from_static("cf-connecting-ip")),
        scheme: ClientScheme::Https,
    };
    let websocket = [HeaderValue::from_static("websocket")];
    let id = HeaderValue::from_static("id-1");
    let mut request = Request::from_parts(parts.clone(), String::new());
    let hop = prepare(&mut request, &client, id, &websocket);
    let own = || Some(Authority::from_static("app.internal:443"));
    for form in [Form::Http1, Form::Http2(Scheme::HTTPS, own()), Form::Http1] {
        fit(&mut request, &form, &hop);
        let headers = request.headers();
        check_connection(&form, headers);
        check_fields_about_the_client(trust, headers);
        check_other_fields(&came, headers);
        let hosts = headers.get_all(HOST).iter().count();
        if form == Form::Http1 {
            let path = request.uri().path();
            assert!(request.uri().authority().is_none());
            let is_star = path == "*" && parts.method == Method::OPTIONS;
            assert!(path.starts_with('/') || is_star, "{path}");
            assert!(hosts == 1 || parts.version != Version::HTTP_11);
        } else {
            assert!(hosts == 0 && request.uri().authority().is_some());
        }
        if parts.version == Version::HTTP_2 {
            assert!(headers.get_all(COOKIE).iter().count() <= 1);
        }
    }
}

fn head(bytes: &[u8]) -> Option<(Parts, Trust)> {
    let (first, rest) = bytes.split_first()?;
    let mut lines = rest.split(|byte| *byte == b'\n');
    let version = match first & 3 {
        1 => Version::HTTP_10,
        2 => Version::HTTP_2,
        _ => Version::HTTP_11,
    };
    let trust = match first & 4 {
        0 => Trust::Nothing,
        _ => Trust::Proxy,
    };
    let mut request = Request::builder().version(version).uri(lines.next()?);
    for line in lines.filter(|line| !line.is_empty()) {
        let at = line.iter().position(|byte| *byte == b':')?;
        let (name, value) = (&line[..at], line[at + 1..].trim_ascii());
        request = request.header(name, value);
    }
    let (parts, ()) = request.body(()).ok()?.into_parts();
    Some((parts, trust))
}

fn check_connection(form: &Form, headers: &HeaderMap) {
    for name in OF_A_CONNECTION {
        assert!(!headers.contains_key(name), "{name}: {headers:?}");
    }
    let words = [CONNECTION, UPGRADE, TE].map(|name| {
        let mut values = headers.get_all(name).iter();
        let first = values.next().map(HeaderValue::as_bytes);
        assert_eq!(values.next(), None);
        first
    });
    let is_right = match form {
        Form::Http1 => matches!(
            words,
            [Some(b"te"), None, Some(b"trailers")]
                | [Some(b"upgrade"), Some(b"websocket"), None]
                | [None, None, None]
        ),
        Form::Http2(..) => matches!(words, [None, None, Some(b"trailers") | None]),
    };
    assert!(is_right, "{form:?}: {headers:?}");
}

fn check_fields_about_the_client(trust: Trust, headers: &HeaderMap) {
    let only = |name: HeaderName| {
        let mut values = headers.get_all(name).iter();
        let first = values.next().unwrap();
        assert_eq!(values.next(), None);
        first.as_bytes()
    };
    let (address, element) = (only("x-forwarded-for".parse().unwrap()), only(FORWARDED));
    let own = "for=192.0.2.1";
    assert!(address.ends_with(b"192.0.2.1") && element.ends_with(b";proto=https"));
    assert!(only(VIA).ends_with(b" ratekeeper"));
    assert_eq!(only(X_REQUEST_ID), b"id-1");
    for name in headers.keys() {
        let plain = name.as_str().replace('_', "-");
        assert!(!plain.starts_with("x-ratekeeper-"), "{name}");
        assert!(
            !OF_A_BODY.contains(&&*plain) || plain == name.as_str(),
            "{name}"
        );
        if trust == Trust::Proxy {
            continue;
        }
        let is_invented = plain.starts_with("x-forwarded-")
            || ["x-real-ip", "x-request-id", "forwarded", "cf-connecting-ip"].contains(&&*plain);
        assert!(!is_invented || WRITTEN.contains(&name.as_str()), "{name}");
    }
    if trust == Trust::Nothing {
        assert_eq!(address, b"192.0.2.1");
        assert!(element.starts_with(own.as_bytes()));
        assert_eq!(only("x-forwarded-proto".parse().unwrap()), b"https");
    }
}

/// Fields that `Connection` names are gone; all others are as they were.
fn check_other_fields(came: &Parts, headers: &HeaderMap) {
    let named = named(&came.headers);
    for name in came.headers.keys() {
        let text = name.as_str();
        let plain = text.replace('_', "-");
        let is_about = ["x-forwarded-", "x-ratekeeper-"]
            .iter()
            .any(|start| plain.starts_with(start));
        let others = ["x-real-ip", "x-request-id", "forwarded", "cf-connecting-ip"];
        if named.iter().any(|it| it.eq_ignore_ascii_case(text)) {
            assert!(
                !headers.contains_key(name) || WRITTEN.contains(&text),
                "{name}"
            );
        } else if !is_about
            && !WRITTEN.contains(&text)
            && !OF_A_CONNECTION.contains(&text)
            && !others.contains(&&*plain)
            && (plain == text || !OF_A_BODY.contains(&&*plain))
        {
            let (before, after) = (came.headers.get_all(name), headers.get_all(name));
            assert!(before.iter().eq(after.iter()), "{name}");
        }
    }
}

fn check_response(headers: &HeaderMap) {
    let mut sent = headers.clone();
    if prepare_response(&mut sent, &[]).is_err() {
        return; // it is not passed on
    }
    let lengths = sent.get_all(CONTENT_LENGTH).iter();
    assert!(lengths.count() <= 1, "{headers:?}");
    let own = [CONNECTION, UPGRADE, TE];
    let own = own.iter().map(HeaderName::as_str);
    for name in own.chain(OF_A_CONNECTION) {
        assert!(!sent.contains_key(name), "{name}");
    }
}

/// Returns the names in `Connection`.
fn named(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(CONNECTION).into_iter();
    let words = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    words
        .map(|word| String::from_utf8_lossy(word).trim().to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The heads that the fuzzer begins with, without their names.
    fn corpus() -> Vec<Vec<u8>> {
        let cases = include_str!("../../../fuzz/corpus/gateway/cases.txt");
        let cases = cases.split("=== ").skip(1);
        let heads = cases.map(|case| case.split_once('\n').unwrap().1);
        heads.map(|head| head.as_bytes().to_vec()).collect()
    }

    /// Lines of the corpus, and others, in any order.
    fn heads() -> impl Strategy<Value = Vec<u8>> {
        let mut lines: Vec<Vec<u8>> = Vec::new();
        for file in corpus() {
            lines.extend(
                file.split(|byte| *byte == b'\n')
                    .skip(1)
                    .map(<[u8]>::to_vec),
            );
        }
        lines.sort();
        let line = prop_oneof![
            6 => prop::sample::select(lines),
            2 => "(connection|content-length|te|upgrade|via|forwarded|cookie|x-[a-b]): [a-bx,\\- \"=;]{0,12}"
                .prop_map(String::into_bytes),
            1 => prop::collection::vec(any::<u8>(), 0..20),
        ];
        let first = (
            "[0-7]",
            "(/[ -~]{0,8}|\\*|http://[a-z@:]{1,6}(/[a-z]{0,3})?)",
        );
        (first, prop::collection::vec(line, 0..12)).prop_map(|((kind, target), lines)| {
            let mut bytes = [kind, target].concat().into_bytes();
            for line in lines {
                bytes.push(b'\n');
                bytes.extend(line);
            }
            bytes
        })
    }

    #[test]
    fn the_corpus_of_the_fuzzer_holds() {
        let files = corpus();
        let heads = files.iter().filter_map(|bytes| head(bytes));
        let accepted = heads.filter_map(|(mut parts, _)| examine(&mut parts).ok());
        let accepted = accepted.count();
        assert!(accepted >= 6 && accepted < files.len(), "{accepted}");
        for bytes in files {
            check_head(&bytes);
        }
    }

    proptest! {
        #[test]
        fn any_head_is_refused_or_made_fit(bytes in heads()) {
            check_head(&bytes);
        }
    }
}
