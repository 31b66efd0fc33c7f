//! Quantity: how much a limit allows, from `limit`, `bucket` or `spacing` to an algorithm.
//!
//! ```text
//!   limit = "N/duration"   sliding (default), fixed, quota-reset, gcra, sub-buckets
//!   limit = "N/word"       fixed windows of the calendar, in the policy's time zone
//!   bucket = { .. }        GCRA with a burst
//!   spacing = ".."         GCRA with a burst of one
//! ```

use std::ops::Range;

use ratekeeper_core::{
    AnyAlgorithm, Denials, Edge, Error, Gcra, Nanos, Origin, Permits, Quota, SubBuckets, Window,
};
use toml::de::DeTable;

use super::codes;
use super::diagnostic::{Findings, shown};
use super::read::{self, At};
use super::settings::Zone;
use crate::calendar::{Word, calendar};

/// Sub-buckets of `algorithm = "sub-buckets"`.
const DEFAULT_SUB_BUCKETS: u32 = 6;
/// The words of the calendar, with their nominal length in seconds; months and years have
/// none.
const WORDS: [(&str, Word, Option<u64>); 5] = [
    ("hour", Word::Hour, Some(3_600)),
    ("day", Word::Day, Some(86_400)),
    ("week", Word::Week, Some(7 * 86_400)),
    ("month", Word::Month, None),
    ("year", Word::Year, None),
];
const GRAMMAR: &str =
    "write a number and a duration, as in \"100/1m\", or a word of the calendar, as in \"100/day\"";

/// What a limit allows.
#[derive(Clone, Debug)]
pub(super) struct Quantity {
    pub(super) algorithm: AnyAlgorithm,
    pub(super) quota: Permits,
    pub(super) window: Option<Nanos>,
    pub(super) text: String,
    /// The value in the file.
    pub(super) at: Range<usize>,
    /// How it counts, for comparing two of them.
    pub(super) kind: Kind,
}

/// How a quantity counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// In windows of the given algorithm.
    Windows(Algorithm),
    /// In windows of the calendar.
    Calendar(Word),
    /// As a debt that is paid by time.
    Bucket { permits: Permits, per: Nanos },
}

/// What a quantity depends on besides its own fields.
#[derive(Clone, Copy, Debug)]
pub(super) struct Surroundings<'a> {
    pub(super) zone: &'a Zone,
    pub(super) origin: Origin,
    pub(super) denials: Denials,
}

/// An algorithm as written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Algorithm {
    Sliding,
    Fixed,
    QuotaReset,
    Gcra,
    SubBuckets { count: u32, edge: Edge },
}

/// The quantity of one `[[limit]]`; none if it is reported as missing or wrong.
pub(super) fn quantity(
    table: &DeTable<'_>,
    around: Surroundings<'_>,
    out: &mut Findings<'_>,
) -> Option<Quantity> {
    let named = algorithm(table, out);
    if let Some(text) = read::text(table, "limit") {
        return limit(&text, named, around, out);
    }
    let only_gcra = |quantity: &str, out: &mut Findings<'_>| {
        if let Some(At { at, .. }) = named
            .as_ref()
            .filter(|named| named.value != Algorithm::Gcra)
        {
            let message = format!("`algorithm` beside `{quantity}`");
            let label = format!("a `{quantity}` is always counted by GCRA");
            out.error(codes::ALGORITHM, at.clone(), message, label)
                .help("remove `algorithm`, or write the number as limit = \"100/1m\"");
        }
    };
    if let Some(bucket_table) = read::table(table, "bucket") {
        only_gcra("bucket", out);
        return bucket(&bucket_table, around, out);
    }
    let text = read::text(table, "spacing")?;
    only_gcra("spacing", out);
    spacing(&text, around, out)
}

/// `algorithm`, a word or a table.
fn algorithm(table: &DeTable<'_>, out: &mut Findings<'_>) -> Option<At<Algorithm>> {
    let node = table.get("algorithm")?;
    let at = node.span();
    let (name, fields) = match node.get_ref().as_table() {
        Some(fields) => (read::text(fields, "name")?.value, Some(fields)),
        None => (node.get_ref().as_str()?, None),
    };
    let count =
        fields.and_then(|fields| read::number(fields, "count", super::fields::MAX_SUB_BUCKETS));
    let edge = fields.and_then(|fields| read::text(fields, "edge"));
    if name != "sub-buckets" {
        let count = count.as_ref().map(|count| ("count", count.at.clone()));
        let stray = count.or_else(|| edge.as_ref().map(|edge| ("edge", edge.at.clone())));
        if let Some((field, at)) = stray {
            let message = format!(
                "`{field}` belongs to \"sub-buckets\", not to \"{}\"",
                shown(name)
            );
            out.error(codes::ALGORITHM, at, message, "without meaning here")
                .help(format!(
                    "write algorithm = \"{}\", or name = \"sub-buckets\"",
                    shown(name)
                ));
            return None;
        }
    }
    let algorithm = match name {
        "sliding" => Algorithm::Sliding,
        "fixed" => Algorithm::Fixed,
        "quota-reset" => Algorithm::QuotaReset,
        "gcra" | "token-bucket" => Algorithm::Gcra,
        "sub-buckets" => Algorithm::SubBuckets {
            count: count
                .and_then(|count| u32::try_from(count.value).ok())
                .unwrap_or(DEFAULT_SUB_BUCKETS),
            edge: match edge.map(|edge| edge.value) {
                Some("weighted") => Edge::Weighted,
                Some("drop") => Edge::Drop,
                _ => Edge::Full,
            },
        },
        _ => return None, // reported as an unknown word
    };
    Some(At::new(algorithm, at))
}

/// `limit = "N/period"`
fn limit(
    text: &At<&str>,
    named: Option<At<Algorithm>>,
    around: Surroundings<'_>,
    out: &mut Findings<'_>,
) -> Option<Quantity> {
    if let Some((number, word)) = text.value.split_once('/') {
        if let Some((name, word, seconds)) = WORDS.iter().find(|(name, _, _)| *name == word) {
            return by_word(text, number, name, *word, *seconds, named, around, out);
        }
    }
    let quota = quota(text, GRAMMAR, out)?;
    let phase = around.origin.phase(quota.per());
    let denials = around.denials;
    let windows =
        |window: Result<Window, Error>| window.map(|window| window.with_denials(denials).into());
    let named = named.map_or(Algorithm::Sliding, |named| named.value);
    let algorithm = match named {
        Algorithm::Sliding => windows(Window::two_window(quota, phase)),
        Algorithm::Fixed => windows(Window::fixed(quota, phase)),
        Algorithm::QuotaReset => windows(Window::quota_reset(quota)),
        Algorithm::SubBuckets { count, edge } => {
            let width = Nanos::from_nanos(quota.per().as_nanos().div_ceil(u64::from(count)));
            let phase = around.origin.phase(width);
            let window = SubBuckets::sub_buckets(quota, count, edge, phase);
            window.map(|window| window.with_denials(denials).into())
        }
        Algorithm::Gcra => Gcra::token_bucket(quota).map(|gcra| gcra.with_denials(denials).into()),
    };
    let kind = match named {
        Algorithm::Gcra => Kind::Bucket {
            permits: quota.permits(),
            per: quota.per(),
        },
        windows => Kind::Windows(windows),
    };
    let algorithm: AnyAlgorithm = built(algorithm, text, out)?;
    Some(Quantity {
        algorithm,
        quota: quota.permits(),
        window: Some(quota.per()),
        text: text.value.to_owned(),
        at: text.at.clone(),
        kind,
    })
}

/// `limit = "N/day"`
#[expect(
    clippy::too_many_arguments,
    reason = "one caller, which has just taken the text apart"
)]
fn by_word(
    text: &At<&str>,
    number: &str,
    name: &str,
    word: Word,
    seconds: Option<u64>,
    named: Option<At<Algorithm>>,
    around: Surroundings<'_>,
    out: &mut Findings<'_>,
) -> Option<Quantity> {
    if let Some(named) = named.filter(|named| named.value != Algorithm::Fixed) {
        let message = format!("this algorithm cannot follow the calendar (\"{name}\")");
        let rolling = duration_of(name).map_or(String::new(), |per| {
            format!(
                ", or write limit = \"{}/{per}\" for a rolling {name}",
                shown(number)
            )
        });
        out.error(
            codes::ALGORITHM,
            named.at,
            message,
            "calendar periods are counted by \"fixed\"",
        )
        .help(format!("remove `algorithm`{rolling}"));
    }
    let permits = match permits(number) {
        Ok(permits) => permits,
        Err(error) => {
            refuse(error, text, GRAMMAR, out);
            return None;
        }
    };
    let zone = match around.zone {
        Zone::Set(zone) => zone.clone(),
        Zone::Refused => return None,
        Zone::Unset => {
            let rolling = match duration_of(name) {
                Some(per) => format!(", or write \"{permits}/{per}\" for a rolling {name}"),
                None => String::new(),
            };
            out.error(
                codes::NO_ZONE,
                text.at.clone(),
                "calendar limit without a time zone",
                format!("\"{name}\" is a calendar {name}, but no time zone is set"),
            )
            .help(format!("add `timezone = \"UTC\"` at the top{rolling}"));
            return None;
        }
    };
    let window = Window::calendar(permits, calendar(word, zone, around.origin));
    let window = built(window, text, out)?.with_denials(around.denials);
    Some(Quantity {
        algorithm: window.into(),
        quota: permits,
        window: seconds.map(Nanos::from_secs),
        text: text.value.to_owned(),
        at: text.at.clone(),
        kind: Kind::Calendar(word),
    })
}

/// The duration that is as long as a word of the calendar.
fn duration_of(word: &str) -> Option<&'static str> {
    match word {
        "hour" => Some("1h"),
        "day" => Some("24h"),
        "week" => Some("7d"),
        "month" => Some("30d"),
        "year" => Some("365d"),
        _ => None,
    }
}

/// `bucket = { size, refill }`
fn bucket(
    table: &At<&DeTable<'_>>,
    around: Surroundings<'_>,
    out: &mut Findings<'_>,
) -> Option<Quantity> {
    let size = read::number(table.value, "size", u64::from(u32::MAX));
    let refill = read::text(table.value, "refill")?;
    let example = "write a number and a duration, as in refill = \"10/1s\"";
    let quota = quota(&refill, example, out)?;
    let size = Permits::saturating_from(size?.value);
    let quota = built(quota.with_burst(size), &refill, out)?;
    let gcra = built(Gcra::token_bucket(quota), &refill, out)?.with_denials(around.denials);
    Some(Quantity {
        algorithm: gcra.into(),
        quota: size,
        window: Some(quota.time_for(size)),
        text: format!("bucket of {size}, {}", refill.value),
        at: refill.at,
        kind: Kind::Bucket {
            permits: quota.permits(),
            per: quota.per(),
        },
    })
}

/// `spacing = "200ms"`
fn spacing(text: &At<&str>, around: Surroundings<'_>, out: &mut Findings<'_>) -> Option<Quantity> {
    let gap = match text.value.parse::<Nanos>() {
        Ok(gap) => gap,
        Err(error) => {
            let message = format!("\"{}\" is no time between requests", shown(text.value));
            let help = match span_like(text.value) {
                Some(span) => format!("write spacing = \"{span}\""),
                None => "write a whole number and ns, us, ms, s, m, h, d or w, as in spacing = \"200ms\"".into(),
            };
            out.error(codes::SPAN, text.at.clone(), message, error.to_string())
                .help(help);
            return None;
        }
    };
    let gcra = built(Gcra::spacing(gap), text, out)?.with_denials(around.denials);
    Some(Quantity {
        algorithm: gcra.into(),
        quota: Permits::ONE,
        window: Some(gap),
        text: format!("1 every {}", text.value),
        at: text.at.clone(),
        kind: Kind::Bucket {
            permits: Permits::ONE,
            per: gap,
        },
    })
}

/// Reads `100/1m`.
fn quota(text: &At<&str>, grammar: &str, out: &mut Findings<'_>) -> Option<Quota> {
    text.value
        .parse()
        .map_err(|error| refuse(error, text, grammar, out))
        .ok()
}

fn permits(number: &str) -> Result<Permits, Error> {
    if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Error::Quota);
    }
    match number.parse() {
        Ok(0) => Err(Error::NoPermits),
        Ok(number) => Ok(Permits::new(number)),
        Err(_) => Err(Error::TooManyPermits),
    }
}

/// What core has built, or a finding at the value that it refused.
fn built<T>(result: Result<T, Error>, text: &At<&str>, out: &mut Findings<'_>) -> Option<T> {
    result
        .map_err(|error| refuse(error, text, GRAMMAR, out))
        .ok()
}

/// Reports why core refuses a number.
fn refuse(error: Error, text: &At<&str>, grammar: &str, out: &mut Findings<'_>) {
    let value = shown(text.value);
    let (code, help) = match error {
        Error::Quota | Error::Span => {
            let help = match quota_like(text.value) {
                Some(meant) => format!("write \"{meant}\""),
                None => grammar.to_owned(),
            };
            (codes::QUOTA, help)
        }
        Error::NoPermits => (
            codes::NOT_COUNTABLE,
            "write at least 1; to refuse everything, let the application or the proxy do it".into(),
        ),
        Error::NoSpan => (codes::NOT_COUNTABLE, "write for example \"100/1m\"".into()),
        Error::TooFast => (
            codes::NOT_COUNTABLE,
            "write a lower number; a limit this fast is never reached".into(),
        ),
        Error::TooLong | Error::SpanTooLong | Error::WindowTooLong => (
            codes::NOT_COUNTABLE,
            "write a shorter period, or a smaller bucket that refills faster".into(),
        ),
        Error::TooManyPermits => (
            codes::NOT_COUNTABLE,
            "count in larger units: 4,294,967,295 is the most".into(),
        ),
        Error::SubBuckets => (
            codes::NOT_COUNTABLE,
            "write fewer sub-buckets, or a longer period".into(),
        ),
        _ => (codes::NOT_COUNTABLE, grammar.to_owned()),
    };
    let message = match code {
        codes::QUOTA => format!("\"{value}\" is no number in a period"),
        _ => format!("\"{value}\" cannot be kept"),
    };
    out.error(code, text.at.clone(), message, label(error))
        .help(help);
}

/// Why, in a few words; core says it for those who have no file to point at.
fn label(error: Error) -> String {
    match error {
        Error::Quota | Error::Span => "not NUMBER/PERIOD".into(),
        other => other.to_string(),
    }
}

/// The quota that was probably meant: `5 per minute`, `5/min`, `5r/s`, `100 / 1m`.
fn quota_like(text: &str) -> Option<String> {
    let text = text.trim().to_lowercase();
    let digits: String = text
        .chars()
        .filter(|c| *c != '_' && *c != ',')
        .take_while(char::is_ascii_digit)
        .collect();
    let number: u32 = digits.parse().ok().filter(|number| *number > 0)?;
    let rest = text
        .trim_start_matches(|c: char| c.is_ascii_digit() || c == '_' || c == ',')
        .trim_start();
    let rest = ["requests", "reqs", "req", "r"]
        .iter()
        .find_map(|word| {
            rest.strip_prefix(word)
                .filter(|rest| !rest.starts_with(char::is_alphabetic))
        })
        .unwrap_or(rest)
        .trim_start();
    let rest = ["/", "per ", "every ", "in ", "a ", "an "]
        .iter()
        .find_map(|word| rest.strip_prefix(word))?;
    Some(format!("{number}/{}", span_like(rest)?))
}

/// The span that was probably meant: `minute`, `10 seconds`, `1 m`.
fn span_like(text: &str) -> Option<String> {
    let text = text.trim().to_lowercase();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let unit = match unit.trim() {
        "ns" | "nanosecond" | "nanoseconds" => "ns",
        "us" | "microsecond" | "microseconds" => "us",
        "ms" | "msec" | "millisecond" | "milliseconds" => "ms",
        "s" | "sec" | "secs" | "second" | "seconds" => "s",
        "m" | "min" | "mins" | "minute" | "minutes" => "m",
        "h" | "hr" | "hrs" | "hours" => "h",
        "d" | "days" => "d",
        "w" | "weeks" => "w",
        "hour" | "day" | "week" | "month" | "year" if number.is_empty() => {
            return Some(unit.trim().to_owned());
        }
        "hour" => "h",
        "day" => "d",
        "week" => "w",
        _ => return None,
    };
    let number = if number.is_empty() { "1" } else { number };
    number.parse::<u32>().ok().filter(|number| *number > 0)?;
    Some(format!("{number}{unit}"))
}
