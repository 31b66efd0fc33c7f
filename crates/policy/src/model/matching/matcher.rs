//! Matcher: selects the requests that a rule is for.

use std::fmt;
use std::net::IpAddr;

use crate::http::path::Reading;
use crate::model::keys::stated::{Stated, StatedPlace};
use crate::{Facts, Field, PathCase, Pattern, Patterns, RequestFacts};

/// `match = { .. }`: all fields must hold; within a field, one of the values.
///
/// ```
/// use ratekeeper_policy::{Facts, Field, Matcher, Pattern};
/// let pattern = |text| Pattern::parse(&Field::Path, text).unwrap();
/// let matcher = Matcher {
///     fields: vec![(Field::Path, vec![pattern("/api/**"), pattern("!/api/health")].into())],
///     ..Matcher::default()
/// };
/// let at = |path| matcher.matches(&Facts { path, ..Facts::default() });
/// assert!(at("/api/users"));
/// assert!(at("/API//users/"), "paths are normalised first, and case makes no difference");
/// assert!(!at("/api//health"));
/// assert!(at("/API/health"), "`!` excludes the path as written, and no more");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matcher {
    /// Each field and its acceptable values.
    pub fields: Vec<(Field, Patterns)>,
    /// How the values of `path` without `!` compare with a path. Those with `!` are compared as
    /// written, because no spelling should make a limit narrower than its text.
    pub path_case: PathCase,
}

/// Effect of a matcher. Where servers disagree about a path or about which of several values is read,
/// a limit applies to the request, and an exemption does not: in doubt a request is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MatchEffect {
    Limits,
    Exempts,
}

impl Matcher {
    /// Returns true if every request matches, as its text shows.
    pub(crate) fn matches_all(&self) -> bool {
        const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
        self.fields.iter().all(|(field, patterns)| {
            let has = |text: &str| patterns.iter().any(|pattern| pattern.text() == text);
            let is_any = match field {
                Field::Path => has("/**"),
                Field::Method => has("*") || METHODS.into_iter().all(has),
                Field::Host => has("*"),
                Field::Ip => patterns.iter().any(|it| it.text().ends_with("/0")),
                _ => false,
            };
            is_any && patterns.iter().all(|pattern| !pattern.negated)
        })
    }

    /// Returns true if the rule is for this request.
    pub fn matches(&self, facts: &Facts<'_>) -> bool {
        self.holds(&RequestFacts::new(facts))
    }

    /// Returns the first field that does not hold; `None` if the rule is for this request.
    pub fn mismatch(&self, facts: &Facts<'_>) -> Option<&Field> {
        let request = RequestFacts::new(facts);
        let mut fields = self.fields.iter();
        let failed = fields.find(|(field, patterns)| {
            !self.field_holds(field, patterns, &request, MatchEffect::Limits)
        });
        failed.map(|(field, _)| field)
    }

    /// Returns true if a limit is for this request, in at least one reading of it.
    pub(crate) fn holds(&self, request: &RequestFacts<'_>) -> bool {
        self.all_hold(request, MatchEffect::Limits)
    }

    /// Returns true if a request is exempt, in every reading of it.
    pub(crate) fn exempts(&self, request: &RequestFacts<'_>) -> bool {
        self.all_hold(request, MatchEffect::Exempts)
    }

    fn all_hold(&self, request: &RequestFacts<'_>, effect: MatchEffect) -> bool {
        let mut fields = self.fields.iter();
        fields.all(|(field, patterns)| self.field_holds(field, patterns, request, effect))
    }

    fn field_holds(
        &self,
        field: &Field,
        patterns: &Patterns,
        request: &RequestFacts<'_>,
        effect: MatchEffect,
    ) -> bool {
        let matches = self.comparison(effect);
        match effect {
            MatchEffect::Limits => field.any_reading(request, |it| patterns.accept(it, matches)),
            MatchEffect::Exempts => !field.any_reading(request, |it| !patterns.accept(it, matches)),
        }
    }

    /// Returns the comparison of a pattern with a spelling, given its place, negation aside.
    fn comparison(
        &self,
        effect: MatchEffect,
    ) -> impl Fn(&Pattern, usize, FieldValue<'_>) -> bool + Copy + '_ {
        move |pattern, spelling, value| {
            let counts_more = pattern.negated == (effect == MatchEffect::Exempts);
            match value {
                FieldValue::Path(path) if counts_more => pattern.matches_path(path, self.path_case),
                FieldValue::Path(path) => pattern.matches_path(path, PathCase::Sensitive),
                FieldValue::Text(text) => {
                    (counts_more || spelling == 0) && pattern.matches_text(text)
                }
                FieldValue::Address(ip) => pattern.matches_ip(ip),
            }
        }
    }

    /// Calls `take` with the path in each reading that a limit for this request is for, and with the
    /// first value of `match.path` that matched there, as written; `None` if no value asks for a path.
    pub(crate) fn each_path<'m>(
        &'m self,
        request: &RequestFacts<'_>,
        mut take: impl FnMut(&[u8], Option<&'m str>),
    ) {
        let mut fields = self.fields.iter();
        let field = fields.find(|(field, _)| *field == Field::Path);
        let readings = request.readings();
        for reading in readings.iter() {
            let value = FieldValue::Path(reading);
            let mut route: Option<usize> = None;
            if let Some((_, patterns)) = field {
                if readings.are_several()
                    && !patterns.accept(&[value], self.comparison(MatchEffect::Limits))
                {
                    continue;
                }
                patterns.any_near(value, |at, pattern| {
                    let earlier = route.is_none_or(|first| at < first);
                    if earlier && !pattern.negated && pattern.matches_path(reading, self.path_case)
                    {
                        route = Some(at);
                    }
                    false
                });
            }
            let route = field.and_then(|(_, patterns)| patterns.get(route?));
            take(reading.path(self.path_case), route.map(Pattern::text));
        }
    }
}

/// `[[exempt]]`: requests that some limits do not count.
#[derive(Clone, Debug)]
pub struct Exemption {
    /// Requests that are exempt.
    pub matcher: Matcher,
    /// Reason, for the record.
    pub reason: String,
}

impl Exemption {
    /// Returns true if it has descriptor fields; then it exempts nothing else.
    pub fn for_descriptors(&self) -> bool {
        let mut fields = self.matcher.fields.iter();
        fields.any(|(field, _)| field.is_of_descriptors())
    }

    /// Returns true if it exempts this request from the limits it names.
    pub fn exempts(&self, facts: &Facts<'_>) -> bool {
        self.holds(&RequestFacts::new(facts))
    }

    /// Like [`exempts`](Self::exempts), for a request that was read already.
    #[inline]
    pub(crate) fn holds(&self, request: &RequestFacts<'_>) -> bool {
        let is_of_its_kind = self.for_descriptors() == request.facts.descriptor.is_some();
        is_of_its_kind && self.matcher.exempts(request)
    }
}

/// A value of a request, in the form that patterns are compared with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FieldValue<'v> {
    Text(&'v [u8]),
    Path(&'v Reading<'v>),
    /// IPv4-mapped IPv6 is IPv4.
    Address(IpAddr),
}

impl Field {
    /// Calls `holds` with each way to read the field, until it returns true; returns true if it did.
    /// Each is the spellings of one value, as written first, or empty for a missing value.
    pub(crate) fn any_reading(
        &self,
        request: &RequestFacts<'_>,
        mut holds: impl FnMut(&[FieldValue<'_>]) -> bool,
    ) -> bool {
        let descriptor = request.facts.descriptor.as_ref();
        let mut text_holds = |value: &[u8]| match value {
            [] => holds(&[]),
            _ => holds(&[FieldValue::Text(value)]),
        };
        match self {
            // A server runs the handler of GET for HEAD (RFC 9110, section 9.3.2).
            Self::Method if request.method() == b"HEAD" => {
                holds(&["HEAD", "GET"].map(|method| FieldValue::Text(method.as_bytes())))
            }
            Self::Method => text_holds(request.method()),
            Self::Host => text_holds(request.host()),
            Self::Path => {
                let mut readings = request.readings().iter();
                readings.any(|reading| holds(&[FieldValue::Path(reading)]))
            }
            Self::Ip => holds(request.ip.map(FieldValue::Address).as_slice()),
            Self::Country => text_holds(request.country().code().as_bytes()),
            Self::Continent => text_holds(request.country().continent().as_bytes()),
            Self::Asn => text_holds(request.network()),
            Self::Query(name) => any_stated(StatedPlace::Query(name), request, holds),
            Self::Header(name) => any_stated(StatedPlace::Header(name), request, holds),
            Self::Cookie(name) => any_stated(StatedPlace::Cookie(name), request, holds),
            Self::Attribute(name) => {
                text_holds(request.attribute(name).unwrap_or_default().as_bytes())
            }
            Self::Claim(name) => text_holds(request.claim(name).unwrap_or_default().as_bytes()),
            // Of descriptors, an empty value is one, too.
            Self::Domain => {
                let domain = descriptor.map(|it| FieldValue::Text(it.domain.as_bytes()));
                holds(domain.as_slice())
            }
            Self::Descriptor(name) => {
                let value = descriptor.and_then(|descriptor| name.of(descriptor));
                holds(value.map(|it| FieldValue::Text(it.as_bytes())).as_slice())
            }
        }
    }
}

/// Returns true if `holds` does for one of the values that the request states, or for a missing one
/// if there are none.
fn any_stated(
    place: StatedPlace<'_>,
    request: &RequestFacts<'_>,
    mut holds: impl FnMut(&[FieldValue<'_>]) -> bool,
) -> bool {
    let mut held = None;
    place.each(request.facts, |Stated { strict, normal }| {
        let texts = [FieldValue::Text(strict), FieldValue::Text(normal)];
        let spellings = &texts[..if strict == normal { 1 } else { 2 }];
        let is_found = held == Some(true)
            || normal.is_empty() && holds(&[])
            || !strict.is_empty() && holds(spellings);
        held = Some(is_found);
    });
    held.unwrap_or_else(|| holds(&[]))
}

/// Formats the field as in the policy file: `header.x-a`.
impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Method => f.write_str("method"),
            Self::Host => f.write_str("host"),
            Self::Path => f.write_str("path"),
            Self::Query(name) => write!(f, "query.{name}"),
            Self::Header(name) => write!(f, "header.{name}"),
            Self::Cookie(name) => write!(f, "cookie.{name}"),
            Self::Ip => f.write_str("ip"),
            Self::Country => f.write_str("country"),
            Self::Continent => f.write_str("continent"),
            Self::Asn => f.write_str("asn"),
            Self::Attribute(name) => write!(f, "attr.{name}"),
            Self::Claim(name) => write!(f, "jwt.{name}"),
            Self::Domain => f.write_str("domain"),
            Self::Descriptor(name) => write!(f, "descriptor.{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts<'static> {
        Facts {
            method: "POST",
            host: "API.Example.com.:8443",
            path: "/api//users/%37/",
            query: "a=1&b=x+y&b=%7A&%63=3&empty=&flag&d=50%",
            ip: Some("::ffff:192.0.2.7".parse().unwrap()),
            headers: &[
                ("x-plan", b"free"),
                ("X-Plan", b" pro "),
                ("x-empty", b""),
                ("x-space", b" \t"),
                ("cookie", b"sid=\"abc\"; lang=en"),
                ("cookie", b"b=2;sid=second;bare"),
                ("x-raw", b"\xff\xfe"),
            ],
            attributes: &[("risky", "true"), ("none", ""), ("risky", "second")],
            ..Facts::default()
        }
    }

    fn field(text: &str) -> Field {
        match text.split_once('.') {
            None if text == "method" => Field::Method,
            None if text == "host" => Field::Host,
            None if text == "path" => Field::Path,
            None => Field::Ip,
            Some(("query", name)) => Field::Query(name.into()),
            Some(("header", name)) => Field::Header(name.into()),
            Some(("cookie", name)) => Field::Cookie(name.into()),
            Some((_, name)) => Field::Attribute(name.into()),
        }
    }

    /// Checks the match of a request against a field with these values.
    fn check(name: &str, values: &[&str], facts: &Facts<'_>, expected: bool) {
        let field = field(name);
        assert_eq!(field.to_string(), name);
        let patterns = values.iter().map(|text| Pattern::parse(&field, text));
        let patterns = patterns.collect::<Result<Vec<_>, _>>().unwrap();
        let matcher = Matcher {
            fields: vec![(field.clone(), patterns.into())],
            ..Matcher::default()
        };
        assert_eq!(matcher.matches(facts), expected, "{name} = {values:?}");
        let mismatch = matcher.mismatch(facts);
        assert_eq!(mismatch, (!expected).then_some(&field));
    }

    #[test]
    fn each_field_compares_its_own_way() {
        for (name, value, expected) in [
            ("method", "POST", true),
            ("method", "post", true),
            ("method", "P*", true),
            ("method", "GET", false),
            ("host", "api.example.com", true),
            ("host", "API.example.COM.", true),
            ("host", "*.example.com", true),
            ("host", "example.com", false),
            ("host", "*.com.evil", false),
            ("path", "/api/users/7", true),
            ("path", "/api/{x}/*", true),
            ("path", "/api", false),
            ("query.a", "1", true),
            ("query.a", "2", false),
            ("query.b", "x y", true),
            ("query.b", "z", true),
            ("query.c", "3", true),
            ("query.d", "50%", true),
            ("query.empty", "*", false),
            ("query.flag", "*", false),
            ("query.missing", "*", false),
            ("header.x-plan", "free", true),
            ("header.x-plan", "pro", true),
            ("header.X-PLAN", "p*", true),
            ("header.x-plan", "Free", false),
            ("header.x-empty", "*", false),
            ("header.x-space", "*", false),
            ("header.x-raw", "*", true),
            ("cookie.sid", "abc", true),
            ("cookie.sid", "second", true),
            ("cookie.lang", "en", true),
            ("cookie.b", "2", true),
            ("cookie.bare", "*", false),
            ("cookie.SID", "*", true),
            ("ip", "192.0.2.7", true),
            ("ip", "192.0.2.0/24", true),
            ("ip", "::ffff:192.0.2.0/120", true),
            ("ip", "192.0.3.0/24", false),
            ("ip", "::/0", false),
            ("attr.risky", "true", true),
            ("attr.risky", "second", false),
            ("attr.none", "*", false),
        ] {
            check(name, &[value], &facts(), expected);
            // `!` turns each of them around, unless another value of the name does not match.
            let has_other = [
                "query.b",
                "header.x-plan",
                "header.X-PLAN",
                "cookie.sid",
                "cookie.SID",
            ];
            // Some applications find no cookie by a name in other case.
            let other_holds = value != "*" && has_other.contains(&name) || name == "cookie.SID";
            check(
                name,
                &[&format!("!{value}")],
                &facts(),
                !expected || other_holds,
            );
        }
    }

    #[test]
    fn values_are_alternatives_and_no_negated_one_may_match() {
        for (name, values, expected) in [
            ("method", &["GET", "POST"][..], true),
            ("method", &["GET", "PUT"], false),
            ("method", &["!GET", "!PUT"], true),
            ("method", &["!GET", "!POST"], false),
            ("path", &["/api/**", "!/api/health"], true),
            ("path", &["/api/**", "!/api/users/*"], false),
            ("path", &["/web/**", "!/api/health"], false),
            ("ip", &["192.0.0.0/16", "!192.0.2.7"], false),
            // If two headers have one name, the application may read either.
            ("header.x-plan", &["!free"], true),
            ("header.x-plan", &["pro", "!gold"], true),
            ("header.x-missing", &["!free"], true),
            ("header.x-missing", &["!*"], true),
            ("header.x-plan", &["!*"], false),
            ("path", &[], true),
        ] {
            check(name, values, &facts(), expected);
        }
    }

    #[test]
    fn an_unknown_value_matches_no_pattern() {
        let nothing = Facts::default();
        for name in [
            "method", "host", "query.a", "header.a", "cookie.a", "attr.a",
        ] {
            check(name, &["*"], &nothing, false);
            check(name, &["!*"], &nothing, true);
        }
        check("ip", &["0.0.0.0/0", "::/0"], &nothing, false);
        check("path", &["/"], &nothing, true);
    }

    #[test]
    fn head_counts_as_get_and_is_not_exempt_as_get() {
        for (values, limits, exempts) in [
            (&["GET"][..], true, false),
            (&["GET", "!HEAD"], false, false),
            (&["HEAD"], true, true),
            (&["!GET"], true, false),
            (&["POST"], false, false),
        ] {
            let patterns = values
                .iter()
                .map(|text| Pattern::parse(&Field::Method, text));
            let patterns = patterns.collect::<Result<Vec<_>, _>>().unwrap();
            let matcher = Matcher {
                fields: vec![(Field::Method, patterns.into())],
                ..Matcher::default()
            };
            let facts = Facts {
                method: "head",
                ..Facts::default()
            };
            let request = RequestFacts::new(&facts);
            let held = (matcher.holds(&request), matcher.exempts(&request));
            assert_eq!(held, (limits, exempts), "{values:?}");
        }
    }

    #[test]
    fn every_field_must_hold() {
        let one = |field: Field, text| {
            (
                field.clone(),
                vec![Pattern::parse(&field, text).unwrap()].into(),
            )
        };
        for (method, path, mismatch) in [
            ("POST", "/api/**", None),
            ("GET", "/api/**", Some(Field::Method)),
            ("POST", "/web/**", Some(Field::Path)),
        ] {
            let matcher = Matcher {
                fields: vec![one(Field::Method, method), one(Field::Path, path)],
                ..Matcher::default()
            };
            assert_eq!(matcher.mismatch(&facts()), mismatch.as_ref());
        }
        assert!(Matcher::default().matches(&Facts::default()));
    }

    /// Returns the matcher of a limit, or an exemption, on these values.
    fn on_paths(values: &[&str], path_case: PathCase) -> Matcher {
        let patterns = values.iter().map(|text| Pattern::parse(&Field::Path, text));
        let patterns = patterns.collect::<Result<Vec<_>, _>>().unwrap();
        Matcher {
            fields: vec![(Field::Path, patterns.into())],
            path_case,
        }
    }

    #[test]
    fn a_spelling_that_some_server_routes_there_is_limited_and_not_exempt() {
        for (values, path, limited, exempt) in [
            (&["/login"][..], "/login", true, true),
            (&["/login"], "/login/", true, true),
            (&["/login"], "//login", true, false), // `//login` may be a host
            (&["/login"], "/%6cogin", true, true),
            (&["/login"], "/LOGIN", true, false),
            (&["/login"], "/Login/", true, false),
            (&["/login"], "/login;x=1", true, false),
            (&["/login"], "/x/../login", true, false),
            (&["/login"], "/x/..;/login", true, false),
            (&["/login"], "\\login", true, false),
            (&["/login"], "/login%2f", true, false),
            (&["/login"], "//host/login", true, false),
            (&["/login"], "/login#x", true, false),
            (&["/login"], "/login%20", false, false),
            (&["/login"], "/login%00", false, false),
            (&["/login"], "/login.", false, false),
            (&["/api/login"], "/api%2flogin", true, false),
            (&["/api/login"], "/api\\login", true, false),
            // A handler of a prefix receives paths that other servers resolve.
            (&["/api/**"], "/api/../other", true, false),
            (&["/api/**"], "/api/..;/other", true, false),
            (&["/api/**"], "/api%2f..%2fother", true, false),
            (&["/api/{id}"], "/api/a%2Fb", true, false),
            (&["/api/**", "!/api/free"], "/api/free", false, false),
            (&["/api/**", "!/api/free"], "/api/free/", false, false),
            (&["/api/**", "!/api/free"], "/api/FREE", true, false),
            (
                &["/api/**", "!/api/free"],
                "/api/paid/..;/free",
                true,
                false,
            ),
            (&["/api/**", "!/api/free"], "/api/paid", true, true),
        ] {
            let matcher = on_paths(values, PathCase::Insensitive);
            let facts = Facts {
                path,
                ..Facts::default()
            };
            assert_eq!(matcher.matches(&facts), limited, "{values:?} {path}");
            let request = RequestFacts::new(&facts);
            assert_eq!(matcher.exempts(&request), exempt, "{values:?} {path}");
        }
    }

    #[test]
    fn case_distinguishes_paths_if_the_policy_sets_it() {
        let matcher = on_paths(&["/Login", "!/a/B"], PathCase::Sensitive);
        let at = |path| {
            matcher.matches(&Facts {
                path,
                ..Facts::default()
            })
        };
        assert!(at("/Login") && at("/%4Cogin/"));
        assert!(!at("/login") && !at("/LOGIN"));
    }
}
