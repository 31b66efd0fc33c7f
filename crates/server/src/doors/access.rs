//! Access: which calls are answered, and which may change state.
//!
//! ```text
//!                            no token is set              a token is set
//!   admin, reads             Host of this machine,        the token
//!                            no foreign web page
//!   admin, writes            the same, and                the token
//!                            admin_writes = "open"
//!   http, reset and refund   admin_writes = "open", this machine, directly, no web page;
//!                            or the token
//!   http, checks             no web page
//! ```
//!
//! A browser sends any request that a web page asks for, also to addresses that only its own
//! machine reaches. It names the page in `Origin` and `Sec-Fetch-Site`; and a page with a name
//! that has been made to mean 127.0.0.1 (DNS rebinding) shows that name in `Host`. Pages cannot
//! read the token, so a call that presents it is not checked further.

use std::net::{IpAddr, Ipv6Addr};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use http::request::Parts;
use http::{HeaderMap, HeaderName, Version, header};
use ratekeeper_policy::AdminWrites;

use super::facts::host;
use super::problem::{AMBIGUOUS, FROM_A_PAGE, NO_TOKEN, NOT_LOCAL, Problem, shown};

/// Headers that only a proxy adds.
const FORWARDED: [&str; 4] = ["x-forwarded-for", "forwarded", "x-real-ip", "via"];
/// Relation of a page to the requested resource; browsers write it, pages cannot.
static FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Rules for the calls that are let in.
#[derive(Debug, Default)]
pub(crate) struct Access {
    pub(crate) token: Option<Token>,
    pub(crate) writes: AdminWrites,
    /// Hosts of the admin door beside those of loopback, in lower case.
    pub(crate) hosts: Vec<String>,
}

/// What a caller must be allowed to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Right {
    /// To ask for health, a file of the dashboard, or, as a proxy, for a decision: no access is
    /// needed.
    Probe,
    /// To see the service, or, as an application, to ask for decisions.
    Read,
    /// To change what the service holds, as its operator.
    Write,
}

impl Access {
    /// Refuses a call of the admin door that may not be made.
    pub(crate) fn admin(&self, right: Right, headers: &HeaderMap) -> Result<(), Problem> {
        if let Some(token) = &self.token {
            if bearer_ok(token, headers) {
                return Ok(());
            }
            let detail = "send `Authorization: Bearer` with the token of RATEKEEPER_ADMIN_TOKEN";
            return Err(Problem::new(NO_TOKEN, detail));
        }
        // Without a token the door listens on loopback only.
        if let Some(name) = headers.get(header::HOST) {
            let name = host(name.to_str().unwrap_or_default());
            if !is_loopback(&name) && !self.hosts.iter().any(|known| **known == *name) {
                let name = shown(&name);
                let detail = format!(
                    "`{name}` in `Host` is not a name of loopback: call 127.0.0.1 or localhost, or \
                     add it to `admin_hosts` in [listen]"
                );
                return Err(Problem::new(NOT_LOCAL, detail));
            }
        }
        if let Some(page) = foreign_page(headers) {
            return Err(from_a_page(&page));
        }
        match right {
            Right::Write if !self.lets_operators_write() => Err(writes_need_the_token()),
            _ => Ok(()),
        }
    }

    /// Returns true if a caller of the admin door who may read may also write.
    pub(crate) fn lets_operators_write(&self) -> bool {
        self.token.is_some() || self.writes == AdminWrites::Open
    }

    /// Returns true if the call presents a token that is not the one.
    pub(crate) fn has_wrong_token(&self, headers: &HeaderMap) -> bool {
        let token = self.token.as_ref();
        headers.contains_key(header::AUTHORIZATION)
            && token.is_some_and(|token| !bearer_ok(token, headers))
    }

    /// Refuses a call of the http door that changes balances and may not be made.
    pub(super) fn balances(&self, peer: IpAddr, headers: &HeaderMap) -> Result<(), Problem> {
        if let Some(token) = &self.token
            && bearer_ok(token, headers)
        {
            return Ok(());
        }
        not_a_page(headers)?;
        if self.writes == AdminWrites::Token {
            return Err(writes_need_the_token());
        }
        let forwarded = FORWARDED.iter().any(|name| headers.contains_key(*name));
        if peer.to_canonical().is_loopback() && !forwarded {
            return Ok(());
        }
        let detail = "call it from this machine, directly, or present the admin token";
        Err(Problem::new(NOT_LOCAL, detail))
    }
}

/// Returns true if the request presents the token.
fn bearer_ok(token: &Token, headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(header::AUTHORIZATION) else {
        return false;
    };
    let Some((scheme, presented)) = value.as_bytes().split_at_checked(7) else {
        return false;
    };
    scheme.eq_ignore_ascii_case(b"bearer ") && token.matches(presented)
}

fn writes_need_the_token() -> Problem {
    let detail = "start the service with a token in RATEKEEPER_ADMIN_TOKEN and present it, or \
                  write `admin_writes = \"open\"` in [listen]";
    Problem::new(NOT_LOCAL, detail)
}

/// Refuses a call from a web page: checks are asked by applications and proxies.
pub(super) fn not_a_page(headers: &HeaderMap) -> Result<(), Problem> {
    if let Some(origin) = headers.get(header::ORIGIN) {
        return Err(from_a_page(&String::from_utf8_lossy(origin.as_bytes())));
    }
    match headers.get(&FETCH_SITE) {
        Some(site) if site != "none" => Err(from_a_page(&String::from_utf8_lossy(site.as_bytes()))),
        _ => Ok(()),
    }
}

/// Returns the origin, or the relation, of a web page that is not the admin door's own.
fn foreign_page(headers: &HeaderMap) -> Option<String> {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let own = headers.get(header::HOST).map(text);
    let own = own.map(|host| format!("http://{host}"));
    let foreign = headers
        .get_all(header::ORIGIN)
        .iter()
        .map(text)
        .find(|origin| Some(origin) != own.as_ref());
    foreign.or_else(|| {
        let mut sites = headers.get_all(&FETCH_SITE).iter().map(text);
        sites.find(|site| site != "none" && site != "same-origin")
    })
}

fn from_a_page(page: &str) -> Problem {
    let page = shown(page);
    let detail = format!("a browser sent this call for a web page (`{page}`)");
    Problem::new(FROM_A_PAGE, detail)
}

/// Returns true if a host (no port, lower case) means this machine in every resolver.
fn is_loopback(host: &str) -> bool {
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    if let Some(address) = bare {
        let address = address.parse::<Ipv6Addr>();
        return address.is_ok_and(|address| IpAddr::from(address).to_canonical().is_loopback());
    }
    let address = host.parse::<std::net::Ipv4Addr>();
    host == "localhost"
        || host.ends_with(".localhost")
        || address.is_ok_and(|address| address.is_loopback())
}

/// Refuses the requests that RFC 9112 says to refuse: HTTP/1.1 without a `Host`, and any with
/// several.
pub(crate) fn one_host(head: &Parts) -> Result<(), Problem> {
    let count = head.headers.get_all(header::HOST).iter().count();
    if count == 1 || (count == 0 && head.version != Version::HTTP_11) {
        return Ok(());
    }
    let detail = format!("the request has {count} `Host` lines; expected exactly one");
    Err(Problem::new(AMBIGUOUS, detail))
}

/// The admin token.
#[derive(derive_more::Debug)]
#[debug("Token(..)")]
pub(crate) struct Token(Box<[u8]>);

/// Maximum length of a token.
const MAX_TOKEN_BYTES: usize = 512;

impl Token {
    pub(crate) fn new(text: &str) -> Option<Self> {
        let visible = text.bytes().all(|byte| byte.is_ascii_graphic());
        let sized = (1..=MAX_TOKEN_BYTES).contains(&text.len());
        (visible && sized).then(|| Self(text.as_bytes().into()))
    }

    /// Returns true if `presented` is the token. Takes the same time wherever they differ, so that
    /// an attacker cannot find the token byte by byte; only its length can be inferred.
    pub(crate) fn matches(&self, presented: &[u8]) -> bool {
        verify_slices_are_equal(&self.0, presented).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_match_only_as_a_whole() {
        let token = Token::new("secret").unwrap();
        assert!(token.matches(b"secret"));
        for other in [&b""[..], b"secre", b"secret!", b"Secret", b"secreT"] {
            assert!(!token.matches(other), "{other:?}");
        }
        assert_eq!(format!("{token:?}"), "Token(..)");
        for text in ["", "a b", "caf\u{e9}", &"x".repeat(513)] {
            assert!(Token::new(text).is_none(), "{text}");
        }
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    fn access(token: Option<&str>, writes: AdminWrites) -> Access {
        Access {
            token: token.map(|text| Token::new(text).unwrap()),
            writes,
            hosts: vec!["metrics.internal".into()],
        }
    }

    #[test]
    fn who_may_change_balances_at_the_http_door() {
        let check = |writes, peer: &str, pairs: &[(&'static str, &str)], expected: bool| {
            let access = access(Some("secret"), writes);
            let result = access.balances(peer.parse().unwrap(), &headers(pairs));
            assert_eq!(result.is_ok(), expected, "{writes:?} {peer} {pairs:?}");
        };
        for peer in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
            check(AdminWrites::Open, peer, &[], true);
            check(AdminWrites::Token, peer, &[], false);
        }
        check(AdminWrites::Open, "192.0.2.1", &[], false);
        for forwarded in [
            ("x-forwarded-for", "192.0.2.1"),
            ("forwarded", "for=192.0.2.1"),
        ] {
            check(AdminWrites::Open, "127.0.0.1", &[forwarded], false);
        }
        for page in [("origin", "null"), ("sec-fetch-site", "same-origin")] {
            check(AdminWrites::Open, "127.0.0.1", &[page], false);
        }
        for (presented, expected) in [
            ("Bearer secret", true),
            ("bearer secret", true),
            ("Bearer secre", false),
            ("Basic secret", false),
            ("Bearer", false),
        ] {
            let pairs = [("authorization", presented)];
            check(AdminWrites::Token, "192.0.2.1", &pairs, expected);
        }
    }

    #[test]
    fn web_pages_do_not_reach_an_admin_door_without_a_token() {
        let own = ("host", "127.0.0.1:9090");
        for (pairs, expected) in [
            (&[own][..], true),
            (&[], true), // HTTP/1.0, which no browser speaks
            (&[("host", "LocalHost")], true),
            (&[("host", "[::1]:9090")], true),
            (&[("host", "app.localhost:9090")], true),
            (&[("host", "metrics.internal:9090")], true),
            (&[("host", "rebind.example:9090")], false),
            (&[("host", "127.0.0.1.rebind.example")], false),
            (&[("host", "192.0.2.1:9090")], false),
            (&[("host", "[::2]")], false),
            (&[("host", "")], false),
            (&[own, ("origin", "http://127.0.0.1:9090")], true),
            (&[own, ("origin", "https://evil.example")], false),
            (&[own, ("origin", "http://127.0.0.1:3000")], false),
            (&[own, ("origin", "null")], false),
            (&[own, ("sec-fetch-site", "none")], true),
            (&[own, ("sec-fetch-site", "same-origin")], true),
            (&[own, ("sec-fetch-site", "same-site")], false),
            (&[own, ("sec-fetch-site", "cross-site")], false),
        ] {
            let reads = access(None, AdminWrites::Token).admin(Right::Read, &headers(pairs));
            assert_eq!(reads.is_ok(), expected, "reads {pairs:?}");
            let writes = access(None, AdminWrites::Open).admin(Right::Write, &headers(pairs));
            assert_eq!(writes.is_ok(), expected, "writes {pairs:?}");
            let closed = access(None, AdminWrites::Token).admin(Right::Write, &headers(pairs));
            assert!(closed.is_err(), "writes without a token {pairs:?}");
        }
        let presented = headers(&[("host", "any"), ("authorization", "Bearer secret")]);
        let guarded = access(Some("secret"), AdminWrites::Token);
        assert!(guarded.admin(Right::Write, &presented).is_ok());
        assert!(guarded.admin(Right::Read, &headers(&[own])).is_err());
    }
}
