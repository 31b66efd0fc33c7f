//! Zone: what a zone of `limit_req` or `limit_conn` counts, and how a use of it limits.
//!
//! ```text
//!   rate=10r/s                         refill = "10/1s"
//!   burst=B nodelay                    size = B + 1       nginx counts the excess over one request
//!   burst=B                            size = 1,          queue = B
//!   burst=B delay=D                    size = D + 1,      queue = B - D
//! ```
//!
//! nginx counts in 1/1000 of a request: `rate=5r/m` is 83/1000 a second, rounded down. Both are
//! token buckets, and admit the same requests at the same times.

use super::directive::Directive;
use crate::import::limits::{ImportedLimit, LEASE};
use crate::nginx_part::nginx_part;

/// Unit of `rate`: requests a second are counted in thousandths.
const THOUSAND: u64 = 1_000;
/// Maximum of `burst`: room for the request that is served at once.
const MAX_BURST: u32 = u32::MAX - 1;

/// A part of a key until its servers are known.
pub(super) const SERVER_NAME: &str = "server_name";

/// `limit_req_zone` or `limit_conn_zone`.
#[derive(Clone, Debug)]
pub(super) struct SharedZone {
    pub(super) name: String,
    pub(super) key: String,
    /// Thousandths of requests a second; `None` for connections.
    pub(super) rate: Option<u64>,
}

impl SharedZone {
    /// Reads `limit_req_zone KEY zone=NAME:SIZE rate=N`, `limit_conn_zone KEY zone=NAME:SIZE`.
    pub(super) fn read(directive: &Directive) -> Result<Self, String> {
        let variables = directive
            .words
            .iter()
            .take_while(|word| word.starts_with('$'));
        let several: String = variables.map(String::as_str).collect();
        let first = directive.words.first().ok_or("no key")?;
        let key = if several.is_empty() { first } else { &several };
        let zone = directive.value("zone").ok_or("no zone=NAME:SIZE")?;
        let name = zone.split(':').next().unwrap_or(zone);
        let rate = if directive.name == "limit_req_zone" {
            let written = directive.value("rate").ok_or("no rate=N")?;
            Some(rate(written).ok_or_else(|| format!("rate={written} is not N r/s or N r/m"))?)
        } else {
            None
        };
        Ok(Self {
            name: name.to_owned(),
            key: key.clone(),
            rate,
        })
    }
}

/// Returns thousandths of requests a second, rounded down as nginx does.
fn rate(text: &str) -> Option<u64> {
    let (number, seconds) = match (text.strip_suffix("r/s"), text.strip_suffix("r/m")) {
        (Some(number), _) => (number, 1),
        (_, Some(number)) => (number, 60),
        _ => (text, 1),
    };
    let number: u32 = number.parse().ok().filter(|number| *number > 0)?;
    Some(u64::from(number) * THOUSAND / seconds).filter(|rate| *rate > 0)
}

/// How one directive uses a zone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Use {
    /// `limit_req`
    Requests {
        zone: String,
        burst: u32,
        delay: u32,
    },
    /// `limit_conn`
    Connections { zone: String, max: u32 },
}

impl Use {
    pub(super) fn zone(&self) -> &str {
        match self {
            Self::Requests { zone, .. } | Self::Connections { zone, .. } => zone,
        }
    }

    /// Reads `limit_req zone=NAME burst=B delay=D`, `limit_conn NAME N`.
    pub(super) fn read(directive: &Directive) -> Result<Self, String> {
        if directive.name == "limit_conn" {
            let [zone, max] = &directive.words[..] else {
                return Err("expected a zone and a number".to_owned());
            };
            let max = max.parse().ok().filter(|max| *max > 0);
            return Ok(Self::Connections {
                zone: zone.clone(),
                max: max.ok_or("the number of connections must be at least 1")?,
            });
        }
        let zone = directive.value("zone").ok_or("no zone=NAME")?.to_owned();
        let number = |name: &str| match directive.value(name) {
            None => Ok(0),
            Some(text) => match text.parse::<u32>() {
                Ok(number) if number <= MAX_BURST => Ok(number),
                _ => Err(format!("{name}={text} is not a number up to {MAX_BURST}")),
            },
        };
        let burst = number("burst")?;
        let delay = if directive.words.iter().any(|word| word == "nodelay") {
            burst
        } else {
            number("delay")?.min(burst)
        };
        Ok(Self::Requests { zone, burst, delay })
    }

    /// Returns the lines of a limit.
    pub(super) fn lines(&self, zone: &SharedZone) -> Vec<String> {
        match *self {
            Self::Requests { burst, delay, .. } => {
                let rate = zone.rate.unwrap_or(THOUSAND);
                let refill = match (rate % THOUSAND, rate * 60 % THOUSAND) {
                    (0, _) => format!("{}/1s", rate / THOUSAND),
                    (_, 0) => format!("{}/1m", rate * 60 / THOUSAND),
                    _ => format!("{rate}/{THOUSAND}s"),
                };
                let size = u64::from(delay) + 1;
                let mut lines = vec![format!(
                    "bucket = {{ size = {size}, refill = \"{refill}\" }}"
                )];
                if burst > delay {
                    lines.push(format!("queue = {{ max = {} }}", burst - delay));
                }
                lines
            }
            Self::Connections { max, .. } => {
                vec![format!(
                    "concurrency = {{ max = {max}, lease = \"{LEASE}\" }}"
                )]
            }
        }
    }
}

/// Writes the parts of a key such as `$binary_remote_addr$uri` to a limit.
pub(super) fn key(text: &str, limit: &mut ImportedLimit) -> Result<(), String> {
    let mut pieces = text.split('$');
    let mut may_be_empty = pieces.next().is_some_and(str::is_empty);
    for piece in pieces {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let (name, rest) = match piece
            .strip_prefix('{')
            .and_then(|rest| rest.split_once('}'))
        {
            Some(braced) => braced,
            None => piece.split_at(piece.find(|c| !is_name(c)).unwrap_or(piece.len())),
        };
        may_be_empty &= rest.is_empty();
        let part = match name {
            SERVER_NAME => Some(name.to_owned()),
            _ => nginx_part(name),
        };
        let part = part.ok_or_else(|| format!("the variable ${name} has no counterpart"))?;
        may_be_empty &= part.contains(':');
        if !limit.key.contains(&part) {
            limit.key.push(part);
        }
    }
    if !limit.key.iter().any(|part| part.contains(':')) {
        return Ok(());
    }
    // nginx does not count a request with an empty key.
    let missing = match limit.key[..] {
        [_] if may_be_empty => "skip",
        _ => "shared",
    };
    if may_be_empty && missing == "shared" {
        let why = "requests with no part of its key are counted together, by nginx not at all";
        limit.lost.push(why.to_owned());
    }
    limit.lines.push(format!("missing_key = \"{missing}\""));
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use ratekeeper_core::{Algorithm as _, AnyState, Nanos, Permits, Time, Verdict};

    use super::*;
    use crate::config::{Context, parse_limit};

    #[test]
    fn keys_have_counterparts() {
        for (text, parts, missing) in [
            ("$binary_remote_addr", "ip/128", None),
            ("$http_x_api_key", "header:x-api-key", Some("skip")),
            ("${http_x_api_key}", "header:x-api-key", Some("skip")),
            ("$binary_remote_addr$uri", "ip/128 path", None),
            (
                "$remote_addr:$arg_token",
                "ip/128 query:token",
                Some("shared"),
            ),
            ("$http_a$cookie_b", "header:a cookie:b", Some("shared")),
            ("all", "", None),
        ] {
            let mut limit = ImportedLimit::default();
            key(text, &mut limit).unwrap();
            let missing = missing.map(|word| format!("missing_key = \"{word}\""));
            assert_eq!(limit.key.join(" "), parts, "{text}");
            assert_eq!(limit.lines, Vec::from_iter(missing), "{text}");
        }
        assert!(key("$limit", &mut ImportedLimit::default()).is_err());
    }

    #[test]
    fn rates_are_rounded_as_in_nginx() {
        let written = [
            ("10r/s", 10_000),
            ("30r/m", 500),
            ("5r/m", 83),
            ("1r/m", 16),
            ("7", 7_000),
        ];
        for (text, thousandths) in written {
            assert_eq!(rate(text), Some(thousandths), "{text}");
        }
        for text in ["0r/s", "r/s", "-1r/s", "1r/h", "99999999999r/s"] {
            assert_eq!(rate(text), None, "{text}");
        }
    }

    /// The state of a key in `ngx_http_limit_req_module.c`: excess in thousandths, and time in ms.
    #[derive(Default)]
    struct Excess {
        excess: i64,
        last: Option<i64>,
    }

    impl Excess {
        /// Returns the wait in ms, or `None` for a refusal, as `ngx_http_limit_req_lookup` and
        /// `ngx_http_limit_req_account` compute it.
        fn ask(&mut self, rate: i64, burst: i64, delay: i64, now: i64) -> Option<i64> {
            let excess = match self.last {
                None => 0,
                Some(last) => (self.excess - rate * (now - last) / 1_000 + 1_000).max(0),
            };
            if excess > burst * 1_000 {
                return None;
            }
            (self.excess, self.last) = (excess, Some(now));
            Some((excess - delay * 1_000).max(0) * 1_000 / rate)
        }
    }

    proptest! {
        /// nginx rounds the leaked amount down, and differs only if a millisecond leaks a part of a
        /// thousandth: whole rates per second are equal to the millisecond.
        #[test]
        fn buckets_admit_what_nginx_admits(
            rate in 1_i64..2_000,
            burst in 0_u32..20,
            delay in 0_u32..20,
            gaps in vec(prop_oneof![Just(0_i64), 0_i64..20, 0_i64..3_000], 1..200),
        ) {
            let delay = delay.min(burst);
            let zone = SharedZone {
                name: "a".to_owned(),
                key: String::new(),
                rate: Some(u64::try_from(rate * 1_000).unwrap()),
            };
            let used = Use::Requests { zone: "a".to_owned(), burst, delay };
            let limit = parse_limit(&used.lines(&zone).join("\n"), Context::default()).unwrap();
            let (mut theirs, mut ours) = (Excess::default(), AnyState::default());
            let mut now = 0;
            for gap in gaps {
                now += gap;
                let expected = theirs.ask(rate * 1_000, burst.into(), delay.into(), now);
                let at = Time::ZERO + Nanos::from_millis(u64::try_from(now).unwrap());
                let wait = match limit.decide(&mut ours, at, Permits::ONE).verdict {
                    Verdict::Allow => Some(0),
                    Verdict::AllowAfter(wait) => Some(i64::try_from(wait.as_nanos() / 1_000_000).unwrap()),
                    _ => None,
                };
                prop_assert_eq!(wait, expected, "at {} ms", now);
            }
        }
    }
}
