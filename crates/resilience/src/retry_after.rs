//! Retry-After: wait as long as the server asks, and a little longer.
//!
//! A server that refuses knows best when to come back. If all clients that were given the same
//! moment came back then, they would only make the next herd.
//!
//! ```text
//!   refused          when to come back  
//!      |------------------|.......|            come back anywhere between the dots
//!         stated              10 % of it, 5 s at most
//! ```
//!
//! * `wait = stated + U(0, min(10 % of stated, 5 s))`. The added part grows with the wait: a herd
//!   that waits for a minute needs more room than one that waits for a second.
//! * `Retry-After` (seconds or a date) wins over `RateLimit`; of that, the longest `t` among
//!   limits with nothing left counts. Then `RateLimit-Reset` of older drafts and its elder
//!   `X-RateLimit-Reset`, if nothing is left: below 10^9 a span in seconds, from there on seconds
//!   since 1970, from 10^12 on milliseconds since 1970, as servers send all three.
//! * Seconds may have decimals, and a span may be written as in Go, `6m0s`.
//! * A field that cannot be read states a wait too, of a second: the smallest that a server can ask
//!   for in whole seconds.
//! * A date is compared with the `Date` of the same answer if there is one: only one clock
//!   is asked then, and it need not be right.
//! * No time at all (zero, a date that has passed) counts as no wait given: a herd sent back
//!   "now" would return as one, so backoff decides.
//! * More than 10 minutes is not waited for by default: no call lasts so long, and a server with
//!   a wrong clock must not hold its clients for ever. [`ServerWait::Beyond`] holds the wait:
//!   let the call fail, or wait if it is a batch job.
//! * Source: RFC 9110 (2022), section 10.2.3; draft-ietf-httpapi-ratelimit-headers-11
//!   (2026), section 6, and -03 (2020) for the fields that it replaced.

use std::time::Duration;

use ratekeeper_core::{Nanos, Origin, Time};

use crate::http_date;
use crate::random::Random;
use crate::rate_limit::RateLimit;

/// Numbers of `X-RateLimit-Reset` from here on are seconds since 1970 (2001 and later); below
/// they are a span, of up to 31 years.
const DATES_FROM: f64 = 1e9;
/// Numbers from here on are milliseconds since 1970 (2001 and later, too).
const DATES_IN_MILLIS_FROM: f64 = 1e12;

/// Header fields of a refusal that concern waiting. For a field that comes more than once give
/// the last, and `RateLimit` joined with commas.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hints<'a> {
    /// `Retry-After`.
    pub retry_after: Option<&'a str>,
    /// `RateLimit`.
    pub rate_limit: Option<&'a str>,
    /// `RateLimit-Remaining` or `X-RateLimit-Remaining`. Unless it is zero or not there, `reset`
    /// is ignored.
    pub remaining: Option<&'a str>,
    /// `RateLimit-Reset` or `X-RateLimit-Reset`.
    pub reset: Option<&'a str>,
    /// `Date`: when the server answered, by its own clock.
    pub date: Option<&'a str>,
}

/// Wait that a server asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServerWait {
    /// A wait above zero; see [`RetryAfter::spread`].
    Wait(Nanos),
    /// A wait above [`RetryAfter::longest`]: coming back sooner is of no use.
    Beyond(Nanos),
    /// No wait was given, or there is no need to wait.
    Nothing,
}

/// Bounds and spread of waits given by a server; see the [module](self) for the reasons of the
/// defaults.
///
/// ```
/// use ratekeeper_core::{Nanos, Origin, Time};
/// use ratekeeper_resilience::{Hints, RetryAfter, SplitMix, ServerWait};
///
/// let hints = Hints { retry_after: Some("20"), ..Hints::default() };
/// let rules = RetryAfter::default();
/// let wait = rules.parse(hints, Time::ZERO, Origin::UNIX);
/// assert_eq!(wait, ServerWait::Wait(Nanos::from_secs(20)));
///
/// let wait = rules.spread(Nanos::from_secs(20), &mut SplitMix::seeded());
/// assert!(wait >= Nanos::from_secs(20) && wait <= Nanos::from_secs(22));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetryAfter {
    /// The longest wait that is obeyed, whatever a server sends. Default 10 minutes.
    pub longest: Duration,
    /// Maximum span added to spread clients; zero adds nothing. Default 5 s.
    pub spread_max: Duration,
}

impl Default for RetryAfter {
    fn default() -> Self {
        Self {
            longest: Duration::from_secs(600),
            spread_max: Duration::from_secs(5),
        }
    }
}

impl RetryAfter {
    /// Returns the wait in the fields of a refusal at `now`, on a clock that counts from
    /// `origin`, because a date without a `Date` beside it is compared with today's.
    pub fn parse(&self, hints: Hints<'_>, now: Time, origin: Origin) -> ServerWait {
        let ours = origin.unix_nanos(now);
        let date = hints.date.and_then(http_date::parse);
        let today = date.unwrap_or(ours);
        let spent = hints.remaining.is_none_or(is_zero);
        let (retry_after, reset_at) = (hints.retry_after, hints.reset.filter(|_| spent));
        let wait = retry_after
            .and_then(|text| span(text).or(until(text, today)))
            .or_else(|| hints.rate_limit.and_then(exhausted_for))
            .or_else(|| reset_at.and_then(|text| reset(text, today)));
        let stated = |text: &&str| !blanks_off(text).is_empty();
        let unread = || retry_after.or(reset_at).filter(stated);
        self.bound(
            wait.or_else(|| unread().map(|_| Nanos::SECOND))
                .unwrap_or(Nanos::ZERO),
        )
    }

    /// Classifies a wait that was stated by other means than these fields.
    ///
    /// ```
    /// use ratekeeper_core::Nanos;
    /// use ratekeeper_resilience::{RetryAfter, ServerWait};
    ///
    /// let hour = Nanos::from_secs(3_600);
    /// assert_eq!(RetryAfter::default().bound(hour), ServerWait::Beyond(hour));
    /// ```
    pub fn bound(&self, stated: impl Into<Nanos>) -> ServerWait {
        match stated.into() {
            Nanos::ZERO => ServerWait::Nothing,
            wait if wait > self.longest.into() => ServerWait::Beyond(wait),
            wait => ServerWait::Wait(wait),
        }
    }

    /// Returns the wait plus up to a tenth of it at random, at most `spread_max` more.
    pub fn spread(&self, stated: Nanos, random: &mut impl Random) -> Nanos {
        let tenth = Nanos::from_nanos(stated.as_nanos() / 10); // down: any rounding will do
        stated + random.up_to(tenth.min(self.spread_max.into()))
    }
}

/// Returns the span from `today`, in nanoseconds since 1970, to the date; zero if it has passed.
fn until(text: &str, today: u64) -> Option<Nanos> {
    let date = http_date::parse(blanks_off(text))?;
    Some(Nanos::from_nanos(date.saturating_sub(today)))
}

/// Parses when a limit is whole again: a span, or a moment.
fn reset(text: &str, today: u64) -> Option<Nanos> {
    let since_1970 = match decimal(blanks_off(text)) {
        Some(secs) if secs < DATES_FROM => return Some(in_units(secs, 1e9)),
        Some(secs) if secs < DATES_IN_MILLIS_FROM => in_units(secs, 1e9),
        Some(millis) => in_units(millis, 1e6),
        None => return span(text).or(until(text, today)),
    };
    Some(since_1970.saturating_sub(Nanos::from_nanos(today)))
}

/// Parses seconds, or a span with units: `7`, `1.5`, `250ms`, `6m0s`.
pub(crate) fn span(text: &str) -> Option<Nanos> {
    let mut rest = blanks_off(text);
    if let Some(seconds) = decimal(rest) {
        return Some(in_units(seconds, 1e9));
    }
    let is_letter = |letter: char| letter.is_alphabetic();
    let mut total = None;
    while !rest.is_empty() {
        let (amount, after) = rest.split_at(rest.find(is_letter)?);
        let end = after.find(|letter| !is_letter(letter));
        let (unit, next) = after.split_at(end.unwrap_or(after.len()));
        let nanos = match unit {
            "ns" => 1.0,
            "us" | "\u{b5}s" | "\u{3bc}s" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 60e9,
            "h" => 3600e9,
            _ => return None,
        };
        total = Some(total.unwrap_or(Nanos::ZERO) + in_units(decimal(amount)?, nanos));
        rest = next;
    }
    total
}

/// Parses digits, with a point among them or without.
fn decimal(text: &str) -> Option<f64> {
    let accepted = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    let ends = [text.bytes().next()?, text.bytes().next_back()?];
    let plain = text.bytes().all(accepted) && !ends.contains(&b'.');
    plain.then(|| text.parse().ok()).flatten()
}

/// Rounded up; one that does not fit becomes the maximum.
#[expect(clippy::cast_possible_truncation, reason = "saturates")]
#[expect(clippy::cast_sign_loss, reason = "`decimal` has no sign")]
fn in_units(amount: f64, nanos: f64) -> Nanos {
    Nanos::from_nanos((amount * nanos).ceil() as u64)
}

/// Returns true for a remaining quota of zero, also with decimals.
pub(crate) fn is_zero(remaining: &str) -> bool {
    decimal(blanks_off(remaining)).is_some_and(|left| left < 1.0)
}

fn blanks_off(text: &str) -> &str {
    text.trim_matches([' ', '\t'])
}

/// Returns the longest span among limits with nothing left.
fn exhausted_for(field: &str) -> Option<Nanos> {
    let limits = RateLimit::parse(field).into_iter();
    limits
        .filter(|limit| limit.remaining == 0)
        .filter_map(|limit| limit.within)
        .max()
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::SplitMix;
    use proptest::prelude::*;

    /// 1994-11-06 08:49:37.
    const ORIGIN: Origin = Origin::from_unix_nanos(784_111_777_000_000_000);

    fn stated(retry_after: &str, rate_limit: &str) -> ServerWait {
        let hints = Hints {
            retry_after: (!retry_after.is_empty()).then_some(retry_after),
            rate_limit: (!rate_limit.is_empty()).then_some(rate_limit),
            ..Hints::default()
        };
        let now = Time::ZERO + Nanos::from_millis(500);
        RetryAfter::default().parse(hints, now, ORIGIN)
    }

    #[test]
    fn retry_after_wins_over_rate_limit() {
        const SECOND: ServerWait = ServerWait::Wait(Nanos::SECOND);
        let millis = |millis| ServerWait::Wait(Nanos::from_millis(millis));
        for (retry_after, rate_limit, expected) in [
            ("0", "", ServerWait::Nothing),
            ("7", "", millis(7_000)),
            (" 7\t", "", millis(7_000)),
            ("Sun, 06 Nov 1994 08:49:40 GMT", "", millis(2_500)),
            ("Sunday, 06-Nov-94 08:49:40 GMT", "", millis(2_500)),
            ("Sun Nov  6 08:49:40 1994", "", millis(2_500)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", "", ServerWait::Nothing),
            ("Sat, 05 Nov 1994 08:49:37 GMT", "", ServerWait::Nothing),
            ("Sun, 06 Nov 1994 08:49:60 GMT", "", millis(22_500)),
            (
                "Sun, 06 Nov 1994 09:00:00 GMT",
                "",
                ServerWait::Beyond(Nanos::from_millis(622_500)),
            ),
            (
                "Fri, 31 Dec 9999 23:59:59 GMT",
                "",
                ServerWait::Beyond(Nanos::from_nanos(u64::MAX - 784_111_777_500_000_000)),
            ),
            ("0", r#""a";r=0;t=9"#, ServerWait::Nothing),
            ("7", r#""a";r=0;t=9"#, millis(7_000)),
            ("soon", r#""a";r=0;t=9"#, millis(9_000)),
            ("soon", "", SECOND),
            (
                "",
                r#""a";r=0;t=9,"b";r=0;t=11,"c";r=1;t=60"#,
                millis(11_000),
            ),
            ("", r#""a";r=5;t=9"#, ServerWait::Nothing),
            ("", r#""a";r=0"#, ServerWait::Nothing),
            ("-1", "", SECOND),
            ("1.5", "", millis(1_500)),
            ("0.0", "", ServerWait::Nothing),
            ("0.0004", "", ServerWait::Wait(Nanos::from_micros(400))),
            (
                "0.12345678949",
                "",
                ServerWait::Wait(Nanos::from_nanos(123_456_790)),
            ),
            ("6m0s", "", millis(360_000)),
            ("1m1.5s", "", millis(61_500)),
            ("250ms", "", millis(250)),
            ("250\u{b5}s", "", ServerWait::Wait(Nanos::from_micros(250))),
            ("0s", "", ServerWait::Nothing),
            ("1.", "", SECOND),
            (".5", "", SECOND),
            ("1.5.5", "", SECOND),
            ("1e3", "", SECOND),
            ("inf", "", SECOND),
            ("6m0", "", SECOND),
            ("s", "", SECOND),
            ("1 s", "", SECOND),
            ("", "", ServerWait::Nothing),
            (" ", "", ServerWait::Nothing),
            ("600", "", millis(600_000)),
            ("601", "", ServerWait::Beyond(Nanos::from_secs(601))),
            (
                "99999999999999999999999",
                "",
                ServerWait::Beyond(Nanos::MAX),
            ),
        ] {
            assert_eq!(
                stated(retry_after, rate_limit),
                expected,
                "{retry_after:?} {rate_limit:?}"
            );
        }
    }

    #[test]
    fn older_fields_hold_a_span_or_a_moment() {
        let secs = |secs| ServerWait::Wait(Nanos::from_secs(secs));
        let now = 1_795_219_200; // 2026-11-21
        let origin = Origin::from_unix_nanos(now * 1_000_000_000);
        for (remaining, reset, expected) in [
            ("0", "7", secs(7)),
            ("0", "7s", secs(7)),
            ("0", "1795219207.0", secs(7)),
            ("", "7", secs(7)),
            ("0", "1795219207", secs(7)),
            ("0", "Sat, 21 Nov 2026 00:00:07 GMT", secs(7)),
            ("0", "1795219200", ServerWait::Nothing),
            ("0", "1000000000", ServerWait::Nothing),
            ("0", "0", ServerWait::Nothing),
            (
                "0",
                "999999999",
                ServerWait::Beyond(Nanos::from_secs(999_999_999)),
            ),
            ("1", "7", ServerWait::Nothing),
            ("-1", "7", ServerWait::Nothing),
            ("0.0", "7", secs(7)),
            ("0", "1795219207000", secs(7)),
            ("0", "6m0s", secs(360)),
            ("0", "", ServerWait::Nothing),
            ("0", "soon", secs(1)),
            ("1", "soon", ServerWait::Nothing),
        ] {
            let mut hints = Hints {
                remaining: (!remaining.is_empty()).then_some(remaining),
                reset: Some(reset),
                ..Hints::default()
            };
            let stated = |hints| RetryAfter::default().parse(hints, Time::ZERO, origin);
            assert_eq!(stated(hints), expected, "{remaining:?} {reset:?}");
            hints.rate_limit = Some(r#""a";r=0;t=8"#);
            assert_eq!(stated(hints), secs(8), "the newer field wins");
            hints.retry_after = Some("9");
            assert_eq!(stated(hints), secs(9), "and this over both");
        }
    }

    /// Clocks of client and server differ by years: only the server's is asked.
    #[test]
    fn a_clock_that_is_wrong_does_no_harm() {
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        for (date, retry_after, expected) in [
            (date, "Sun, 06 Nov 1994 08:49:40 GMT", Some(3)),
            (date, "Sun, 06 Nov 1994 08:49:30 GMT", None),
            (date, "7", Some(7)),
            ("yesterday", "Sun, 06 Nov 1994 08:49:40 GMT", None),
        ] {
            let hints = Hints {
                retry_after: Some(retry_after),
                date: Some(date),
                ..Hints::default()
            };
            let now = Time::ZERO + Nanos::from_secs(32 * 365 * 86_400);
            let wait = RetryAfter::default().parse(hints, now, ORIGIN);
            let expected = expected.map_or(ServerWait::Nothing, |s| {
                ServerWait::Wait(Nanos::from_secs(s))
            });
            assert_eq!(wait, expected, "{retry_after}");
        }
    }

    proptest! {
        #[test]
        fn never_earlier_and_at_most_a_tenth_later(
            stated in prop_oneof![0_u64..100_000_000_000, any::<u64>()],
            seed: u64,
        ) {
            let stated = Nanos::from_nanos(stated);
            let wait = RetryAfter::default().spread(stated, &mut SplitMix::new(seed));
            prop_assert!(wait >= stated);
            let more = wait.saturating_sub(stated);
            prop_assert!(more <= Nanos::from_secs(5) && more.as_nanos() <= stated.as_nanos() / 10);
        }

        #[test]
        fn anything_may_be_sent(
            retry_after in "[0-9]{0,12}|\\PC*", rate_limit: String, now: u64,
        ) {
            let hints = Hints {
                retry_after: Some(&retry_after),
                rate_limit: Some(&rate_limit),
                remaining: None,
                reset: Some(&retry_after),
                date: Some(&rate_limit),
            };
            let rules = RetryAfter::default();
            if let ServerWait::Wait(wait) = rules.parse(hints, Time::from_nanos(now), ORIGIN) {
                prop_assert!(wait > Nanos::ZERO && wait <= rules.longest.into());
            }
        }
    }
}
