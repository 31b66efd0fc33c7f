//! Auth: the question of a proxy before it lets a request through (forward-auth).
//!
//! ```text
//!   proxy            original request is in                          family
//!   nginx, HAProxy   X-Original-Method, -URI or -URL, Host           Original
//!   Caddy, Traefik   X-Forwarded-Method, -Uri, -Host                 Forwarded
//!   Envoy            method, host and path behind /v1/auth           Prefixed
//! ```
//!
//! Proxies pass on headers of the visitor, so a visitor can invent the names that a proxy does
//! not set. Therefore one family is believed at a time, and two that contradict each other
//! are refused. Nothing is believed of a peer that is not a trusted proxy: then the question
//! itself is the request.

use std::borrow::Cow;
use std::net::IpAddr;

use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body_util::Full;
use ratekeeper::{Answer, Scope, tower};
use ratekeeper_core::Nanos;
use ratekeeper_policy::Facts;
use smallvec::SmallVec;

use super::CallResult;
use super::check::store_down;
use super::facts::{host, target, url};
use super::hold;
use super::permits::new_nonce;
use super::problem::{AMBIGUOUS, Problem, WRONG_QUERY, shown};
use super::routes::RouteCall;
use super::{Reply, empty, put_fields, put_shadow};
use crate::context::ServiceContext;
use crate::observe::denial_log::LoggedRequest;
use crate::observe::metrics::Protocol;

/// Where the question is asked; Envoy puts the original path behind it.
const PREFIX: &str = "/v1/auth";

/// Id by which the application reports the result of the request.
pub(super) const DECISION: &str = "x-ratekeeper-decision";

/// How the proxy wants the answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct AuthOptions {
    /// `deny=403`: the status of every refusal.
    deny: Option<StatusCode>,
    /// `body=none`
    bodiless: bool,
    /// `wait=false`: the proxy holds requests back itself.
    unheld: bool,
}

/// The request that the question is about.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Original<'a> {
    method: Cow<'a, str>,
    host: Cow<'a, str>,
    path: Cow<'a, str>,
    query: Cow<'a, str>,
}

/// `/v1/auth`, any method; the body is not read.
pub(super) async fn auth(call: RouteCall<'_>) -> CallResult {
    let (shared, caller) = (call.shared, call.caller);
    let parts = call.head;
    let peer = caller.address.ip().to_canonical();
    let path = parts.uri.path();
    let behind = path.strip_prefix(PREFIX).unwrap_or_default();
    let options = if behind.is_empty() {
        AuthOptions::read(parts.uri.query().unwrap_or_default())?
    } else {
        AuthOptions::default()
    };
    let cookies = joined_cookies(&parts.headers);
    let fields = parts.headers.iter();
    let fields = fields.map(|(name, value)| (name.as_str(), value.as_bytes()));
    let mut headers = SmallVec::<[(&str, &[u8]); 24]>::new(); // not collected, which moves its room
    headers.extend(fields.chain(cookies.iter().map(|line| ("cookie", line.as_slice()))));
    let policy = shared.keeper.look_at_policy();
    let original = if policy.client_ip.trusts(peer) {
        original(parts, behind)?
    } else {
        warn_of_untrusted(shared, peer, &parts.headers, policy.version);
        Original::of_itself(parts)
    };
    let facts = Facts {
        method: &original.method,
        host: &original.host,
        path: &original.path,
        query: &original.query,
        ip: Some(policy.client_ip.identify(peer, &headers)),
        country: policy.stated_country(peer, &headers),
        headers: &headers,
        ..Facts::default()
    };
    let answer = shared
        .keeper
        .check_for_report(&facts, Scope::All, new_nonce)
        .await;
    let mut answer = answer.map_err(store_down(shared))?;
    drop(policy);
    let request = LoggedRequest {
        method: &original.method,
        path: &original.path,
        headers: &headers,
    };
    if !answer.allowed() {
        shared.refused_unnamed(peer, &parts.headers);
    }
    if options.unheld {
        shared.record(Protocol::Http, request, &answer);
        return Ok(respond(&answer, options));
    }
    hold::hold_back(shared, caller, Protocol::Http, request, &mut answer).await;
    Ok(respond(&answer, options))
}

/// Returns the lines that servers behind the proxy may make of several fields `cookie`.
fn joined_cookies(headers: &HeaderMap) -> Vec<Vec<u8>> {
    let fields = headers.get_all(header::COOKIE).iter();
    let fields: SmallVec<[&[u8]; 4]> = fields.map(HeaderValue::as_bytes).collect();
    match fields[..] {
        [] | [_] => Vec::new(),
        _ => vec![fields.join(&b", "[..]), fields.join(&b","[..])],
    }
}

impl AuthOptions {
    fn read(query: &str) -> Result<Self, Problem> {
        let mut options = Self::default();
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=') {
                Some(("deny", status)) => options.deny = Some(refusal(status, parameter)?),
                Some(("body", "none")) => options.bodiless = true,
                Some(("wait", "false")) => options.unheld = true,
                _ => return Err(not_understood(parameter)),
            }
        }
        Ok(options)
    }
}

fn refusal(status: &str, parameter: &str) -> Result<StatusCode, Problem> {
    let status = status.parse().ok().and_then(|status| {
        let status = StatusCode::from_u16(status).ok()?;
        (status.is_client_error() || status.is_server_error()).then_some(status)
    });
    status.ok_or_else(|| not_understood(parameter))
}

fn not_understood(parameter: &str) -> Problem {
    let parameter = shown(parameter);
    let detail = format!(
        "`{parameter}` is not valid; expected `deny=400` to `599`, `body=none` or `wait=false`"
    );
    Problem::new(WRONG_QUERY, detail)
}

impl<'a> Original<'a> {
    /// Takes the question itself as the request.
    fn of_itself(parts: &'a Parts) -> Self {
        Self::at(parts, parts.uri.path(), parts.uri.query())
    }

    /// Returns the question's own method and host, with another target.
    fn at(parts: &'a Parts, path: &'a str, query: Option<&'a str>) -> Self {
        Self {
            method: Cow::Borrowed(parts.method.as_str()),
            host: host(tower::target(parts).host),
            path: Cow::Borrowed(path),
            query: Cow::Borrowed(query.unwrap_or_default()),
        }
    }

    fn to(mut self, whole: Cow<'a, str>) -> Self {
        match whole {
            Cow::Borrowed(whole) => {
                let (path, query) = target(whole, "");
                (self.path, self.query) = (path.into(), query.into());
            }
            Cow::Owned(whole) => {
                let (path, query) = target(&whole, "");
                self.path = Cow::Owned(path.to_owned());
                self.query = Cow::Owned(query.to_owned());
            }
        }
        self
    }
}

/// Returns the original request according to a trusted proxy; `behind` is the path behind our own.
fn original<'a>(parts: &'a Parts, behind: &'a str) -> Result<Original<'a>, Problem> {
    if !behind.is_empty() {
        return Ok(Original::at(parts, behind, parts.uri.query()));
    }
    let field = |name| one(&parts.headers, name);
    let (location, forwarded) = (field("x-original-url")?, field("x-forwarded-uri")?);
    let (from_url, location) = match &location {
        Some(text) => {
            let (host, target) = url(text);
            (host.map(str::to_owned), Some(Cow::Owned(target.to_owned())))
        }
        None => (None, None),
    };
    let uri = same(
        "x-original-uri",
        field("x-original-uri")?,
        "x-original-url",
        location,
    )?;
    let own = Original::of_itself(parts);
    let original = match (uri, forwarded) {
        (Some(uri), forwarded) => {
            let uri = same("x-original-uri", Some(uri), "x-forwarded-uri", forwarded)?;
            let method = field("x-original-method")?;
            (method, from_url.map(Cow::Owned), uri)
        }
        (None, Some(uri)) => {
            let (method, host) = (field("x-forwarded-method")?, field("x-forwarded-host")?);
            (method, host, Some(uri))
        }
        (None, None) => return Ok(own),
    };
    let (method, host_said, uri) = original;
    let mut request = own.to(uri.unwrap_or_default());
    request.method = method.unwrap_or(request.method);
    if let Some(text) = host_said {
        request.host = Cow::Owned(host(&text).into_owned());
    }
    Ok(request)
}

/// Returns the value of a header that may occur once, or several times with the same value.
fn one<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<Cow<'a, str>>, Problem> {
    // Compared, because a look-up hashes the text.
    let named = headers.iter().filter(|(own, _)| own.as_str() == name);
    let mut values = named.map(|(_, value)| value);
    let Some(first) = values.next() else {
        return Ok(None);
    };
    if values.any(|value| value != first) {
        let detail = format!("`{name}` occurs twice with different values");
        return Err(Problem::new(AMBIGUOUS, detail));
    }
    Ok(Some(String::from_utf8_lossy(first.as_bytes())))
}

/// Returns the value of two headers that must be equal if both are there.
fn same<'a>(
    name: &str,
    value: Option<Cow<'a, str>>,
    other_name: &str,
    other: Option<Cow<'a, str>>,
) -> Result<Option<Cow<'a, str>>, Problem> {
    match (&value, &other) {
        (Some(a), Some(b)) if a != b => {
            let detail = format!(
                "`{name}` and `{other_name}` differ: make the proxy remove the one it does not set"
            );
            Err(Problem::new(AMBIGUOUS, detail))
        }
        _ => Ok(value.or(other)),
    }
}

fn respond(answer: &Answer, options: AuthOptions) -> Response<Reply> {
    let mut response = if answer.allowed() {
        empty(StatusCode::OK)
    } else {
        refused(answer, options)
    };
    put_fields(response.headers_mut(), answer);
    let delay = answer.delay();
    if answer.allowed() && delay > Nanos::ZERO {
        let delay = HeaderValue::from(delay.as_millis_ceil());
        response
            .headers_mut()
            .insert("x-ratekeeper-delay-ms", delay);
    }
    if let Some(decision) = answer.decision()
        && let Ok(decision) = HeaderValue::try_from(decision.to_string())
    {
        response.headers_mut().insert(DECISION, decision);
    }
    put_shadow(response.headers_mut(), answer);
    response
}

fn refused(answer: &Answer, options: AuthOptions) -> Response<Reply> {
    let own = StatusCode::from_u16(answer.status());
    let status = options.deny.or(own.ok());
    let status = status.unwrap_or(StatusCode::TOO_MANY_REQUESTS);
    let mut response = empty(status);
    if options.bodiless {
        return response;
    }
    if let Some(body) = answer.body_sent_with(status.as_u16()) {
        if let Ok(content_type) = HeaderValue::try_from(body.content_type) {
            let headers = response.headers_mut();
            headers.insert(header::CONTENT_TYPE, content_type);
        }
        *response.body_mut() = Full::from(body.content);
    }
    response
}

/// Warns once per policy that a proxy is not trusted: the usual mistake of a first set-up.
fn warn_of_untrusted(shared: &ServiceContext, peer: IpAddr, headers: &HeaderMap, version: u32) {
    const TELLTALE: [&str; 4] = [
        "x-original-uri",
        "x-original-url",
        "x-forwarded-uri",
        "x-forwarded-for",
    ];
    if TELLTALE.iter().any(|name| headers.contains_key(*name)) {
        shared.notice_of_proxy(version, peer, || {
            format!(
                "asks {PREFIX} for others and is not a trusted proxy, so its own address and path \
                 are limited; add it to `trusted_proxies` in [client_ip]"
            )
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn request(uri: &str, headers: &[(&str, &str)]) -> Result<[String; 4], String> {
        let mut request = Request::builder().method("GET").uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let behind = parts.uri.path().strip_prefix(PREFIX).unwrap();
        let request = original(&parts, behind).map_err(|problem| problem.detail)?;
        Ok([request.method, request.host, request.path, request.query].map(Cow::into_owned))
    }

    fn check(uri: &str, headers: &[(&str, &str)], expected: [&str; 4]) {
        let request = request(uri, headers);
        assert_eq!(
            request,
            Ok(expected.map(str::to_owned)),
            "{uri} {headers:?}"
        );
    }

    #[test]
    fn every_proxy_is_understood() {
        let host = ("host", "own:8080");
        // nginx
        check(
            "/v1/auth?deny=403",
            &[
                host,
                ("x-original-method", "POST"),
                ("x-original-uri", "/a?b=c"),
            ],
            ["POST", "own", "/a", "b=c"],
        );
        check(
            "/v1/auth",
            &[host, ("x-original-url", "https://Shop.example:444/a?b=c")],
            ["GET", "shop.example", "/a", "b=c"],
        );
        // Caddy, Traefik
        check(
            "/v1/auth",
            &[
                host,
                ("x-forwarded-method", "PUT"),
                ("x-forwarded-uri", "/a"),
                ("x-forwarded-host", "shop.example"),
            ],
            ["PUT", "shop.example", "/a", ""],
        );
        // Envoy
        check(
            "/v1/auth/a/b?deny=403",
            &[host],
            ["GET", "own", "/a/b", "deny=403"],
        );
        check("/v1/auth/", &[host], ["GET", "own", "/", ""]);
        // no proxy
        check("/v1/auth", &[host], ["GET", "own", "/v1/auth", ""]);
        let absolute = "http://user:password@own:8080/v1/auth";
        check(absolute, &[host], ["GET", "own", "/v1/auth", ""]);
    }

    #[test]
    fn a_visitor_cannot_speak_in_the_name_of_the_proxy() {
        let envoy = [("x-original-uri", "/free"), ("x-forwarded-uri", "/free")];
        check("/v1/auth/dear", &envoy, ["GET", "", "/dear", ""]);
        let nginx = [
            ("x-original-uri", "/dear"),
            ("x-forwarded-method", "OPTIONS"),
            ("x-forwarded-host", "free.example"),
        ];
        check("/v1/auth", &nginx, ["GET", "", "/dear", ""]);
        let caddy = [
            ("x-forwarded-uri", "/dear"),
            ("x-original-method", "OPTIONS"),
        ];
        check("/v1/auth", &caddy, ["GET", "", "/dear", ""]);
        for contradiction in [
            [("x-original-uri", "/free"), ("x-forwarded-uri", "/dear")],
            [("x-original-uri", "/free"), ("x-original-uri", "/dear")],
            [
                ("x-original-uri", "/free"),
                ("x-original-url", "http://h/dear"),
            ],
        ] {
            assert!(
                request("/v1/auth", &contradiction).is_err(),
                "{contradiction:?}"
            );
        }
        let agreed = [("x-original-uri", "/a"), ("x-forwarded-uri", "/a")];
        check("/v1/auth", &agreed, ["GET", "", "/a", ""]);
    }

    #[test]
    fn options() {
        let read = AuthOptions::read;
        assert_eq!(read("").unwrap(), AuthOptions::default());
        let all = read("deny=403&body=none&wait=false").unwrap();
        assert_eq!(all.deny, Some(StatusCode::FORBIDDEN));
        assert!(all.bodiless && all.unheld);
        for query in [
            "deny=200",
            "deny=600",
            "deny=x",
            "deny",
            "body=all",
            "wait=true",
            "denny=403",
            "=",
        ] {
            assert!(read(query).is_err(), "{query}");
        }
    }
}
