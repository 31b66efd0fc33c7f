//! Retry-After: do what the server says, a little later than it says.
//!
//! A server that refuses knows best when to come back. Coming back at that very moment
//! together with all others it told the same would only make the next herd.
//!
//! ```text
//!   refused          told to come back
//!      |------------------|.......|            come back anywhere between the dots
//!         told              10 % of it, 5 s at most
//! ```
//!
//! * `wait = told + U(0, min(10 % of told, 5 s))`. The part that is added grows with the
//!   wait: a herd told to wait a minute needs more room than one told to wait a second.
//! * `Retry-After` (seconds or a date) wins over `RateLimit`; of that, the longest `t` among
//!   limits with nothing left counts.
//! * More than 10 minutes is not believed by default: no call lasts so long, and a server
//!   with a wrong clock must not silence its clients. [`Told::Beyond`] says how long it was,
//!   so that a batch job can decide otherwise.
//! * Source: RFC 9110 (2022), section 10.2.3; draft-ietf-httpapi-ratelimit-headers-11
//!   (2026), section 6.

use ratekeeper_core::{Nanos, Origin, Time};

use crate::http_date;
use crate::random::Random;
use crate::rate_limit::RateLimit;

/// What a refusal said about waiting, as header fields. Of a field that comes more than once
/// give the last `Retry-After`, and `RateLimit` joined with commas.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hints<'a> {
    /// `Retry-After`.
    pub retry_after: Option<&'a str>,
    /// `RateLimit`.
    pub rate_limit: Option<&'a str>,
}

/// How long the server wants to be left alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// For so long; see [`RetryAfter::spread`].
    Wait(Nanos),
    /// For longer than is believed.
    Beyond(Nanos),
    /// It did not say.
    Nothing,
}

/// How what a server tells is believed and spread; see the [module](self) for the reasons of
/// the defaults.
///
/// ```
/// use ratekeeper_core::{Nanos, Origin, Time};
/// use ratekeeper_resilience::{Hints, RetryAfter, SplitMix, Told};
///
/// let hints = Hints { retry_after: Some("20"), ..Hints::default() };
/// let rules = RetryAfter::default();
/// let told = rules.told(hints, Time::ZERO, Origin::UNIX);
/// assert_eq!(told, Told::Wait(Nanos::from_secs(20)));
///
/// let wait = rules.spread(Nanos::from_secs(20), &mut SplitMix::seeded());
/// assert!(wait >= Nanos::from_secs(20) && wait <= Nanos::from_secs(22));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetryAfter {
    /// The longest wait that is believed. Default 10 minutes.
    pub longest: Nanos,
    /// The most that is added to spread clients. Default 5 s.
    pub spread_max: Nanos,
}

impl Default for RetryAfter {
    fn default() -> Self {
        Self {
            longest: Nanos::from_secs(600),
            spread_max: Nanos::from_secs(5),
        }
    }
}

impl RetryAfter {
    /// What the fields of a refusal say at `now`, on a clock that counts from `origin`: a
    /// date needs to know what day it is.
    pub fn told(&self, hints: Hints<'_>, now: Time, origin: Origin) -> Told {
        let retry_after = hints.retry_after.and_then(|text| parse(text, now, origin));
        let wait = retry_after.or_else(|| hints.rate_limit.and_then(exhausted_for));
        match wait {
            None => Told::Nothing,
            Some(wait) if wait > self.longest => Told::Beyond(wait),
            Some(wait) => Told::Wait(wait),
        }
    }

    /// `told` and up to a tenth of it more, at random.
    pub fn spread(&self, told: Nanos, random: &mut impl Random) -> Nanos {
        let tenth = Nanos::from_nanos(told.as_nanos() / 10); // down: any rounding will do
        told + random.up_to(tenth.min(self.spread_max))
    }
}

/// The wait that a `Retry-After` asks for; zero for a date in the past.
fn parse(text: &str, now: Time, origin: Origin) -> Option<Nanos> {
    let text = text.trim_matches([' ', '\t']);
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than fit are still a long time.
        return Some(Nanos::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    let now_nanos = origin.unix_nanos(now);
    let date = http_date::parse(text, now_nanos / 1_000_000_000)?;
    Some(Nanos::from_secs(date).saturating_sub(Nanos::from_nanos(now_nanos)))
}

/// The longest span among limits that have nothing left.
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

    fn told(retry_after: &str, rate_limit: &str) -> Told {
        let hints = Hints {
            retry_after: (!retry_after.is_empty()).then_some(retry_after),
            rate_limit: (!rate_limit.is_empty()).then_some(rate_limit),
        };
        let now = Time::ZERO + Nanos::from_millis(500);
        RetryAfter::default().told(hints, now, ORIGIN)
    }

    #[test]
    fn retry_after_wins_over_rate_limit() {
        let millis = |millis| Told::Wait(Nanos::from_millis(millis));
        for (retry_after, rate_limit, expected) in [
            ("0", "", millis(0)),
            ("7", "", millis(7_000)),
            (" 7\t", "", millis(7_000)),
            ("Sun, 06 Nov 1994 08:49:40 GMT", "", millis(2_500)),
            ("Sunday, 06-Nov-94 08:49:40 GMT", "", millis(2_500)),
            ("Sun Nov  6 08:49:40 1994", "", millis(2_500)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", "", millis(0)),
            ("7", r#""a";r=0;t=9"#, millis(7_000)),
            ("soon", r#""a";r=0;t=9"#, millis(9_000)),
            (
                "",
                r#""a";r=0;t=9,"b";r=0;t=11,"c";r=1;t=60"#,
                millis(11_000),
            ),
            ("", r#""a";r=5;t=9"#, Told::Nothing),
            ("", r#""a";r=0"#, Told::Nothing),
            ("-1", "", Told::Nothing),
            ("1.5", "", Told::Nothing),
            ("", "", Told::Nothing),
            ("600", "", millis(600_000)),
            ("601", "", Told::Beyond(Nanos::from_secs(601))),
            ("99999999999999999999999", "", Told::Beyond(Nanos::MAX)),
        ] {
            assert_eq!(
                told(retry_after, rate_limit),
                expected,
                "{retry_after:?} {rate_limit:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn never_earlier_and_at_most_a_tenth_later(
            told in prop_oneof![0_u64..100_000_000_000, any::<u64>()],
            seed: u64,
        ) {
            let told = Nanos::from_nanos(told);
            let wait = RetryAfter::default().spread(told, &mut SplitMix::new(seed));
            prop_assert!(wait >= told);
            let more = wait.saturating_sub(told);
            prop_assert!(more <= Nanos::from_secs(5) && more.as_nanos() <= told.as_nanos() / 10);
        }

        #[test]
        fn anything_may_be_sent(retry_after: String, rate_limit: String, now: u64) {
            let hints = Hints { retry_after: Some(&retry_after), rate_limit: Some(&rate_limit) };
            let _ = RetryAfter::default().told(hints, Time::from_nanos(now), ORIGIN);
        }
    }
}
