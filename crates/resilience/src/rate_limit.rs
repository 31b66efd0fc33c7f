//! Rate limit fields: the state of a server's limits, before it refuses.
//!
//! ```text
//!   RateLimit-Policy: "burst";q=100;w=60, "day";q=1000;w=86400     quotas
//!   RateLimit:        "burst";r=50;t=30,  "day";r=900;t=4210       remaining
//!                             |    |
//!                             |    within so many seconds no more than r
//!                             requests left
//! ```
//!
//! Both are lists of strings with parameters. A field that is malformed anywhere, or has an item
//! of another type, is ignored as a whole ("Client Behavior" of the draft), because half a list is
//! not the list that the server sent. Unknown parameters are ignored.
//!
//! * Bounds: 4,096 bytes a field, 16 items, 16 parameters an item; anything larger is ignored.
//! * Source: R. Polli, A. Martinez, D. Miller, "RateLimit header fields for HTTP"
//!   (draft-ietf-httpapi-ratelimit-headers-11, 2026); RFC 9651, "Structured field values
//!   for HTTP" (2024).

use ratekeeper_core::Nanos;

const FIELD_BYTES_MAX: usize = 4_096;
const ITEMS_MAX: usize = 16;
const PARAMETERS_MAX: usize = 16;

/// Remaining quota of one limit: an item of `RateLimit`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RateLimit {
    /// The name of the limit.
    pub name: String,
    /// `r`: remaining quota, in the unit that the server counts in: requests as a rule.
    pub remaining: u64,
    /// `t`: span within which at most `remaining` may be used.
    pub within: Option<Nanos>,
}

/// Quota of one limit: an item of `RateLimit-Policy`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RateLimitPolicy {
    /// The name of the limit.
    pub name: String,
    /// `q`: quota, in the same unit.
    pub quota: u64,
    /// `w`: span in which the quota may be used.
    pub window: Option<Nanos>,
}

impl RateLimit {
    /// Returns the items of a `RateLimit` field; no items if it is malformed or too large.
    ///
    /// ```
    /// use ratekeeper_core::Nanos;
    /// use ratekeeper_resilience::RateLimit;
    /// let limits = RateLimit::parse(r#""burst";r=50;t=30, "day";r=900"#);
    /// assert_eq!(limits[0].within, Some(Nanos::from_secs(30)));
    /// assert_eq!((limits[1].name.as_str(), limits[1].remaining), ("day", 900));
    /// assert_eq!(RateLimit::parse(r#""burst";r=-1"#), []);
    /// ```
    pub fn parse(field: &str) -> Vec<Self> {
        items(field, 'r', 't', |name, remaining, within| Self {
            name,
            remaining,
            within,
        })
    }
}

impl RateLimitPolicy {
    /// Returns the items of a `RateLimit-Policy` field; no items if malformed or too large.
    pub fn parse(field: &str) -> Vec<Self> {
        items(field, 'q', 'w', |name, quota, window| Self {
            name,
            quota,
            window,
        })
    }
}

/// Parses items with a required number and an optional span in seconds.
fn items<T>(
    field: &str,
    number: char,
    span: char,
    make: impl Fn(String, u64, Option<Nanos>) -> T,
) -> Vec<T> {
    let parse = || {
        let mut items = Vec::new();
        let mut rest = Cursor::new(field)?;
        loop {
            let name = rest.string()?;
            let (mut count, mut secs) = (None, None);
            for _ in 0..PARAMETERS_MAX {
                if rest.take(';').is_none() {
                    break;
                }
                let (key, value) = rest.parameter()?;
                // The last of a name counts, as RFC 9651 says.
                if key.chars().eq([number]) {
                    count = Some(value.whole()?);
                } else if key.chars().eq([span]) {
                    secs = Some(value.whole()?);
                }
            }
            items.push(make(name, count?, secs.map(Nanos::from_secs)));
            if rest.end_of_list()? {
                return Some(items);
            }
            if items.len() == ITEMS_MAX {
                return None;
            }
        }
    };
    parse().unwrap_or_default()
}

/// The value of a parameter.
enum ParameterValue {
    Integer(i64),
    Other,
}

impl ParameterValue {
    fn whole(self) -> Option<u64> {
        match self {
            Self::Integer(number) => u64::try_from(number).ok(),
            Self::Other => None,
        }
    }
}

/// Unread rest of a structured field.
struct Cursor<'a> {
    rest: &'a str,
}

/// Maximum number of digits of an integer.
const DIGITS_MAX: usize = 15;

impl<'a> Cursor<'a> {
    fn new(field: &'a str) -> Option<Self> {
        let fits = field.len() <= FIELD_BYTES_MAX && field.is_ascii();
        let rest = field.trim_matches(' ');
        fits.then_some(Self { rest })
    }

    fn take(&mut self, expected: char) -> Option<()> {
        self.rest = self.rest.strip_prefix(expected)?;
        Some(())
    }

    /// Takes the leading characters that are accepted.
    fn while_(&mut self, accepts: impl Fn(char) -> bool) -> &'a str {
        let length = self.rest.find(|c| !accepts(c)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        taken
    }

    /// Returns true at the end, false after a comma that more must follow.
    fn end_of_list(&mut self) -> Option<bool> {
        let blank = |c| c == ' ' || c == '\t';
        self.while_(blank);
        if self.rest.is_empty() {
            return Some(true);
        }
        self.take(',')?;
        self.while_(blank);
        Some(false)
    }

    fn string(&mut self) -> Option<String> {
        self.take('"')?;
        let mut string = String::new();
        loop {
            string.push_str(self.while_(|c| matches!(c, ' '..='~') && c != '"' && c != '\\'));
            match self.next()? {
                '"' => return Some(string),
                '\\' => match self.next()? {
                    c @ ('"' | '\\') => string.push(c),
                    _ => return None,
                },
                _ => return None,
            }
        }
    }

    fn next(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let next = chars.next();
        self.rest = chars.as_str();
        next
    }

    /// `key` or `key=value`, after the semicolon.
    fn parameter(&mut self) -> Option<(&'a str, ParameterValue)> {
        self.while_(|c| c == ' ');
        if !self
            .rest
            .starts_with(|c: char| c.is_ascii_lowercase() || c == '*')
        {
            return None;
        }
        let key = self.while_(|c| {
            c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-' | '.' | '*')
        });
        if self.take('=').is_none() {
            return Some((key, ParameterValue::Other)); // true, in short
        }
        Some((key, self.value()?))
    }

    fn value(&mut self) -> Option<ParameterValue> {
        match self.rest.chars().next()? {
            '"' => self.string().map(|_| ParameterValue::Other),
            '-' | '0'..='9' => self.number(),
            ':' => {
                self.next();
                self.while_(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '='));
                self.take(':').map(|()| ParameterValue::Other)
            }
            '?' => {
                self.next();
                matches!(self.next()?, '0' | '1').then_some(ParameterValue::Other)
            }
            '@' => {
                self.next();
                match self.number()? {
                    ParameterValue::Integer(_) => Some(ParameterValue::Other),
                    ParameterValue::Other => None,
                }
            }
            '%' => {
                self.next();
                self.take('"')?;
                self.while_(|c| matches!(c, ' '..='~') && c != '"'); // a backslash is one
                self.take('"').map(|()| ParameterValue::Other)
            }
            c if c.is_ascii_alphabetic() || c == '*' => {
                let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~:/".contains(c);
                self.while_(token);
                Some(ParameterValue::Other)
            }
            _ => None,
        }
    }

    fn number(&mut self) -> Option<ParameterValue> {
        let sign = if self.take('-').is_some() { -1 } else { 1 };
        let digits = self.while_(|c| c.is_ascii_digit());
        if self.take('.').is_some() {
            let fraction = self.while_(|c| c.is_ascii_digit());
            let fits = (1..=12).contains(&digits.len()) && (1..=3).contains(&fraction.len());
            return fits.then_some(ParameterValue::Other);
        }
        if digits.len() > DIGITS_MAX {
            return None;
        }
        let number: i64 = digits.parse().ok()?;
        Some(ParameterValue::Integer(sign * number))
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(field: &str) -> Vec<(String, u64, Option<u64>)> {
        let items = RateLimit::parse(field).into_iter();
        items
            .map(|item| {
                (
                    item.name,
                    item.remaining,
                    item.within.map(Nanos::as_secs_ceil),
                )
            })
            .collect()
    }

    #[test]
    fn fields_of_the_draft_are_read() {
        for (field, expected) in [
            (
                r#""burst";r=50;t=30,"daily";r=900;t=4210"#,
                vec![("burst", 50, Some(30)), ("daily", 900, Some(4210))],
            ),
            (r#""inflight";r=3"#, vec![("inflight", 3, None)]),
            (r#"  "a";r=1  ,	"b" ;r=2"#, vec![]),
            (
                r#"  "a";r=1  ,	"b"; r=2  "#,
                vec![("a", 1, None), ("b", 2, None)],
            ),
            (
                r#""a";r=1;pk=:c2RmakxKVU9VSA==:;x;y="s\"";z=tok/en;u=?1;d=@12;f=1.5;q=%"%c3""#,
                vec![("a", 1, None)],
            ),
            (r#""a";r=1;x=%"\d""#, vec![("a", 1, None)]),
            (r#""a";r=1;r=2"#, vec![("a", 2, None)]),
            (r#""a\"\\";r=0"#, vec![("a\"\\", 0, None)]),
            (
                r#""a";r=999999999999999;t=999999999999999"#,
                vec![("a", 999_999_999_999_999, Some(18_446_744_074))],
            ),
        ] {
            let expected: Vec<_> = expected
                .into_iter()
                .map(|(name, r, t)| (name.to_owned(), r, t))
                .collect();
            assert_eq!(read(field), expected, "{field}");
        }
        let policy = RateLimitPolicy::parse(r#""peruser";q=65535;qu="content-bytes";w=10"#);
        assert_eq!(policy[0].quota, 65_535);
        assert_eq!(policy[0].window, Some(Nanos::from_secs(10)));
    }

    #[test]
    fn a_malformed_field_is_ignored_as_a_whole() {
        for field in [
            "",
            ",",
            r#""a""#,
            r#""a";t=3"#,
            r#""a";r=-1"#,
            r#""a";r=1.5"#,
            r#""a";r="1""#,
            r#""a";r"#,
            r#""a";r="#,
            r#""a";r=1,"#,
            r#""a";r=1 "b";r=2"#,
            r#""a";r=1, "b";r=x"#,
            r#""a";r=1;t=-3"#,
            r#""a";R=1"#,
            r"a;r=1",
            r#"a, "b";r=1"#,
            r#"3, "b";r=1"#,
            r#"("a");r=1"#,
            r#"("a"), "b";r=1"#,
            r#""a;r=1"#,
            r#""a\n";r=1"#,
            r#""a";r=1000000000000000"#,
            r#""a";r=1;x=:a"#,
            r#""a";r=1;x=?2"#,
            r#""a";r=1;x=1.2345"#,
            "\"\u{e9}\";r=1",
            "limit=10, remaining=9, reset=4",
        ] {
            assert_eq!(read(field), [], "{field:?}");
        }
    }

    #[test]
    fn values_that_are_too_large_are_ignored() {
        let items = |count: usize| vec![r#""a";r=1"#; count].join(",");
        assert_eq!(read(&items(16)).len(), 16);
        assert_eq!(read(&items(17)).len(), 0);
        assert_eq!(read(&format!(r#""a";r=1{}"#, ";x".repeat(15))).len(), 1);
        assert_eq!(read(&format!(r#""a";r=1{}"#, ";x".repeat(16))).len(), 0);
        let name = |length: usize| format!(r#""{}";r=1"#, "n".repeat(length));
        assert_eq!(read(&name(4_090)).len(), 1);
        assert_eq!(read(&name(4_091)).len(), 0);
    }

    proptest! {
        #[test]
        fn anything_may_be_sent(field in ".*|[\"a;rt=0-9, \\\\:?@%.]{0,60}") {
            let _ = (RateLimit::parse(&field), RateLimitPolicy::parse(&field));
        }
    }
}
